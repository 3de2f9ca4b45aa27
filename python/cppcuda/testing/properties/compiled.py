"""torch.compile and compiled autograd: the results of the reference, with one graph for all sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, jacfwd, jacrev, vmap

from cppcuda.testing.compare import (
    assert_close,
    chosen,
    named,
    raises,
    recorded_compiled_autograd,
    scalar,
    size_of,
    some_of,
    total,
)
from cppcuda.testing.registry import (
    DIFFERENTIABLE,
    HAS_SIZES,
    PUBLIC,
    TAKES_SOME_ROWS,
    NotCheckedError,
    checks,
    each,
    samples,
)
from cppcuda.testing.samples import OpEntry, Sample, is_variable, masked_rows

BATCHES = (11, 7, 12, 65)  # the first is not a size that an op may specialize on


def batches(entry: OpEntry) -> tuple[int, ...]:
    """Numbers of rows. Sizes that are equal in the first call become one symbol, so the first is no other size."""
    others = {size for t in entry.of_size(2).inputs for size in t.shape}
    return (next(n for n in (11, 17, 23, 29, 31, 37, 41) if n not in others), *BATCHES[1:])


def compile_once(f: Callable[..., Any], backend: Any = "aot_eager") -> Callable[..., Any]:
    return torch.compile(f, fullgraph=True, dynamic=True, backend=backend)


def outputs_and_gradients(f: Callable[..., tuple[Tensor, ...]], sample: Sample) -> dict[str, Tensor]:
    """The outputs of a function of a sample's inputs, and the gradients."""
    return outputs_and_gradients_of_all(lambda inputs: [f(*inputs)], {"": sample})[""]


def outputs_and_gradients_of_all(
    call: Callable[..., list[tuple[Tensor, ...]]], samples: dict[str, Sample]
) -> dict[str, dict[str, Tensor]]:
    """The same of each sample. `call` takes a tuple of inputs for each, and returns the outputs of each."""
    samples = {name: sample.requires_grad() for name, sample in samples.items()}
    leaves = [t for sample in samples.values() for t in sample.tensors]
    outputs = call(*(sample.inputs for sample in samples.values()))
    value = total(map(scalar, outputs))
    gradients = iter(torch.autograd.grad(value, leaves, allow_unused=True, materialize_grads=True))
    return {
        name: {**named("output", out), **named("gradient", [next(gradients) for _ in sample.tensors])}
        for (name, sample), out in zip(samples.items(), outputs, strict=True)
    }


def both(entry: OpEntry, sample: Sample) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The operator and the reference, as functions of a sample's tensors."""
    return sample.bind(entry.op), sample.bind(entry.reference)


def both_of_inputs(entry: OpEntry, sample: Sample) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The operator and the reference, as functions of a sample's inputs."""
    return sample.bind_inputs(entry.op), sample.bind_inputs(entry.reference)


def counting_backend() -> Any:
    """A backend that counts the graphs. Only processes that compile import it, because this takes seconds."""
    from torch._dynamo.testing import CompileCounterWithBackend

    return CompileCounterWithBackend("aot_eager")


@checks("compile", over=(samples("basic", "stride"),), needs=(DIFFERENTIABLE,), compiles=True)
def compiled(entry: OpEntry, names: list[str]) -> None:
    """The calls of all samples are one graph, which takes little longer to compile than that of one."""
    found = {name: entry.sample(name) for name in names}
    functions, references = zip(*(both_of_inputs(entry, sample) for sample in found.values()), strict=True)

    def call(*inputs: tuple[Tensor, ...]) -> list[tuple[Tensor, ...]]:
        return [f(*of_sample) for f, of_sample in zip(functions, inputs, strict=True)]

    actual = outputs_and_gradients_of_all(compile_once(call), found)
    for (name, sample), plain in zip(found.items(), references, strict=True):
        assert_close(actual[name], outputs_and_gradients(plain, sample), name)


