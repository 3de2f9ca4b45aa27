"""The table that every matrix test runs over: one `OpEntry` per operator, like torch's OpInfo.

To add a new operator to all of these tests, call `register` in a new file in the folder samples/.
"""

from __future__ import annotations

import importlib
import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

FLOAT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SIXTEEN_BIT = (torch.float16, torch.bfloat16)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

# The tolerance of one kernel call compared with float64 on the same inputs: rounding of the result and of float32 sums.
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


Layout = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, Layout] = {
    "transposed": _transposed,
    "sliced": _sliced,
    "expanded": _expanded,
    "expanded_last": _expanded_last,
    "offset": _offset,
}


# ---------------------------------------------------------------- samples


@dataclass(frozen=True)
class T:
    """A tensor argument before it is made. `wide`: it may be float32 while other arguments have 16 bits."""

    shape: tuple[int, ...]
    wide: bool = False
    low: float = -1.5
    high: float = 1.5


@dataclass(frozen=True)
class Spec:
    """A sample before it has a dtype and a device; `args` has a `T` in place of each tensor.

    Tags: "basic" (few and small, for expensive tests), "shape", "stride", "large".
    """

    name: str
    args: tuple[Any, ...]
    tag: str = "shape"
    layouts: tuple[Layout | None, ...] = ()  # per tensor argument


