"""The properties that every operator is checked for: one function each, which the suite and ``check`` both run.

A property is a function of an ``OpEntry`` and of the parameters of one case. It raises an error if the operator does
not have the property, and ``NotCheckedError`` if the case says nothing about this operator.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from cppcuda.testing.samples import DEVICES, OpEntry

# The rows of the support matrix and of reports, in this order.
ROWS = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "strides",
    "empty",
    "bad input",
    "aliasing",
    "threads",
    "backward",
    "double backward",
    "forward AD",
    "kept alive",
    "saved tensors",
    "vmap",
    "torch.func",
    "compile",
    "compiled autograd",
    "export",
    "AOTInductor",
    "TorchScript",
    "autocast",
    "meta",
    "DTensor",
)

# The rows that test a transform of torch.
TRANSFORMS = frozenset(
    {"vmap", "torch.func", "compile", "compiled autograd", "export", "AOTInductor", "TorchScript", "DTensor"}
)


NEEDS = "it needs "  # and the names of the rows that the operator lacks


class NotCheckedError(Exception):
    """Says why a property was not checked."""


# ---------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    """The parameters of one call of a property, and a short name for them."""

    name: str
    parameters: dict[str, Any]


Axis = Callable[[OpEntry], Iterable[Case]]


@dataclass(frozen=True)
class samples:  # noqa: N801  (an axis, as the functions below)
    """A loop in one case: the function is called for each sample with one of the tags, with the parameter `name`, for
    ``entry.sample(name)``. An error names the sample."""

    tags: tuple[str, ...]

    def __init__(self, *tags: str) -> None:
        object.__setattr__(self, "tags", tags)


def dtypes(entry: OpEntry) -> Iterator[Case]:
    """The parameters `dtype` and `mixed` (float32 beside 16 bits, if the operator supports it)."""
    for dtype, mixed in entry.dtypes:
        yield Case(f"{str(dtype)[6:]}{'-mixed' if mixed else ''}", {"dtype": dtype, "mixed": mixed})


def plain_dtypes(entry: OpEntry) -> Iterator[Case]:
    """The parameter `dtype`, which all tensors have."""
    for dtype in entry.plain_dtypes:
        yield Case(str(dtype)[6:], {"dtype": dtype})


def devices(entry: OpEntry) -> Iterator[Case]:
    for device in DEVICES:
        yield Case(device, {"device": device})


def each(parameter: str, values: Iterable[Any]) -> Axis:
    """One case for each value of a parameter."""
    return lambda entry: [Case(str(getattr(v, "__name__", v)), {parameter: v}) for v in values]


# ---------------------------------------------------------------- requirements


@dataclass(frozen=True)
class Requirement:
    """What an entry must have for a property to be checked, and the reason that is given if it does not."""

    holds: Callable[[OpEntry], bool]
    reason: str


DIFFERENTIABLE = Requirement(lambda e: e.orders > 0, "the operator has no gradient, or differentiable=False was given")
HAS_BACKWARD = Requirement(lambda e: e.backward is not None, "no backward operator is given")
HAS_BAD_INPUTS = Requirement(lambda e: bool(e.all_bad_inputs), "no bad_inputs are given")
HAS_ORACLES = Requirement(lambda e: bool(e.oracles), "the reference is the only oracle")
HAS_FUNCTION = Requirement(lambda e: e.function is not None, "no public function is given")
HAS_MODULE = Requirement(lambda e: e.module is not None, "no module is given")
HAS_SIZES = Requirement(lambda e: e.has_sizes, "the number of rows of the samples cannot be changed")
TAKES_SOME_ROWS = Requirement(lambda e: e.takes_some_rows, "the arguments do not fit a part of the rows")
HAS_STRATEGY = Requirement(lambda e: e.strategy is not None, "no strategy for random arguments is given")
MADE_WITH_KIT = Requirement(lambda e: e.made_with_kit, "the operator was not made with the kit")
PUBLIC = Requirement(lambda e: not e.is_internal, "an internal operator")


# ---------------------------------------------------------------- properties


def needed(reason: str) -> list[str]:
    """The rows that a reason not to check something names."""
    return reason.removeprefix(NEEDS).split(" and ") if reason.startswith(NEEDS) else []


def lacking(entry: OpEntry, rows: Iterable[str]) -> str:
    """Which of these rows an entry skips, as the reason not to check what relies on them. Empty if it skips none. A row
    that is skipped because of another one stands for that one."""
    missing = dict.fromkeys(cause for row in rows if row in entry.skip for cause in needed(entry.skip[row]) or [row])
    return NEEDS + " and ".join(missing) if missing else ""


@dataclass(frozen=True)
class Property:
    name: str
    rows: tuple[str, ...]  # "dtype" stands for the row of the case's dtype
    function: Callable[..., None]
    axes: tuple[Axis, ...]
    needs: tuple[Requirement, ...]
    compiles: bool
    internal: bool
    loop: tuple[str, ...] = ()  # the tags of the samples of each case
    uses: tuple[str, ...] = ()  # other rows without which it says nothing
    float64: bool = True  # whether it calls the operator in float64 only

    @property
    def takes_all_samples(self) -> bool:
        """Whether the function takes the names of all samples of the loop, and not one at a time."""
        return "names" in inspect.signature(self.function).parameters

    def cases(self, entry: OpEntry) -> Iterator[Case]:
        """The calls that check this property; none if the entry lacks what they need."""
        if self.missing(entry) or (self.loop and not entry.names(*self.loop)):
            return
        for cases in itertools.product(*(axis(entry) for axis in self.axes)):
            parameters = {k: v for case in cases for k, v in case.parameters.items()}
            yield Case("-".join(case.name for case in cases), parameters)

    def missing(self, entry: OpEntry) -> str:
        """Why this property cannot be checked, or an empty string."""
        own = (entry.skip[row] for row in self.rows if row in entry.skip)
        differentiates = DIFFERENTIABLE in self.needs
        reported = {DIFFERENTIABLE} if differentiates and "backward" in entry.skip else set()
        needs = (r.reason for r in self.needs if not r.holds(entry) and r not in reported)
        if reason := next(itertools.chain(own, needs), ""):
            return reason
        return lacking(entry, self.relies_on)

    @property
    def relies_on(self) -> tuple[str, ...]:
        """The rows without which this property says nothing."""
        implied = {"float64": self.float64, "backward": DIFFERENTIABLE in self.needs, "meta": self.compiles}
        return (*self.uses, *(row for row, uses in implied.items() if uses))

    def rows_of(self, case: Case) -> tuple[str, ...]:
        return tuple(str(case.parameters["dtype"])[6:] if row == "dtype" else row for row in self.rows)

    def run(self, entry: OpEntry, case: Case, say: Callable[[str], None] = lambda sample: None) -> None:
        """Raises an error if the operator does not have the property, ``NotCheckedError`` if it cannot be checked.
        Calls `say` with the name of each sample before it is used."""
        if not self.loop:
            self._call(entry, case.parameters)
            return
        skipped = []
        names = entry.names(*self.loop)
        failed: Exception | None = None
        if self.takes_all_samples:
            say("all samples")
            try:
                self._call(entry, {**case.parameters, "names": names})
                return
            except Exception as error:  # of which of them, the loop tells
                failed = error
        for name in names:
            say(name)
            sample = {"names": [name]} if self.takes_all_samples else {"name": name}
            try:
                self._call(entry, {**case.parameters, **sample})
            except NotCheckedError as reason:
                skipped.append(reason)
            except Exception as error:
                if name in str(error):
                    raise
                kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
                raise AssertionError(f"{name}: {kind}{error}") from error
        if len(skipped) == len(names):
            raise skipped[0]
        if failed:
            raise failed

    def _call(self, entry: OpEntry, parameters: dict[str, Any]) -> None:
        torch.manual_seed(0)
        if not self.compiles:
            self.function(entry, **parameters)
            return
        # Functions compiled earlier count neither as hits nor as recompiles.
        torch._dynamo.reset()
        try:
            self.function(entry, **parameters)
        finally:
            torch._dynamo.reset()


PROPERTIES: list[Property] = []


def causes(failing: Iterable[str]) -> dict[str, list[str]]:
    """The failing rows that rely on no other failing row, each with those that rely on it, if there are any."""
    rows = list(dict.fromkeys(failing))
    pairs = {(c, r) for p in PROPERTIES for r in p.rows for c in p.relies_on if r in rows and c in rows and r != c}
    # If two rows rely on each other, the first one is the cause.
    pairs -= {(c, r) for c, r in pairs if (r, c) in pairs and rows.index(r) < rows.index(c)}
    roots = [row for row in rows if row not in {r for _, r in pairs}]
    return {cause: followers for cause in roots if (followers := [r for r in rows if (cause, r) in pairs])}


def checks(
    *rows: str,
    over: Iterable[Axis | samples] = (),
    needs: Iterable[Requirement] = (),
    uses: Iterable[str] = (),
    compiles: bool = False,
    internal: bool | None = None,
    float64: bool = True,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds a function to the properties. It checks these rows, once for each case of the product of the axes.

    Uses: other rows without which it says nothing. Compiles: it runs the compiler. Internal: the suite checks it for
    internal operators too; by default unless it tests a transform, because those of the public operators call the
    internal ones. Float64: it needs an operator that takes float64; false for one of `dtypes` or `plain_dtypes`.
    A function with a parameter `names` is called with all samples, and with one at a time only if that fails.
    """
    unknown = {*rows, *uses} - {*ROWS, "dtype"}
    assert rows and not unknown, unknown
    loop = tuple(tag for axis in over if isinstance(axis, samples) for tag in axis.tags)
    axes = tuple(axis for axis in over if not isinstance(axis, samples))
    if internal is None:
        internal = not {*TRANSFORMS, "autocast"} & set(rows)

    float64 = float64 and not {dtypes, plain_dtypes} & set(axes)

    def add(function: Callable[..., None]) -> Callable[..., None]:
        PROPERTIES.append(
            Property(
                function.__name__, rows, function, axes, tuple(needs), compiles, internal, loop, tuple(uses), float64
            )
        )
        return function

    return add
