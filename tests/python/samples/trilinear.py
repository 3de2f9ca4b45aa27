"""trilinear."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cppcuda
import torch
from cppcuda.testing.samples import FLOAT_DTYPES, BadInput, OpEntry, Spec, T, register, with_layouts, zeros
from hypothesis import strategies as st
from torch import Tensor


def trilinear_reference(feats: Tensor, points: Tensor) -> Tensor:
    """Linear interpolation along one axis after another."""
    t = (points + 1) / 2
    corners = feats.unflatten(-2, (2, 2, 2))
    for d in range(3):
        s = t.select(-1, d).reshape(*t.shape[:-1], *[1] * (3 - d))  # [..., N], broadcast over the remaining axes
        corners = corners.select(-4 + d, 0) * (1 - s) + corners.select(-4 + d, 1) * s
    return corners


def trilinear_grid_sample(feats: Tensor, points: Tensor) -> Tensor | None:
    """Uses one 2x2x2 volume per point; grid_sample's x is the last axis. grid_sample does not extrapolate."""
    if feats.numel() == 0:
        return None
    volumes = feats.reshape(-1, 2, 2, 2, feats.shape[-1]).movedim(-1, 1)  # [N, F, 2, 2, 2]
    inside = points.reshape(-1, 1, 1, 1, 3).flip(-1)
    out = torch.nn.functional.grid_sample(volumes, inside, mode="bilinear", align_corners=True)
    out = out.reshape(*feats.shape[:-2], feats.shape[-1])
    outside = (points.abs() > 1).any(-1, keepdim=True)
    return torch.where(outside, trilinear_reference(feats, points), out)


def trilinear_backward_reference(
    grad: Tensor, feats: Tensor | None, points: Tensor, output_mask: list[bool]
) -> tuple[Tensor, Tensor]:
    if feats is None:  # the gradient of feats does not read feats
        feats = grad.unsqueeze(-2).expand(*grad.shape[:-1], 8, grad.shape[-1])
    _, vjp = torch.func.vjp(trilinear_reference, feats, points)
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(vjp(grad), output_mask, strict=True))


def trilinear_double_backward_reference(
    grad: Tensor,
    feats: Tensor | None,
    points: Tensor,
    grad_grad_feats: Tensor | None,
    grad_grad_points: Tensor,
    output_mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    like_feats = grad.unsqueeze(-2).expand(*grad.shape[:-1], 8, grad.shape[-1])
    _, vjp = torch.func.vjp(
        lambda g, x, p: trilinear_backward_reference(g, x, p, [True, True]),
        grad,
        like_feats if feats is None else feats,  # the gradient of feats does not read feats
        points,
    )
    zeros = torch.zeros_like(like_feats)
    gradients = vjp((zeros if grad_grad_feats is None else grad_grad_feats, grad_grad_points))
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(gradients, output_mask, strict=True))


def _trilinear_args(*batch: int, f: int) -> tuple[T, T]:
    return T((*batch, 8, f)), T((*batch, 3), wide=True)


def _trilinear_backward_args(
    *batch: int, f: int, feats: bool = True, mask: tuple[bool, bool] = (True, True)
) -> tuple[Any, ...]:
    return T((*batch, f)), T((*batch, 8, f)) if feats else None, T((*batch, 3), wide=True), list(mask)


def _trilinear_double_backward_args(
    *batch: int, f: int, feats: bool = True, grad_grad_feats: bool = True, mask: tuple[bool, ...] = (True, True, True)
) -> tuple[Any, ...]:
    corners, coordinates = T((*batch, 8, f)), T((*batch, 3), wide=True)
    second = corners if grad_grad_feats else None
    return T((*batch, f)), corners if feats else None, coordinates, second, coordinates, list(mask)


_TRILINEAR_SIZES: dict[str, tuple[tuple[int, ...], int]] = {
    **{f"features_{f}": ((5,), f) for f in (1, 2, 3, 4, 7, 8, 32, 33, 64, 257)},
    "no_rows": ((0,), 4),
    "no_features": ((5,), 0),
    "one": ((1,), 1),
    "many_rows": ((1031,), 5),
    "batch": ((2, 5), 3),
    "batch_of_one": ((1, 5), 8),
    "no_batches": ((0, 5), 3),
    "batch_without_rows": ((2, 0), 3),
    "batch_of_one_row_each": ((3, 1), 4),
}

