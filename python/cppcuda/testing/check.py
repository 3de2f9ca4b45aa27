"""``check``: every property of one operator, from a reference and a few calls, and the report about it."""

from __future__ import annotations

import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from cppcuda.testing.compare import nudged, scalar, size_of
from cppcuda.testing.matrix import markdown, text
from cppcuda.testing.registry import NEEDS, PROPERTIES, ROWS, NotCheckedError, Property
from cppcuda.testing.samples import (
    FLOAT_DTYPES,
    LAYOUTS,
    THIRD_ORDER,
    BadInput,
    OpEntry,
    Spec,
    T,
    is_variable,
    make_sample,
    outputs_of,
    variable_outputs,
)

# Samples with more elements are not used for derivatives of every order, which would take minutes.
MAX_BASIC = 64


@dataclass(frozen=True)
class Result:
    """What one property found in one case."""

    property: str
    case: str
    rows: tuple[str, ...]
    outcome: str  # "passed", "failed" or "not checked"
    reason: str = ""


class Report:
    """What ``check`` found. ``str(report)`` is a table; ``report.markdown()`` is the same table in Markdown."""

    def __init__(self, name: str, results: Sequence[Result], rows: Sequence[str] = ROWS) -> None:
        self.name = name
        self.results = tuple(results)
        self.rows = tuple(rows)

    def _rows_with(self, outcome: str) -> list[str]:
        return [row for row in self.rows if any(r.outcome == outcome for r in self.results if row in r.rows)]

    @property
    def failed(self) -> list[str]:
        """The names of the properties that do not hold, in the order of the report."""
        return self._rows_with("failed")

    @property
    def passed(self) -> list[str]:
        """The names of the properties that hold."""
        return [row for row in self._rows_with("passed") if row not in self.failed]

    @property
    def not_checked(self) -> dict[str, str]:
        """The names of the properties that were not checked, each with the reason."""
        checked = {*self.failed, *self.passed}
        return {row: self.reasons(row, "not checked") for row in self.rows if row not in checked}

    def reasons(self, row: str, outcome: str = "failed") -> str:
        """Why a property does not hold, or was not checked: the first reason of each test of it."""
        first: dict[str, str] = {}
        found = [r for r in self.results if row in r.rows and r.outcome == outcome]
        for r in [r for r in found if not r.property] or found:  # the caller's reason stands for all others
            case = f" ({r.case})" if r.case else ""
            first.setdefault(r.property, f"{r.property}{case}: {r.reason}" if outcome == "failed" else r.reason)
        return "; ".join(dict.fromkeys(first.values()))

    def needs(self, row: str) -> str:
        """The properties that the operator lacks, without which parts of another one were not checked."""
        found = {r.reason for r in self.results if row in r.rows and r.reason.startswith(NEEDS)}
        names = {name for reason in found for name in reason.removeprefix(NEEDS).split(" and ")}
        missing = [name for name in ROWS if name in names]
        return f"except for what needs {', '.join(missing)}" if missing else ""

    def _table(self) -> list[list[str]]:
        found = f"{len(self.failed)} of {len(self.rows)} fail" if self.failed else "nothing fails"
        table = [[f"`{self.name}`", found, ", ".join(self.failed)]]
        for row in self.rows:
            if row in self.failed:
                table.append([row, "**fails**", self.reasons(row)])
            elif row in self.passed:
                table.append([row, "yes", self.needs(row)])
            else:
                table.append([row, "not checked", self.not_checked[row]])
        return table

    def __str__(self) -> str:
        return text(self._table())

    __repr__ = __str__

    def markdown(self) -> str:
        """The report as a Markdown table."""
        return markdown([[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in self._table()])


def check(
    name: str,
    reference: Callable[..., Any],
    samples: Iterable[Sequence[Any]],
    *,
    only: Iterable[str] = (),
    skip: Iterable[str] | Mapping[str, str] = (),
    dtypes: Iterable[torch.dtype] = FLOAT_DTYPES,
    orders: int = 3,
    bad_inputs: Iterable[tuple[Sequence[Any], str | None]] = (),
    **expectations: Any,
) -> Report:
    """Checks every property of an operator against a reference.

    Args:
        name: The operator, ``"my_ops::swish"``.
        reference: A function of the same arguments, written with torch's operators.
        samples: The arguments of a few calls, each with a dict of keyword arguments at its end if there are any. Small
            tensors with different values are best.
        only: Names of properties, as in ``cppcuda.testing.ROWS``, that alone are checked.
        skip: Names of properties that are not checked, or such names with the reasons, which the report prints.
        dtypes: Those that the operator takes. The others are not checked.
        orders: How often its outputs can be differentiated in reverse mode: 0, 1, 2 or 3, which stands for any number.
        bad_inputs: Calls that must raise an error: arguments, and the first line of the message or ``None``.
        expectations: Other fields of :class:`cppcuda.testing.OpEntry`, such as ``roundings=3``.

    Other dtypes, strides, empty tensors and other numbers of rows are derived from the samples. What has no expectation
    and cannot be derived is listed as not checked. So is what relies on something that the operator lacks: if its
    second derivatives raise an error, only "double backward" fails, and nothing else is differentiated twice.
    """
    import cppcuda.testing.properties  # noqa: F401  (fills the registry; loads the compiler)

    reasons = _reasons(skip, dtypes, orders)
    rows = _selected_rows(only, skip)
    with witness(name) as say:
        entry = make_entry(name, reference, samples, bad_inputs, {"skip": dict(reasons), **expectations})
        results = [Result("", "", (row,), "not checked", reason) for row, reason in reasons.items()]
        results += skip_what_it_lacks(entry)
        for prop in PROPERTIES:
            if {*prop.rows, *(ROWS[:4] if "dtype" in prop.rows else ())} & {*rows}:
                results += _run(prop, entry, rows, say)
    return Report(name, results, rows)


# The last line of its input says what the process that calls `check` is doing; the others, what has failed.
WITNESS = """
import sys
lines = [line.strip() for line in sys.stdin]
if lines[-1] != "done":
    failed = [line for line in lines if line.startswith("fails: ")]
    print("\\n".join([*failed, "cppcuda.testing: the process ended in " + lines[-1]]), file=sys.stderr)
"""


@contextmanager
def witness(name: str) -> Iterator[Callable[[str], None]]:
    """A process that prints what happened before this one ended without a report, as after a write out of bounds."""
    command = [sys.executable, "-I", "-S", "-c", WITNESS]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdin
    pipe = process.stdin

    def say(text: str) -> None:
        pipe.write(f"{text}\n")
        pipe.flush()

    say(f"the first calls of {name}")
    try:
        yield say
    finally:
        say("done")
        pipe.close()
        process.wait()


def _reasons(skip: Iterable[str] | Mapping[str, str], dtypes: Iterable[torch.dtype], orders: int) -> dict[str, str]:
    """The rows that are not checked because the caller says so, each with the reason."""
    given = [*dtypes]
    reasons = {
        **{str(d)[6:]: "not among the dtypes that were given" for d in FLOAT_DTYPES if d not in given},
        **dict.fromkeys(("backward", "double backward", THIRD_ORDER)[orders:], f"orders={orders} was given"),
    }
    return {**reasons, **(skip if isinstance(skip, Mapping) else {})}


def _selected_rows(only: Iterable[str], skip: Iterable[str] | Mapping[str, str]) -> list[str]:
    only, left_out = list(only), list(skip)
    unknown = [row for row in (*only, *left_out) if row not in ROWS]
    if unknown:
        raise ValueError(f"check: there is no property {', '.join(map(repr, unknown))}; there are {', '.join(ROWS)}")
    in_report = [row for row in ROWS if row not in left_out or isinstance(skip, Mapping)]  # with its reason
    return [row for row in in_report if row in only or not only]


def _run(prop: Property, entry: OpEntry, rows: Sequence[str], say: Callable[[str], None]) -> list[Result]:
    missing = prop.missing(entry)
    cases = list(prop.cases(entry))
    if not cases:
        own = ROWS[:4] if "dtype" in prop.rows else prop.rows
        return [Result(prop.name, "", own, "not checked", missing or "there are no such samples")]
    results = []
    for case in cases:
        own = prop.rows_of(case)
        if not set(own) & set(rows):
            continue
        what = f"{prop.name} of {entry.name}{f' ({case.name})' if case.name else ''}"
        say(what)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as torch's about its own deprecations
                prop.run(entry, case, lambda sample: say(f"{what}, {sample}"))  # noqa: B023
            results.append(Result(prop.name, case.name, own, "passed"))
        except NotCheckedError as reason:
            results.append(Result(prop.name, case.name, own, "not checked", str(reason)))
        except Exception as error:
            results.append(Result(prop.name, case.name, own, "failed", _describe(error)))
            say(f"fails: {what}: {_describe(error)}")
    return results


def skip_what_it_lacks(entry: OpEntry) -> list[Result]:
    """Calls the operator in each way on which many properties rely. What raises an error is added to ``entry.skip``.
    Returns these errors, so that each is reported once."""
    results: list[Result] = []
    skip, name = entry.skip, entry.names("basic")[0]

    def try_(row: str, call: Callable[[OpEntry], Any]) -> None:
        if row in skip:
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(entry)
        except NotCheckedError as reason:
            skip[row] = str(reason)
        except Exception as error:
            skip[row] = _describe(error)
            own = row if row in ROWS else "double backward"
            results.append(Result("first_call", "", (own,), "failed", skip[row]))

    for dtype in FLOAT_DTYPES:
        try_(str(dtype)[6:], partial(call_in, name, dtype))
    if "float64" in skip:
        skip.update({row: f"{NEEDS}float64" for row in ROWS if row not in skip})
        return results
    if not any(is_variable(t) for t in entry.sample(name).bind(entry.op)(*entry.sample(name).tensors)):
        derivatives = ("backward", "double backward", "forward AD", "kept alive", "saved tensors")
        skip.update(dict.fromkeys(derivatives, "no output is floating point"))
    if entry.differentiable:
        for order, row in enumerate(("backward", "double backward", THIRD_ORDER), 1):
            try_(row, partial(nth_gradients, name, order))
        try_("forward AD", lambda e: torch.func.jvp(e.sample(name).bind(e.op), *[e.sample(name).tensors] * 2))
    one_of_two = lambda t: torch.stack([t, t])  # noqa: E731
    try_("vmap", lambda e: torch.vmap(e.sample(name).bind(e.op))(*map(one_of_two, e.sample(name).tensors)))
    try_("meta", partial(fake_outputs, name))
    return results


def call_in(name: str, dtype: torch.dtype, entry: OpEntry) -> None:
    entry.sample(name, dtype).call(entry.op)


def nth_gradients(name: str, order: int, entry: OpEntry) -> None:
    """Computes gradients of a function of gradients, and so on. An error if none of them is part of a graph, and those
    of the reference are."""
    sample = entry.sample(name).requires_grad()
    for f in (entry.reference, entry.op):
        values = variable_outputs(sample.call(f))
        for n in range(order):
            if not any(t.requires_grad for t in values):
                if f is entry.reference:
                    raise NotCheckedError(f"the reference has no derivative of order {n + 1}")
                what = (
                    "an output has no grad_fn: no kernel computes gradients" if n == 0 else "a gradient has no grad_fn"
                )
                raise AssertionError(what)
            options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
            values = torch.autograd.grad(scalar(values), sample.tensors, create_graph=True, **options)


def fake_outputs(name: str, entry: OpEntry) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        try:
            entry.sample(name).map_inputs(mode.from_tensor).call(entry.op)
        except DynamicOutputShapeException as error:
            raise NotCheckedError("the sizes of its outputs depend on values") from error


def _describe(error: Exception) -> str:
    """The first line of the message, or the line of the source if an assertion has no message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    if lines:
        return kind + " ".join(lines)[:300]
    frames = traceback.extract_tb(error.__traceback__)
    return f"{kind}{frames[-1].line}" if frames else type(error).__name__


# ---------------------------------------------------------------- what follows from the samples


def make_entry(
    name: str,
    reference: Callable[..., Any],
    samples: Iterable[Sequence[Any]],
    bad_inputs: Iterable[tuple[Sequence[Any], str | None]] = (),
    expectations: dict[str, Any] | None = None,
) -> OpEntry:
    """An entry with the samples and those that follow from them."""
    given = [tuple(args) for args in samples]
    if not given:
        raise ValueError("check: samples must be the arguments of at least one call")
    for args in given:
        if not any(is_variable(a) for a in args):
            raise ValueError("check: each sample must have a floating point tensor")
    bare = OpEntry(name, reference, (), differentiable=(expectations or {}).get("differentiable", True))
    try:
        op = bare.op
    except (AttributeError, IndexError) as error:
        raise ValueError(f"check: there is no operator {name!r} in torch.ops") from error

    def accepts(args: tuple[Any, ...]) -> bool:
        """Whether reference and operator take these arguments, and give outputs of the same shapes."""
        made = make_sample(Spec("", args), torch.float64, "cpu")
        try:
            shapes = [[t.shape for t in outputs_of(made.call(f))] for f in (reference, op)]
        except Exception:
            return False
        return shapes[0] == shapes[1]

    def is_well_posed(spec: Spec) -> bool:
        """Whether the reference takes a sample, and has nearly the same outputs and gradients for nearly the same
        values. Rows of equal values, for example, are singular matrices, and have no order and no variance."""
        exact = make_sample(spec, torch.float64, "cpu", constants=bare.constants)
        near = nudged(exact, 1e-14 / torch.finfo(torch.float64).eps)
        changes = []
        for sample in (exact.requires_grad(), near.requires_grad()):
            try:
                outputs = outputs_of(sample.call(reference))
                some = [t for t in variable_outputs(outputs) if t.requires_grad]
                options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
                grads = torch.autograd.grad(scalar(some), sample.tensors, **options) if some else ()
            except Exception:
                return False
            changes.append([*outputs, *grads])
        if [t.shape for t in changes[0]] != [t.shape for t in changes[1]]:
            return False
        return all(size_of(a * 1.0 - b) <= 1e-9 * size_of(a) for a, b in zip(*changes, strict=True))

    all_specs = [Spec(f"sample{i}", tuple(map(_as_argument, args)), "basic") for i, args in enumerate(given)]
    specs = [_basic_or_shape(spec) for spec in all_specs]
    if not any(spec.tag == "basic" for spec in specs):
        small = [spec for spec in map(_with_few_rows, all_specs) if accepts(spec.args)]
        specs += small if small else [Spec(f"{all_specs[0].name}_whole", all_specs[0].args, "basic")]
    for spec in all_specs:
        specs += [s for s in _with_layouts(spec) if is_well_posed(s)]
        empty = resized(spec.args, 0)
        if empty is not None and not has_indices_of_nothing(empty) and accepts(empty):
            specs.append(Spec(f"{spec.name}_empty", empty))
    first = all_specs[0].args

    def sized(rows: int) -> tuple[Any, ...]:
        args = resized(first, rows)
        assert args is not None
        return args

    changes = resized(first, 2) is not None and all(accepts(sized(n)) for n in (2, 3, 11))
    bad = tuple(BadInput(f"bad_input{i}", partial(tuple, a), m or "") for i, (a, m) in enumerate(bad_inputs))
    module = getattr(reference, "__module__", "")
    importable = () if module in ("__main__", "") or module not in sys.modules else (module,)
    fields: dict[str, Any] = {
        "specs": tuple(specs),
        "sized": sized if changes else None,
        "bad_inputs": bad,
        "strides": None,
        "modules": importable,
        **(expectations or {}),
    }
    entry = OpEntry(name=name, reference=reference, **fields)
    # What follows from a declaration, as far as operator and reference take it.
    derived = entry.all_specs[len(entry.specs) :]
    entry.__dict__["all_specs"] = (*entry.specs, *(s for s in derived if accepts(s.args)))
    return entry


def _as_argument(a: Any) -> Any:
    if not isinstance(a, Tensor):
        return a
    low, high = (float(f()) if is_variable(a) and a.numel() else 0.0 for f in (a.min, a.max))
    return T(tuple(a.shape), low=low, high=high, value=a.detach().clone())


def _basic_or_shape(spec: Spec) -> Spec:
    size = sum(a.value.numel() for a in spec.args if isinstance(a, T) and a.value is not None)
    return Spec(spec.name, spec.args, "basic" if size <= MAX_BASIC else "shape")


def _with_few_rows(spec: Spec) -> Spec:
    return Spec(f"{spec.name}_rows", resized(spec.args, 2) or spec.args, "basic")


def resized(args: tuple[Any, ...], rows: int) -> tuple[Any, ...] | None:
    """The arguments with another number of rows: of all tensors whose first dim has the size of the first tensor's.

    Rows are repeated. None if the first tensor has no dims or no rows.
    """
    first = next(a.value for a in args if isinstance(a, T) and a.value is not None)
    if not first.dim() or not first.shape[0]:
        return None
    size = first.shape[0]
    index = torch.arange(rows) % size

    def change(a: Any) -> Any:
        if isinstance(a, T) and a.value is not None and a.value.dim() and a.value.shape[0] == size:
            value = a.value[index.to(a.value.device)]
            return T(tuple(value.shape), value=value)
        return a

    return tuple(map(change, args))


def has_indices_of_nothing(args: tuple[Any, ...]) -> bool:
    """Whether the first tensor is empty and there are still indices, which may be out of range."""
    made = [a.value for a in args if isinstance(a, T) and a.value is not None]
    indices = [t for t in made if not is_variable(t)]
    return any(t.numel() for t in indices) and not made[0].numel()


def _with_layouts(spec: Spec) -> list[Spec]:
    """Each layout of all tensors together, and of each tensor alone, as far as it differs from a dense one."""
    tensors = [a for a in spec.args if isinstance(a, T)]
    found = []
    for label, layout in LAYOUTS.items():
        for which in ("all", *(range(len(tensors)) if len(tensors) > 1 else ())):
            layouts = tuple(
                layout if which in ("all", i) and is_variable(t.value) and len(t.shape) else None
                for i, t in enumerate(tensors)
            )
            laid_out = Spec(f"{spec.name}_{label}_{which}", spec.args, "stride", layouts)
            made = [a for a in make_sample(laid_out, torch.float64, "cpu").args if is_variable(a)]
            if any(not t.is_contiguous() or t.storage_offset() for t in made):
                found.append(laid_out)
    return found
