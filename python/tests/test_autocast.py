"""Autocast: dtypes of outputs and gradients, which are the same in compiled and eager mode."""

import itertools

import pytest
import torch
import torch.autograd.forward_ad as fwad
from op_samples import FLOAT_DTYPES, SIXTEEN_BIT, OpEntry, Sample, T, forward_ops, make_tensor, outputs_of
from support import assert_close, over_devices, over_ops, over_samples, scalar, some_of

over_autocast = pytest.mark.parametrize("cast", SIXTEEN_BIT, ids=str)
CASTABLE = [d for d in FLOAT_DTYPES if d != torch.float64]


def inputs_in_any_dtypes(entry: OpEntry, device: str) -> list[Sample]:
    """Samples with mixed dtypes, because autocast connects layers of different dtypes."""
    spec = entry.spec(entry.names("basic")[0])
    count = sum(isinstance(a, T) for a in spec.args)
    samples = []
    for dtypes in some_of(itertools.product(CASTABLE, repeat=count), 60):
        it = iter(dtypes)
        args = tuple(make_tensor(a, next(it), device, i) if isinstance(a, T) else a for i, a in enumerate(spec.args))
        samples.append(Sample(str(dtypes), args))
    return samples


def takes(entry: OpEntry, sample: Sample, cast: torch.dtype, device: str) -> bool:
    """Whether the op accepts these dtypes under autocast (it does not accept float32 points with everything, say)."""
    try:
        with torch.autocast(device, cast):
            entry.op(*sample.args)
    except RuntimeError as error:
        assert "must be of dtype" in str(error)
        return False
    return True


@pytest.mark.capability("autocast")
@over_autocast
@over_devices
@over_ops(forward_ops())
def test_dtypes(entry: OpEntry, device: str, cast: torch.dtype) -> None:
    tried = 0
    for sample in inputs_in_any_dtypes(entry, device):
        dtypes = tuple(t.dtype for t in sample.tensors)
        if not takes(entry, sample, cast, device):
            assert len(set(dtypes)) > 1, f"{dtypes} rejected"
            continue
        tried += 1
        sample = sample.requires_grad()
        with torch.autocast(device, cast):
            outputs = outputs_of(entry.op(*sample.args))
        found = tuple(t.dtype for t in outputs)
        expected = entry.autocast_dtype(dtypes, cast)
        assert found == (expected if isinstance(expected, tuple) else (expected,)), dtypes
        for out, exact in zip(outputs, outputs_of(entry.reference(*sample.double().args)), strict=True):
            assert_close(out.double(), exact, f"{dtypes}", rtol=0.02, atol=0.02)
        gradients = torch.autograd.grad(sum(t.float().sum() for t in outputs), sample.tensors)
        assert tuple(g.dtype for g in gradients) == dtypes
        with torch.autocast(device, cast), torch.no_grad():
            assert tuple(t.dtype for t in outputs_of(entry.op(*sample.args))) == found
    assert tried >= len(CASTABLE)


@pytest.mark.capability("autocast")
@over_autocast
@over_ops(forward_ops())
def test_ops_accept_what_autocast_produces(entry: OpEntry, cast: torch.dtype) -> None:
    """The ops accept what autocast itself produces: each tensor is in float32 or in the autocast dtype."""
    for sample in inputs_in_any_dtypes(entry, "cpu"):
        if all(t.dtype in (torch.float32, cast) for t in sample.tensors):
            assert takes(entry, sample, cast, "cpu"), sample.name


@pytest.mark.capability("autocast")
@over_autocast
@over_ops()
def test_compiled_is_eager(entry: OpEntry, cast: torch.dtype) -> None:
    """Outputs and gradients have the same dtypes, and therefore the same values."""
    torch._dynamo.reset()
    samples = [s for s in inputs_in_any_dtypes(entry, "cpu") if takes(entry, s, cast, "cpu")]
    for sample in samples[:3]:
        f = sample.bind(entry.op)

        def run(*tensors, f=f):
            with torch.autocast("cpu", cast):
                return f(*tensors)

        found = []
        for call in (run, torch.compile(run, fullgraph=True, backend="aot_eager")):
            leaves = sample.requires_grad().tensors
            out = call(*leaves)
            grads = torch.autograd.grad(scalar(out), leaves, allow_unused=True, materialize_grads=True)
            found.append([*out, *grads])
        assert [t.dtype for t in found[0]] == [t.dtype for t in found[1]]
        assert_close(*found, rtol=1e-2, atol=1e-2)


@pytest.mark.capability("autocast")
@over_autocast
@over_samples("basic")
def test_derivatives_inside_autocast(entry: OpEntry, name: str, cast: torch.dtype) -> None:
    """Backward and double backward inside the region: the formulas compute in the dtype of their inputs."""
    found = []
    for inside in (False, True):
        sample = entry.sample(name, torch.float32).requires_grad()
        with torch.autocast("cpu", cast):
            out = scalar(sample.bind(entry.op)(*sample.tensors))
        with torch.autocast("cpu", cast, enabled=inside):
            first = torch.autograd.grad(out, sample.tensors, create_graph=True, materialize_grads=True)
            second = torch.autograd.grad(scalar(first), sample.tensors, materialize_grads=True)
        found.append([*first, *second])
    assert all(t.dtype == torch.float32 for t in found[1])
    assert_close(*found, name)


@pytest.mark.capability("autocast")
@over_autocast
@over_samples("basic")
def test_forward_mode_and_vmap_inside_autocast(entry: OpEntry, name: str, cast: torch.dtype) -> None:
    sample = entry.sample(name, torch.float32)
    f, x = sample.bind(entry.op), sample.tensors
    with torch.autocast("cpu", cast):
        out = f(*x)
        with fwad.dual_level():
            pairs = [fwad.unpack_dual(t) for t in f(*(fwad.make_dual(t, t) for t in x))]
        primals, tangents = torch.func.jvp(f, x, x)
        batched = torch.func.vmap(f)(*(torch.stack([t, t]) for t in x))
    assert_close([torch.stack([t, t]) for t in out], list(batched))
    dtypes = [t.dtype for t in out]
    for group in (primals, tangents, batched, *zip(*pairs, strict=True)):
        assert [t.dtype for t in group] == dtypes
    # torch.func enables autocast again for the ops inside a formula, so a formula must not use ops that it casts.
    if all(d == torch.float32 for d in dtypes):
        expected = torch.func.jvp(f, x, x)[1]
        assert_close([p.tangent for p in pairs], list(expected), name)
        assert_close(list(tangents), list(expected), name)


@over_ops(forward_ops())
def test_disabled_inside(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0], torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert all(t.dtype == torch.float32 for t in outputs_of(entry.op(*sample.args)))


@over_ops(forward_ops())
def test_float64_is_left_alone(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert all(t.dtype == torch.float64 for t in outputs_of(entry.op(*sample.args)))
