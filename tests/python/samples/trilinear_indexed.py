"""trilinear_indexed and trilinear_indexed_with_grad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cppcuda
import torch
from cppcuda.testing.samples import FLOAT_DTYPES, BadInput, OpEntry, Spec, T, register, with_layouts, zeros
from hypothesis import strategies as st
from torch import Tensor

# ---------------------------------------------------------------- references


def corner_features(table: Tensor, corners: Tensor) -> Tensor:
    """[..., N, 8, F]: the rows of the table, and a row of zeros for each missing vertex."""
    size, features = table.shape[-2], table.shape[-1]
    with_zeros = torch.cat([table, table.new_zeros(*table.shape[:-2], 1, features)], -2)
    rows = torch.where(corners < 0, size, corners.long()).flatten(-2)
    found = with_zeros.gather(-2, rows.unsqueeze(-1).expand(*rows.shape, features))
    return found.unflatten(-2, (rows.shape[-1] // 8, 8))


def _interpolated(table: Tensor, corners: Tensor, points: Tensor, differentiated: int | None = None) -> Tensor:
    """Linear interpolation along one axis after another; along one of them, its derivative."""
    t = (points + 1) / 2
    values = corner_features(table, corners).unflatten(-2, (2, 2, 2))
    for d in range(3):
        s = t.select(-1, d).reshape(*t.shape[:-1], *[1] * (3 - d))  # [..., N], broadcast over the remaining axes
        near, far = values.select(-4 + d, 0), values.select(-4 + d, 1)
        values = (far - near) / 2 if d == differentiated else near * (1 - s) + far * s
    return values


def trilinear_indexed_reference(table: Tensor, corners: Tensor, points: Tensor) -> Tensor:
    return _interpolated(table, corners, points)


def with_grad_reference(table: Tensor, corners: Tensor, points: Tensor) -> tuple[Tensor, Tensor]:
    derivatives = [_interpolated(table, corners, points, axis) for axis in range(3)]
    return _interpolated(table, corners, points), torch.stack(derivatives, -1)


def embedding_bag(table: Tensor, corners: Tensor, points: Tensor) -> Tensor | None:
    """A bag of eight rows with weights for each point. A missing vertex is the padding."""
    if corners.numel() == 0 or table.numel() == 0:
        return None
    size, features = table.shape[-2], table.shape[-1]
    far = (points + 1) / 2
    x, y, z = torch.stack([1 - far, far], -1).unbind(-2)
    weights = torch.einsum("...i,...j,...k->...ijk", x, y, z).reshape(-1, 8)
    with_padding = torch.cat([table, table.new_ones(*table.shape[:-2], 1, features)], -2)
    batches = 1 if table.dim() == 2 else table.shape[0]
    rows = torch.where(corners < 0, size, corners.long()).reshape(batches, -1, 8)
    outputs = [
        torch.nn.functional.embedding_bag(r, t, mode="sum", per_sample_weights=w, padding_idx=size)
        for r, t, w in zip(
            rows, with_padding.reshape(batches, -1, features), weights.reshape(batches, -1, 8), strict=True
        )
    ]
    return torch.cat(outputs).reshape(*points.shape[:-1], features)


def backward_reference(
    grad: Tensor, table: Tensor | None, corners: Tensor, points: Tensor, size: list[int], output_mask: list[bool]
) -> tuple[Tensor, ...]:
    if table is None:  # the gradient of table does not read table
        table = grad.new_zeros(*corners.shape[:-2], *size, grad.shape[-1])
    _, vjp = torch.func.vjp(lambda t, p: trilinear_indexed_reference(t, corners, p), table, points)
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(vjp(grad), output_mask, strict=True))


def double_backward_reference(
    grad: Tensor,
    table: Tensor | None,
    corners: Tensor,
    points: Tensor,
    grad_grad_table: Tensor | None,
    grad_grad_points: Tensor,
    size: list[int],
    output_mask: list[bool],
) -> tuple[Tensor, ...]:
    like_table = grad.new_zeros(*corners.shape[:-2], *size, grad.shape[-1])
    _, vjp = torch.func.vjp(
        lambda g, t, p: backward_reference(g, t, corners, p, size, [True, True]),
        grad,
        like_table if table is None else table,  # the gradient of table does not read table
        points,
    )
    gradients = vjp((like_table if grad_grad_table is None else grad_grad_table, grad_grad_points))
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(gradients, output_mask, strict=True))


# ---------------------------------------------------------------- samples


def random_corners(*batch: int, size: int, dtype: torch.dtype = torch.int64, seed: int = 0) -> T:
    """Rows of a table of this size and missing vertices: each row has the same probability as -1."""
    generator = torch.Generator().manual_seed(seed)
    value = torch.randint(-1, size, (*batch, 8), generator=generator, dtype=dtype)
    return T(tuple(value.shape), value=value)


def _fixed_corners(*batch: int, row: int) -> T:
    return T((*batch, 8), value=torch.full((*batch, 8), row))


def _args(*batch: int, f: int, v: int, corners: T | None = None) -> tuple[Any, ...]:
    return T((*batch[:-1], v, f)), corners or random_corners(*batch, size=v), T((*batch, 3), wide=True)


def _backward_args(
    *batch: int, f: int, v: int, corners: T | None = None, table: bool = True, mask: tuple[bool, bool] = (True, True)
) -> tuple[Any, ...]:
    given, index, points = _args(*batch, f=f, v=v, corners=corners)
    return T((*batch, f)), given if table else None, index, points, [v], list(mask)


def _double_backward_args(
    *batch: int,
    f: int,
    v: int,
    corners: T | None = None,
    table: bool = True,
    grad_grad_table: bool = True,
    mask: tuple[bool, ...] = (True, True, True),
) -> tuple[Any, ...]:
    given, index, points = _args(*batch, f=f, v=v, corners=corners)
    second = given if grad_grad_table else None
    return T((*batch, f)), given if table else None, index, points, second, points, [v], list(mask)


_SIZES: dict[str, dict[str, Any]] = {
    **{f"features_{f}": {"batch": (5,), "f": f, "v": 7} for f in (1, 3, 4, 8, 32, 33, 65)},
    "no_rows": {"batch": (0,), "f": 4, "v": 7},
    "no_features": {"batch": (5,), "f": 0, "v": 7},
    "one": {"batch": (1,), "f": 1, "v": 1},
    "one_vertex": {"batch": (9,), "f": 3, "v": 1},
    "no_vertices": {"batch": (5,), "f": 3, "v": 0},
    "all_missing": {"batch": (5,), "f": 3, "v": 7, "corners": _fixed_corners(5, row=-1)},
    "the_last_vertex_only": {"batch": (5,), "f": 3, "v": 7, "corners": _fixed_corners(5, row=6)},
    "many_rows": {"batch": (1031,), "f": 5, "v": 60},
    "large_table": {"batch": (7,), "f": 5, "v": 3000},
    "int32": {"batch": (33,), "f": 6, "v": 20, "corners": random_corners(33, size=20, dtype=torch.int32)},
    "batch": {"batch": (2, 5), "f": 3, "v": 7},
    "batch_of_one": {"batch": (1, 5), "f": 8, "v": 3},
    "no_batches": {"batch": (0, 5), "f": 3, "v": 7},
    "batch_without_rows": {"batch": (2, 0), "f": 3, "v": 7},
    "batch_of_one_row_each": {"batch": (3, 1), "f": 4, "v": 2},
}
_SOME_SIZES = ("features_1", "features_33", "no_rows", "no_features", "no_vertices", "many_rows", "batch", "no_batches")

_MASKS = {"table": (True, False), "points": (False, True), "neither": (False, False)}
_DOUBLE_MASKS = {
    "grad": (True, False, False),
    "table": (False, True, False),
    "points": (False, False, True),
    "none": (False, False, False),
}
_BATCH: dict[str, Any] = {"f": 3, "v": 4, "corners": random_corners(2, 2, size=4, dtype=torch.int32)}


def _of_size(make: Any, name: str, **kwargs: Any) -> tuple[Any, ...]:
    size = dict(_SIZES[name])
    return make(*size.pop("batch"), **size, **kwargs)


def _layouts(args: tuple[Any, ...], *alone: int) -> Iterator[Spec]:
    """Every layout on all tensors together, and on some of them alone."""
    for spec in with_layouts(args):
        which = spec.name.rpartition("_")[2]
        if spec.name == "expanded_last_all":
            # All corners of a voxel would be one vertex, and the slopes of the weights cancel.
            tensors = [t for t in args if isinstance(t, T)]
            layouts = (None if t.value is not None else s for t, s in zip(tensors, spec.layouts, strict=True))
            yield Spec(spec.name, args, "stride", tuple(layouts))
        elif which == "all" or which in map(str, alone):
            yield spec


def _forward_specs() -> Iterator[Spec]:
    yield Spec("basic", _args(3, f=2, v=5), "basic")
    yield Spec("basic_batch", _args(2, 2, **_BATCH), "basic")
    for name in _SIZES:
        yield Spec(name, _of_size(_args, name))
    yield from _layouts(_args(3, 4, f=8, v=6), 0, 1)


def _with_grad_specs() -> Iterator[Spec]:
    # Second derivatives are composed of torch's operators, with which DTensor needs as many rows in each process.
    yield Spec("basic", _args(4, f=2, v=6), "basic")
    for name in _SIZES:
        yield Spec(name, _of_size(_args, name))
    yield from _layouts(_args(3, 4, f=8, v=6))


def _backward_specs() -> Iterator[Spec]:
    yield Spec("basic", _backward_args(3, f=2, v=5), "basic")
    yield Spec("basic_without_table", _backward_args(3, f=2, v=5, table=False, mask=_MASKS["table"]), "basic")
    for name, mask in _MASKS.items():
        yield Spec(f"only_{name}", _backward_args(3, f=2, v=5, mask=mask))
    for name in _SIZES:
        yield Spec(name, _of_size(_backward_args, name))
    for name in _SOME_SIZES:
        yield Spec(f"{name}_without_table", _of_size(_backward_args, name, table=False, mask=_MASKS["table"]))
    yield from _layouts(_backward_args(3, 4, f=8, v=6))


def _double_backward_specs() -> Iterator[Spec]:
    yield Spec("basic", _double_backward_args(2, f=2, v=4), "basic")
    yield Spec("of_points", _double_backward_args(3, f=2, v=5, grad_grad_table=False))
    yield Spec("without_table", _double_backward_args(3, f=2, v=5, table=False, mask=_DOUBLE_MASKS["table"]))
    for name, mask in _DOUBLE_MASKS.items():
        yield Spec(f"only_{name}", _double_backward_args(3, f=2, v=5, mask=mask))
    for name in _SOME_SIZES:
        yield Spec(name, _of_size(_double_backward_args, name))
    yield from _layouts(_double_backward_args(3, 4, f=8, v=6))


@st.composite
def _batches_and_sizes(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    batch = (*draw(st.sampled_from([(), (1,), (2,), (3,)])), draw(st.integers(0, 9)))
    v = draw(st.integers(0, 20))
    dtype = draw(st.sampled_from([torch.int32, torch.int64]))
    corners = random_corners(*batch, size=v, dtype=dtype, seed=draw(st.integers(0, 2**16)))
    return batch, {"f": draw(st.integers(0, 35)), "v": v, "corners": corners}


@st.composite
def _arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    batch, sizes = draw(_batches_and_sizes())
    return _args(*batch, **sizes)


@st.composite
def _backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    batch, sizes = draw(_batches_and_sizes())
    mask = draw(st.tuples(st.booleans(), st.booleans()))
    return _backward_args(*batch, **sizes, table=mask[1] or draw(st.booleans()), mask=mask)


@st.composite
def _double_backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    batch, sizes = draw(_batches_and_sizes())
    mask = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    table = mask[0] or mask[2] or draw(st.booleans())
    return _double_backward_args(*batch, **sizes, table=table, grad_grad_table=draw(st.booleans()), mask=mask)


# ---------------------------------------------------------------- bad inputs (test_trilinear_indexed.py: values)

Sizes = tuple[int, ...]
F64, F32, F16, BF16 = FLOAT_DTYPES
I64 = torch.int64


def _bad_forward(op: str) -> Iterator[BadInput]:
    def shapes(name: str, table: Sizes, corners: Sizes, points: Sizes, message: str) -> BadInput:
        return BadInput(name, lambda: zeros(table, corners, points, dtypes=(F32, I64, F32)), f"{op}: {message}")

    def dtypes(name: str, table: torch.dtype, corners: torch.dtype, points: torch.dtype, message: str) -> BadInput:
        sizes = ((6, 4), (5, 8), (5, 3))
        return BadInput(name, lambda: zeros(*sizes, dtypes=(table, corners, points)), f"{op}: {message}")

    expected = "table must be [V, F] or [B, V, F], got"
    yield shapes("table_rank_0", (), (5, 8), (5, 3), f"{expected} []")
    yield shapes("table_rank_1", (6,), (5, 8), (5, 3), f"{expected} [6]")
    yield shapes("table_rank_4", (1, 1, 6, 4), (5, 8), (5, 3), f"{expected} [1, 1, 6, 4]")
    yield shapes("corners_rank_1", (6, 4), (8,), (5, 3), "corners must be [N, 8], got [8]")
    yield shapes("corners_batched", (6, 4), (1, 5, 8), (5, 3), "corners must be [N, 8], got [1, 5, 8]")
    yield shapes("corners_not_batched", (1, 6, 4), (5, 8), (1, 5, 3), "corners must be [B, N, 8], got [5, 8]")
    yield shapes("seven_corners", (6, 4), (5, 7), (5, 3), "corners must be [N, 8], got [5, 7]")
    yield shapes("two_by_two_by_two", (6, 4), (5, 2, 2, 2), (5, 3), "corners must be [N, 8], got [5, 2, 2, 2]")
    yield shapes("points_batched", (6, 4), (5, 8), (1, 5, 3), "points must be [N, 3], got [1, 5, 3]")
    yield shapes("points_last_dim", (6, 4), (5, 8), (5, 4), "points must be [N, 3], got [5, 4]")
    yield shapes("rows", (6, 4), (5, 8), (6, 3), "points must be [N, 3] with N = 5, got [6, 3]")
    yield shapes("one_point", (6, 4), (5, 8), (1, 3), "points must be [N, 3] with N = 5, got [1, 3]")
    yield shapes(
        "batch_of_corners", (2, 6, 4), (3, 5, 8), (2, 5, 3), "corners must be [B, N, 8] with B = 2, got [3, 5, 8]"
    )
    yield shapes(
        "batch_of_points", (2, 6, 4), (2, 5, 8), (1, 5, 3), "points must be [B, N, 3] with B = 2, got [1, 5, 3]"
    )
    yield dtypes("f32_corners", F32, F32, F32, "corners must be of dtype int32 or int64, got float32")
    yield dtypes("uint8_corners", F32, torch.uint8, F32, "corners must be of dtype int32 or int64, got uint8")
    yield dtypes("bool_corners", F32, torch.bool, F32, "corners must be of dtype int32 or int64, got bool")
    yield dtypes("int_table", I64, I64, F32, "table must be of dtype float64, float32, float16 or bfloat16, got int64")
    expected = "points must be of dtype"
    yield dtypes("f32_f64", F32, I64, F64, f"{expected} float32, the dtype of table, got float64")
    yield dtypes("f64_f32", F64, I64, F32, f"{expected} float64, the dtype of table, got float32")
    yield dtypes("f16_bf16", F16, I64, BF16, f"{expected} float16, the dtype of table, or float32, got bfloat16")
    yield dtypes("bf16_f64", BF16, I64, F64, f"{expected} bfloat16, the dtype of table, or float32, got float64")


def _bad_backward() -> Iterator[BadInput]:
    def bad(
        name: str,
        message: str,
        grad: Sizes = (5, 4),
        table: Sizes = (6, 4),
        corners: Sizes = (5, 8),
        points: Sizes = (5, 3),
        dtypes: tuple[torch.dtype, ...] = (F32, F32, I64, F32),
        size: tuple[int, ...] = (6,),
        mask: tuple[bool, ...] = (True, True),
    ) -> BadInput:
        return BadInput(
            name,
            lambda: (*zeros(grad, table, corners, points, dtypes=dtypes), list(size), list(mask)),
            f"_trilinear_indexed_backward: {message}",
        )

    yield bad("mask_of_one", "output_mask must have 2 entries, got 1", mask=(True,))
    yield bad("mask_of_three", "output_mask must have 2 entries, got 3", mask=(True, True, True))
    yield bad("grad_rank", "grad must be [N, F] or [B, N, F], got [4]", grad=(4,))
    yield bad("table_rank", "table must be [V, F], got [6]", table=(6,))
    yield bad("table_size", "table must be [V, F] with V = 6, got [7, 4]", table=(7, 4))
    yield bad("features", "table must be [V, F] with F = 4, got [6, 3]", table=(6, 3))
    yield bad("seven_corners", "corners must be [N, 8], got [5, 7]", corners=(5, 7))
    yield bad("corners_rows", "corners must be [N, 8] with N = 5, got [4, 8]", corners=(4, 8))
    yield bad("points_rows", "points must be [N, 3] with N = 5, got [4, 3]", points=(4, 3))
    yield bad("two_sizes", "size must be [V], got [6, 6]", size=(6, 6))
    yield bad("corners_dtype", "corners must be of dtype int32 or int64, got float32", dtypes=(F32, F32, F32, F32))
    yield bad(
        "table_dtype", "table must be of dtype float32, the dtype of grad, got float64", dtypes=(F32, F64, I64, F32)
    )
    yield bad(
        "points_dtype",
        "points must be of dtype bfloat16, the dtype of grad, or float32, got float64",
        dtypes=(BF16, BF16, I64, F64),
    )
    yield BadInput(
        "table_missing",
        lambda: (
            torch.zeros(5, 4),
            None,
            torch.zeros(5, 8, dtype=I64),
            torch.zeros(5, 3),
            [6],
            [False, True],
        ),
        "_trilinear_indexed_backward: table must be a Tensor if the gradient of points is requested, got None",
    )


def _bad_double_backward() -> Iterator[BadInput]:
    op = "_trilinear_indexed_double_backward"
    grad, table, corners, points = (5, 4), (6, 4), (5, 8), (5, 3)

    def bad(
        name: str,
        message: str,
        grad_grad_table: Sizes = table,
        grad_grad_points: Sizes = points,
        dtypes: tuple[torch.dtype, ...] = (F32, F32, I64, F32, F32, F32),
        mask: tuple[bool, ...] = (True, True, True),
    ) -> BadInput:
        shapes = (grad, table, corners, points, grad_grad_table, grad_grad_points)
        return BadInput(name, lambda: (*zeros(*shapes, dtypes=dtypes), [6], list(mask)), f"{op}: {message}")

    yield bad("mask_of_two", "output_mask must have 3 entries, got 2", mask=(True, True))
    yield bad(
        "grad_grad_table_size",
        "grad_grad_table must be [V, F] with V = 6, got [5, 4]",
        grad_grad_table=(5, 4),
    )
    yield bad(
        "grad_grad_points_rows",
        "grad_grad_points must be [N, 3] with N = 5, got [6, 3]",
        grad_grad_points=(6, 3),
    )
    yield bad(
        "grad_grad_points_dtype",
        "grad_grad_points must be of dtype float32, the dtype of points, got bfloat16",
        dtypes=(BF16, BF16, I64, F32, BF16, BF16),
    )
    yield bad(
        "corners_dtype",
        "corners must be of dtype int32 or int64, got int16",
        dtypes=(F32, F32, torch.int16, F32, F32, F32),
    )
    for output, mask in (("grad", _DOUBLE_MASKS["grad"]), ("points", _DOUBLE_MASKS["points"])):
        yield BadInput(
            f"table_missing_for_{output}",
            lambda mask=mask: (
                *zeros(grad),
                None,
                *zeros(corners, points, table, points, dtypes=(I64, F32, F32, F32)),
                [6],
                list(mask),
            ),
            f"{op}: table must be a Tensor if the gradient of {output} is requested, got None",
        )


# ---------------------------------------------------------------- entries; V = 10 is no number of rows

register(
    OpEntry(
        name="cppcuda::trilinear_indexed",
        mechanism="indexed row",
        reference=trilinear_indexed_reference,
        oracles=(embedding_bag,),
        specs=tuple(_forward_specs()),
        sized=lambda n: _args(n, f=16, v=10),
        arguments=_arguments(),
        bad_inputs=tuple(_bad_forward("trilinear_indexed")),
        output_like=("table",),
        function=cppcuda.functional.trilinear_indexed,
        module=cppcuda.nn.TrilinearIndexed,
        autocast_dtype=lambda dtypes, autocast: dtypes[0],
        saved_for={0: {1}, 1: {0, 1}},
        deterministic_on_cuda=False,
        backward=OpEntry(
            name="cppcuda::_trilinear_indexed_backward",
            reference=backward_reference,
            specs=tuple(_backward_specs()),
            sized=lambda n: _backward_args(n, f=16, v=10),
            arguments=_backward_arguments(),
            bad_inputs=tuple(_bad_backward()),
            output_like=("grad", "points"),
            autocast_policy=False,
            saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
            deterministic_on_cuda=False,
        ),
    )
)
register(
    OpEntry(
        name="cppcuda::_trilinear_indexed_double_backward",
        reference=double_backward_reference,
        specs=tuple(_double_backward_specs()),
        sized=lambda n: _double_backward_args(n, f=16, v=10),
        arguments=_double_backward_arguments(),
        bad_inputs=tuple(_bad_double_backward()),
        output_like=("grad", "grad", "points"),
        autocast_policy=False,
        compiled=False,  # compiled second derivatives of trilinear_indexed and its backward operator call it
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
        deterministic_on_cuda=False,
    )
)
register(
    OpEntry(
        name="cppcuda::trilinear_indexed_with_grad",
        mechanism="indexed row",
        reference=with_grad_reference,
        specs=tuple(_with_grad_specs()),
        sized=lambda n: _args(n, f=16, v=10),
        arguments=_arguments(),
        bad_inputs=tuple(_bad_forward("trilinear_indexed_with_grad")),
        output_like=("table", "table"),
        function=cppcuda.functional.trilinear_indexed_with_grad,
        module=cppcuda.nn.TrilinearIndexedWithGrad,
        autocast_dtype=lambda dtypes, autocast: (dtypes[0], dtypes[0]),
        saved_for={0: {1}, 1: {0, 1}},
        deterministic_on_cuda=False,
    )
)
