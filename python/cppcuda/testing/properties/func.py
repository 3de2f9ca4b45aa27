"""torch.func: every transform and nesting gives the results of plain torch, with as few kernels as possible."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

from cppcuda.testing.compare import (
    allocated_bytes,
    assert_close,
    assert_close_or_ill_conditioned,
    calls_below_transforms,
    kernel_calls,
    profiled,
    raises,
    scalar,
    some_of,
    value_tolerance,
)
from cppcuda.testing.registry import (
    DIFFERENTIABLE,
    HAS_BACKWARD,
    HAS_SIZES,
    MADE_WITH_KIT,
    NotCheckedError,
    checks,
    dtypes,
    each,
    lacking,
    samples,
)
from cppcuda.testing.samples import THIRD_ORDER, OpEntry, Sample, is_variable, outputs_of

Function = Callable[..., tuple[Tensor, ...]]

COPIES = {"aten::copy_", "aten::clone", "aten::contiguous", "aten::repeat", "aten::stack", "aten::cat"}


def make_batch(t: Tensor, size: int, dim: int = 0) -> Tensor:
    """A batch of different tensors, with values near those of t, or of the same indices. None is zero, because zero may
    be an input that an operator refuses, such as a singular matrix."""
    return torch.stack([t / (1 + 0.25 * i) if is_variable(t) else t for i in range(size)], dim)


def every(tensors: tuple[Tensor, ...]) -> tuple[int, ...]:
    return tuple(range(len(tensors)))


def loss(f: Function) -> Callable[..., Tensor]:
    return lambda *tensors: scalar(f(*tensors))


def gradient(f: Function, tensors: tuple[Tensor, ...]) -> Callable[..., tuple[Tensor, ...]]:
    return grad(loss(f), argnums=every(tensors))


def rows(tensors: tuple[Tensor, ...], size: int = 3) -> tuple[Tensor, ...]:
    return tuple(make_batch(t, size) for t in tensors)


def tangents(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple((t + 1).sin() for t in tensors)


def nth_gradient(f: Function, tensors: tuple[Tensor, ...], order: int) -> Any:
    for _ in range(order):
        f = gradient(f, tensors)
    return f(*tensors)


def first_only(tensors: tuple[Tensor, ...]) -> tuple[int | None, ...]:
    return (0, *[None] * (len(tensors) - 1))


def last_only(tensors: tuple[Tensor, ...]) -> tuple[int | None, ...]:
    return (*[None] * (len(tensors) - 1), 0)


def maml(f: Function, tensors: tuple[Tensor, ...]) -> Any:
    """One inner SGD step on the first argument for each task; the outer gradient passes through it."""
    first, *rest = tensors

    def outer(first: Tensor, *rest: Tensor) -> Tensor:
        step = grad(loss(f))(first, *rest)
        return scalar(f(first - 0.1 * step, *rest))

    task = vmap(grad(outer, argnums=every(tensors)), in_dims=last_only(tensors) if rest else 0)
    return task(first, *rest[:-1], *([make_batch(rest[-1], 3)] if rest else [])) if rest else task(make_batch(first, 3))


def interleaved(f: Function, tensors: tuple[Tensor, ...]) -> Any:
    """vmap of grad of vmap: an autograd level is between the two batch levels."""
    inner = lambda *t: scalar(vmap(f, in_dims=last_only(t))(*t))  # noqa: E731
    outer = vmap(grad(inner, argnums=every(tensors)), in_dims=first_only(tensors))
    *others, last = tensors
    tensors = (*others, make_batch(last, 2))
    return outer(make_batch(tensors[0], 3), *tensors[1:])


TRANSFORMS: dict[str, Callable[[Function, tuple[Tensor, ...]], Any]] = {
    "grad": lambda f, x: gradient(f, x)(*x),
    "grad of each alone": lambda f, x: [grad(loss(f), argnums=i)(*x) for i in every(x)],
    "vjp": lambda f, x: vjp(f, *x)[1](tuple(o.cos() for o in f(*x))),
    "jvp": lambda f, x: jvp(f, x, tangents(x)),
    "jvp of each alone": lambda f, x: [
        jvp(lambda t, i=i: f(*x[:i], t, *x[i + 1 :]), (x[i],), (x[i].cos(),)) for i in every(x)
    ],
    "jacrev": lambda f, x: jacrev(f, argnums=every(x))(*x),
    "jacrev in chunks": lambda f, x: jacrev(f, argnums=every(x), chunk_size=2)(*x),
    "jacfwd": lambda f, x: jacfwd(f, argnums=every(x))(*x),
    "hessian": lambda f, x: hessian(loss(f), argnums=every(x))(*x),
    "jacrev of jacrev": lambda f, x: jacrev(jacrev(loss(f), argnums=every(x)), argnums=every(x))(*x),
    "jacrev of jacfwd": lambda f, x: jacrev(jacfwd(loss(f), argnums=every(x)), argnums=every(x))(*x),
    "grad of grad": lambda f, x: nth_gradient(f, x, 2),
    "grad of grad of grad": lambda f, x: nth_gradient(f, x, 3),
    "jvp of grad": lambda f, x: jvp(gradient(f, x), x, tangents(x)),
    "grad of jvp": lambda f, x: gradient(lambda *t: jvp(f, t, tangents(x))[1], x)(*x),
    "jvp of jvp": lambda f, x: jvp(lambda *t: jvp(f, t, tangents(x))[1], x, tangents(x)),
    "linearize": lambda f, x: linearize(f, *x)[1](*tangents(x)),
    "functionalize": lambda f, x: functionalize(f)(*x),
    "functionalize of grad": lambda f, x: functionalize(gradient(f, x))(*x),
    "grad of functionalize": lambda f, x: gradient(functionalize(f), x)(*x),
    "vmap": lambda f, x: vmap(f)(*rows(x)),
    "vmap in chunks": lambda f, x: vmap(f, chunk_size=2)(*rows(x)),
    "vmap of one": lambda f, x: vmap(f)(*rows(x, 1)),
    "vmap of vmap": lambda f, x: vmap(vmap(f))(*rows(rows(x, 2))),
    "vmap of vmap of vmap": lambda f, x: vmap(vmap(vmap(f)))(*rows(rows(rows(x, 2), 2), 2)),
    "vmap of vmap over one each": lambda f, x: vmap(vmap(f, in_dims=first_only(x)), in_dims=last_only(x))(
        *([make_batch(x[0], 2), *x[1:-1], make_batch(x[-1], 3)] if len(x) > 1 else rows(rows(x, 2)))
    ),
    "vmap of grad": lambda f, x: vmap(gradient(f, x))(*rows(x)),
    "grad of vmap": lambda f, x: gradient(vmap(f), x)(*rows(x)),
    "vmap of jvp": lambda f, x: vmap(lambda *t: jvp(f, t, t))(*rows(x)),
    "jvp of vmap": lambda f, x: jvp(vmap(f), rows(x), tangents(rows(x))),
    "vmap of jacrev": lambda f, x: vmap(jacrev(f, argnums=every(x)))(*rows(x)),
    "vmap of jacfwd": lambda f, x: vmap(jacfwd(f, argnums=every(x)))(*rows(x)),
    "vmap of hessian": lambda f, x: vmap(hessian(loss(f), argnums=every(x)))(*rows(x, 2)),
    "jacrev of vmap": lambda f, x: jacrev(vmap(f), argnums=every(x))(*rows(x, 2)),
    "vmap of grad of grad": lambda f, x: vmap(gradient(gradient(f, x), x))(*rows(x)),
    "vmap of grad of vmap": lambda f, x: vmap(gradient(vmap(f), x))(*rows(rows(x, 2))),
    "vmap of grad of vmap over one each": interleaved,
    "grad of vmap of grad": lambda f, x: gradient(vmap(gradient(f, x)), x)(*rows(x)),
    "grad of vmap of grad of vmap": lambda f, x: gradient(vmap(gradient(vmap(f), x)), x)(*rows(rows(x, 2))),
    "vmap of jvp of vmap of grad": lambda f, x: vmap(lambda *t: jvp(vmap(gradient(f, x)), t, t))(*rows(rows(x, 2))),
    "MAML under vmap": maml,
}


def needed_by(transform: str) -> set[str]:
    """The rows on which a transform relies: jacobians call vmap, and a Hessian is forward mode over reverse mode."""
    reverse = sum(transform.count(word) for word in ("grad", "jacrev", "vjp", "hessian")) + 2 * transform.count("MAML")
    forward = sum(transform.count(word) for word in ("jvp", "jacfwd", "hessian", "linearize"))
    found = {"backward"} if reverse else set()
    found |= {"forward AD"} if forward else set()
    found |= {"double backward"} if reverse and reverse + forward > 1 else set()
    found |= {THIRD_ORDER} if reverse > 2 else set()
    return found | ({"vmap"} if any(word in transform for word in ("vmap", "jac", "hessian", "MAML")) else set())


@checks("torch.func", over=(samples("basic"), each("transform", TRANSFORMS)), needs=(DIFFERENTIABLE,))
def transform(entry: OpEntry, name: str, transform: str) -> None:
    if reason := lacking(entry, sorted(needed_by(transform))):
        raise NotCheckedError(reason)
    sample = entry.sample(name)
    run = TRANSFORMS[transform]
    actual, expected = (run(sample.bind(f), sample.tensors) for f in (entry.op, entry.reference))
    of_reference = lambda near: run(sample.bind(entry.reference), near.tensors)  # noqa: E731
    assert_close_or_ill_conditioned(actual, expected, sample, of_reference, name, "result")


# ---------------------------------------------------------------- vmap


def in_dims_of(sample: Sample) -> list[tuple[int | None, ...]]:
    dims = [(None, *{0: None, min(1, t.dim()): None, t.dim(): None, -1: None}) for t in sample.tensors]
    if math.prod(map(len, dims)) <= 100:
        return [c for c in itertools.product(*dims) if any(d is not None for d in c)]
    count = range(len(dims))
    alone = [tuple(dims[j][1 + j % 2] if i == j else None for i in count) for j in count]
    all_but_one = [tuple(None if i == j else dims[i][1 + i % 2] for i in count) for j in count]
    random_ones = random.Random(0)
    some = [tuple(random_ones.choice(d) for d in dims) for _ in range(20)]
    return [(0,) * len(dims), *alone, *all_but_one, *(c for c in some if any(d is not None for d in c))]


@checks("vmap", over=(samples("basic"),), uses=("strides",), internal=True)
def vmap_in_dims_and_out_dims(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    for in_dims in in_dims_of(sample):
        inputs = [t if d is None else make_batch(t, 4, d) for t, d in zip(sample.tensors, in_dims, strict=True)]
        # The reference does not use out_dims, because torch 2.11 fails if an output has no batch.
        reference = vmap(sample.bind(entry.reference), in_dims=in_dims)(*inputs)
        for out_dims in (0, 1, -1) if all(t.dim() > 1 for t in reference) else (0, -1):
            actual = vmap(sample.bind(entry.op), in_dims=in_dims, out_dims=out_dims)(*inputs)
            expected = tuple(t.movedim(0, out_dims) for t in reference)
            assert_close(actual, expected, f"{name}, in_dims={in_dims}, out_dims={out_dims}")
        loop = [
            sample.bind(entry.op)(*[t if d is None else t.select(d, i) for t, d in zip(inputs, in_dims, strict=True)])
            for i in range(4)
        ]
        expected = tuple(torch.stack(o, -1) for o in zip(*loop, strict=True))
        assert_close(actual, expected, f"{name}, in_dims={in_dims}, compared with one call for each row")


# Each level has a batch of its own operands, so a batching rule must tell the levels apart.
NESTED = ("vmap of vmap", "vmap of vmap of vmap", "vmap of vmap over one each")


@checks("vmap", over=(samples("basic"), each("nesting", NESTED)))
def nested_vmap(entry: OpEntry, name: str, nesting: str) -> None:
    sample = entry.sample(name)
    actual, expected = (TRANSFORMS[nesting](sample.bind(f), sample.tensors) for f in (entry.op, entry.reference))
    assert_close(actual, expected, name)


@checks("vmap", over=(samples("basic", "shape", "stride"),), internal=True)
def vmap_of_every_sample(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    for size in (0, 3):
        inputs = tuple(make_batch(t, 3)[:size] for t in sample.tensors)
        actual = vmap(sample.bind(entry.op))(*inputs)
        if size:
            assert_close(actual, vmap(sample.bind(entry.reference))(*inputs), name)
        else:
            plain = sample.bind(entry.op)(*sample.tensors)
            for a, p in zip(actual, plain, strict=True):
                assert a.shape == (0, *p.shape), (
                    f"{name}: an empty batch has an output of shape {tuple(a.shape)}, not {(0, *p.shape)}"
                )


@checks("vmap", over=(dtypes,))
def vmap_in_every_dtype(entry: OpEntry, dtype: torch.dtype, mixed: bool) -> None:
    """The same bits as separate calls, except for matrix products and for operators that do not promise it."""
    for name in entry.names("basic"):
        sample = entry.sample(name, dtype, mixed=mixed)
        inputs = rows(sample.tensors)
        actual = vmap(sample.bind(entry.op))(*inputs)
        loop = [sample.bind(entry.op)(*row) for row in zip(*inputs, strict=True)]
        for a, e in zip(actual, zip(*loop, strict=True), strict=True):
            if entry.products or not entry.made_with_kit:
                expected = torch.stack(e)
                tolerance = value_tolerance(entry, sample, a, expected) if is_variable(a) else {}
                assert_close(a, expected, name, **tolerance)
            else:
                assert torch.equal(a, torch.stack(e)), f"{name}: other bits than without vmap"


@checks("vmap", over=(samples("basic"),), internal=True)
def vmap_is_one_kernel(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    for in_dims in some_of(itertools.product((None, 0), repeat=len(sample.tensors)), 32):
        if all(d is None for d in in_dims):
            continue
        inputs = [t if d is None else make_batch(t, 7) for t, d in zip(sample.tensors, in_dims, strict=True)]
        f = vmap(entry_call := sample.bind(entry.op), in_dims=in_dims)
        loop = lambda: [entry_call(*sample.tensors) for _ in range(7)]  # noqa: E731
        seven = calls_below_transforms(entry, loop)
        if not seven and not entry.made_with_kit:
            raise NotCheckedError("the operator is made of others, which are called instead")
        assert seven == 7, f"7 calls are counted as {seven}"
        count = calls_below_transforms(entry, partial(f, *inputs))
        # A rule of torch's own may be made of other operators.
        batched = (i for i, d in zip(sample.positions, in_dims, strict=True) if d is not None)
        allowed = 7 if any(map(entry.shares, batched)) else 1
        assert count == allowed or (count == 0 and not entry.made_with_kit), (
            f"with in_dims={in_dims}, the kernel runs {count} times for a batch of 7"
        )


@checks("vmap", over=(samples("basic"),), needs=(DIFFERENTIABLE, HAS_BACKWARD))
def jacrev_is_one_backward_kernel(entry: OpEntry, name: str) -> None:
    """Not one kernel per row of the Jacobian."""
    assert entry.backward
    sample = entry.sample(name)
    require_one_call(entry, sample)
    argnums = every(sample.tensors)
    jacobian = lambda: jacrev(sample.bind(entry.op), argnums=argnums)(*sample.tensors)  # noqa: E731
    for kernel in (entry.backward.qualified_name, entry.qualified_name):
        assert (count := kernel_calls(kernel, jacobian)) == 1, f"jacrev runs {kernel} {count} times"


@checks("vmap", over=(samples("basic"),), needs=(DIFFERENTIABLE, HAS_BACKWARD))
def nested_vmap_is_one_kernel(entry: OpEntry, name: str) -> None:
    assert entry.backward
    sample = entry.sample(name)
    require_one_call(entry, sample)
    f, x = sample.bind(entry.op), sample.tensors
    calls: dict[str, tuple[Callable[[], Any], int, int]] = {
        "vmap of vmap": (lambda: vmap(vmap(f))(*rows(rows(x, 2))), 1, 0),
        "vmap of grad of vmap": (lambda: vmap(gradient(vmap(f), x))(*rows(rows(x, 2))), 1, 1),
        "grad of vmap": (lambda: gradient(vmap(f), x)(*rows(x)), 1, 1),
    }
    for label, (call, forward, backward) in calls.items():
        assert kernel_calls(entry.qualified_name, call) == forward, label
        assert kernel_calls(entry.backward.qualified_name, call) == backward, label


@checks("vmap", needs=(MADE_WITH_KIT, HAS_SIZES), internal=True)
def vmap_copies_nothing(entry: OpEntry) -> None:
    """An operand without a batch is expanded with stride 0, and a leading batch dim is used without a copy."""
    size, big = 64, entry.of_size(50)
    result_bytes = size * sum(t.numel() * t.element_size() for t in outputs_of(big.call(entry.op)))
    for batched in batches_without_copies(entry):
        in_dims = tuple(0 if i in batched else None for i in range(len(big.inputs)))
        inputs = [make_batch(t, size) if i in batched else t for i, t in enumerate(big.inputs)]
        f = vmap(big.bind_inputs(entry.op), in_dims=in_dims)
        f(*inputs)
        names = {event.name for event in profiled(partial(f, *inputs)).events() or ()}
        assert entry.products or not names & COPIES, f"batch on inputs {batched}"
        allowed = (1.1 + entry.temporaries) * result_bytes + 4096
        assert allocated_bytes(partial(f, *inputs)) <= allowed, f"batch on inputs {batched}"


def require_one_call(entry: OpEntry, sample: Sample) -> None:
    if any(map(entry.shares, sample.positions)):
        raise NotCheckedError("vmap calls the operator for each row, because all rows share an argument")


def batches_without_copies(entry: OpEntry) -> list[list[int]]:
    """The inputs that have the batch in each call: one of them, but all rows that share an argument without rows. Such
    rows become more rows, so the others would be copied, which is less than a gradient for each of the batch."""
    inputs = entry.of_size(2).inputs
    shared = [entry.shares(i) for i, a in enumerate(entry.of_size(2).args) if isinstance(a, Tensor)]
    rows = [i for i, dim in enumerate(entry.row_dims) if dim is not None]
    if entry.declaration and any(a.pattern and a.pattern.any_leading for a in entry.declaration.arguments):
        # A tensor that broadcasts is copied, unless its rows have one stride.
        return [[i for i, is_shared in enumerate(shared) if not is_shared]]
    if entry.products or len(rows) == len(inputs) or any(shared):
        return [[i] for i, t in enumerate(inputs) if is_variable(t) and not shared[i]]
    return [rows, *([i] for i in range(len(inputs)) if i not in rows)]


@checks("vmap", needs=(MADE_WITH_KIT, HAS_BACKWARD))
def escaped_tensor_is_refused(entry: OpEntry) -> None:
    leaked: list[Tensor] = []

    def leak(*tensors: Tensor) -> Tensor:
        leaked.extend(tensors)
        return tensors[0]

    sample = entry.sample(entry.names("basic")[0])
    vmap(leak)(*rows(sample.tensors))
    with raises(RuntimeError, "vmap"):
        sample.with_tensors(tuple(leaked)).call(entry.op)
