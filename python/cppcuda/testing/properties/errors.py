"""Bad input: the error names the operator, the argument, and the expected and the actual value; nothing crashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from cppcuda._declaration import DTYPES, FLOATING, spell_dtype, spell_dtypes
from cppcuda.testing.compare import ERRORS, assert_close, raises
from cppcuda.testing.registry import (
    HAS_BACKWARD,
    HAS_BAD_INPUTS,
    HAS_FUNCTION,
    MADE_WITH_KIT,
    NotCheckedError,
    checks,
    devices,
)
from cppcuda.testing.samples import BadInput, OpEntry, Sample, apply, is_variable, split_keywords

INDICES = (torch.int32, torch.int64)
DENSE = "must be a dense (strided) tensor, got layout"


def quantized(t: Tensor) -> Tensor:
    return torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8)


def sparse_csr(t: Tensor) -> Tensor:
    """Adds a dim to tensors of one dim, which have no CSR layout. The layout is checked before the shape."""
    return t.expand(1, -1).to_sparse_csr() if t.dim() == 1 else t.to_sparse_csr(dense_dim=t.dim() - 2)


# Tensors of a layout that no operator of the kit accepts, and what the error says after "op: argument ".
LAYOUTS: tuple[tuple[Callable[[Tensor], Tensor], str], ...] = (
    (lambda t: t.to_sparse(), f"{DENSE} Sparse"),
    (sparse_csr, f"{DENSE} SparseCsr"),
    (lambda t: t.float().to_mkldnn(), f"{DENSE} Mkldnn"),
)


def unsupported(allowed: tuple[torch.dtype, ...]) -> Iterator[tuple[Callable[[Tensor], Tensor], str]]:
    """The same for an argument that may have these dtypes."""
    refused = f"must be of dtype {spell_dtypes(allowed)}, got"
    for dtype in (d for d in DTYPES if d not in allowed):
        yield partial(Tensor.to, dtype=dtype), f"{refused} {spell_dtype(dtype)}"
    yield quantized, f"{refused} qint8"
    yield from LAYOUTS


def assert_refuses(bad: BadInput, call: Callable[[], Any], kind: str = "") -> None:
    """Asserts that a call raises the error of a bad input: its first line, complete, or any if no message is given."""
    with raises(RuntimeError if bad.message else ERRORS, what=f"{bad.name}{kind}") as caught:
        call()
    assert not bad.message or caught.first_line == bad.message, (
        f"{bad.name}{kind}: the error is {caught.first_line!r}, expected {bad.message!r}"
    )


@checks("bad input", over=(devices,), needs=(HAS_BAD_INPUTS,), float64=False)
def message(entry: OpEntry, device: str) -> None:
    for bad in entry.all_bad_inputs:
        args = tuple(a.to(device) if isinstance(a, Tensor) else a for a in bad.args())
        assert_refuses(bad, partial(apply, entry.op, args))
        with_grad = [a.requires_grad_() if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        assert_refuses(bad, partial(apply, entry.op, with_grad), " with requires_grad")


@checks("bad input", needs=(HAS_BAD_INPUTS,), uses=("meta",), float64=False)
def message_on_meta(entry: OpEntry) -> None:
    """All devices share one validation, so export and compile reject what eager rejects."""
    for bad in entry.all_bad_inputs:
        args = [a.to("meta") if isinstance(a, Tensor) else a for a in bad.args()]
        assert_refuses(bad, partial(apply, entry.op, args), " on meta")


@checks("bad input", needs=(HAS_BAD_INPUTS, HAS_BACKWARD))
def message_under_vmap_speaks_of_the_callers_sizes(entry: OpEntry) -> None:
    for bad in entry.all_bad_inputs:
        sample = Sample(bad.name, bad.args())
        if any(t.dim() == 0 for t in sample.tensors):
            continue
        stacked = tuple(torch.stack([t, t]) for t in sample.tensors)
        assert_refuses(bad, partial(vmap(sample.bind(entry.op)), *stacked), " under vmap")


def given_tensors(entry: OpEntry) -> list[tuple[str, Tensor]]:
    """The tensors of a valid call, with the names of the arguments."""
    args = entry.sample(entry.names("basic")[0], torch.float32).args
    return [(n, a) for n, a in zip(entry.argument_names, args, strict=False) if isinstance(a, Tensor)]


def replaced(entry: OpEntry, convert: Callable[[Tensor], Tensor], *arguments: str) -> tuple[Any, ...]:
    """The arguments of this call, of which some are replaced."""
    args = entry.sample(entry.names("basic")[0], torch.float32).args
    return tuple(convert(a) if n in arguments else a for n, a in zip(entry.argument_names, args, strict=False))


def assert_message(call: Callable[[], Any], expected: str) -> None:
    with raises(RuntimeError, what=f"instead of {expected!r}") as caught:
        call()
    assert caught.first_line == expected, f"expected {expected!r}, got {caught.first_line!r}"


def dtypes_of(entry: OpEntry, argument: str, value: Tensor) -> tuple[torch.dtype, ...]:
    """The dtypes that an argument may have."""
    if entry.declaration:
        return entry.declaration.dtypes_of(argument)
    return FLOATING if is_variable(value) else INDICES


@checks("bad input", needs=(MADE_WITH_KIT,))
def one_tensor_of_an_unsupported_kind(entry: OpEntry) -> None:
    for argument, value in given_tensors(entry):
        for convert, text in unsupported(dtypes_of(entry, argument, value)):
            call = partial(apply, entry.op, replaced(entry, convert, argument))
            assert_message(call, f"{entry.base_name}: {argument} {text}")


@checks("bad input", needs=(MADE_WITH_KIT,))
def all_tensors_of_an_unsupported_kind(entry: OpEntry) -> None:
    given = dict(given_tensors(entry))
    first, value = next(iter(given.items()))
    for convert, text in unsupported(dtypes_of(entry, first, value)):
        call = partial(apply, entry.op, replaced(entry, convert, *given))
        assert_message(call, f"{entry.base_name}: {first} {text}")


@checks("bad input", needs=(MADE_WITH_KIT,))
def devices_that_differ(entry: OpEntry) -> None:
    first = entry.declaration.first if entry.declaration else entry.argument_names[0]
    given = given_tensors(entry)
    if len(given) == 1:
        raise NotCheckedError("one tensor has one device")
    for argument, _ in given:
        args = replaced(entry, lambda t: t.to("meta"), argument)
        with raises(RuntimeError, what=f"{argument} on meta") as caught:
            apply(entry.op, args)
        if entry.declaration:
            expected = entry.declaration.refusal(args)
            assert expected and caught.first_line == expected, f"expected {expected!r}, got {caught.first_line!r}"
            continue
        wrong, right, came = (r"\w+", "meta", "cpu") if argument == first else (argument, "cpu", "meta")
        pattern = rf"{entry.base_name}: {wrong} must be on {right}, the device of {first}, got {came}$"
        assert re.match(pattern, caught.first_line), caught.first_line


@checks("bad input", needs=(MADE_WITH_KIT,))
def undefined_and_missing_arguments(entry: OpEntry) -> None:
    given = entry.sample(entry.names("basic")[0]).args
    for i, argument in enumerate(entry.op._schema.arguments[: len(split_keywords(given)[0])]):
        args = [*given[:i], None, *given[i + 1 :]]
        if "Optional" in str(argument.type) or str(argument.type) == "bool":  # torch takes None for False
            continue
        with raises((RuntimeError, TypeError), argument.name, f"{argument.name} is None"):
            apply(entry.op, args)


NO_TENSORS: tuple[Any, ...] = ([1, 2], 1.5, "1", None, np.ones(3))


@checks("bad input", needs=(HAS_FUNCTION, MADE_WITH_KIT))
def arguments_that_are_not_tensors(entry: OpEntry) -> None:
    assert entry.function
    sample = entry.sample(entry.names("basic")[0])
    tensors = [i for i, arg in enumerate(sample.args) if isinstance(arg, Tensor)]
    for i in tensors:
        for other in NO_TENSORS:
            args = [other if i == j else arg for j, arg in enumerate(sample.args)]
            with raises((TypeError, RuntimeError)) as caught:
                apply(entry.function, args)
            for word in (entry.base_name, entry.argument_names[i]):
                assert word in str(caught.error), f"{word} is not in {caught.error}"
    assert len(tensors) == len(sample.inputs) > 0


@checks("bad input", needs=(HAS_FUNCTION,))
def proxies_are_accepted(entry: OpEntry) -> None:
    """The functions accept the proxies of torch.fx, which are not tensors."""
    assert entry.function
    sample = entry.sample(entry.names("basic")[0])
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    proxies = iter([torch.fx.Proxy(graph.placeholder(f"t{i}"), tracer) for i in range(len(sample.inputs))])
    out = apply(entry.function, [next(proxies) if isinstance(arg, Tensor) else arg for arg in sample.args])
    graph.output(out.node)
    traced = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert_close(traced(*sample.inputs), sample.call(entry.reference))


@checks("bad input", needs=(HAS_BAD_INPUTS,), float64=False)
def nothing_is_written_on_error(entry: OpEntry) -> None:
    for bad in entry.all_bad_inputs:
        args = bad.args()
        before = [a.clone() if isinstance(a, Tensor) else a for a in args]
        with raises(ERRORS, what=bad.name):
            apply(entry.op, args)
        for a, b in zip(args, before, strict=True):
            assert torch.equal(a, b) if isinstance(a, Tensor) else a == b, f"{bad.name}: an argument was written to"


@checks("bad input", needs=(HAS_BAD_INPUTS,))
def error_in_one_call_leaves_the_next_alone(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    expected = sample.bind(entry.op)(*sample.tensors)
    for bad in entry.all_bad_inputs:
        with raises(ERRORS, what=bad.name):
            apply(entry.op, bad.args())
        again = sample.bind(entry.op)(*sample.tensors)
        assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True)), f"{bad.name}: other values after"
