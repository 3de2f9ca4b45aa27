"""The table that every matrix test runs over: one `OpEntry` per operator, as torch's OpInfo.

A new operator enters all of the tests with one call of `register` at the end of this file.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import cppcuda
import torch
from hypothesis import strategies as st
from torch import Tensor

FLOAT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SIXTEEN_BIT = (torch.float16, torch.bfloat16)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

# Of one kernel call against float64 on the same inputs: the rounding of the result, and float32 sums below it.
TOLERANCE = {
    torch.float64: {"rtol": 1e-11, "atol": 1e-12},
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.float16: {"rtol": 2**-10, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2**-8, "atol": 1e-5},
}


# ---------------------------------------------------------------- layouts


def _transposed(t: Tensor) -> Tensor:
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def _sliced(t: Tensor) -> Tensor:
    """Every second element along every dim of a larger tensor."""
    big = t.new_full([2 * s + 1 for s in t.shape], torch.nan)
    view = big[tuple(slice(1, 2 * s + 1, 2) for s in t.shape)]
    return view.copy_(t)


def _expanded(t: Tensor) -> Tensor:
    """Stride 0 along the first dim."""
    return t[:1].expand_as(t)


def _expanded_last(t: Tensor) -> Tensor:
    return t[..., :1].expand_as(t)


def _offset(t: Tensor) -> Tensor:
    """Dense, but one element past the start of its storage: no 16-byte access is aligned."""
    big = t.new_full([t.numel() + 1], torch.nan)
    return big[1:].view(t.shape).copy_(t)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": _transposed,
    "sliced": _sliced,
    "expanded": _expanded,
    "expanded_last": _expanded_last,
    "offset": _offset,
}


# ---------------------------------------------------------------- samples


@dataclass(frozen=True)
class T:
    """A tensor argument to be made. `wide`: may be float32 beside 16-bit arguments."""

    shape: tuple[int, ...]
    wide: bool = False
    low: float = -1.5
    high: float = 1.5


@dataclass(frozen=True)
class Spec:
    """A sample before it has a dtype and a device; `args` holds `T` where a tensor goes.

    Tags: "basic" (small and few, for the dear tests), "shape", "stride".
    """

    name: str
    args: tuple[Any, ...]
    tag: str = "shape"
    layouts: tuple[str | None, ...] = ()  # per tensor argument


@dataclass(frozen=True)
class Sample:
    """Arguments of one call. Transforms see the tensors only; `bind` puts the rest back in place."""

    name: str
    args: tuple[Any, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(a for a in self.args if isinstance(a, Tensor))

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Sample:
        it = iter(tensors)
        return Sample(self.name, tuple(next(it) if isinstance(a, Tensor) else a for a in self.args))

    def map(self, f: Callable[[Tensor], Tensor]) -> Sample:
        return self.with_tensors(tuple(map(f, self.tensors)))

    def double(self) -> Sample:
        return self.map(lambda t: t.detach().double())

    def requires_grad(self) -> Sample:
        return self.map(lambda t: t.detach().requires_grad_())

    def bind(self, op: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        """`op` as a function of the tensors alone, that returns a tuple without outputs that a mask left out."""

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            return computed(op(*self.with_tensors(tensors).args))

        return function


def outputs_of(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def computed(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What output_mask leaves out comes as an empty tensor of one dim."""
    return tuple(t for t in outputs_of(result) if t.dim() != 1 or t.shape[0] != 0)


