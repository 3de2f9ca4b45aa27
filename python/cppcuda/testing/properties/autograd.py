"""Gradients of every order, in reverse and forward mode, and what the graph keeps in memory."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import torch.autograd.forward_ad as fwad
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import checkpoint

from cppcuda.testing.compare import (
    assert_close,
    assert_close_or_ill_conditioned,
    chosen,
    gradient_eps,
    largest_error,
    named,
    nudged,
    raises,
    scalar,
    size_of,
    some_of,
    total,
)
from cppcuda.testing.registry import (
    DIFFERENTIABLE,
    MADE_WITH_KIT,
    NotCheckedError,
    Requirement,
    checks,
    devices,
    dtypes,
    each,
    lacking,
    samples,
)
from cppcuda.testing.samples import THIRD_ORDER, OpEntry, Sample, computed, outputs_of, split_keywords

Function = Callable[..., tuple[Tensor, ...]]


def differentiable(outputs: Sequence[Tensor], of_reference: Sequence[Tensor]) -> list[Tensor]:
    """The outputs without those of which the reference has no gradient either, such as a statistic that is detached."""
    found = [i for i, t in enumerate(of_reference) if t.requires_grad]
    for i in found:
        assert outputs[i].requires_grad, f"output {i} is not part of the graph"
    return [outputs[i] for i in found]


def gradients(f: Function, sample: Sample) -> dict[str, Tensor]:
    """The gradients of a nonlinear function of all outputs; zeros for what no output depends on."""
    sample = sample.requires_grad()
    value = scalar(f(*sample.tensors))
    return named("gradient", torch.autograd.grad(value, sample.tensors, allow_unused=True, materialize_grads=True))


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


@checks("backward", "forward AD", "double backward", needs=(DIFFERENTIABLE,))
def samples_have_gradients(entry: OpEntry) -> None:
    """A derivative that is missing is zero, so for each input a sample needs one that is not."""
    largest: dict[int, float] = {}
    for name in entry.names("basic"):
        sample = entry.sample(name).requires_grad()
        value = scalar(sample.bind(entry.reference)(*sample.tensors))
        for i, g in enumerate(torch.autograd.grad(value, sample.tensors, allow_unused=True)):
            if g is not None:  # the reference reads the input
                assert not g.isnan().any(), f"{name}: a gradient of the reference is NaN"
                largest[i] = max(largest.get(i, 0.0), size_of(g))
    assert largest, "the samples say nothing: the reference has no gradient (differentiable=False skips gradients)"
    assert any(largest.values()), "the samples say nothing: every gradient of the reference is zero for each of them"


def checked_gradients(entry: OpEntry, name: str, check: Callable[..., bool], **options: bool) -> None:
    sample = entry.sample(name).requires_grad()
    if "vmap" in entry.skip:  # which computes a batch of gradients
        options = {option: value for option, value in options.items() if "batched" not in option}
    assert check(sample.bind(entry.op), sample.tensors, **options)


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def gradcheck_of_reverse_mode(entry: OpEntry, name: str) -> None:
    checked_gradients(entry, name, gradcheck, check_batched_grad=True, check_undefined_grad=True)


@checks("forward AD", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def gradcheck_of_forward_mode(entry: OpEntry, name: str) -> None:
    options = {"check_forward_ad": True, "check_batched_forward_grad": True}
    checked_gradients(entry, name, gradcheck, check_backward_ad=False, check_undefined_grad=False, **options)


@checks("double backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def gradgradcheck_of_reverse_mode(entry: OpEntry, name: str) -> None:
    checked_gradients(entry, name, gradgradcheck, check_batched_grad=True, check_undefined_grad=True)


@checks("forward AD", over=(samples("basic"),), needs=(DIFFERENTIABLE,), uses=("double backward",), internal=False)
def gradgradcheck_of_forward_mode(entry: OpEntry, name: str) -> None:
    options = {"check_fwd_over_rev": True, "check_rev_over_rev": False}
    checked_gradients(entry, name, gradgradcheck, check_undefined_grad=False, **options)


@checks("backward", over=(dtypes, devices), needs=(DIFFERENTIABLE,))
def gradients_against_float64(entry: OpEntry, dtype: torch.dtype, mixed: bool, device: str) -> None:
    """In every dtype, for every sample; both sides get the same incoming gradient."""
    for name in entry.names("basic", "shape", "stride"):
        sample = entry.sample(name, dtype, device, mixed).requires_grad()
        exact = sample.double().requires_grad()
        of_reference = exact.bind(entry.reference)(*exact.tensors)
        every = sample.bind(entry.op)(*sample.tensors)
        outputs = differentiable(every, of_reference)
        if not outputs:
            continue
        cotangents = [torch.randn(t.shape, dtype=torch.float64, device=device).to(t.dtype) for t in outputs]
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        actual = torch.autograd.grad(outputs, sample.tensors, cotangents, **options)
        expected = torch.autograd.grad(
            [t for t in of_reference if t.requires_grad], exact.tensors, [c.double() for c in cotangents], **options
        )
        errors = errors_of_reference(entry, sample, cotangents, expected)
        for i, (t, a, e) in enumerate(zip(sample.tensors, actual, expected, strict=True)):
            assert a.dtype == t.dtype and a.shape == t.shape, (
                f"{name}: gradient {i} is {a.dtype} {list(a.shape)}, its input is {t.dtype} {list(t.shape)}"
            )
            eps = gradient_eps(entry, sample, t, dtype) * (2 if dtype == torch.float64 else 1)  # both sides round
            atol = max(8 * eps * (1 + size_of(e)), 4 * errors[i])
            assert_close(a.double(), e, f"{name}: gradient {i}", rtol=4 * eps, atol=atol)


def errors_of_reference(
    entry: OpEntry, sample: Sample, cotangents: list[Tensor], exact: tuple[Tensor, ...]
) -> list[float]:
    """The largest error of each gradient of the reference in the dtypes of a sample; in float64, for inputs with other
    roundings. An operator that the kit did not make may be as far off, because it may consist of several operators,
    too."""
    if entry.made_with_kit:
        return [0.0] * len(exact)
    if all(t.dtype == torch.float64 for t in sample.tensors):
        sample = nudged(sample, 100)
    sample = sample.requires_grad()
    options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
    try:
        outputs = [t for t in sample.bind(entry.reference)(*sample.tensors) if t.requires_grad]
        found = torch.autograd.grad(outputs, sample.tensors, cotangents, **options)
    except Exception:  # the reference cannot be called with these dtypes
        return [0.0] * len(exact)
    return list(map(largest_error, found, exact))


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def gradient_of_a_sum(entry: OpEntry, name: str) -> None:
    """sum().backward() passes an expanded gradient, whose strides are all 0."""
    sample, plain = (entry.sample(name).requires_grad() for _ in range(2))
    total(t.sum() for t in sample.bind(entry.op)(*sample.tensors)).backward()
    total(t.sum() for t in plain.bind(entry.reference)(*plain.tensors)).backward()
    for a, b in zip(sample.tensors, plain.tensors, strict=True):
        actual, expected = (torch.zeros_like(t) if t.grad is None else t.grad for t in (a, b))
        assert_close(actual, expected, f"{name}: gradient of the sum of the outputs")


@checks("double backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,), internal=False)
def third_order(entry: OpEntry, name: str) -> None:
    if THIRD_ORDER in entry.skip:
        raise NotCheckedError(entry.skip[THIRD_ORDER])

    def third(f: Callable[..., Any], sample: Sample) -> list[Tensor]:
        sample = sample.requires_grad()
        value = scalar(sample.bind(f)(*sample.tensors))
        for _ in range(3):
            grads = torch.autograd.grad(value, sample.tensors, create_graph=True, materialize_grads=True)
            value = scalar(grads)
        return list(grads)

    sample = entry.sample(name)
    actual, expected = (third(f, sample) for f in (entry.op, entry.reference))
    assert_close_or_ill_conditioned(
        actual, expected, sample, lambda near: third(entry.reference, near), name, "third derivative"
    )


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def each_gradient_alone(entry: OpEntry, name: str) -> None:
    """The bits of a gradient are the same, whichever other gradients are requested."""
    sample = entry.sample(name)
    together = gradients(sample.bind(entry.op), sample)
    for wanted in some_of(itertools.product((False, True), repeat=len(sample.tensors)), 64):
        if not any(wanted):
            continue
        tensors = tuple(t.detach().requires_grad_(w) for t, w in zip(sample.tensors, wanted, strict=True))
        out = scalar(sample.bind(entry.op)(*tensors))
        some = [t for t in tensors if t.requires_grad]
        if not out.requires_grad:
            continue
        expected = [g for g, w in zip(together.values(), wanted, strict=True) if w]
        for a, e in zip(torch.autograd.grad(out, some, allow_unused=True), expected, strict=True):
            assert not e.any() if a is None else torch.equal(a, e), (
                f"the gradient has other bits if only that of {chosen(wanted)} is requested"
            )


@checks("double backward", over=(samples("mask"),), needs=(DIFFERENTIABLE,))
def second_order_of_masks(entry: OpEntry, name: str) -> None:
    """With outputs that are not requested and tensors that are missing."""
    results = []
    for f in (entry.op, entry.reference):
        sample = entry.sample(name).requires_grad()
        if not (outputs := sample.bind(f)(*sample.tensors)):
            return
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        first = torch.autograd.grad(scalar(outputs), sample.tensors, create_graph=True, **options)
        second = torch.autograd.grad(scalar(first), sample.tensors, **options)
        results.append({**named("gradient", first), **named("second derivative", second)})
    assert_close(results[0], results[1], name)


@checks("double backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def one_output_used(entry: OpEntry, name: str) -> None:
    """Then the gradient of the other output is undefined, in the op and in its derivatives."""
    sample = entry.sample(name).requires_grad()
    for o, of_reference in enumerate(sample.bind(entry.reference)(*sample.tensors)):
        if not of_reference.requires_grad:
            continue
        results = []
        for f in (entry.op, entry.reference):
            sample = entry.sample(name).requires_grad()
            out = sample.bind(f)(*sample.tensors)[o]
            first = torch.autograd.grad(scalar((out,)), sample.tensors, create_graph=True, materialize_grads=True)
            second = torch.autograd.grad(scalar(first), sample.tensors, materialize_grads=True)
            results.append({**named("gradient", first), **named("second derivative", second)})
        assert_close(results[0], results[1], f"{name}, of output {o} alone")


def with_and_without_grad(entry: OpEntry, name: str) -> list[Sample]:
    """The sample, and the same one with tensors that require a gradient, unless the operator has none."""
    sample = entry.sample(name)
    return [sample, sample.requires_grad()] if entry.orders else [sample]


def opcheck(entry: OpEntry, sample: Sample, utility: str) -> None:
    args, kwargs = split_keywords(sample.args)
    torch.library.opcheck(entry.op, tuple(args), kwargs, test_utils=utility)


@checks("aliasing", over=(samples("basic"),))
def opcheck_of_the_schema(entry: OpEntry, name: str) -> None:
    for sample in with_and_without_grad(entry, name):
        opcheck(entry, sample, "test_schema")


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def opcheck_of_the_registration(entry: OpEntry, name: str) -> None:
    for sample in with_and_without_grad(entry, name):
        opcheck(entry, sample, "test_autograd_registration")


@checks("meta", over=(samples("basic"),))
def opcheck_of_fake_tensors(entry: OpEntry, name: str) -> None:
    for sample in with_and_without_grad(entry, name):
        opcheck(entry, sample, "test_faketensor")


@checks("compile", over=(samples("basic"), each("sizes", ("static", "dynamic"))), compiles=True, internal=True)
def opcheck_of_aot_dispatch(entry: OpEntry, name: str, sizes: str) -> None:
    for sample in with_and_without_grad(entry, name):
        opcheck(entry, sample, f"test_aot_dispatch_{sizes}")


@checks("strides", over=(samples("stride"), each("utility", ("test_schema", "test_faketensor"))))
def opcheck_of_layouts(entry: OpEntry, name: str, utility: str) -> None:
    if reason := lacking(entry, ("meta" if utility == "test_faketensor" else "aliasing",)):
        raise NotCheckedError(reason)
    opcheck(entry, with_and_without_grad(entry, name)[-1], utility)


# ---------------------------------------------------------------- the graph

STATES_SAVED = Requirement(lambda e: e.saved_for is not None, "no saved_for is given")


def read_by_gradient(entry: OpEntry, name: str, wanted: int) -> set[int]:
    """The inputs that the reference's gradient of input `wanted` depends on. The incoming gradient is constant here."""
    sample = entry.sample(name).requires_grad()
    outputs = [t for t in sample.bind(entry.reference)(*sample.tensors) if t.requires_grad]
    cotangents = [torch.randn_like(t) for t in outputs]
    (first,) = torch.autograd.grad(
        outputs, sample.tensors[wanted], cotangents, create_graph=True, allow_unused=True, materialize_grads=True
    )
    if not first.requires_grad:
        return set()
    second = torch.autograd.grad(scalar((first,)), sample.tensors, allow_unused=True)
    return {i for i, g in enumerate(second) if g is not None and g.any()}


