"""Autocast: dtypes of outputs and gradients, which are the same in compiled and eager mode."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor

from cppcuda.testing.compare import assert_close, named, scalar, size_of, some_of
from cppcuda.testing.registry import DIFFERENTIABLE, PUBLIC, Case, checks, devices, samples
from cppcuda.testing.samples import FLOAT_DTYPES, SIXTEEN_BIT, OpEntry, Sample, T, is_variable, make_tensor, outputs_of


def over_autocast(entry: OpEntry) -> list[Case]:
    """The parameter `cast`: autocast's dtypes, as far as the operator takes them."""
    return [Case(str(dtype)[6:], {"cast": dtype}) for dtype in SIXTEEN_BIT if dtype in entry.plain_dtypes]


def names_of(dtypes: Iterable[torch.dtype]) -> str:
    return ", ".join(str(dtype)[6:] for dtype in dtypes)


CASTABLE = [d for d in FLOAT_DTYPES if d != torch.float64]


def inputs_in_any_dtypes(entry: OpEntry, device: str) -> list[Sample]:
    """Samples with mixed dtypes, because autocast connects layers of different dtypes."""
    spec = entry.spec(entry.names("basic")[0])
    count = len(entry.sample(spec.name).tensors)
    samples = []
    castable = [d for d in CASTABLE if d in entry.plain_dtypes]
    for dtypes in some_of(itertools.product(castable, repeat=count), 60):
        it = iter(dtypes)

        def make(i: int, t: T, it: Iterator[torch.dtype] = it) -> Tensor:
            fixed = i in entry.constants or (t.value is not None and not is_variable(t.value))
            return make_tensor(t, torch.float32 if fixed else next(it), device, i)

        args = tuple(make(i, a) if isinstance(a, T) else a for i, a in enumerate(spec.args))
        samples.append(Sample(f"inputs of {names_of(dtypes)}", args, entry.constants))
    return samples


def takes(entry: OpEntry, sample: Sample, cast: torch.dtype, device: str) -> bool:
    """Whether the op accepts these dtypes under autocast (it does not accept float32 points with everything, say)."""
    try:
        with torch.autocast(device, cast):
            sample.call(entry.op)
    except RuntimeError as error:
        assert not entry.made_with_kit or "must be of dtype" in str(error), error
        return False
    return True


def assert_autocast_dtypes(entry: OpEntry, sample: Sample, outputs: tuple[Tensor, ...], cast: torch.dtype) -> None:
    found = tuple(t.dtype for t in outputs)
    dtypes = tuple(t.dtype for t in sample.tensors)
    what = f"{sample.name}, autocast to {names_of([cast])}"
    if entry.autocast_dtype or entry.declaration:
        if entry.autocast_dtype:
            of_rule = entry.autocast_dtype(dtypes, cast)
            expected = of_rule if isinstance(of_rule, tuple) else (of_rule,)
        elif entry.declaration:
            expected = entry.declaration.autocast_dtypes(sample.args, cast)
        assert found == expected, f"{what}: outputs of {names_of(found)}, expected {names_of(expected)}"
        return
    for i, t in enumerate(outputs):
        if is_variable(t):
            possible = {torch.float32, cast, *dtypes}
            assert t.dtype in possible, f"{what}: output {i} is {names_of([t.dtype])}"


@checks("autocast", over=(over_autocast, devices), needs=(PUBLIC,))
def dtypes_of_outputs_and_gradients(entry: OpEntry, device: str, cast: torch.dtype) -> None:
    tried = 0
    for sample in inputs_in_any_dtypes(entry, device):
        dtypes = tuple(t.dtype for t in sample.tensors)
        if not takes(entry, sample, cast, device):
            assert len(set(dtypes)) > 1, f"{sample.name}, autocast to {names_of([cast])}: the operator raises an error"
            continue
        tried += 1
        if entry.orders:
            sample = sample.requires_grad()
        with torch.autocast(device, cast):
            outputs = outputs_of(sample.call(entry.op))
        found = tuple(t.dtype for t in outputs)
        assert_autocast_dtypes(entry, sample, outputs, cast)
        for out, exact in zip(outputs, outputs_of(sample.double().call(entry.reference)), strict=True):
            assert_close(out.double(), exact.double(), sample.name, rtol=0.02, atol=0.02)
        if entry.orders:
            sums = [t.float().sum() for t in outputs if t.requires_grad]
            gradients = torch.autograd.grad(sums, sample.tensors, allow_unused=True, materialize_grads=True)
            assert tuple(g.dtype for g in gradients) == dtypes, f"{sample.name}: gradients of other dtypes"
        with torch.autocast(device, cast), torch.no_grad():
            again = tuple(t.dtype for t in outputs_of(sample.call(entry.op)))
            assert again == found, (
                f"{sample.name}: outputs of {names_of(again)} without a gradient, of {names_of(found)} with one"
            )
    assert tried >= len(CASTABLE), "only few dtypes are accepted"


@checks("autocast", over=(over_autocast,), needs=(PUBLIC,))
def ops_accept_what_autocast_produces(entry: OpEntry, cast: torch.dtype) -> None:
    """The ops accept what autocast itself produces: each tensor is in float32 or in the autocast dtype."""
    for sample in inputs_in_any_dtypes(entry, "cpu"):
        if all(t.dtype in (torch.float32, cast) for t in sample.tensors):
            what = f"{sample.name}, autocast to {names_of([cast])}"
            assert takes(entry, sample, cast, "cpu"), f"{what}: the operator raises an error"


