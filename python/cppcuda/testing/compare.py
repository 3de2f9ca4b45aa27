"""Comparison with a reference, which refuses results that only look right, and counting of kernels and bytes."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten_with_path, tree_leaves

from cppcuda.testing.samples import OpEntry, Sample, computed, is_variable

# ---------------------------------------------------------------- comparison


def assert_close(actual: Any, expected: Any, name: str = "", item: str = "output", /, **tolerance: float) -> None:
    """Compares nested tensors with those of a reference. A result that is all zero or all NaN where the reference is
    not is an error whatever the tolerance: it is what a derivative that does not exist looks like. A NaN equals a NaN,
    as in the mean of no values. In messages, a tensor has its key in a dict, or its position and the name `item`."""
    options: dict[str, Any] = {"check_dtype": False, "equal_nan": True, **tolerance}
    pairs = [tree_flatten_with_path(values)[0] for values in (actual, expected)]
    assert len(pairs[0]) == len(pairs[1]), f"{name}: {len(pairs[0])} tensors, expected {len(pairs[1])}"
    for (path, a), (_, e) in zip(*pairs, strict=True):
        keys = [str(getattr(key, "key", getattr(key, "idx", ""))) for key in path]
        label = f"{item} {', '.join(keys)}" if keys and keys[-1].isdigit() else "".join(keys[-1:])
        start = "".join(f"{part}: " for part in (name, label) if part)
        if isinstance(a, Tensor) and isinstance(e, Tensor):
            assert_not_vacuous(a, e, start)
        torch.testing.assert_close(a, e, **options, msg=lambda message: start + in_one_line(message))  # noqa: B023


def in_one_line(message: str) -> str:
    """A message of torch's assert_close, with three digits of each number."""
    message = re.sub(
        r"(?:Tensor-likes|Scalars) are not close!\s*(?:Mismatched elements: (\d+) / (\d+) \([\d.]+%\))?",
        lambda m: f"{m[1]} of {m[2]} elements differ;" if m[1] else "",
        message.strip(),
    )
    message = re.sub(r"\d+\.\d{3,}(e[-+]\d+)?", lambda m: f"{float(m[0]):.3g}", message)
    return re.sub(r"\)\s*Greatest", "); greatest", message).replace("\n", " ").replace("; Greatest", "; greatest")


def assert_close_or_ill_conditioned(
    actual: Any, expected: Any, sample: Sample, reference: Callable[[Sample], Any], name: str = "", item: str = "output"
) -> None:
    """The same, but a result may be as far off as `reference`, whose result is `expected`, for inputs that are rounded
    a hundred times more. Functions of derivatives of high order magnify rounding, by a factor that samples decide."""
    try:
        assert_close(actual, expected, name, item)
    except AssertionError:
        near = reference(nudged(sample))
        for a, e, n in zip(*map(tree_leaves, (actual, expected, near)), strict=True):
            change = largest_error(n, e)
            says_something = a.shape == e.shape and change <= 1e-6 * size_of(e)
            if not (says_something and torch.allclose(a, e, rtol=1e-7, atol=max(1e-7, 100 * change), equal_nan=True)):
                raise
            assert_not_vacuous(a, e)


def nudged(sample: Sample, roundings: float = 1) -> Sample:
    """A sample whose values differ by about one rounding, or by several."""
    generator = torch.Generator().manual_seed(0)

    def nudge(t: Tensor) -> Tensor:
        eps = torch.finfo(t.dtype).eps * roundings
        return t * (1 + eps * torch.randn(t.shape, generator=generator, dtype=t.dtype))

    return sample.map(nudge)


def assert_not_vacuous(actual: Tensor, expected: Tensor, start: str = "") -> None:
    """Asserts that a result is not all zero or all NaN if the reference's is not. `start` precedes the message."""
    if not is_variable(actual) or not actual.numel() or actual.is_meta:
        return
    if actual.isnan().all():
        assert expected.isnan().all(), f"{start}all NaN, which the reference is not"
    # The reference has rounding errors where the exact value is 0, and small values underflow in 16 bits.
    if size_of(expected) > rounded_to_zero(actual.dtype) and not actual.any():
        raise AssertionError(f"{start}all zero, which the reference is not: up to {size_of(expected):.3g}")