def kept_alive(entry: OpEntry, name: str) -> Iterator[tuple[int, set[int], bool]]:
    """For each input: the inputs that its gradient reads, and whether the graph must keep all of these."""
    if entry.saved_for is not None:
        yield from ((wanted, read, True) for wanted, read in entry.saved_for.items())
    else:
        for wanted in range(len(entry.sample(name).tensors)):
            yield wanted, read_by_gradient(entry, name, wanted), False


@checks("kept alive", needs=(DIFFERENTIABLE, STATES_SAVED))
def only_what_is_needed_is_saved(entry: OpEntry) -> None:
    name = entry.names("basic")[0]
    assert entry.saved_for is not None
    for wanted, read in entry.saved_for.items():
        sample = entry.sample(name)
        tensors = tuple(t.clone() for t in sample.tensors)
        tensors[wanted].requires_grad_()
        with record_saved() as packed:
            sample.bind(entry.op)(*tensors)
        saved = {i for i, t in enumerate(tensors) if any(p.data_ptr() == t.data_ptr() for p in packed)}
        assert saved == read, f"for the gradient of input {wanted}, inputs {saved} are saved, expected {read}"


@contextmanager
def collecting_only_new_objects() -> Iterator[None]:
    """Here, gc.collect() takes a millisecond; to look at all objects of torch it takes a quarter of a second."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@checks("kept alive", needs=(DIFFERENTIABLE,))
@collecting_only_new_objects()
def only_what_is_needed_is_kept_alive(entry: OpEntry) -> None:
    """A gradient that does not read an input does not keep it alive."""
    name = entry.names("basic")[0]
    for wanted, read, exact in kept_alive(entry, name):
        sample = entry.sample(name)
        tensors = tuple(t.clone() for t in sample.tensors)
        tensors[wanted].requires_grad_()
        f = sample.bind(entry.op)
        del sample
        out = f(*tensors)
        if not any(t.requires_grad for t in out):
            continue
        alive = [weakref.ref(t.untyped_storage()) for t in tensors]
        inputs = [tensors[wanted]]
        del tensors
        gc.collect()
        for i, ref in enumerate(alive):
            if i == wanted:
                continue
            kept = ref() is not None
            assert kept <= (i in read), f"the gradient of input {wanted} keeps input {i} alive without reading it"
            assert not exact or kept == (i in read), f"the gradient of input {wanted} does not keep input {i} alive"
        torch.autograd.grad(scalar(out), inputs, allow_unused=True)


@checks("kept alive", needs=(DIFFERENTIABLE,))
@collecting_only_new_objects()
def the_input_itself_is_freed(entry: OpEntry) -> None:
    """A graph holds a leaf, but not an input that was computed, unless its gradient reads it."""
    name = entry.names("basic")[0]
    for wanted, read, exact in kept_alive(entry, name):
        sample = entry.sample(name)
        leaf = sample.tensors[wanted].clone().requires_grad_()
        computed_input = leaf + 0
        tensors = [computed_input if i == wanted else t.clone() for i, t in enumerate(sample.tensors)]
        out = sample.bind(entry.op)(*tensors)
        ref = weakref.ref(computed_input.untyped_storage())
        del tensors, computed_input
        gc.collect()
        kept = ref() is not None and any(t.requires_grad for t in out)
        assert kept <= (wanted in read), f"the gradient of input {wanted} keeps it alive without reading it"
        assert not exact or not out or kept == (wanted in read), f"input {wanted} is not kept alive"


@checks("kept alive", needs=(DIFFERENTIABLE,))
def nothing_is_saved_without_grad(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    with record_saved() as packed:
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                outputs = computed(sample.call(entry.op))
                assert not any(t.requires_grad for t in outputs), f"an output requires a gradient in {mode.__name__}"
        outputs = computed(sample.map(Tensor.detach).call(entry.op))
        assert not any(t.requires_grad for t in outputs), "an output of inputs without gradient requires one"
    assert not packed, "a tensor is saved without a gradient"


@checks("saved tensors", needs=(DIFFERENTIABLE,))
def saved_tensor_modified_in_place(entry: OpEntry) -> None:
    """Backward raises an error, or has the gradient from before the change."""
    name = entry.names("basic")[0]

    def run(wanted: int, modified: int | None) -> Tensor:
        sample = entry.sample(name)
        tensors = tuple(t.clone() for t in sample.tensors)
        tensors[wanted].requires_grad_()
        outputs = sample.bind(entry.op)(*tensors)
        if not any(t.requires_grad for t in outputs):
            return torch.zeros_like(tensors[wanted])
        out = total(t.sum() for t in outputs)
        if modified is not None:
            with torch.no_grad():
                tensors[modified].add_(1)
        (gradient,) = torch.autograd.grad(out, tensors[wanted], allow_unused=True, materialize_grads=True)
        return gradient

    for wanted, read, exact in kept_alive(entry, name):
        expected = run(wanted, None)
        for modified in range(len(entry.sample(name).tensors)):
            what = f"the gradient of input {wanted} after a change of input {modified}"
            if exact and modified in read:
                with raises(RuntimeError, "modified by an inplace operation", what):
                    run(wanted, modified)
                continue
            try:
                gradient = run(wanted, modified)
            except RuntimeError as error:
                assert not exact and "modified by an inplace operation" in str(error), f"{what}: {error}"
            else:
                assert_close(gradient, expected, what, "gradient")


@checks("saved tensors", needs=(DIFFERENTIABLE,))
def output_modified_in_place(entry: OpEntry) -> None:
    """Backward raises an error, or has the gradient from before the change. The output may be what was saved."""
    name = entry.names("basic")[0]

    def run(modified: int | None) -> tuple[Tensor, ...]:
        sample = entry.sample(name).requires_grad()
        outputs = sample.bind(entry.op)(*sample.tensors)
        out = total(t.sum() for t in outputs)
        if modified is not None:
            outputs[modified].detach().add_(1)
        return torch.autograd.grad(out, sample.tensors, allow_unused=True, materialize_grads=True)

    expected = run(None)
    for modified in range(len(entry.sample(name).bind(entry.op)(*entry.sample(name).tensors))):
        try:
            actual = run(modified)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), error
        else:
            assert_close(actual, expected, f"after a change of output {modified}", "gradient")


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def backward_twice(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    out = total(t.sum() for t in sample.bind(entry.op)(*sample.tensors))
    first = torch.autograd.grad(out, sample.tensors, retain_graph=True, allow_unused=True)
    again = torch.autograd.grad(out, sample.tensors, allow_unused=True)
    assert_close(again, first, name, "gradient")


class Packed:
    """Replaces a saved tensor; unlike a tensor, it can be weakly referenced."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