@checks("compile", over=(samples("basic"),), compiles=True)
def compiled_without_gradients(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    f, plain = both(entry, sample)
    assert_close(compile_once(f)(*sample.tensors), plain(*sample.tensors), name)


@checks("compile", needs=(DIFFERENTIABLE, HAS_SIZES), uses=("float32",), compiles=True)
def inductor(entry: OpEntry) -> None:
    """The op between fused ops, with inputs whose layout inductor may choose."""
    sample = entry.of_size(9, torch.float32)

    def around(op: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        f = sample.bind_inputs(op)
        return lambda *t: tuple(o.sin() for o in f(*(2 * x if is_variable(x) else x for x in t)))

    compiled = compile_once(around(entry.op), "inductor")
    for rows in (9, 33):
        other = entry.of_size(rows, torch.float32)
        expected = outputs_and_gradients(around(entry.reference), other.double())
        for name, a in outputs_and_gradients(compiled, other).items():
            e = expected[name]
            assert_close(a.double(), e, f"{rows} rows: {name}", rtol=1e-4, atol=1e-4 * (1 + size_of(e)))


@checks("compile", needs=(DIFFERENTIABLE, HAS_SIZES), compiles=True)
def one_graph_for_all_sizes(entry: OpEntry) -> None:
    counter = counting_backend()
    f, plain = both_of_inputs(entry, entry.of_size(2))
    compiled = compile_once(f, counter)
    with torch._dynamo.config.patch(specialize_float=True):  # a float argument would be a separate graph
        for rows in batches(entry):
            sample = entry.of_size(rows)
            assert_close(outputs_and_gradients(compiled, sample), outputs_and_gradients(plain, sample), f"{rows} rows")
    assert counter.frame_count == 1, f"{counter.frame_count} graphs for {len(BATCHES)} sizes"


def shifted_copies(count: int, t: Tensor) -> Tensor:
    """A batch of tensors with other values, or of the same indices."""
    return torch.stack([t + i / 8 if is_variable(t) else t for i in range(count)])


@checks("compile", needs=(DIFFERENTIABLE, HAS_SIZES), uses=("vmap",), compiles=True)
def one_graph_for_all_sizes_of_vmap(entry: OpEntry) -> None:
    """With a batching rule that computes in int, every batch would be compiled again."""
    counter = counting_backend()
    f, plain = both_of_inputs(entry, entry.of_size(2))
    compiled = compile_once(vmap(f), counter)
    # Sizes that are equal in the first call become one symbol, so these differ from those of ops and table entries.
    with torch._dynamo.config.patch(specialize_float=True):
        for batch, rows in ((11, 13), (17, 13), (13, 19), (29, 7)):
            sample = entry.of_size(rows).map_inputs(partial(shifted_copies, batch))
            expected = outputs_and_gradients(vmap(plain), sample)
            assert_close(outputs_and_gradients(compiled, sample), expected, f"{batch} times {rows} rows")
    assert counter.frame_count == 1, f"{counter.frame_count} graphs for 4 sizes"


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


@checks(
    "compile",
    over=(each("transform", transforms(lambda *t: t, 1)),),
    needs=(DIFFERENTIABLE, PUBLIC),
    uses=("double backward", "forward AD", "vmap"),
    compiles=True,
)
def compiled_transforms(entry: OpEntry, transform: str) -> None:
    """The graphs call the backward operators, too."""
    sample = entry.sample(entry.names("basic")[0])
    f, plain = (transforms(g, len(sample.tensors))[transform] for g in both(entry, sample))
    try:
        actual = compile_once(f)(*sample.tensors)
    except torch._dynamo.exc.TorchDynamoException as error:
        with raises(torch._dynamo.exc.TorchDynamoException):  # otherwise it is the op that does not compile
            torch._dynamo.reset()
            compile_once(plain)(*sample.tensors)
        reason = f"torch {torch.__version__} compiles no {transform} of plain torch either: {type(error).__name__}"
        raise NotCheckedError(reason) from None
    assert_close(actual, plain(*sample.tensors), transform, "result")


@checks("compile", needs=(DIFFERENTIABLE, HAS_SIZES, TAKES_SOME_ROWS), compiles=True)
def unbacked_sizes(entry: OpEntry) -> None:
    """The number of rows that a mask selects is not known during compilation."""
    dims = entry.row_dims

    def of_some_rows(op: Callable[..., Any]) -> Callable[..., tuple[Tensor, ...]]:
        f = entry.of_size(2).bind_inputs(op)

        def call(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
            return f(*masked_rows(tensors, dims, mask))

        return call

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = compile_once(of_some_rows(entry.op))
        for rows in (6, 9):
            sample = entry.of_size(rows)
            for mask in (torch.arange(rows) % 2 == 0, torch.zeros(rows, dtype=torch.bool)):
                actual, expected = (
                    outputs_and_gradients(partial(g, mask), sample) for g in (compiled, of_some_rows(entry.reference))
                )
                assert_close(actual, expected, f"{int(mask.sum())} of {rows} rows")


# ---------------------------------------------------------------- compiled autograd

# In which the gradients of the operator are computed, and those of the reference.
CONTEXTS: tuple[Callable[[], AbstractContextManager[Any]], ...] = (recorded_compiled_autograd, nullcontext)


@checks("compiled autograd", over=(samples("basic"),), needs=(DIFFERENTIABLE,), compiles=True)
def compiled_autograd(entry: OpEntry, name: str) -> None:
    """For every set of gradients that can be requested."""
    sample = entry.sample(name)
    for wanted in some_of(itertools.product((False, True), repeat=len(sample.tensors)), 16):
        values = []
        for f in both(entry, sample):
            tensors = tuple(t.detach().requires_grad_(w) for t, w in zip(sample.tensors, wanted, strict=True))
            values.append((scalar(f(*tensors)), [t for t in tensors if t.requires_grad]))
        (value, some), (plain, same) = values
        inputs = f"with gradients of {chosen(wanted)}"
        if not value.requires_grad or not plain.requires_grad:
            assert not plain.requires_grad, f"{inputs}: the operator has no gradient"
            continue
        options: dict[str, Any] = {"allow_unused": True, "materialize_grads": True}
        expected = torch.autograd.grad(plain, same, **options)
        with recorded_compiled_autograd():
            assert_close(torch.autograd.grad(value, some, **options), expected, inputs, "gradient")


@checks("compiled autograd", needs=(DIFFERENTIABLE, HAS_SIZES), compiles=True)
def compiled_autograd_captures_once(entry: OpEntry) -> None:
    """The sizes are not known when the graph is captured. A formula of the kit is a function in the graph."""
    f, plain = both_of_inputs(entry, entry.of_size(2))
    expected = [outputs_and_gradients(plain, entry.of_size(rows)) for rows in batches(entry)]
    with recorded_compiled_autograd(compile_once) as graphs:
        actual = [outputs_and_gradients(f, entry.of_size(rows)) for rows in batches(entry)]
    assert_close(actual, expected)
    assert len(graphs) == 1, f"{len(graphs)} graphs for {len(BATCHES)} sizes"
    if entry.made_with_kit:
        calls = [n for n in graphs[0].graph.nodes if n.op == "call_function"]
        own = [n for n in calls if entry.node_name in str(n.target)]
        assert len(own) == 1, "the formula was inlined or run while it was captured"


@checks(
    "compiled autograd", over=(samples("basic"),), needs=(DIFFERENTIABLE,), uses=("double backward",), compiles=True
)
def double_backward_under_compiled_autograd(entry: OpEntry, name: str) -> None:
    results = []
    for f, context in zip(both(entry, entry.sample(name)), CONTEXTS, strict=True):
        sample = entry.sample(name).requires_grad()
        first = torch.autograd.grad(
            scalar(f(*sample.tensors)), sample.tensors, create_graph=True, materialize_grads=True
        )
        with context():
            results.append(torch.autograd.grad(scalar(first), sample.tensors, materialize_grads=True))
    assert_close(results[0], results[1], name, "second derivative")


@checks("compiled autograd", needs=(DIFFERENTIABLE, HAS_SIZES, PUBLIC), compiles=True)
def compiled_autograd_of_compiled_forward(entry: OpEntry) -> None:
    sample = entry.of_size(6)
    f, plain = both_of_inputs(entry, sample)
    expected = outputs_and_gradients(plain, sample)
    with recorded_compiled_autograd(compile_once):
        assert_close(outputs_and_gradients(compile_once(f), sample), expected)


@checks("compiled autograd", needs=(DIFFERENTIABLE, HAS_SIZES), compiles=True)
def compiled_autograd_with_accumulation(entry: OpEntry) -> None:
    """Through .backward(), twice, into .grad, with a tensor hook."""
    results = []
    for f, context in zip(both(entry, entry.of_size(6)), CONTEXTS, strict=True):
        sample = entry.of_size(6).requires_grad()
        sample.tensors[0].register_hook(lambda g: 2 * g)
        for _ in range(2):
            value = scalar(f(*sample.tensors))
            with context():
                value.backward()
        results.append([torch.zeros_like(t) if t.grad is None else t.grad for t in sample.tensors])
    assert_close(results[0], results[1], "", "gradient")
