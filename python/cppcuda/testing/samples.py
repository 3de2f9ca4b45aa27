"""The table that the suite runs over: one ``OpEntry`` per operator, like torch's OpInfo, and how samples are made.

A module that calls ``register`` for its operators is what ``pytest --pyargs cppcuda.testing --operators`` takes.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from cppcuda._declaration import Declaration

FLOAT_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
SIXTEEN_BIT = (torch.float16, torch.bfloat16)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

# What `OpEntry.skip` may name besides the rows of the report: three derivatives in reverse mode.
THIRD_ORDER = "third order"

# The tolerance of one kernel call compared with float64 on the same inputs: rounding of the result and of float32 sums.
TOLERANCE: Mapping[torch.dtype, dict[str, float]] = {
    torch.float64: {"rtol": 1e-11, "atol": 1e-12},
    torch.float32: {"rtol": 1e-5, "atol": 1e-5},
    torch.float16: {"rtol": 2**-10, "atol": 1e-5},
    torch.bfloat16: {"rtol": 2**-8, "atol": 1e-5},
}


# ---------------------------------------------------------------- layouts


def never_read(t: Tensor) -> float | int:
    """What surrounds the elements of a tensor in memory: a NaN, or an index that no table has."""
    if t.dtype == torch.bool:
        return True
    return torch.nan if t.is_floating_point() or t.is_complex() else torch.iinfo(t.dtype).min


def _transposed(t: Tensor) -> Tensor:
    return t.transpose(0, -1).contiguous().transpose(0, -1)


def _sliced(t: Tensor) -> Tensor:
    """Every second element along every dim of a larger tensor."""
    big = t.new_full([2 * s + 1 for s in t.shape], never_read(t))
    view = big[tuple(slice(1, 2 * s + 1, 2) for s in t.shape)]
    return view.copy_(t)


def _expanded(t: Tensor) -> Tensor:
    """Stride 0 along the first dim."""
    return t[:1].expand_as(t)


def _expanded_last(t: Tensor) -> Tensor:
    return t[..., :1].expand_as(t)


def _offset(t: Tensor) -> Tensor:
    """Dense, but one element past the start of its storage: no 16-byte access is aligned."""
    big = t.new_full([t.numel() + 1], never_read(t))
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


@dataclass(frozen=True, eq=False)
class T:
    """A tensor argument before it is made, with random values or with those of `value`.

    `wide`: it may be float32 while other arguments have 16 bits; without meaning if the operator has a declaration. A
    `value` that is not floating point keeps its dtype.
    """

    shape: tuple[int, ...]
    wide: bool = False
    low: float = -1.5
    high: float = 1.5
    value: Tensor | None = None


@dataclass(frozen=True)
class Spec:
    """A sample before it has a dtype and a device; `args` has a `T` in place of each tensor, and may end in a dict of
    keyword arguments that are not tensors.

    Tags: "basic" (few and small, for expensive tests), "shape", "mask" (a shape too), "stride", "large".
    """

    name: str
    args: tuple[Any, ...]
    tag: str = "shape"
    layouts: tuple[Layout | None, ...] = ()  # per tensor argument

    def __post_init__(self) -> None:
        for name, value in split_keywords(self.args)[1].items():
            if isinstance(value, (T, Tensor)):
                raise ValueError(f"a keyword argument of a sample cannot be a tensor, but {name} is one")


def split_keywords(args: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """The arguments of a sample that are passed by position, and those that are passed by name."""
    return (args[:-1], args[-1]) if args and isinstance(args[-1], dict) else (args, {})


def apply(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Calls a function with the arguments of a sample."""
    positional, named = split_keywords(args)
    return f(*positional, **named)


