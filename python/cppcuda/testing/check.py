"""``check``: every property of one operator, from a reference and a few calls, and the report about it."""

from __future__ import annotations

import re
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from cppcuda.testing.compare import (
    assert_close,
    assert_close_or_ill_conditioned,
    assert_matches_reference,
    described_tolerance,
    nudged,
    scalar,
    size_of,
)
from cppcuda.testing.functions import Call, checks_of, is_function
from cppcuda.testing.matrix import markdown, text
from cppcuda.testing.registry import NEEDS, PROPERTIES, ROWS, NotCheckedError, Property, lacking, needed
from cppcuda.testing.samples import (
    FLOAT_DTYPES,
    LAYOUTS,
    THIRD_ORDER,
    BadInput,
    OpEntry,
    Sample,
    Spec,
    T,
    apply,
    computed,
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

    def __str__(self) -> str:
        case = f" ({self.case})" if self.case else ""
        return f"{self.property}{case}: {self.reason}" if self.property else self.reason


class Report:
    """What ``check`` found. ``str(report)`` is a table; ``report.markdown()`` is the same table in Markdown."""

    def __init__(
        self, name: str, results: Sequence[Result], rows: Sequence[str] = ROWS, notes: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.results = tuple(results)
        # What a row relies on is in the report if it fails, also if the caller did not select it.
        causes = {cause for r in results if {*r.rows} & {*rows} for cause in needed(r.reason)}
        failed = {row for r in results if r.outcome == "failed" for row in r.rows}
        self.rows = tuple(row for row in ROWS if row in rows or row in causes & failed)
        self.notes = notes or {}  # on rows that hold

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
        if outcome == "not checked":  # the caller's reason stands for all others, and then what the operator lacks
            of_caller = [r for r in found if not r.property]
            found = (of_caller or [r for r in found if needed(r.reason)] or found)[:1]
        for r in found:
            first.setdefault(r.property, str(r) if outcome == "failed" else r.reason)
        return "; ".join(dict.fromkeys(first.values()))

    def needs(self, row: str) -> str:
        """The properties that the operator lacks, without which parts of another one were not checked."""
        names = {name for r in self.results if row in r.rows for name in needed(r.reason)}
        missing = [name for name in (*ROWS, THIRD_ORDER) if name in names]
        return f"except for what needs {', '.join(missing)}" if missing else ""

    def _table(self) -> list[list[str]]:
        """What fails, the causes first; then what was not checked; then what holds."""
        found = f"{len(self.failed)} of {len(self.rows)} fail" if self.failed else "nothing fails"
        table = [[f"`{self.name}`", found, ", ".join(self.failed)]]
        for row in self.failed:
            first, *others = (r for r in self.results if row in r.rows and r.outcome == "failed")
            names = ", ".join(dict.fromkeys(r.property for r in others if r.property != first.property))
            table.append([row, "**fails**", f"{first} (also fails: {names})" if names else str(first)])
        for row, reason in self.not_checked.items():
            causes = {*needed(reason)}
            fails = f", which fail{'s' if len(causes) == 1 else ''}" if causes and causes <= {*self.failed} else ""
            table.append([row, "not checked", reason + fails])
        table += [[row, "yes", ", ".join(filter(None, (self.notes.get(row), self.needs(row))))] for row in self.passed]
        rest = len(ROWS) - len(self.rows)
        return [*table, [f"{rest} others", "not checked", "not among those of only="]] if rest else table

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
    and cannot be derived is listed as not checked. So is what relies on a property that fails: if the gradient of the
    first sample is wrong, only "backward" fails, and nothing else is differentiated.
    """
    import cppcuda.testing.properties  # noqa: F401  (fills the registry; loads the compiler)

    reasons = _reasons(skip, dtypes, orders)
    rows = _selected_rows(only, skip)
    op = operator(name)
    if is_function(op):
        if expectations:
            raise ValueError(f"check: {', '.join(expectations)} cannot be given for {name}; {FUNCTIONS}")
        taken = tuple(d for d in FLOAT_DTYPES if str(d)[6:] not in reasons)
        call = Call(op, reference, (), orders, taken, tuple(bad_inputs))
        with witness(name) as say:
            return Report(name, list(_check_function(call, [*samples], reasons, rows, say)), rows)
    with witness(name) as say:
        entry = make_entry(name, reference, samples, bad_inputs, {"skip": dict(reasons), **expectations})
        results = [Result("", "", (row,), "not checked", reason) for row, reason in reasons.items()]
        results += skip_what_it_lacks(entry, say)
        for prop in PROPERTIES:
            if {*prop.rows, *(ROWS[:4] if "dtype" in prop.rows else ())} & {*rows}:
                results += _run(prop, entry, rows, say)
    return Report(name, results, rows, {str(d)[6:]: described_tolerance(entry, d) for d in FLOAT_DTYPES})


FUNCTIONS = "it writes to arguments, takes or returns lists of tensors, or returns other values than tensors"
NOT_OF_FUNCTIONS = "not for operators that write, that take lists, or that return lists or other values than tensors"


def _check_function(
    call: Call,
    samples: Sequence[Sequence[Any]],
    reasons: Mapping[str, str],
    rows: Sequence[str],
    say: Callable[[str], None],
) -> Iterator[Result]:
    """The results for an operator whose properties are those of cppcuda.testing.functions."""
    name = str(call.op)
    checked = set()
    for row, check_name, run in checks_of(call, [tuple(s) for s in samples]):
        checked.add(row)
        if row in reasons or row not in rows:
            continue
        torch.manual_seed(0)
        yield _result(Result(check_name, "", (row,), "passed"), f"{check_name} of {name}", run, say)
    for row in ROWS:
        if row in reasons or row not in checked:
            yield Result("", "", (row,), "not checked", reasons.get(row, NOT_OF_FUNCTIONS))


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
    return {**reasons, **(skip if isinstance(skip, Mapping) else dict.fromkeys(skip, "left out with skip="))}


def _selected_rows(only: Iterable[str], skip: Iterable[str] | Mapping[str, str]) -> list[str]:
    only, left_out = list(only), list(skip)
    unknown = [row for row in (*only, *left_out) if row not in ROWS]
    if unknown:
        raise ValueError(f"check: there is no property {', '.join(map(repr, unknown))}; there are {', '.join(ROWS)}")
    return [row for row in ROWS if row in only or not only]


def _run(prop: Property, entry: OpEntry, rows: Sequence[str], say: Callable[[str], None]) -> list[Result]:
    missing = prop.missing(entry)
    cases = list(prop.cases(entry))
    if not cases:
        own = ROWS[:4] if "dtype" in prop.rows else prop.rows
        reasons = {row: entry.skip.get(row) or missing or "there are no such samples" for row in own}
        return [Result(prop.name, "", (row,), "not checked", reason) for row, reason in reasons.items()]
    results = []
    for case in cases:
        own = prop.rows_of(case)
        if not set(own) & set(rows):
            continue
        what = f"{prop.name} of {entry.name}{f' ({case.name})' if case.name else ''}"
        run = partial(prop.run, entry, case, lambda sample: say(f"{what}, {sample}"))  # noqa: B023
        results.append(_result(Result(prop.name, case.name, own, "passed"), what, run, say))
    return results


def _result(passed: Result, what: str, run: Callable[[], None], say: Callable[[str], None]) -> Result:
    """The result of a run: `passed`, or the same with another outcome."""
    say(what)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as torch's about its own deprecations
            run()
    except NotCheckedError as reason:
        return replace(passed, outcome="not checked", reason=str(reason))
    except Exception as error:
        say(f"fails: {what}: {_describe(error)}")
        return replace(passed, outcome="failed", reason=_describe(error))
    return passed


# Rows that say nothing about an operator whose output shares memory with an input, which autograd and compilers assume
# that it does not.
NEED_NEW_MEMORY = (
    "kept alive", "saved tensors", "torch.func", "compile", "compiled autograd", "export", "AOTInductor", "autocast",
    "meta",
)  # fmt: skip


def skip_what_it_lacks(entry: OpEntry, say: Callable[[str], None] = lambda text: None) -> list[Result]:
    """Calls the operator in each way on which many properties rely, and compares the results with the reference's. What
    fails is added to ``entry.skip``. Returns these failures, so that each is reported once."""
    from cppcuda.testing.properties.autograd import forward_mode_against_reference
    from cppcuda.testing.properties.values import output_is_new_memory

    results: list[Result] = []
    skip, name = entry.skip, entry.names("basic")[0]

    def try_(row: str, call: Callable[[], Any], *needs: str) -> None:
        if row in skip:
            return
        try:
            if reason := lacking(entry, needs):
                raise NotCheckedError(reason)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call()
        except NotCheckedError as reason:
            skip[row] = str(reason)
        except Exception as error:
            skip[row] = _describe(error)
            own = row if row in ROWS else "double backward"
            results.append(Result("", "", (own,), "failed", skip[row]))
            say(f"fails: {own} of {entry.name}: {skip[row]}")
            say(f"the first calls of {entry.name}")

    for dtype in FLOAT_DTYPES:
        try_(str(dtype)[6:], partial(call_in, entry, name, dtype))
    taken = entry.plain_dtypes
    # So far off that all other comparisons would fail, too.
    try_("float64", lambda: assert_matches_reference(entry, (s := entry.sample(name)), computed(s.call(entry.op)), 1e4))
    if entry.plain_dtypes != taken:
        skip.setdefault("backward", f"{NEEDS}float64")
    if not entry.plain_dtypes:
        skip.update({row: f"{NEEDS}float64" for row in ROWS if row not in skip})
        return [replace(r, reason=f"{r.reason}; nothing could be compared in any dtype") for r in results]
    sample = entry.sample(name, entry.widest_dtype)
    try_("strides", partial(compare_strided, entry))
    if not any(r.alias_info for r in entry.op._schema.returns):
        try_("aliasing", partial(output_is_new_memory, entry, name, "cpu"))
        if any(r.rows == ("aliasing",) for r in results):
            skip.update({row: f"{NEEDS}aliasing" for row in NEED_NEW_MEMORY if row not in skip})
    if not any(is_variable(t) for t in sample.bind(entry.op)(*sample.tensors)):
        derivatives = ("backward", "double backward", "forward AD", "kept alive", "saved tensors")
        skip.update(dict.fromkeys(derivatives, "no output is floating point"))
    if entry.differentiable:
        try_("backward", partial(compare_gradients, entry, sample, 1))
        try_("double backward", partial(compare_gradients, entry, sample, 2), "backward")
        try_(THIRD_ORDER, partial(compare_gradients, entry, sample, 3), "double backward")
        try_("forward AD", partial(forward_mode_against_reference, entry, name), "float64")
        try_("forward AD", lambda: torch.func.jvp(sample.bind(entry.op), *[sample.tensors] * 2))
    try_("vmap", partial(compare_vmap, entry, sample))
    try_("meta", partial(compare_fake_outputs, entry, sample))
    return results


def call_in(entry: OpEntry, name: str, dtype: torch.dtype) -> None:
    try:
        entry.sample(name, dtype).call(entry.op)
    except Exception as error:
        raise AssertionError(f"{_describe(error)} (dtypes= can say which dtypes the operator takes)") from error


def compare_strided(entry: OpEntry) -> None:
    factor = 1e4 if entry.widest_dtype == torch.float64 else 1
    for sample in (entry.sample(name, entry.widest_dtype) for name in entry.names("stride")):
        assert_matches_reference(entry, sample, computed(sample.call(entry.op)), factor)


def nth_gradients(f: Callable[..., Any], sample: Sample, order: int) -> dict[str, Tensor]:
    """The gradients of a function of gradients, and so on. An error if none of them is part of a graph."""
    sample = sample.requires_grad()
    values = variable_outputs(sample.call(f))
    for n in range(order):
        if not any(t.requires_grad for t in values):
            what = "an output has no grad_fn: no kernel computes gradients" if n == 0 else "a gradient has no grad_fn"
            raise AssertionError(what)
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        values = torch.autograd.grad(scalar(values), sample.tensors, create_graph=n + 1 < order, **options)
    kind = ("gradient", "second derivative", "third derivative")[order - 1]
    return {f"the {kind} of input {i} is wrong": t for i, t in enumerate(values)}


def compare_gradients(entry: OpEntry, sample: Sample, order: int) -> None:
    of_reference = partial(nth_gradients, entry.reference, order=order)
    try:
        expected = of_reference(sample)
    except AssertionError as error:
        raise NotCheckedError(f"of the reference, {error}") from None
    actual = nth_gradients(entry.op, sample, order)
    if sample.tensors[0].dtype == torch.float64:
        assert_close_or_ill_conditioned(actual, expected, sample, of_reference)


def compare_vmap(entry: OpEntry, sample: Sample) -> None:
    actual = torch.vmap(sample.bind(entry.op))(*(torch.stack([t, t]) for t in sample.tensors))
    if sample.tensors[0].dtype == torch.float64:
        assert_close(actual, tuple(torch.stack([t, t]) for t in sample.bind(entry.reference)(*sample.tensors)))


def compare_fake_outputs(entry: OpEntry, sample: Sample) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        try:
            fake = outputs_of(sample.map_inputs(mode.from_tensor).call(entry.op))
        except DynamicOutputShapeException as error:
            raise NotCheckedError("the sizes of its outputs depend on values") from error
    shapes = ([tuple(t.shape) for t in outputs] for outputs in (fake, outputs_of(sample.call(entry.op))))
    for i, (predicted, real) in enumerate(zip(*shapes, strict=True)):
        assert predicted == real, f"the fake kernel returns output {i} with shape {predicted}, its shape is {real}"


# What torch says about an operator, which is not always the one that is checked, and the same in plain words.
NO_FAKE_KERNEL = "{} has no fake kernel: register one with torch.library.register_fake"
PLAIN_WORDS = (
    (r"no fake impl registered for <CustomOpDef\((\S+?)\)>", NO_FAKE_KERNEL),
    (r"UnsupportedOperatorException: (\S+)", NO_FAKE_KERNEL),
    (r"Could not run '(\S+)' with arguments from the 'Meta' backend", NO_FAKE_KERNEL),
    (r"Trying to use forward AD with (\S+) that does not support it", "{} has no forward mode (jvp)"),
    (r"must implement the jvp", "no forward mode: the autograd.Function must implement jvp"),
    (r"backward through (\S+) but no autograd formula was registered",
     "{} has no gradient: register one with torch.library.register_autograd"),
    (r"Batching rule not implemented for (\S+?)[.;,]? ",
     "{} has no batching rule: register one with torch.library.register_vmap"),
)  # fmt: skip
BOILERPLATE = (
    r"OpCheckError: opcheck\(op, \.\.\.\): \w+ failed with ", r"\(scroll up for stack trace\)", r",?\s*numerical:.*",
    r"This could mean that.*", r"For more details.*", r"Set TORCHDYNAMO_VERBOSE.*", r"Exception raised from.*",
    r"Traceback \(most recent call last\).*",
)  # fmt: skip


def _describe(error: Exception) -> str:
    """The message in one line, or the line of the source if an assertion has no message."""
    message = " ".join(str(error).split("\nassert ")[0].split())  # without what pytest adds to it
    kind = "" if isinstance(error, AssertionError) else f"{type(error).__name__}: "
    if not message:
        frames = traceback.extract_tb(error.__traceback__)
        return f"{kind}{frames[-1].line}" if frames else type(error).__name__
    message = kind + message
    for pattern, words in PLAIN_WORDS:
        if found := re.search(pattern, message):
            return words.format(*found.groups())
    for pattern in BOILERPLATE:
        message = re.sub(pattern, "", message)
    return message if len(message) <= 300 else f"{message[:300].rsplit(' ', 1)[0]} ..."


# ---------------------------------------------------------------- what follows from the samples


def operator(name: str) -> Any:
    try:
        return OpEntry(name, apply, ()).op
    except (AttributeError, IndexError) as error:
        raise ValueError(f"check: there is no operator {name!r} in torch.ops") from error


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
    op = operator(name)

    def accepts(args: tuple[Any, ...], dtype: torch.dtype | None = None) -> bool:
        """Whether reference and operator take these arguments, and give outputs of the same shapes."""
        made = make_sample(Spec("", args), dtype or taken, "cpu")
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
    taken = next((d for d in FLOAT_DTYPES if accepts(all_specs[0].args, d)), torch.float64)
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
    bad = tuple(BadInput(f"bad_inputs[{i}]", partial(tuple, a), m or "") for i, (a, m) in enumerate(bad_inputs))
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
