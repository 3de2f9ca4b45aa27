"""The table that every matrix test runs over: one `OpEntry` per operator, as torch's OpInfo.

A new operator enters all of the tests with one call of `register`, in a file of its own in the folder samples/.
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

# The tolerance of one kernel call against float64 on the same inputs: the rounding of the result, and of float32 sums.
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
    """A tensor argument to be made. `wide`: may be float32 beside 16-bit arguments."""

    shape: tuple[int, ...]
    wide: bool = False
    low: float = -1.5
    high: float = 1.5


@dataclass(frozen=True)
class Spec:
    """A sample before it has a dtype and a device; `args` holds `T` where a tensor goes.

    Tags: "basic" (small and few, for the dear tests), "shape", "stride", "large".
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
    # What it is for torch's transforms: "elementwise", "row", "linear map", "matrix product"; a backward op needs none
    mechanism: str = ""
    backward: OpEntry | None = None
    oracles: tuple[Callable[..., Any], ...] = ()  # further ones, for values only; None: does not apply
    function: Callable[..., Any] | None = None  # in cppcuda.functional, with the op's arguments
    module: Callable[..., torch.nn.Module] | None = None  # in cppcuda.nn, from the arguments that are no tensors
    writing_names: tuple[str, ...] = ()  # ops of the same values that write to an existing tensor
    autocast_policy: bool = True  # an autocast kernel of its own; without one, dtypes stay as they are
    # The output's dtype under autocast, or those of several, from the dtypes of the tensor arguments and autocast's
    autocast_dtype: Callable[[tuple[torch.dtype, ...], torch.dtype], torch.dtype | tuple[torch.dtype, ...]] | None = (
        None
    )
    # The strides of each output, from the arguments; contiguous if there is no rule
    strides: Callable[..., list[tuple[int, ...]]] | None = None
    # How many roundings lie between the exact value and an output, where there is more than one
    roundings: float = 1
    # Whether matrix products by ATen lie between inputs and outputs: their results are rounded to the narrowest dtype,
    # and their bits depend on sizes, strides and the number of threads
    products: bool = False
    # Bytes that a call allocates and frees again, as a multiple of its outputs
    temporaries: float = 0
    # The argument that dtypes and devices of the others are compared with; the first one if there is no name
    anchor: str = ""
    # The op that stands for this one in graphs of autograd, with outputs that this one does not return
    differentiated_as: str = ""
    # Inputs that stay alive in the graph when a gradient for one tensor argument is asked for
    saved_for: dict[int, set[int]] = field(default_factory=dict)

    @property
    def represents_mechanism(self) -> bool:
        """Whether this is the first operator of its mechanism in the table, or the backward op of that one."""
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
        """Of a call, and whether float32 is beside 16 bits, where an op has that."""
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
        wanted = self.strides(*sample.args) if self.strides else [torch.empty(t.shape).stride() for t in outputs]
        for t, strides in zip(outputs, wanted, strict=True):
            used = [d for d in range(t.dim()) if t.shape[d] > 1 and t.numel()]
            assert [t.stride(d) for d in used] == [strides[d] for d in used], sample.name

    def names(self, *tags: str) -> list[str]:
        return [s.name for s in self.specs if s.tag in tags]


OPS: list[OpEntry] = []  # with their backward ops, which are ops like the others


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