@checks("kept alive", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def backward_frees_what_was_saved(entry: OpEntry, name: str) -> None:
    """Frees inputs and outputs. Then a second backward is an error, unless nothing was saved."""
    packed: list[weakref.ref[Packed]] = []

    def pack(tensor: Tensor) -> Packed:
        result = Packed(tensor)
        packed.append(weakref.ref(result))
        return result

    sample = entry.sample(name).requires_grad()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda p: p.tensor):
        outputs = sample.bind(entry.op)(*sample.tensors)
    out = total(t.sum() for t in outputs)  # sums save no tensors
    torch.autograd.grad(out, sample.tensors, retain_graph=True, allow_unused=True)
    assert all(ref() is not None for ref in packed), "a saved tensor was freed although the graph is retained"
    torch.autograd.grad(out, sample.tensors, allow_unused=True)
    assert all(ref() is None for ref in packed), "backward did not free what was saved"
    if packed:
        with raises(RuntimeError, "backward through the graph a second time"):
            torch.autograd.grad(out, sample.tensors, allow_unused=True)


@checks("kept alive", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def graph_is_freed(entry: OpEntry, name: str) -> None:
    """There is no cycle between node and output, in the first graph or in that of a double backward."""
    gc.disable()
    try:
        sample = entry.sample(name).requires_grad()
        out = sample.bind(entry.op)(*sample.tensors)
        grads = torch.autograd.grad(scalar(out), sample.tensors, create_graph=True, materialize_grads=True)
        dead = [weakref.ref(t) for t in (*sample.tensors, *out, *grads)]
        del sample, out, grads
        assert not any(ref() is not None for ref in dead), "the graph keeps itself alive"
    finally:
        gc.enable()


@checks("backward", needs=(DIFFERENTIABLE, MADE_WITH_KIT))
def graph_node_has_the_name_of_the_op(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    node = computed(sample.call(entry.op))[0].grad_fn
    assert node is not None and node.name() == entry.node_name, f"{node}, expected {entry.node_name}"
    arguments = [a for a in entry.op._schema.arguments if "Tensor" in str(a.type)]
    assert len(node.next_functions) == len(arguments)


# ---------------------------------------------------------------- hooks and modes


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def saved_tensors_hooks(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.reference), sample)
    with torch.autograd.graph.save_on_cpu():
        assert_close(gradients(sample.bind(entry.op), sample), expected, name)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), torch.from_numpy):
        assert_close(gradients(sample.bind(entry.op), sample), expected, name)


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def checkpointed(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.reference), sample)
    f = sample.bind(entry.op)
    assert_close(gradients(lambda *t: checkpoint(f, *t, use_reentrant=False), sample), expected, name)


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def tensor_hooks_and_retained_gradients(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    f, first = sample.bind(entry.op), sample.tensors[0]
    (expected,) = torch.autograd.grad(f(*sample.tensors)[0].sum(), first, allow_unused=True)
    out = f(*sample.tensors)[0]
    out.retain_grad()
    seen: list[Tensor] = []

    def hook(g: Tensor | None) -> Tensor | None:
        if g is None:  # the engine calls hooks for undefined gradients too
            return None
        seen.append(g)
        return 2 * g

    first.register_hook(hook)
    out.sum().backward()
    assert out.grad is not None and torch.equal(out.grad, torch.ones_like(out)), "the gradient of the output is wrong"
    if expected is None:  # this output does not depend on it
        assert not seen and first.grad is None
    else:
        if entry.products:  # whose bits may depend on which gradients are computed together
            assert_close(seen[0], expected, f"{name}: the hook saw other values")
        else:
            assert torch.equal(seen[0], expected), "the hook saw other values"
        assert first.grad is not None and torch.equal(first.grad, 2 * seen[0]), "the hook's result was not used"


@checks(
    "torch.func",
    over=(samples("basic"), each("strategy", ("reverse-mode", "forward-mode"))),
    needs=(DIFFERENTIABLE,),
    uses=("vmap",),
)
def functional_jacobian_vectorized(entry: OpEntry, name: str, strategy: str) -> None:
    if strategy == "forward-mode" and (reason := lacking(entry, ("forward AD",))):
        raise NotCheckedError(reason)
    sample = entry.sample(name)
    f, tensors = sample.bind(entry.op), sample.tensors
    actual = torch.autograd.functional.jacobian(f, tensors, vectorize=True, strategy=strategy)
    assert_close(actual, torch.autograd.functional.jacobian(sample.bind(entry.reference), tensors), name, "Jacobian")


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,), uses=("vmap",))
def is_grads_batched(entry: OpEntry, name: str) -> None:
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
                assert_close(b[i], o, f"{name}: batch of gradients")