@checks("autocast", over=(over_autocast,), needs=(DIFFERENTIABLE,), compiles=True)
def compiled_under_autocast(entry: OpEntry, cast: torch.dtype) -> None:
    """Outputs and gradients have the same dtypes as in eager mode, and the values of the reference."""
    samples = [s for s in inputs_in_any_dtypes(entry, "cpu") if takes(entry, s, cast, "cpu")]
    for sample in samples[:3]:
        f = sample.bind(entry.op)

        def run(*tensors: Tensor, f: Callable[..., Any] = f) -> Any:
            with torch.autocast("cpu", cast):
                return f(*tensors)

        found = []
        exact = sample.double()
        for call, inputs in (
            (run, sample),
            (torch.compile(run, fullgraph=True, backend="aot_eager"), sample),
            (exact.bind(entry.reference), exact),
        ):
            leaves = inputs.requires_grad().tensors
            out = call(*leaves)
            grads = torch.autograd.grad(scalar(out), leaves, allow_unused=True, materialize_grads=True)
            found.append({**named("output", out), **named("gradient", grads)})
        eager, compiled, expected = found
        assert_close(compiled, eager, sample.name, rtol=1e-2, atol=1e-2)
        for name, c in compiled.items():
            what, e = f"{sample.name}: {name}", expected[name]
            assert c.dtype == eager[name].dtype, f"{what} has another dtype than in eager mode"
            assert_close(c.double(), e, what, rtol=0.05, atol=0.05 * (1 + size_of(e)))


@checks(
    "autocast", over=(over_autocast, samples("basic")), needs=(DIFFERENTIABLE,), uses=("float32", "double backward")
)
def derivatives_inside_autocast(entry: OpEntry, name: str, cast: torch.dtype) -> None:
    """Backward and double backward inside the region: the formulas compute in the dtype of their inputs."""
    found = []
    for inside in (False, True):
        sample = entry.sample(name, torch.float32).requires_grad()
        with torch.autocast("cpu", cast):
            out = scalar(sample.bind(entry.op)(*sample.tensors))
        with torch.autocast("cpu", cast, enabled=inside):
            first = torch.autograd.grad(out, sample.tensors, create_graph=True, materialize_grads=True)
            second = torch.autograd.grad(scalar(first), sample.tensors, materialize_grads=True)
        found.append({**named("gradient", first), **named("second derivative", second)})
    assert all(t.dtype == torch.float32 for t in found[1].values()), (
        f"{name}: gradients of another dtype than the inputs"
    )
    if entry.made_with_kit:
        assert_close(found[0], found[1], name)
    else:  # a formula made from torch's ops is cast by autocast
        for what, b in found[1].items():
            assert_close(found[0][what], b, f"{name}: {what}", rtol=0.05, atol=0.05 * (1 + size_of(b)))


@checks(
    "autocast", over=(over_autocast, samples("basic")), needs=(DIFFERENTIABLE,), uses=("float32", "forward AD", "vmap")
)
def forward_mode_and_vmap_inside_autocast(entry: OpEntry, name: str, cast: torch.dtype) -> None:
    sample = entry.sample(name, torch.float32)
    f, x = sample.bind(entry.op), sample.tensors
    with torch.autocast("cpu", cast):
        out = f(*x)
        with fwad.dual_level():
            pairs = [fwad.unpack_dual(t) for t in f(*(fwad.make_dual(t, t) for t in x))]
        primals, tangents = torch.func.jvp(f, x, x)[:2]
        batched = torch.func.vmap(f)(*(torch.stack([t, t]) for t in x))
    # A rule of torch's own for a batch may round elsewhere.
    rounded: dict[str, float] = {} if entry.made_with_kit else {"rtol": 0.05, "atol": 0.05}
    assert_close(list(batched), [torch.stack([t, t]) for t in out], f"{name}, vmap", **rounded)
    dtypes = [t.dtype for t in out]
    eager = [(p.primal, torch.zeros_like(p.primal) if p.tangent is None else p.tangent) for p in pairs]
    for group in (primals, tangents, batched, *zip(*eager, strict=True)):
        assert [t.dtype for t in group] == dtypes, f"{name}: other dtypes under a transform"
    # torch.func enables autocast again for the ops inside a formula, so a formula must not use ops that it casts.
    if all(d == torch.float32 for d in dtypes):
        exact = sample.double()
        expected = torch.func.jvp(exact.bind(entry.reference), exact.tensors, exact.tensors)[1]
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if entry.made_with_kit else {"rtol": 0.05, "atol": 0.05}
        for found in ([t for _, t in eager], tangents):
            assert_close([t.double() for t in found], list(expected), name, "tangent", **tolerance)


@checks("autocast", needs=(PUBLIC,), uses=("float32",))
def disabled_inside(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0], torch.float32)
    expected = [t.dtype for t in outputs_of(sample.call(entry.op))]
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert [t.dtype for t in outputs_of(sample.call(entry.op))] == expected, "autocast is disabled, and casts"


@checks("autocast", needs=(PUBLIC,))
def float64_is_left_alone(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0])
    expected = [t.dtype for t in outputs_of(sample.call(entry.op))]
    with torch.autocast("cpu", torch.bfloat16):
        assert [t.dtype for t in outputs_of(sample.call(entry.op))] == expected, "float64 is cast"