_DOUBLE_MASKS = {
    "grad": (True, False, False),
    "feats": (False, True, False),
    "points": (False, False, True),
    "none": (False, False, False),
}
_MASKS = {"both": (True, True), "feats": (True, False), "points": (False, True), "neither": (False, False)}


def _trilinear_specs() -> Iterator[Spec]:
    yield Spec("basic", _trilinear_args(3, f=2), "basic")
    yield Spec("basic_batch", _trilinear_args(2, 2, f=3), "basic")
    for name, (batch, f) in _TRILINEAR_SIZES.items():
        yield Spec(name, _trilinear_args(*batch, f=f))
    yield from with_layouts(_trilinear_args(3, 4, f=8))


def _trilinear_backward_specs() -> Iterator[Spec]:
    for name, mask in _MASKS.items():
        tag = "basic" if any(mask) else "shape"
        yield Spec(f"basic_{name}", _trilinear_backward_args(3, f=2, mask=mask), tag)
    yield Spec("basic_without_feats", _trilinear_backward_args(3, f=2, feats=False, mask=(True, False)), "basic")
    yield Spec("basic_batch", _trilinear_backward_args(2, 2, f=2), "basic")
    for name, (batch, f) in _TRILINEAR_SIZES.items():
        yield Spec(name, _trilinear_backward_args(*batch, f=f))
        yield Spec(f"{name}_without_feats", _trilinear_backward_args(*batch, f=f, feats=False, mask=(True, False)))
    yield from with_layouts(_trilinear_backward_args(3, 4, f=8))


def _trilinear_double_backward_specs() -> Iterator[Spec]:
    args = _trilinear_double_backward_args
    yield Spec("basic_all", args(3, f=2), "basic")
    yield Spec("basic_of_points", args(2, 2, f=2, grad_grad_feats=False), "basic")
    yield Spec("without_feats", args(3, f=2, feats=False, mask=_DOUBLE_MASKS["feats"]))
    for name, mask in _DOUBLE_MASKS.items():
        yield Spec(f"only_{name}", args(3, f=2, mask=mask))
    for name in (
        "features_1",
        "features_7",
        "features_8",
        "features_33",
        "no_rows",
        "no_features",
        "many_rows",
        "batch",
    ):
        batch, f = _TRILINEAR_SIZES[name]
        yield Spec(name, args(*batch, f=f))
    yield from with_layouts(args(3, 4, f=8))


@st.composite
def _trilinear_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    batch = draw(st.sampled_from([(), (1,), (2,), (3,)]))
    return _trilinear_args(*batch, draw(st.integers(0, 9)), f=draw(st.integers(0, 35)))


@st.composite
def _trilinear_backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    batch = (*draw(st.sampled_from([(), (1,), (2,), (3,)])), draw(st.integers(0, 9)))
    mask = draw(st.tuples(st.booleans(), st.booleans()))
    feats = mask[1] or draw(st.booleans())
    return _trilinear_backward_args(*batch, f=draw(st.integers(0, 35)), feats=feats, mask=mask)


@st.composite
def _trilinear_double_backward_arguments(draw: st.DrawFn) -> tuple[Any, ...]:
    batch = (*draw(st.sampled_from([(), (1,), (2,), (3,)])), draw(st.integers(0, 9)))
    mask = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
    feats = mask[0] or mask[2] or draw(st.booleans())
    return _trilinear_double_backward_args(
        *batch, f=draw(st.integers(0, 35)), feats=feats, grad_grad_feats=draw(st.booleans()), mask=mask
    )