@checks("backward", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def anomaly_and_deterministic_modes(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.reference), sample)
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with torch.autograd.set_detect_anomaly(True):
            assert_close(gradients(sample.bind(entry.op), sample), expected, name)
    finally:
        torch.use_deterministic_algorithms(was)


@checks("threads", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def many_threads(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    expected = gradients(sample.bind(entry.reference), sample)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: gradients(sample.bind(entry.op), sample), range(16)):
            assert_close(result, expected, name)


@checks("forward AD", over=(samples("basic"),), needs=(DIFFERENTIABLE,))
def forward_mode_against_reference(entry: OpEntry, name: str) -> None:
    """Also with tangents for only some of the inputs. A tangent has the dtype of its output."""
    sample = entry.sample(name)
    for wanted in itertools.product((False, True), repeat=len(sample.tensors)):
        if 2 < sum(wanted) < len(wanted) - 2:  # 12 inputs have 4096 choices
            continue
        results = []
        for f in (entry.op, entry.reference):
            with fwad.dual_level():
                duals = tuple(
                    fwad.make_dual(t, (t + 0.5).sin()) if w else t for t, w in zip(sample.tensors, wanted, strict=True)
                )
                pairs = [fwad.unpack_dual(t) for t in sample.bind(f)(*duals)]
            results.append([torch.zeros_like(p.primal) if p.tangent is None else p.tangent for p in pairs])
        if not any(t.any() for t in results[0]) and any(map(size_of, results[1])):
            raise AssertionError(
                f"{name}: every tangent is zero, and those of the reference are not: forward mode (jvp) is missing"
            )
        assert_close(results[0], results[1], f"{name}, with tangents of {chosen(wanted)}", "tangent")


@checks("forward AD", over=(dtypes,), needs=(DIFFERENTIABLE,))
def dtype_of_tangents(entry: OpEntry, dtype: torch.dtype, mixed: bool) -> None:
    sample = entry.sample(entry.names("basic")[0], dtype, mixed=mixed)
    out, tangents = torch.func.jvp(sample.bind(entry.op), sample.tensors, sample.tensors)[:2]
    assert [t.dtype for t in tangents] == [t.dtype for t in out], "a tangent has another dtype than its output"


@checks("backward", needs=(DIFFERENTIABLE,))
def outputs_are_part_of_the_graph(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    differentiable(outputs_of(sample.call(entry.op)), outputs_of(sample.call(entry.reference)))
