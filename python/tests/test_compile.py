"""torch.compile and compiled autograd: the results of eager mode, with one graph for all sizes."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from op_samples import OpEntry, Sample, forward_ops
from support import assert_close, over_ops, over_samples, recorded_compiled_autograd, scalar, some_of
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import grad, jacfwd, jacrev, vmap

pytestmark = pytest.mark.usefixtures("fresh_compiler")

BATCHES = (11, 7, 12, 65)  # the first is not a size that an op may specialize on


def compile_once(f: Callable[..., Any], backend: Any = "aot_eager") -> Callable[..., Any]:
    return torch.compile(f, fullgraph=True, dynamic=True, backend=backend)


def outputs_and_gradients(f: Callable[..., tuple[Tensor, ...]], sample: Sample) -> list[Tensor]:
    sample = sample.requires_grad()
    out = f(*sample.tensors)
    gradients = torch.autograd.grad(scalar(out), sample.tensors, allow_unused=True, materialize_grads=True)
    return [*out, *gradients]


@pytest.mark.capability("compile")
@over_samples("basic", "stride")
def test_compiled_is_eager(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    f = sample.bind(entry.op)
    assert_close(outputs_and_gradients(compile_once(f), sample), outputs_and_gradients(f, sample))


@pytest.mark.capability("compile")
@over_ops()
def test_inductor(entry: OpEntry) -> None:
    """The op between fused ops, with inputs whose layout inductor may choose."""
    sample = entry.of_size(9, torch.float32)
    around = lambda *t: tuple(o.sin() for o in sample.bind(entry.op)(*(2 * x for x in t)))  # noqa: E731
    compiled = compile_once(around, "inductor")
    for rows in (9, 33):
        other = entry.of_size(rows, torch.float32)
        assert_close(outputs_and_gradients(compiled, other), outputs_and_gradients(around, other), rtol=1e-4, atol=1e-4)


@pytest.mark.capability("compile")
@over_ops()
def test_one_graph_for_all_sizes(entry: OpEntry) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    f = entry.of_size(2).bind(entry.op)
    compiled = compile_once(f, counter)
    with torch._dynamo.config.patch(specialize_float=True):  # a float argument would be a separate graph
        for rows in BATCHES:
            sample = entry.of_size(rows)
            assert_close(outputs_and_gradients(compiled, sample), outputs_and_gradients(f, sample))
    assert counter.frame_count == 1


@pytest.mark.capability("compile")
@over_ops()
def test_one_graph_for_all_sizes_of_vmap(entry: OpEntry) -> None:
    """With a batching rule that computes in int, every batch would be compiled again."""
    counter = CompileCounterWithBackend("aot_eager")
    f = entry.of_size(2).bind(entry.op)
    compiled = compile_once(vmap(f), counter)
    # Sizes that are equal in the first call become one symbol, so these differ from those of ops and table entries.
    with torch._dynamo.config.patch(specialize_float=True):
        for batch, rows in ((11, 13), (17, 13), (13, 19), (29, 7)):
            sample = entry.of_size(rows).map(lambda t, batch=batch: torch.stack([t + i for i in range(batch)]))
            assert_close(outputs_and_gradients(compiled, sample), outputs_and_gradients(vmap(f), sample))
    assert counter.frame_count == 1


def transforms(f: Callable[..., tuple[Tensor, ...]], count: int) -> dict[str, Callable[..., Any]]:
    argnums = tuple(range(count))
    loss = lambda *t: scalar(f(*t))  # noqa: E731
    gradient = grad(loss, argnums=argnums)
    return {
        "grad": gradient,
        "grad of grad": grad(lambda *t: scalar(gradient(*t)), argnums=argnums),
        "jacrev": jacrev(f, argnums=argnums),
        # Not (0,), for which torch 2.11 compiles wrong values, also for plain torch.
        "jacfwd": jacfwd(f, argnums=argnums if count > 1 else 0),
        "vmap of grad": lambda *t: vmap(gradient)(*(torch.stack([x, 2 * x]) for x in t)),
        "vmap over one": lambda *t: vmap(f, in_dims=(0, *[None] * (count - 1)))(torch.stack([t[0]] * 2), *t[1:]),
    }


@pytest.mark.capability("compile")
@over_ops()
@pytest.mark.parametrize("transform", transforms(lambda *t: t, 1))
def test_compiled_transforms(entry: OpEntry, transform: str) -> None:
    sample = entry.sample(entry.names("basic")[0])
    f, plain = (transforms(sample.bind(g), len(sample.tensors))[transform] for g in (entry.op, entry.reference))
    try:
        actual = compile_once(f)(*sample.tensors)
    except torch._dynamo.exc.TorchDynamoException as error:
        with pytest.raises(torch._dynamo.exc.TorchDynamoException):  # otherwise it is the op that does not compile
            torch._dynamo.reset()
            compile_once(plain)(*sample.tensors)
        pytest.skip(f"torch {torch.__version__} compiles no {transform} of plain torch either: {type(error).__name__}")
    assert_close(actual, f(*sample.tensors))


@pytest.mark.capability("compile")
@over_ops()
def test_unbacked_sizes(entry: OpEntry) -> None:
    """The number of rows that a mask selects is not known during compilation."""
    f, with_rows = entry.of_size(2).bind(entry.op), entry.with_rows

    def of_some_rows(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        return f(*(t[mask] if rows else t for t, rows in zip(tensors, with_rows, strict=True)))

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = compile_once(of_some_rows)
        for rows in (6, 9):
            sample = entry.of_size(rows)
            for mask in (torch.arange(rows) % 2 == 0, torch.zeros(rows, dtype=torch.bool)):
                actual, expected = (
                    outputs_and_gradients(lambda *t, g=g, mask=mask: g(mask, *t), sample)
                    for g in (compiled, of_some_rows)
                )
                assert_close(actual, expected)


# ---------------------------------------------------------------- compiled autograd


@pytest.mark.capability("compiled autograd")
@over_samples("basic")
def test_compiled_autograd_is_eager(entry: OpEntry, name: str) -> None:
    """For every set of gradients that can be requested."""
    sample = entry.sample(name)
    for wanted in some_of(itertools.product((False, True), repeat=len(sample.tensors)), 40):
        tensors = tuple(t.detach().requires_grad_(w) for t, w in zip(sample.tensors, wanted, strict=True))
        value = scalar(sample.bind(entry.op)(*tensors))
        if not value.requires_grad:
            continue
        some = [t for t in tensors if t.requires_grad]
        expected = torch.autograd.grad(value, some, retain_graph=True, allow_unused=True)
        with recorded_compiled_autograd():
            assert_close(torch.autograd.grad(value, some, allow_unused=True), expected, f"{wanted}")


@pytest.mark.capability("compiled autograd")
@over_ops()
def test_compiled_autograd_captures_once(entry: OpEntry) -> None:
    """The formula is a function in the graph, with sizes that are not known when the graph is captured."""
    f = entry.of_size(2).bind(entry.op)
    expected = [outputs_and_gradients(f, entry.of_size(rows)) for rows in BATCHES]
    with recorded_compiled_autograd(compile_once) as graphs:
        actual = [outputs_and_gradients(f, entry.of_size(rows)) for rows in BATCHES]
    assert_close(actual, expected)
    assert len(graphs) == 1
    calls = [n for n in graphs[0].graph.nodes if n.op == "call_function"]
    own = [n for n in calls if entry.node_name in str(n.target)]
    assert len(own) == 1, "the formula was inlined or run while it was captured"


@pytest.mark.capability("compiled autograd")
@over_samples("basic")
def test_double_backward_under_compiled_autograd(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name).requires_grad()
    first = torch.autograd.grad(
        scalar(sample.bind(entry.op)(*sample.tensors)), sample.tensors, create_graph=True, materialize_grads=True
    )
    value = scalar(first)
    expected = torch.autograd.grad(value, sample.tensors, retain_graph=True, materialize_grads=True)
    with recorded_compiled_autograd():
        assert_close(torch.autograd.grad(value, sample.tensors, materialize_grads=True), expected)


@pytest.mark.capability("compiled autograd")
@over_ops(forward_ops())
def test_compiled_autograd_of_compiled_forward(entry: OpEntry) -> None:
    sample = entry.of_size(6)
    f = sample.bind(entry.op)
    expected = outputs_and_gradients(f, sample)
    with recorded_compiled_autograd(compile_once):
        assert_close(outputs_and_gradients(compile_once(f), sample), expected)


@pytest.mark.capability("compiled autograd")
@over_ops()
def test_compiled_autograd_with_accumulation(entry: OpEntry) -> None:
    """Through .backward(), twice, into .grad, with a tensor hook."""
    results = []
    for compiled in (False, True):
        sample = entry.of_size(6).requires_grad()
        sample.tensors[0].register_hook(lambda g: 2 * g)
        for _ in range(2):
            value = scalar(sample.bind(entry.op)(*sample.tensors))
            if compiled:
                with recorded_compiled_autograd():
                    value.backward()
            else:
                value.backward()
        results.append([t.grad for t in sample.tensors])
    assert_close(*results)