def _bad_trilinear() -> Iterator[BadInput]:
    feats_expected = "trilinear: feats must be [N, 8, F] or [B, N, 8, F], got"
    f64, f32, f16, bf16 = FLOAT_DTYPES

    def shapes(name: str, feats: tuple[int, ...], points: tuple[int, ...], message: str) -> BadInput:
        return BadInput(name, lambda: zeros(feats, points), message)

    def dtypes(name: str, feats: torch.dtype, points: torch.dtype, message: str) -> BadInput:
        return BadInput(name, lambda: zeros((5, 8, 4), (5, 3), dtypes=(feats, points)), message)

    yield shapes("feats_rank_0", (), (5, 3), f"{feats_expected} []")
    yield shapes("feats_rank_2", (8, 4), (5, 3), f"{feats_expected} [8, 4]")
    yield shapes("feats_rank_5", (1, 1, 5, 8, 4), (5, 3), f"{feats_expected} [1, 1, 5, 8, 4]")
    yield shapes("corners", (5, 7, 4), (5, 3), f"{feats_expected} [5, 7, 4]")
    yield shapes("corners_of_batch", (2, 5, 9, 4), (2, 5, 3), f"{feats_expected} [2, 5, 9, 4]")
    yield shapes("points_rank_1", (5, 8, 4), (3,), "trilinear: points must be [N, 3], got [3]")
    yield shapes("points_batched", (5, 8, 4), (1, 5, 3), "trilinear: points must be [N, 3], got [1, 5, 3]")
    yield shapes("points_not_batched", (1, 5, 8, 4), (5, 3), "trilinear: points must be [B, N, 3], got [5, 3]")
    yield shapes("points_last_dim", (5, 8, 4), (5, 4), "trilinear: points must be [N, 3], got [5, 4]")
    yield shapes("rows", (5, 8, 4), (6, 3), "trilinear: points must be [N, 3] with N = 5, got [6, 3]")
    yield shapes("one_row_is_not_many", (5, 8, 4), (1, 3), "trilinear: points must be [N, 3] with N = 5, got [1, 3]")
    yield shapes("batch", (2, 5, 8, 4), (3, 5, 3), "trilinear: points must be [B, N, 3] with B = 2, got [3, 5, 3]")
    expected = "trilinear: points must be of dtype"
    yield dtypes("f32_f64", f32, f64, f"{expected} float32, the dtype of feats, got float64")
    yield dtypes("f64_f32", f64, f32, f"{expected} float64, the dtype of feats, got float32")
    yield dtypes("f32_f16", f32, f16, f"{expected} float32, the dtype of feats, got float16")
    yield dtypes("f16_bf16", f16, bf16, f"{expected} float16, the dtype of feats, or float32, got bfloat16")
    yield dtypes("bf16_f64", bf16, f64, f"{expected} bfloat16, the dtype of feats, or float32, got float64")


def _bad_trilinear_backward() -> Iterator[BadInput]:
    op = "_trilinear_backward"
    f64, f32, _, bf16 = FLOAT_DTYPES

    def bad(
        name: str,
        message: str,
        shapes: tuple[tuple[int, ...], ...] = ((5, 4), (5, 8, 4), (5, 3)),
        dtypes: tuple[torch.dtype, ...] = (torch.float32,) * 3,
        mask: tuple[bool, ...] = (True, True),
    ) -> BadInput:
        return BadInput(name, lambda: (*zeros(*shapes, dtypes=dtypes), list(mask)), f"{op}: {message}")

    yield bad("mask_of_one", "output_mask must have 2 entries, got 1", mask=(True,))
    yield bad("mask_of_three", "output_mask must have 2 entries, got 3", mask=(True, True, True))
    yield bad("mask_empty", "output_mask must have 2 entries, got 0", mask=())
    yield bad("grad_rank", "grad must be [N, F] or [B, N, F], got [4]", ((4,), (5, 8, 4), (5, 3)))
    yield bad("feats_rank", "feats must be [N, 8, F], got [5, 8]", ((5, 4), (5, 8), (5, 3)))
    yield bad("corners", "feats must be [N, 8, F], got [5, 7, 4]", ((5, 4), (5, 7, 4), (5, 3)))
    yield bad("rows", "feats must be [N, 8, F] with N = 5, got [6, 8, 4]", ((5, 4), (6, 8, 4), (5, 3)))
    yield bad("features", "feats must be [N, 8, F] with F = 4, got [5, 8, 3]", ((5, 4), (5, 8, 3), (5, 3)))
    yield bad("points_last_dim", "points must be [N, 3], got [5, 2]", ((5, 4), (5, 8, 4), (5, 2)))
    yield bad("points_rows", "points must be [N, 3] with N = 5, got [4, 3]", ((5, 4), (5, 8, 4), (4, 3)))
    yield bad(
        "batch",
        "points must be [B, N, 3] with B = 2, got [1, 5, 3]",
        ((2, 5, 4), (2, 5, 8, 4), (1, 5, 3)),
    )
    yield bad("feats_dtype", "feats must be of dtype float32, the dtype of grad, got float64", dtypes=(f32, f64, f32))
    yield bad(
        "points_dtype",
        "points must be of dtype bfloat16, the dtype of grad, or float32, got float64",
        dtypes=(bf16, bf16, f64),
    )
    yield BadInput(
        "feats_missing",
        lambda: (torch.zeros(5, 4), None, torch.zeros(5, 3), [False, True]),
        f"{op}: feats must be a Tensor if the gradient of points is requested, got None",
    )