@dataclass(frozen=True)
class Sample:
    """Arguments of one call. Transforms see `tensors`, the floating-point ones; `bind` puts the rest back in place.

    Another tensor, such as one of indices, has no gradient. Tests in which sizes change pass it too (`inputs`).
    `constants` are the positions of floating-point tensors that are treated like those.
    """

    name: str
    args: tuple[Any, ...]
    constants: frozenset[int] = frozenset()

    def _varies(self, position: int) -> bool:
        return is_variable(self.args[position]) and position not in self.constants

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.args[i] for i in self.positions)

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of `tensors` among the arguments."""
        return tuple(i for i in range(len(self.args)) if self._varies(i))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """All tensors, also those of indices."""
        return tuple(a for a in self.args if isinstance(a, Tensor))

    @property
    def attributes(self) -> tuple[Any, ...]:
        return tuple(a for a in self.args if not isinstance(a, Tensor))

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Sample:
        it = iter(tensors)
        return replace(self, args=tuple(next(it) if self._varies(i) else a for i, a in enumerate(self.args)))

    def with_inputs(self, inputs: tuple[Tensor, ...]) -> Sample:
        it = iter(inputs)
        return replace(self, args=tuple(next(it) if isinstance(a, Tensor) else a for a in self.args))

    def map(self, f: Callable[[Tensor], Tensor]) -> Sample:
        return self.with_tensors(tuple(map(f, self.tensors)))

    def map_inputs(self, f: Callable[[Tensor], Tensor]) -> Sample:
        return self.with_inputs(tuple(map(f, self.inputs)))

    def double(self) -> Sample:
        return self.map_inputs(lambda t: t.detach().double() if is_variable(t) else t)

    def requires_grad(self) -> Sample:
        return self.map(lambda t: t.detach().requires_grad_())

    def to(self, device: str) -> Sample:
        """All tensors on another device, also those of indices."""
        return self.map_inputs(lambda t: t.to(device))

    def call(self, f: Callable[..., Any]) -> Any:
        return apply(f, self.args)

    def bind(self, op: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        """`op` as a function of the tensors alone. It returns a tuple without the outputs that a mask excludes, and
        without those that are not floating point, if one is. A complex output is a real one with another dim."""

        def function(*tensors: Tensor) -> tuple[Tensor, ...]:
            return variable_outputs(self.with_tensors(tensors).call(op))

        return function

    def bind_inputs(self, op: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        """The same as a function of all tensors, so that those of indices may have other sizes too."""

        def function(*inputs: Tensor) -> tuple[Tensor, ...]:
            return variable_outputs(self.with_inputs(inputs).call(op))

        return function

    def bind_module(self, module: Callable[..., Any]) -> Callable[..., Any]:
        """A module that was made from the attributes, as a function of the tensors alone."""
        return lambda *tensors: module(*self.with_tensors(tensors).inputs)


def is_variable(argument: Any) -> bool:
    """Whether an argument or output takes part in differentiation and in vmap."""
    return isinstance(argument, Tensor) and argument.is_floating_point()


def outputs_of(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def computed(result: Any) -> tuple[Tensor, ...]:
    """The outputs without those that output_mask excludes, which are empty tensors of one dim."""
    return tuple(t for t in outputs_of(result) if t.dim() != 1 or t.shape[0] != 0)


def variable_outputs(result: Any) -> tuple[Tensor, ...]:
    """The outputs that take part in differentiation, or all of them if none does."""
    # vmap has no rule for the imaginary part of a tensor that is to be conjugated.
    plain = tuple(t.resolve_conj() if t.is_complex() else t for t in computed(result))
    every = tuple(torch.stack((t.real, t.imag), -1) if t.is_complex() else t for t in plain)
    return tuple(t for t in every if is_variable(t)) or every


def is_wide(argument: int, t: T, mixed: bool) -> bool:
    return mixed and t.wide


def make_tensor(t: T, dtype: torch.dtype, device: str, seed: int) -> Tensor:
    if t.value is not None:
        return t.value.detach().to(device=device, dtype=dtype if is_variable(t.value) else None, copy=True)
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(t.shape, generator=generator, dtype=torch.float64) * (t.high - t.low) + t.low
    return values.to(device=device, dtype=dtype)


def make_sample(
    spec: Spec,
    dtype: torch.dtype,
    device: str,
    mixed: bool = False,
    is_wide: Callable[[int, T, bool], bool] = is_wide,
    constants: frozenset[int] = frozenset(),
) -> Sample:
    args, index = [], 0
    for i, arg in enumerate(spec.args):
        if isinstance(arg, T):
            tensor_dtype = torch.float32 if dtype in SIXTEEN_BIT and is_wide(i, arg, mixed) else dtype
            tensor = make_tensor(arg, tensor_dtype, device, zlib.crc32(spec.name.encode()) + index)
            layout = spec.layouts[index] if spec.layouts else None
            args.append(layout(tensor) if layout and tensor.numel() else tensor)
            index += 1
        else:
            args.append(arg)
    return Sample(f"{spec.name}{'_mixed' if mixed else ''}", tuple(args), constants)


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


RowDims = tuple[int | None, ...]


def differing_dims(some: Sequence[Tensor], others: Sequence[Tensor]) -> list[list[int]]:
    """For each tensor, the dims in which it has another size than the other one."""
    return [[d for d in range(t.dim()) if t.shape[d] != u.shape[d]] for t, u in zip(some, others, strict=True)]


def first_dims(dims: list[list[int]]) -> RowDims:
    return tuple(d[0] if d else None for d in dims)


def masked_rows(tensors: Sequence[Tensor], dims: RowDims, mask: Tensor) -> tuple[Tensor, ...]:
    """The rows that the mask selects; tensors without rows stay."""
    # torch 2.11 compiles no index that is a tuple of slices.
    return tuple(t if d is None else t.movedim(d, 0)[mask].movedim(0, d) for t, d in zip(tensors, dims, strict=True))


@dataclass(frozen=True, eq=False)
class OpEntry:
    """An operator of any namespace of ``torch.ops``: its reference, its samples, and what is expected of it.

    A property for which an entry has no expectation or no samples is listed as not checked. For an operator that the
    kit made from a declaration, more samples and calls with bad input follow from the first basic sample, and so do the
    dtypes of outputs, `sized` and `arguments`; what an entry gives replaces or adds to these.
    """

    name: str  # with the namespace, "my_ops::swish", and the overload if it has a name, "my_ops::swish.scalar"
    reference: Callable[..., Any]  # plain torch; runs in float64 and under every transform
    specs: tuple[Spec, ...]
    # Arguments with that many rows, with a T for each tensor; for tests with dynamic sizes
    sized: Callable[[int], tuple[Any, ...]] | None = None
    # A strategy of hypothesis for arguments, also with a T for each tensor; for tests with random sizes
    arguments: Any = None
    bad_inputs: tuple[BadInput, ...] = ()
    # Rows of the report that are not checked, each with the reason. What relies on such a row is not checked either:
    # without "double backward", nothing is differentiated twice, and without "float16", nothing is called in float16.
    skip: dict[str, str] = field(default_factory=dict)
    # Sizes of letters of the declaration, besides those that it calls independent, that may have any size
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # For each output, the argument whose dtype it has; without it, outputs have the dtype that torch's promotion gives
    output_like: tuple[str, ...] = ()
    # False: no gradient is expected, and none is checked. Names of arguments: those of which a gradient and a batch are
    # taken; other floating-point tensors are treated like indices
    differentiable: bool | tuple[str, ...] = True
    # The kind of op for transforms, such as "elementwise", "row", "indexed row", "linear map", "matrix product";
    # backward ops need none
    mechanism: str = ""
    backward: Any = None  # the OpEntry of the operator that computes the gradients, or `derivative(...)` for it
    oracles: tuple[Callable[..., Any], ...] = ()  # further references for values; None: not applicable
    function: Callable[..., Any] | None = None  # in cppcuda.functional, with the op's arguments
    module: Callable[..., torch.nn.Module] | None = None  # in cppcuda.nn, made from the arguments that are not tensors
    writing_names: tuple[str, ...] = ()  # ops that write the same values to an existing tensor
    # The dtype of the output, or of each output, under autocast; given the dtypes of the tensors and autocast's dtype.
    # Without a rule, an output has the dtype that it has without autocast, or float32, or autocast's.
    autocast_dtype: Callable[[tuple[torch.dtype, ...], torch.dtype], torch.dtype | tuple[torch.dtype, ...]] | None = (
        None
    )
    # The strides of each output, given the arguments; None: any strides, which Meta must still predict
    strides: Callable[..., list[tuple[int, ...]]] | Literal["contiguous"] | None = "contiguous"
    # The tolerance of one rounding, and the number of roundings between the exact value and an output
    tolerance: Mapping[torch.dtype, dict[str, float]] = field(default_factory=lambda: TOLERANCE)
    roundings: float = 1
    # Whether the op uses matrix products of ATen: their results are rounded to the narrowest dtype, and their bits
    # depend on sizes, strides and the number of threads
    products: bool = False
    # Whether outputs and gradients on CUDA have the same bits on every run. If not, they must have them under
    # torch.use_deterministic_algorithms
    deterministic_on_cuda: bool = True
    # Bytes that a call allocates and frees again, as a multiple of the bytes of its outputs
    temporaries: float = 0
    # For each tensor argument, the inputs that the graph keeps alive if the gradient of that argument is requested.
    # None: it may keep those that this gradient of the reference depends on.
    saved_for: dict[int, set[int]] | None = None
    # Modules that register the operator in a new process, besides the libraries that torch.ops.load_library has loaded
    modules: tuple[str, ...] = ()
    # The operator's files that are still copies of the kit's template; the suite prints them
    template_files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.backward is not None and not isinstance(self.backward, OpEntry):
            object.__setattr__(self, "backward", self.backward.of(self))

    @property
    def represents_mechanism(self) -> bool:
        """Whether this is the first operator of its mechanism in the table, or the backward op of that operator."""
        forward = next((e for e in OPS if e.backward is self), self)
        return forward is next(e for e in OPS if e.mechanism == forward.mechanism)

    @property
    def namespace(self) -> str:
        return self.name.split("::")[0]

    @property
    def base_name(self) -> str:
        """The name without namespace and overload, as in the errors of the kit."""
        return self.name.split("::")[1].split(".")[0]

    @property
    def op(self) -> Any:
        _, _, overload = self.name.partition(".")
        return getattr(getattr(getattr(torch.ops, self.namespace), self.base_name), overload or "default")

    @property
    def qualified_name(self) -> str:
        """The name that the profiler and TorchScript's graphs print, which has no overload."""
        return f"{self.namespace}::{self.base_name}"

    @property
    def node_name(self) -> str:
        """The name of the node in autograd graphs: of the operator ``_name``, if it returns what backward reads."""
        hidden = f"_{self.base_name}"
        name = hidden if hasattr(getattr(torch.ops, self.namespace), hidden) else self.base_name
        return f"{self.namespace}::{name}Backward"

    @property
    def is_internal(self) -> bool:
        """Whether only other operators call it, such as a backward operator."""
        return self.base_name.startswith("_")

    @property
    def made_with_kit(self) -> bool:
        """Whether the kit declared the operator; then a rule for DTensor follows from the declaration, and the errors
        and the names of graph nodes follow its conventions."""
        rules = getattr(getattr(torch.ops, self.namespace), "_sharding_rule", None)
        return rules is not None and self.name.split("::")[1].replace(".", "_") in rules.overloads()

    @cached_property
    def declaration(self) -> Declaration | None:
        """What the kit made the operator from; None for an elementwise operator, and for one of another library."""
        return Declaration.of(self.name)

    @cached_property
    def all_specs(self) -> tuple[Spec, ...]:
        """The given samples and those that follow from the declaration."""
        given = {s.name for s in self.specs}
        derived = self._derived.samples(self) if self._derives else ()
        return (*self.specs, *(s for s in derived if s.name not in given))

    @cached_property
    def all_bad_inputs(self) -> tuple[BadInput, ...]:
        derived = self._derived.wrong_calls(self) if self._derives else ()
        return (*self.bad_inputs, *derived)

    @property
    def _derives(self) -> bool:
        return self.declaration is not None and any(s.tag == "basic" for s in self.specs)

    @property
    def _derived(self) -> Any:
        from cppcuda.testing import derived

        return derived

    @property
    def has_sizes(self) -> bool:
        """Whether the number of rows can be changed."""
        return self.sized is not None or (self._derives and bool(self.declaration and self.declaration.independent))

    @cached_property
    def strategy(self) -> Any:
        """A strategy of hypothesis for arguments, or None."""
        if self.arguments is not None or not self._derives or not self.has_sizes:
            return self.arguments
        return self._derived.strategy(self)

    def shares(self, position: int) -> bool:
        """Whether all rows share an argument, so that vmap with a batch of it calls the operator for each row."""
        return self.declaration is not None and self.argument_names[position] in self.declaration.shared

    @property
    def argument_names(self) -> list[str]:
        return [a.name for a in self.op._schema.arguments]

    @cached_property
    def constants(self) -> frozenset[int]:
        """The positions of arguments without a gradient, if `differentiable` names those with one."""
        if isinstance(self.differentiable, bool):
            return frozenset()
        unknown = set(self.differentiable) - {*self.argument_names}
        if unknown:
            raise ValueError(f"OpEntry: {self.name} has no argument {', '.join(sorted(unknown))}")
        return frozenset(i for i, name in enumerate(self.argument_names) if name not in self.differentiable)

    def is_wide(self, argument: int, t: T, mixed: bool) -> bool:
        """Whether an argument is float32 while others have 16 bits; mixed: if it may have 16 bits, too."""
        if not self.declaration:
            return mixed and t.wide
        return self.declaration.is_opmath(argument) or (mixed and self.declaration.may_be_wide(argument))

    @cached_property
    def may_be_mixed(self) -> bool:
        given = [(i, a) for s in self.specs for i, a in enumerate(s.args) if isinstance(a, T)]
        return any(self.is_wide(i, a, True) and not self.is_wide(i, a, False) for i, a in given)

    @property
    def dtypes(self) -> list[tuple[torch.dtype, bool]]:
        """The dtypes of a call, each with `mixed`: whether the wide arguments are float32 beside 16-bit ones."""
        mixed = (False, True) if self.may_be_mixed else (False,)
        return [(dtype, m) for dtype in self.plain_dtypes for m in (mixed if dtype in SIXTEEN_BIT else (False,))]

    @property
    def plain_dtypes(self) -> list[torch.dtype]:
        return [dtype for dtype in FLOAT_DTYPES if str(dtype)[6:] not in self.skip]

    @property
    def usual_dtype(self) -> torch.dtype:
        """float32, or another dtype if the operator does not take it."""
        return torch.float32 if torch.float32 in self.plain_dtypes else self.widest_dtype

    @property
    def widest_dtype(self) -> torch.dtype:
        return self.plain_dtypes[0]

    @property
    def orders(self) -> int:
        """How often the outputs can be differentiated in reverse mode; three times are enough."""
        missing = ("backward", "double backward", THIRD_ORDER)
        return next((order for order, row in enumerate(missing) if row in self.skip), 3) if self.differentiable else 0

    def spec(self, name: str) -> Spec:
        return next(s for s in self.all_specs if s.name == name)

    def sample(self, name: str, dtype: torch.dtype = torch.float64, device: str = "cpu", mixed: bool = False) -> Sample:
        return make_sample(self.spec(name), dtype, device, mixed, self.is_wide, self.constants)

    def of_size(self, rows: int, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Sample:
        args = self.sized(rows) if self.sized else self._derived.rows_args(self, rows)
        return make_sample(Spec(f"{rows} rows", args), dtype, device, False, self.is_wide, self.constants)

    @property
    def row_dims(self) -> RowDims:
        """For each input, the dim that has the rows of `sized`, if it has them."""
        return first_dims(differing_dims(self.of_size(2).inputs, self.of_size(3).inputs))

    @property
    def takes_some_rows(self) -> bool:
        """Whether some of the rows are a valid call. They are not if a size is another number, such as that of offsets,
        or if a tensor of indices has no rows, and so may refer to all of them."""
        few, more = self.of_size(2).inputs, self.of_size(3).inputs
        sizes = [[t.shape[d] for d in dims] for t, dims in zip(few, differing_dims(few, more), strict=True)]
        return all(s == [2] or (not s and is_variable(t)) for t, s in zip(few, sizes, strict=True))

    @property
    def row_dims_of_outputs(self) -> RowDims:
        few, more = (outputs_of(self.of_size(rows).call(self.reference)) for rows in (2, 3))
        return first_dims(differing_dims(few, more))

    def assert_strides(self, sample: Sample, outputs: tuple[Tensor, ...]) -> None:
        if self.strides is None:
            return
        contiguous = [torch.empty(t.shape).stride() for t in outputs]
        expected = contiguous if self.strides == "contiguous" else sample.call(self.strides)
        for t, strides in zip(outputs, expected, strict=True):
            used = [d for d in range(t.dim()) if t.shape[d] > 1 and t.numel()]
            actual = [t.stride(d) for d in used]
            assert actual == [strides[d] for d in used], f"{sample.name}: strides {t.stride()}, expected {strides}"

    @contextlib.contextmanager
    def same_bits(self, device: str) -> Iterator[None]:
        """Enables torch's deterministic algorithms if only then results have the same bits on every run."""
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        if not self.deterministic_on_cuda and torch.device(device).type == "cuda":
            torch.use_deterministic_algorithms(True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])

    def names(self, *tags: str) -> list[str]:
        """The samples with one of these tags, without those of "stride" if that row is skipped."""
        left_out = {"stride"} if "strides" in self.skip else set()
        tags_ = {*tags, *(["mask"] if "shape" in tags else [])} - left_out
        return [s.name for s in self.all_specs if s.tag in tags_]


OPS: list[OpEntry] = []  # including the backward ops


def register(entry: OpEntry) -> None:
    """Adds an operator, and its backward operator if it has one, to the table."""
    for name in (entry.name, *([entry.backward.name] if entry.backward else [])):
        if name.count("::") != 1:
            raise ValueError(f"OpEntry: name must be 'namespace::operator', got {name!r}")
    OPS.append(entry)
    if entry.backward and entry.backward not in OPS:
        OPS.append(entry.backward)


def forward_ops() -> list[OpEntry]:
    """The operators that are not internal, such as backward operators are."""
    return [e for e in OPS if not e.is_internal]


# ---------------------------------------------------------------- helpers for entries


def zeros(*shapes: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = ()) -> tuple[Tensor, ...]:
    """Tensors of these shapes, for bad input."""
    dtypes = dtypes or (torch.float32,) * len(shapes)
    return tuple(torch.zeros(s, dtype=d) for s, d in zip(shapes, dtypes, strict=True))