@dataclass(frozen=True)
class Sample:
    """Arguments of one call. Transforms see the tensors only; `bind` puts the rest back in place."""

    name: str
    args: tuple[Any, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(a for a in self.args if isinstance(a, Tensor))

    @property
    def attributes(self) -> tuple[Any, ...]:
        return tuple(a for a in self.args if not isinstance(a, Tensor))

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
        """`op` as a function of the tensors alone. It returns a tuple without the outputs that a mask excludes."""

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            return computed(op(*self.with_tensors(tensors).args))

        return function


def outputs_of(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def computed(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The outputs without those that output_mask excludes, which are empty tensors of one dim."""
    return tuple(t for t in outputs_of(result) if t.dim() != 1 or t.shape[0] != 0)


def make_tensor(t: T, dtype: torch.dtype, device: str, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(t.shape, generator=generator, dtype=torch.float64) * (t.high - t.low) + t.low
    return values.to(device=device, dtype=dtype)


def make_sample(spec: Spec, dtype: torch.dtype, device: str, mixed: bool = False) -> Sample:
    args, index = [], 0
    for arg in spec.args:
        if isinstance(arg, T):
            tensor_dtype = torch.float32 if mixed and arg.wide else dtype
            tensor = make_tensor(arg, tensor_dtype, device, zlib.crc32(spec.name.encode()) + index)
            layout = spec.layouts[index] if spec.layouts else None
            args.append(layout(tensor) if layout and tensor.numel() else tensor)
            index += 1
        else:
            args.append(arg)
    return Sample(f"{spec.name}{'_mixed' if mixed else ''}", tuple(args))


def with_layouts(args: tuple[Any, ...]) -> Iterator[Spec]:
    """Every layout on each tensor alone, and on all of them together."""
    count = sum(isinstance(a, T) for a in args)
    for (name, layout), which in itertools.product(LAYOUTS.items(), [*range(count), "all"] if count > 1 else ["all"]):
        layouts = tuple(layout if which in ("all", i) else None for i in range(count))
        yield Spec(f"{name}_{which}", args, "stride", layouts)


# ---------------------------------------------------------------- entries


@dataclass(frozen=True)
class BadInput:
    """A call that must raise an error. `args` makes the arguments when the test runs."""

    name: str
    args: Callable[[], tuple[Any, ...]]
    message: str  # the first line of the error, complete


@dataclass(frozen=True)
class OpEntry:
    name: str  # without the namespace
    reference: Callable[..., Any]  # plain torch; runs in float64 and under every transform
    specs: tuple[Spec, ...]
    sized: Callable[[int], tuple[Any, ...]]  # arguments with that many rows, with a T for each tensor
    arguments: st.SearchStrategy[tuple[Any, ...]]  # for the property tests, also with a T for each tensor
    bad_inputs: tuple[BadInput, ...]
    output_like: tuple[str, ...]  # for each output, the argument whose dtype it has
    # The kind of op for transforms: "elementwise", "row", "linear map", "matrix product"; backward ops need none
    mechanism: str = ""
    backward: OpEntry | None = None
    oracles: tuple[Callable[..., Any], ...] = ()  # further references for values; None: not applicable
    function: Callable[..., Any] | None = None  # in cppcuda.functional, with the op's arguments
    module: Callable[..., torch.nn.Module] | None = None  # in cppcuda.nn, made from the arguments that are not tensors
    writing_names: tuple[str, ...] = ()  # ops that write the same values to an existing tensor
    autocast_policy: bool = True  # whether it has an autocast kernel; without one, dtypes stay as they are
    # The dtype of the output, or of each output, under autocast; given the dtypes of the tensors and autocast's dtype
    autocast_dtype: Callable[[tuple[torch.dtype, ...], torch.dtype], torch.dtype | tuple[torch.dtype, ...]] | None = (
        None
    )
    # The strides of each output, given the arguments; without a rule, outputs are contiguous
    strides: Callable[..., list[tuple[int, ...]]] | None = None
    # The number of roundings between the exact value and an output
    roundings: float = 1
    # Whether the op uses matrix products of ATen: their results are rounded to the narrowest dtype, and their bits
    # depend on sizes, strides and the number of threads
    products: bool = False
    # Bytes that a call allocates and frees again, as a multiple of the bytes of its outputs
    temporaries: float = 0
    # The argument that the dtypes and devices of the others are compared with; if empty, the first one
    anchor: str = ""
    # The op that replaces this one in autograd graphs and has outputs that this one does not return
    differentiated_as: str = ""
    # For each tensor argument, the inputs that the graph keeps alive if the gradient of that argument is requested
    saved_for: dict[int, set[int]] = field(default_factory=dict)

    @property
    def represents_mechanism(self) -> bool:
        """Whether this is the first operator of its mechanism in the table, or the backward op of that operator."""
        forward = next((e for e in OPS if e.backward is self), self)
        return forward is next(e for e in OPS if e.mechanism == forward.mechanism)

    @property
    def op(self) -> Any:
        return getattr(torch.ops.cppcuda, self.name).default

    @property
    def qualified_name(self) -> str:
        return f"cppcuda::{self.name}"

    @property
    def node_name(self) -> str:
        return f"cppcuda::{self.differentiated_as or self.name}Backward"

    @property
    def argument_names(self) -> list[str]:
        return [a.name for a in self.op._schema.arguments]

    @property
    def has_wide(self) -> bool:
        return any(isinstance(a, T) and a.wide for s in self.specs for a in s.args)

    @property
    def dtypes(self) -> list[tuple[torch.dtype, bool]]:
        """The dtypes of a call, each with `mixed`: whether the wide arguments are float32 beside 16-bit ones."""
        mixed = (False, True) if self.has_wide else (False,)
        return [(dtype, m) for dtype in FLOAT_DTYPES for m in (mixed if dtype in SIXTEEN_BIT else (False,))]

    def spec(self, name: str) -> Spec:
        return next(s for s in self.specs if s.name == name)

    def sample(self, name: str, dtype: torch.dtype = torch.float64, device: str = "cpu", mixed: bool = False) -> Sample:
        return make_sample(self.spec(name), dtype, device, mixed)

    def of_size(self, rows: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Sample:
        return make_sample(Spec(f"{rows} rows", self.sized(rows)), dtype, device)

    @property
    def with_rows(self) -> tuple[bool, ...]:
        """Which tensor arguments have the rows of `sized` as their first dim."""
        few, more = self.of_size(2).tensors, self.of_size(3).tensors
        return tuple(a.shape[0] != b.shape[0] for a, b in zip(few, more, strict=True))

    def assert_strides(self, sample: Sample, outputs: tuple[Tensor, ...]) -> None:
        expected = self.strides(*sample.args) if self.strides else [torch.empty(t.shape).stride() for t in outputs]
        for t, strides in zip(outputs, expected, strict=True):
            used = [d for d in range(t.dim()) if t.shape[d] > 1 and t.numel()]
            assert [t.stride(d) for d in used] == [strides[d] for d in used], sample.name

    def names(self, *tags: str) -> list[str]:
        return [s.name for s in self.specs if s.tag in tags]


OPS: list[OpEntry] = []  # including the backward ops


def register(entry: OpEntry) -> None:
    OPS.append(entry)
    if entry.backward and entry.backward not in OPS:
        OPS.append(entry.backward)


def register_all() -> None:
    """Imports the files of samples/, each of which registers its operators."""
    for file in sorted((Path(__file__).parent / "samples").glob("*.py")):
        importlib.import_module(f"samples.{file.stem}")


def forward_ops() -> list[OpEntry]:
    return [e for e in OPS if e.backward]


def ops_with_bad_inputs() -> list[OpEntry]:
    return [e for e in OPS if e.bad_inputs]


# ---------------------------------------------------------------- helpers for entries


def zeros(*shapes: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = ()) -> tuple[Tensor, ...]:
    dtypes = dtypes or (torch.float32,) * len(shapes)
    return tuple(torch.zeros(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True))