def _bad_trilinear_double_backward() -> Iterator[BadInput]:
    op = "_trilinear_double_backward"
    f64, f32, _, bf16 = FLOAT_DTYPES
    grad, feats, points = (5, 4), (5, 8, 4), (5, 3)

    def bad(
        name: str,
        message: str,
        shapes: tuple[tuple[int, ...], ...] = (grad, feats, points, feats, points),
        dtypes: tuple[torch.dtype, ...] = (torch.float32,) * 5,
        mask: tuple[bool, ...] = (True, True, True),
    ) -> BadInput:
        return BadInput(name, lambda: (*zeros(*shapes, dtypes=dtypes), list(mask)), f"{op}: {message}")

    yield bad("mask_of_two", "output_mask must have 3 entries, got 2", mask=(True, True))
    yield bad("grad_rank", "grad must be [N, F] or [B, N, F], got [4]", ((4,), feats, points, feats, points))
    yield bad(
        "grad_grad_feats_features",
        "grad_grad_feats must be [N, 8, F] with F = 4, got [5, 8, 3]",
        (grad, feats, points, (5, 8, 3), points),
    )
    yield bad(
        "grad_grad_points_rows",
        "grad_grad_points must be [N, 3] with N = 5, got [6, 3]",
        (grad, feats, points, feats, (6, 3)),
    )
    yield bad(
        "grad_grad_points_dtype",
        "grad_grad_points must be of dtype float32, the dtype of points, got bfloat16",
        dtypes=(bf16, bf16, f32, bf16, bf16),
    )
    yield bad(
        "grad_grad_feats_dtype",
        "grad_grad_feats must be of dtype float32, the dtype of grad, got float64",
        dtypes=(f32, f32, f32, f64, f32),
    )
    for output, mask in (("grad", _DOUBLE_MASKS["grad"]), ("points", _DOUBLE_MASKS["points"])):
        yield BadInput(
            f"feats_missing_for_{output}",
            lambda mask=mask: (*zeros(grad), None, *zeros(points, feats, points), list(mask)),
            f"{op}: feats must be a Tensor if the gradient of {output} is requested, got None",
        )


register(
    OpEntry(
        name="cppcuda::trilinear",
        mechanism="row",
        reference=trilinear_reference,
        oracles=(trilinear_grid_sample,),
        specs=tuple(_trilinear_specs()),
        sized=lambda n: _trilinear_args(n, f=16),
        arguments=_trilinear_arguments(),
        bad_inputs=tuple(_bad_trilinear()),
        output_like=("feats",),
        function=cppcuda.functional.trilinear,
        module=cppcuda.nn.Trilinear,
        autocast_dtype=lambda dtypes, autocast: dtypes[0],
        saved_for={0: {1}, 1: {0, 1}},
        backward=OpEntry(
            name="cppcuda::_trilinear_backward",
            reference=trilinear_backward_reference,
            specs=tuple(_trilinear_backward_specs()),
            sized=lambda n: _trilinear_backward_args(n, f=16),
            arguments=_trilinear_backward_arguments(),
            bad_inputs=tuple(_bad_trilinear_backward()),
            output_like=("grad", "points"),
            autocast_policy=False,
            saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
        ),
    )
)
register(
    OpEntry(
        name="cppcuda::_trilinear_double_backward",
        reference=trilinear_double_backward_reference,
        specs=tuple(_trilinear_double_backward_specs()),
        sized=lambda n: _trilinear_double_backward_args(n, f=16),
        arguments=_trilinear_double_backward_arguments(),
        bad_inputs=tuple(_bad_trilinear_double_backward()),
        output_like=("grad", "grad", "points"),
        autocast_policy=False,
        compiled=False,  # compiled second derivatives of trilinear and _trilinear_backward call it
        saved_for={0: {1, 2, 3, 4}, 1: {0, 2, 4}, 2: {0, 1, 2, 3, 4}, 3: {0, 2}, 4: {0, 1, 2}},
    )
)
