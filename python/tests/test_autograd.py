"""Gradients of every order, in reverse and forward mode, and what the graph keeps in memory."""

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
import torch.autograd.forward_ad as fwad
from op_samples import OPS, OpEntry, Sample, computed
from support import (
    assert_close,
    gradient_eps,
    over_devices,
    over_dtypes,
    over_ops,
    over_samples,
    scalar,
    size_of,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

# All five utilities of opcheck, which are more than its default.
OPCHECK_UTILITIES = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_static",
    "test_aot_dispatch_dynamic",
)


def gradients(f: Callable[..., tuple[Tensor, ...]], sample: Sample) -> tuple[Tensor | None, ...]:
    sample = sample.requires_grad()
    return torch.autograd.grad(scalar(f(*sample.tensors)), sample.tensors, allow_unused=True)


@contextmanager
def record_saved() -> Iterator[list[Tensor]]:
    """The tensors that graphs save for backward."""
    packed: list[Tensor] = []

    def pack(t: Tensor) -> Tensor:
        packed.append(t)
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        yield packed


# ---------------------------------------------------------------- formulas


@pytest.mark.capability("backward")
@pytest.mark.capability("forward AD")
@over_samples("basic")
def test_gradcheck(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    assert gradcheck(
        sample.bind(entry.op),
        sample.tensors,
        check_forward_ad=True,
        check_backward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
        check_undefined_grad=True,
    )


@pytest.mark.capability("double backward")
@over_samples("basic")
def test_gradgradcheck(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    assert gradgradcheck(
        sample.bind(entry.op),
        sample.tensors,
        check_fwd_over_rev=True,
        check_rev_over_rev=True,
        check_batched_grad=True,
        check_undefined_grad=True,
    )


@pytest.mark.capability("backward")
@over_devices
@over_dtypes()
def test_gradients_against_float64(entry: OpEntry, dtype: torch.dtype, mixed: bool, device: str) -> None:
    """In every dtype, for every sample; both sides get the same incoming gradient."""
    for name in entry.names("basic", "shape", "stride"):
        sample = entry.sample(name, dtype, device, mixed).requires_grad()
        outputs = sample.bind(entry.op)(*sample.tensors)
        if not outputs:
            continue
        cotangents = [torch.randn(t.shape, dtype=torch.float64, device=device).to(t.dtype) for t in outputs]
        actual = torch.autograd.grad(outputs, sample.tensors, cotangents, allow_unused=True, materialize_grads=True)
        exact = sample.double().requires_grad()
        expected = torch.autograd.grad(
            exact.bind(entry.reference)(*exact.tensors),
            exact.tensors,
            [c.double() for c in cotangents],
            allow_unused=True,
            materialize_grads=True,
        )
        for t, a, e in zip(sample.tensors, actual, expected, strict=True):
            assert a.dtype == t.dtype and a.shape == t.shape, name
            eps = gradient_eps(entry, sample, t, dtype)
            assert_close(a.double(), e, name, rtol=4 * eps, atol=8 * eps * (1 + size_of(e)))


@over_samples("basic")
def test_gradient_of_a_sum(entry: OpEntry, name: str) -> None:
    """sum().backward() passes an expanded gradient, whose strides are all 0."""
    sample, plain = (entry.sample(name).requires_grad() for _ in range(2))
    sum(t.sum() for t in sample.bind(entry.op)(*sample.tensors)).backward()
    sum(t.sum() for t in plain.bind(entry.reference)(*plain.tensors)).backward()
    for a, b in zip(sample.tensors, plain.tensors, strict=True):
        assert_close(*(torch.zeros_like(t) if t.grad is None else t.grad for t in (a, b)), name)


@pytest.mark.capability("double backward")
@over_samples("basic")
def test_third_order(entry: OpEntry, name: str) -> None:
    def third(f) -> list[Tensor]:
        sample = entry.sample(name).requires_grad()
        value = scalar(sample.bind(f)(*sample.tensors))
        for _ in range(3):
            grads = torch.autograd.grad(value, sample.tensors, create_graph=True, materialize_grads=True)
            value = scalar(grads)
        return list(grads)

    assert_close(third(entry.op), third(entry.reference), name)


@over_samples("basic")
def test_each_gradient_alone(entry: OpEntry, name: str) -> None:
    """The bits of a gradient are the same, whichever other gradients are requested."""
    sample = entry.sample(name)
    together = gradients(sample.bind(entry.op), sample)
    for wanted in itertools.product((False, True), repeat=len(sample.tensors)):
        if not any(wanted):
            continue
        tensors = tuple(t.detach().requires_grad_(w) for t, w in zip(sample.tensors, wanted, strict=True))
        out = scalar(sample.bind(entry.op)(*tensors))
        some = [t for t in tensors if t.requires_grad]
        if not out.requires_grad:
            continue
        expected = [g for g, w in zip(together, wanted, strict=True) if w]
        for a, e in zip(torch.autograd.grad(out, some, allow_unused=True), expected, strict=True):
            assert (a is None and (e is None or not e.any())) or torch.equal(a, e)


@over_samples("basic")
def test_one_output_used(entry: OpEntry, name: str) -> None:
    """Then the gradient of the other output is undefined, in the op and in its derivatives."""
    for o in range(len(entry.sample(name).bind(entry.op)(*entry.sample(name).tensors))):
        results = []
        for f in (entry.op, entry.reference):
            sample = entry.sample(name).requires_grad()
            out = sample.bind(f)(*sample.tensors)[o]
            first = torch.autograd.grad(scalar((out,)), sample.tensors, create_graph=True, materialize_grads=True)
            second = torch.autograd.grad(scalar(first), sample.tensors, materialize_grads=True)
            results.append((*first, *second))
        assert_close(*results, name)


@over_samples("basic")
@pytest.mark.parametrize("utility", OPCHECK_UTILITIES)
def test_opcheck(entry: OpEntry, name: str, utility: str) -> None:
    for sample in (entry.sample(name), entry.sample(name).requires_grad()):
        torch.library.opcheck(entry.op, sample.args, test_utils=utility)


@pytest.mark.capability("strides")
@over_samples("stride")
def test_opcheck_of_layouts(entry: OpEntry, name: str) -> None:
    torch.library.opcheck(
        entry.op, entry.sample(name).requires_grad().args, test_utils=("test_schema", "test_faketensor")
    )


# ---------------------------------------------------------------- the graph


@over_ops()
def test_only_what_is_needed_is_saved(entry: OpEntry) -> None:
    """A gradient that does not read an input does not keep it alive."""
    name = entry.names("basic")[0]
    for wanted, read in entry.saved_for.items():
        sample = entry.sample(name)
        tensors = tuple(t.clone() for t in sample.tensors)
        tensors[wanted].requires_grad_()
        with record_saved() as packed:
            out = sample.bind(entry.op)(*tensors)
        saved = {i for i, t in enumerate(tensors) if any(p.data_ptr() == t.data_ptr() for p in packed)}
        assert saved == read, f"gradient of argument {wanted}"
        del out, packed

        out = sample.bind(entry.op)(*tensors)
        alive = [weakref.ref(t.untyped_storage()) for t in tensors]
        inputs = [tensors[wanted]]
        del tensors
        gc.collect()
        for i, ref in enumerate(alive):
            assert (ref() is not None) == (i in read or i == wanted), f"gradient of {wanted}, input {i}"
        torch.autograd.grad(scalar(out), inputs)


@over_ops()
def test_nothing_is_saved_without_grad(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    with record_saved() as packed:
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert not any(t.requires_grad for t in computed(entry.op(*sample.args)))
        assert not any(t.requires_grad for t in computed(entry.op(*sample.map(Tensor.detach).args)))
    assert not packed


@over_ops()
def test_saved_tensor_modified_in_place(entry: OpEntry) -> None:
    name = entry.names("basic")[0]
    for wanted, read in entry.saved_for.items():
        for modified in range(len(entry.sample(name).tensors)):
            sample = entry.sample(name)
            tensors = tuple(t.clone() for t in sample.tensors)
            tensors[wanted].requires_grad_()
            out = sum(t.sum() for t in sample.bind(entry.op)(*tensors))
            with torch.no_grad():
                tensors[modified].add_(1)
            if modified in read:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    out.backward()
            else:
                out.backward()


@over_samples("basic")
def test_backward_twice(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    out = sum(t.sum() for t in sample.bind(entry.op)(*sample.tensors))
    first = torch.autograd.grad(out, sample.tensors, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(out, sample.tensors, allow_unused=True)
    assert_close(first, again)


class Packed:
    """Replaces a saved tensor; unlike a tensor, it can be weakly referenced."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


@over_samples("basic")
def test_backward_frees_what_was_saved(entry: OpEntry, name: str) -> None:
    """Frees inputs and outputs. Then a second backward is an error, unless nothing was saved."""
    packed: list[weakref.ref[Packed]] = []

    def pack(tensor: torch.Tensor) -> Packed:
        result = Packed(tensor)
        packed.append(weakref.ref(result))
        return result

    sample = entry.sample(name).requires_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p.tensor):
        outputs = computed(sample.bind(entry.op)(*sample.tensors))
    out = sum(t.sum() for t in outputs)  # sums save no tensors
    torch.autograd.grad(out, sample.tensors, retain_graph=True, allow_unused=True)
    assert all(ref() is not None for ref in packed)
    torch.autograd.grad(out, sample.tensors, allow_unused=True)
    assert all(ref() is None for ref in packed)
    if packed:
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            torch.autograd.grad(out, sample.tensors, allow_unused=True)


@pytest.mark.parametrize("name", ["sigmoid", "lltm_cell"])
def test_outputs_are_saved(name: str) -> None:
    """Ensures that the test above covers outputs too."""
    (entry,) = (e for e in OPS if e.name == name)
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    saved: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        entry.op(*sample.args)
    inputs = {t.data_ptr() for t in sample.tensors}
    assert any(t.data_ptr() not in inputs for t in saved)


@over_samples("basic")
def test_graph_is_freed(entry: OpEntry, name: str) -> None:
    """There is no cycle between node and output, in the first graph or in that of a double backward."""
    gc.collect()
    gc.disable()
    try:
        sample = entry.sample(name).requires_grad()
        out = sample.bind(entry.op)(*sample.tensors)
        grads = torch.autograd.grad(scalar(out), sample.tensors, create_graph=True, materialize_grads=True)
        dead = [weakref.ref(t) for t in (*sample.tensors, *out, *grads)]
        del sample, out, grads
        assert not any(ref() is not None for ref in dead)
    finally:
        gc.enable()


def test_graph_node_has_the_name_of_the_op() -> None:
    for entry in OPS:
        sample = entry.sample(entry.names("basic")[0]).requires_grad()
        node = computed(entry.op(*sample.args))[0].grad_fn
        assert node.name() == entry.node_name
        assert len(node.next_functions) == len([a for a in entry.op._schema.arguments if "Tensor" in str(a.type)])


# ---------------------------------------------------------------- hooks and modes


@over_samples("basic")
def test_saved_tensors_hooks(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.op), sample)
    with torch.autograd.graph.save_on_cpu():
        assert_close(gradients(sample.bind(entry.op), sample), expected)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
        assert_close(gradients(sample.bind(entry.op), sample), expected)


@over_samples("basic")
def test_checkpoint(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.op), sample)
    f = sample.bind(entry.op)
    assert_close(gradients(lambda *t: checkpoint(f, *t, use_reentrant=False), sample), expected)


@over_samples("basic")
def test_tensor_hooks_and_retained_gradients(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    f, first = sample.bind(entry.op), sample.tensors[0]
    (expected,) = torch.autograd.grad(f(*sample.tensors)[0].sum(), first, allow_unused=True)
    out = f(*sample.tensors)[0]
    out.retain_grad()
    seen: list[Tensor] = []
    first.register_hook(lambda g: seen.append(g) or 2 * g)
    out.sum().backward()
    assert torch.equal(out.grad, torch.ones_like(out))
    if expected is None:  # this output does not depend on it
        assert not seen and first.grad is None
    else:
        assert torch.equal(seen[0], expected) and torch.equal(first.grad, 2 * expected)


@over_samples("basic")
@pytest.mark.parametrize("forward_mode", [False, True])
def test_functional_jacobian_vectorized(entry: OpEntry, name: str, forward_mode: bool) -> None:
    sample = entry.sample(name)
    f, tensors = sample.bind(entry.op), sample.tensors
    strategy = "forward-mode" if forward_mode else "reverse-mode"
    actual = torch.autograd.functional.jacobian(f, tensors, vectorize=True, strategy=strategy)
    assert_close(actual, torch.autograd.functional.jacobian(sample.bind(entry.reference), tensors))


@over_samples("basic")
def test_is_grads_batched(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    out = sample.bind(entry.op)(*sample.tensors)[0]
    rows = torch.randn(4, *out.shape, dtype=out.dtype)
    grad = torch.autograd.grad
    batched = grad(out, sample.tensors, rows, is_grads_batched=True, retain_graph=True, allow_unused=True)
    for i, row in enumerate(rows):
        one = grad(out, sample.tensors, row, retain_graph=True, allow_unused=True)
        for b, o in zip(batched, one, strict=True):
            assert (b is None) == (o is None)
            if b is not None:
                assert_close(b[i], o)


@over_samples("basic")
def test_anomaly_and_deterministic_modes(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.op), sample)
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with torch.autograd.set_detect_anomaly(True):
            assert_close(gradients(sample.bind(entry.op), sample), expected)
    finally:
        torch.use_deterministic_algorithms(was)


@over_samples("basic")
def test_many_threads(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.op), sample)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: gradients(sample.bind(entry.op), sample), range(16)):
            assert_close(result, expected)


@over_samples("basic")
def test_forward_mode_against_reference(entry: OpEntry, name: str) -> None:
    """Also with tangents for only some of the inputs. A tangent has the dtype of its output."""
    sample = entry.sample(name)
    for wanted in itertools.product((False, True), repeat=len(sample.tensors)):
        results = []
        for f in (entry.op, entry.reference):
            with fwad.dual_level():
                duals = tuple(
                    fwad.make_dual(t, (t + 0.5).sin()) if w else t for t, w in zip(sample.tensors, wanted, strict=True)
                )
                pairs = [fwad.unpack_dual(t) for t in sample.bind(f)(*duals)]
            results.append([torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs])
        assert_close(*results, f"{name} {wanted}")


@over_dtypes()
def test_dtype_of_tangents(entry: OpEntry, dtype: torch.dtype, mixed: bool) -> None:
    sample = entry.sample(entry.names("basic")[0], dtype, mixed=mixed)
    out, tangents = torch.func.jvp(sample.bind(entry.op), sample.tensors, sample.tensors)
    assert [t.dtype for t in tangents] == [t.dtype for t in out]