def rounded_to_zero(dtype: torch.dtype) -> float:
    """The size up to which the values of a reference may be zeros in this dtype."""
    return max(1e-12, torch.finfo(dtype).eps ** 2, torch.finfo(dtype).smallest_normal)


def assert_matches_reference(entry: OpEntry, sample: Sample, actual: tuple[Tensor, ...], factor: float = 1) -> None:
    """Compares with the reference in float64 on the same inputs, within the rounding of each output's dtype."""
    expected = computed(sample.double().call(entry.reference))
    assert len(actual) == len(expected), f"{sample.name}: {len(actual)} outputs, the reference has {len(expected)}"
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        what = f"{sample.name}: output {i}"
        if is_variable(a) or a.is_complex():
            tolerance = {k: v * factor for k, v in value_tolerance(entry, sample, a, e).items()}
            wide = torch.complex128 if a.is_complex() else torch.float64
            assert_close(a.to(wide), e.to(wide), what, **tolerance)
        else:
            assert_close(a, e.to(a.dtype), what, rtol=0, atol=0)


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal. A NaN equals a NaN."""
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


def size_of(t: Tensor) -> float:
    """The largest absolute value."""
    return float(t.detach().abs().max()) if t.numel() else 0.0


def coarsest_eps(sample: Sample) -> float:
    return max(torch.finfo(t.dtype).eps for t in sample.tensors)


def value_tolerance(entry: OpEntry, sample: Sample, actual: Tensor, expected: Tensor) -> dict[str, float]:
    """The tolerance of an output, compared with the reference in float64. An operator that the kit did not make may be
    as far off as the reference is in the same dtype, four times over: it may consist of several operators, too."""
    if entry.products:
        eps = coarsest_eps(sample) * entry.roundings
        return {"rtol": eps, "atol": eps * (1 + size_of(expected))}
    dtype = actual.real.dtype if actual.is_complex() else actual.dtype
    if not dtype.is_floating_point:
        return {"rtol": 0, "atol": 0}
    tolerance = {k: v * entry.roundings for k, v in entry.tolerance[dtype].items()}
    if not entry.made_with_kit:
        tolerance["atol"] = max(tolerance["atol"], 4 * error_of_reference(entry, sample))
    return tolerance


def described_tolerance(entry: OpEntry, dtype: torch.dtype) -> str:
    """What the values of outputs in this dtype are compared with, for reports."""
    rtol, atol = (entry.tolerance[dtype][k] * entry.roundings for k in ("rtol", "atol"))
    wider = dtype != torch.float64 and not entry.made_with_kit
    more = ", or four times its own error in this dtype" if wider else ""
    return f"within rtol={rtol:.2g}, atol={atol:.2g} of the reference in float64{more}"


def error_of_reference(entry: OpEntry, sample: Sample) -> float:
    """The largest error of the reference in the dtypes of a sample, and for values near it, because the few values of
    a small sample may be exact by chance. 0 if it cannot be called with them."""
    if all(t.dtype == torch.float64 for t in sample.tensors):
        return 0.0
    try:
        return max(error_of_rounding(entry, sample.map(partial(torch.mul, other=1 + k / 64))) for k in range(4))
    except Exception:
        return 0.0


def error_of_rounding(entry: OpEntry, sample: Sample) -> float:
    rounded, exact = (computed(s.call(entry.reference)) for s in (sample, sample.double()))
    pairs = [(r, e) for r, e in zip(rounded, exact, strict=True) if is_variable(r) and r.shape == e.shape]
    return max((largest_error(r, e) for r, e in pairs), default=0.0)


def largest_error(rounded: Tensor, exact: Tensor) -> float:
    """The largest difference of two tensors, of those that are finite."""
    return size_of(torch.nan_to_num(rounded.double() - exact.double(), 0.0, 0.0, 0.0))


def gradient_eps(entry: OpEntry, sample: Sample, t: Tensor, dtype: torch.dtype) -> float:
    """The eps of a gradient. Formulas of higher order round to `dtype` between their terms."""
    if entry.products:
        return coarsest_eps(sample) * entry.roundings / 4
    return torch.finfo(t.dtype if entry.backward else dtype).eps * max(1, entry.roundings)


def scalar(outputs: Iterable[Tensor]) -> Tensor:
    """A nonlinear function of the outputs, so that no derivative of any order is a constant by accident."""
    return total((t.sin() * (1 + t)).sum() for t in outputs)


def chosen(wanted: Iterable[bool]) -> str:
    """The inputs that a choice contains."""
    return " and ".join(f"input {i}" for i, w in enumerate(wanted) if w) or "no input"


def named(kind: str, tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    """Tensors with names for the messages of `assert_close`."""
    return {f"{kind} {i}": t for i, t in enumerate(tensors)}


def total(values: Iterable[Tensor]) -> Tensor:
    """The sum of tensors. There must be one."""
    first, *rest = values
    for t in rest:
        first = first + t
    return first


# Without a message, a call with bad input may raise any of these.
ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


class Caught:
    """The error that `raises` caught."""

    error: BaseException

    @property
    def first_line(self) -> str:
        return (str(self.error).splitlines() or [""])[0]


@contextmanager
def raises(
    kind: type[BaseException] | tuple[type[BaseException], ...], match: str = "", what: str = ""
) -> Iterator[Caught]:
    """Asserts that the body raises an error of this kind, in whose message `match` is found."""
    caught = Caught()
    try:
        yield caught
    except kind as error:
        assert re.search(match, str(error)), f"{what or 'the error'}: {error} does not match {match!r}"
        caught.error = error
    else:
        raise AssertionError(f"{what}: no error was raised" if what else "no error was raised")


def some_of(choices: Iterable[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    """At most `count` of the choices: the first, the last, and a random selection of the others that is always the
    same."""
    every = list(choices)
    if len(every) <= count:
        return every
    return [every[0], *random.Random(0).sample(every[1:-1], count - 2), every[-1]]


# ---------------------------------------------------------------- counting


def kernel_calls(name: str, f: Callable[[], Any]) -> int:
    """How often the kernel of an op ran. Transforms call the op again, so only the innermost calls count."""

    def inside(event: Any) -> bool:
        return any(child.name == name or inside(child) for child in event.cpu_children)

    return sum(event.name == name and not inside(event) for event in profiled(f).events() or ())


def calls_below_transforms(entry: OpEntry, f: Callable[[], Any]) -> int:
    """How often an op's kernel ran. The profiler does not see each call of an op that is defined in Python; a dispatch
    mode does, but it also sees the op that replaces one of the kit in a graph instead of that op."""
    if entry.made_with_kit:
        return kernel_calls(entry.qualified_name, f)
    return sum(op is entry.op for op, _ in calls(f))


def calls(f: Callable[[], Any]) -> list[tuple[Any, tuple[Any, ...]]]:
    """The operators that f calls, below transforms and autograd, each with its arguments that are not named."""
    with _Calls() as mode:
        f()
    return mode.calls


def dims_of_calls(namespace: str, f: Callable[[], Any]) -> list[tuple[str, tuple[int, ...]]]:
    """The operators of a namespace that f calls, below transforms and autograd, with the dims of their tensors."""
    return [
        (op._opname, tuple(a.dim() for a in args if isinstance(a, Tensor)))
        for op, args in calls(f)
        if op.namespace == namespace
    ]


class _Calls(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append((func, args))
        return func(*args, **(kwargs or {}))


def profiled(f: Callable[[], Any], **kwargs: Any) -> profile:
    with profile(activities=[ProfilerActivity.CPU], **kwargs) as prof:
        f()
    return prof


def allocated_bytes(f: Callable[[], Any]) -> int:
    """The bytes that a call allocates, also those that it frees again."""
    prof = profiled(f, profile_memory=True)
    return sum(max(event.self_cpu_memory_usage, 0) for event in prof.key_averages())


@contextmanager
def recorded_compiled_autograd(
    compile_graph: Callable[[torch.fx.GraphModule], Callable[..., Any]] = lambda graph: graph,
) -> Iterator[list[torch.fx.GraphModule]]:
    """Enables compiled autograd and yields the graphs that it captures. They run as captured, or compiled (slow)."""
    graphs: list[torch.fx.GraphModule] = []

    def compiler(graph: torch.fx.GraphModule) -> Callable[..., Any]:
        graphs.append(graph)
        return compile_graph(graph)

    from torch._dynamo import compiled_autograd  # it takes seconds, and few processes need it

    compiled_autograd.reset()
    with compiled_autograd._enable(compiler):
        yield graphs