def make_tensor(t: T, dtype: torch.dtype, device: str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(t.shape, generator=generator, dtype=torch.float64) * (t.high - t.low) + t.low
    return values.to(device=device, dtype=dtype)


def make_sample(spec: Spec, dtype: torch.dtype, device: str, mixed: bool = False) -> Sample:
    args, index = [], 0
    for arg in spec.args:
        if isinstance(arg, T):
            wanted = torch.float32 if mixed and arg.wide else dtype
            tensor = make_tensor(arg, wanted, device, zlib.crc32(spec.name.encode()) + index)
            layout = spec.layouts[index] if spec.layouts else None
            args.append(LAYOUTS[layout](tensor) if layout and tensor.numel() else tensor)
            index += 1
        else:
            args.append(arg)
    return Sample(f"{spec.name}{'_mixed' if mixed else ''}", tuple(args))


def with_layouts(args: tuple[Any, ...]) -> Iterator[Spec]:
    """Every layout on each tensor alone, and on all of them together."""
    count = sum(isinstance(a, T) for a in args)
    for name, which in itertools.product(LAYOUTS, [*range(count), "all"] if count > 1 else ["all"]):
        layouts = tuple(name if which in ("all", i) else None for i in range(count))
        yield Spec(f"{name}_{which}", args, "stride", layouts)


# ---------------------------------------------------------------- entries


@dataclass(frozen=True)
class BadInput:
    """A call that must be refused. `args` are made on the device when the test runs."""

    name: str
    args: Callable[[], tuple[Any, ...]]
    message: str  # of the error, whole, as it is printed


@dataclass(frozen=True)
class OpEntry:
    name: str  # without the namespace
    reference: Callable[..., Any]  # plain torch; runs in float64 and under every transform
    specs: tuple[Spec, ...]
    sized: Callable[[int], tuple[Any, ...]]  # arguments with that many rows; T where a tensor goes
    arguments: st.SearchStrategy[tuple[Any, ...]]  # for the property tests; likewise
    bad_inputs: tuple[BadInput, ...]
    output_like: tuple[str, ...]  # the argument that each output has its dtype from
    backward: OpEntry | None = None
    oracles: tuple[Callable[..., Any], ...] = ()  # further ones, for values only; None: does not apply
    function: Callable[..., Any] | None = None  # in cppcuda.functional
    module: Callable[[], torch.nn.Module] | None = None  # in cppcuda.nn
    # The output's dtype under autocast, from the dtypes of the tensor arguments and autocast's
    autocast_dtype: Callable[[tuple[torch.dtype, ...], torch.dtype], torch.dtype] | None = None
    # Inputs that stay alive in the graph when a gradient for one tensor argument is asked for
    saved_for: dict[int, set[int]] = field(default_factory=dict)

    @property
    def op(self) -> Any:
        return getattr(torch.ops.cppcuda, self.name).default

    @property
    def qualified_name(self) -> str:
        return f"cppcuda::{self.name}"

    @property
    def argument_names(self) -> list[str]:
        return [a.name for a in self.op._schema.arguments]

    @property
    def has_wide(self) -> bool:
        return any(isinstance(a, T) and a.wide for s in self.specs for a in s.args)

    def spec(self, name: str) -> Spec:
        return next(s for s in self.specs if s.name == name)

    def sample(self, name: str, dtype: torch.dtype = torch.float64, device: str = "cpu", mixed: bool = False) -> Sample:
        return make_sample(self.spec(name), dtype, device, mixed)

    def of_size(self, rows: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Sample:
        return make_sample(Spec(f"{rows} rows", self.sized(rows)), dtype, device)

    def names(self, *tags: str) -> list[str]:
        return [s.name for s in self.specs if s.tag in tags]


OPS: list[OpEntry] = []  # with their backward ops, which are ops like the others


def register(entry: OpEntry) -> None:
    OPS.append(entry)
    if entry.backward:
        OPS.append(entry.backward)


def forward_ops() -> list[OpEntry]:
    return [e for e in OPS if e.backward]


# ---------------------------------------------------------------- trilinear


def trilinear_reference(feats: Tensor, points: Tensor) -> Tensor:
    """Linear interpolation along one axis after another."""
    t = (points + 1) / 2
    corners = feats.unflatten(-2, (2, 2, 2))
    for d in range(3):
        s = t.select(-1, d).reshape(*t.shape[:-1], *[1] * (3 - d))  # [..., N] beside the axes that are left
        corners = corners.select(-4 + d, 0) * (1 - s) + corners.select(-4 + d, 1) * s
    return corners


def trilinear_grid_sample(feats: Tensor, points: Tensor) -> Tensor | None:
    """A 2x2x2 volume per point; grid_sample's x is the last axis. It does not extrapolate."""
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
    if feats is None:  # the gradient for feats does not read them
        feats = grad.unsqueeze(-2).expand(*grad.shape[:-1], 8, grad.shape[-1])
    _, vjp = torch.func.vjp(trilinear_reference, feats, points)
    return tuple(g if wanted else grad.new_zeros(0) for g, wanted in zip(vjp(grad), output_mask, strict=True))


def _trilinear_args(*batch: int, f: int) -> tuple[T, T]:
    return T((*batch, 8, f)), T((*batch, 3), wide=True)


def _trilinear_backward_args(
    *batch: int, f: int, feats: bool = True, mask: tuple[bool, bool] = (True, True)
) -> tuple[Any, ...]:
    return T((*batch, f)), T((*batch, 8, f)) if feats else None, T((*batch, 3), wide=True), list(mask)


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


def _zeros(*shapes: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = ()) -> tuple[Tensor, ...]:
    dtypes = dtypes or (torch.float32,) * len(shapes)
    return tuple(torch.zeros(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True))


def _bad_trilinear() -> Iterator[BadInput]:
    feats_expected = "trilinear: feats must be [N, 8, F] or [B, N, 8, F], got"
    f64, f32, f16, bf16 = FLOAT_DTYPES

    def shapes(name: str, feats: tuple[int, ...], points: tuple[int, ...], message: str) -> BadInput:
        return BadInput(name, lambda: _zeros(feats, points), message)

    def dtypes(name: str, feats: torch.dtype, points: torch.dtype, message: str) -> BadInput:
        return BadInput(name, lambda: _zeros((5, 8, 4), (5, 3), dtypes=(feats, points)), message)

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
        return BadInput(name, lambda: (*_zeros(*shapes, dtypes=dtypes), list(mask)), f"{op}: {message}")

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
        f"{op}: feats must be a Tensor when the gradient of points is asked for, got None",
    )


register(
    OpEntry(
        name="trilinear",
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
            name="_trilinear_backward",
            reference=trilinear_backward_reference,
            specs=tuple(_trilinear_backward_specs()),
            sized=lambda n: _trilinear_backward_args(n, f=16),
            arguments=_trilinear_backward_arguments(),
            bad_inputs=tuple(_bad_trilinear_backward()),
            output_like=("grad", "points"),
            saved_for={0: {1, 2}, 1: {0, 2}, 2: {0, 1, 2}},
        ),
    )
)
