"""Bad input: the error names the operator, the argument, and the expected and the actual value; nothing crashes."""

import re
from collections.abc import Callable
from typing import Any

import cppcuda
import numpy as np
import pytest
import torch
from op_samples import OpEntry, forward_ops, ops_with_bad_inputs
from support import assert_close, over_devices, over_ops
from torch import Tensor

FLOATING = "must be of dtype float64, float32, float16 or bfloat16, got"
DENSE = "must be a dense (strided) tensor, got layout"


def quantized(t: Tensor) -> Tensor:
    return torch.quantize_per_tensor(t.float(), 0.1, 0, torch.qint8)


def sparse_csr(t: Tensor) -> Tensor:
    """Adds a dim to tensors of one dim, which have no CSR layout. The layout is checked before the shape."""
    return t.expand(1, -1).to_sparse_csr() if t.dim() == 1 else t.to_sparse_csr(dense_dim=t.dim() - 2)


# Tensors that no operator accepts for any argument, and what the error says after "op: argument ".
CONVERSIONS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "int64": (Tensor.long, f"{FLOATING} int64"),
    "int32": (Tensor.int, f"{FLOATING} int32"),
    "uint8": (Tensor.byte, f"{FLOATING} uint8"),
    "bool": (Tensor.bool, f"{FLOATING} bool"),
    "complex64": (lambda t: t.to(torch.complex64), f"{FLOATING} complex64"),
    "complex128": (lambda t: t.to(torch.complex128), f"{FLOATING} complex128"),
    "float8": (lambda t: t.to(torch.float8_e4m3fn), f"{FLOATING} float8_e4m3fn"),
    "quantized": (quantized, f"{FLOATING} qint8"),
    "sparse": (lambda t: t.to_sparse(), f"{DENSE} Sparse"),
    "sparse_csr": (sparse_csr, f"{DENSE} SparseCsr"),
    "mkldnn": (lambda t: t.to_mkldnn(), f"{DENSE} Mkldnn"),
}


def first_line(error: BaseException) -> str:
    return str(error).splitlines()[0]


@over_devices
@over_ops(ops_with_bad_inputs())
def test_message(entry: OpEntry, device: str) -> None:
    for bad in entry.bad_inputs:
        args = tuple(a.to(device) if isinstance(a, Tensor) else a for a in bad.args())
        for grad in (False, True):
            if grad:
                args = tuple(a.requires_grad_() if isinstance(a, Tensor) else a for a in args)
            with pytest.raises(RuntimeError) as error:
                entry.op(*args)
            assert first_line(error.value) == bad.message, bad.name


@over_ops(ops_with_bad_inputs())
def test_message_on_meta(entry: OpEntry) -> None:
    """All devices share one validation, so export and compile reject what eager rejects."""
    for bad in entry.bad_inputs:
        with pytest.raises(RuntimeError) as error:
            entry.op(*(a.to("meta") if isinstance(a, Tensor) else a for a in bad.args()))
        assert first_line(error.value) == bad.message, bad.name


def replacements(entry: OpEntry, convert: Callable[[Tensor], Tensor]) -> list[tuple[str, tuple[Any, ...]]]:
    """The arguments of a valid call, with one tensor replaced at a time."""
    sample = entry.sample(entry.names("basic")[0], torch.float32)
    names = entry.argument_names
    return [
        (names[i], tuple(convert(a) if i == j else a for j, a in enumerate(sample.args)))
        for i, arg in enumerate(sample.args)
        if isinstance(arg, Tensor)
    ]


@over_ops()
@pytest.mark.parametrize("kind", CONVERSIONS)
def test_one_tensor_of_an_unsupported_kind(entry: OpEntry, kind: str) -> None:
    convert, message = CONVERSIONS[kind]
    for argument, args in replacements(entry, convert):
        with pytest.raises(RuntimeError) as error:
            entry.op(*args)
        assert first_line(error.value) == f"{entry.name}: {argument} {message}"


@over_ops()
@pytest.mark.parametrize("kind", CONVERSIONS)
def test_all_tensors_of_an_unsupported_kind(entry: OpEntry, kind: str) -> None:
    convert, message = CONVERSIONS[kind]
    sample = entry.sample(entry.names("basic")[0], torch.float32)
    with pytest.raises(RuntimeError) as error:
        entry.op(*sample.map(convert).args)
    assert first_line(error.value) == f"{entry.name}: {entry.argument_names[0]} {message}"


@over_ops()
def test_devices_that_differ(entry: OpEntry) -> None:
    first = entry.anchor or entry.argument_names[0]
    if len(replacements(entry, Tensor.clone)) == 1:
        pytest.skip("one tensor has one device")
    for argument, args in replacements(entry, lambda t: t.to("meta")):
        with pytest.raises(RuntimeError) as error:
            entry.op(*args)
        wrong, right, came = (r"\w+", "meta", "cpu") if argument == first else (argument, "cpu", "meta")
        pattern = rf"{entry.name}: {wrong} must be on {right}, the device of {first}, got {came}$"
        assert re.match(pattern, first_line(error.value)), first_line(error.value)


@over_ops()
def test_undefined_and_missing_arguments(entry: OpEntry) -> None:
    for i, argument in enumerate(entry.op._schema.arguments):
        args = list(entry.sample(entry.names("basic")[0]).args)
        args[i] = None
        if "Optional" in str(argument.type):
            continue
        with pytest.raises((RuntimeError, TypeError), match=argument.name):
            entry.op(*args)


NO_TENSORS = ([1, 2], 1.5, "1", None, np.ones(3))


@over_ops(forward_ops())
def test_arguments_that_are_not_tensors(entry: OpEntry) -> None:
    """The functions report it in one line, whereas the dispatcher would list every overload."""
    sample = entry.sample(entry.names("basic")[0])
    tensors = [i for i, arg in enumerate(sample.args) if isinstance(arg, Tensor)]
    for i in tensors:
        for other in NO_TENSORS:
            args = [other if i == j else arg for j, arg in enumerate(sample.args)]
            with pytest.raises(TypeError) as error:
                entry.function(*args)
            message = f"{entry.name}: {entry.argument_names[i]} must be a Tensor, got {type(other).__name__}"
            assert str(error.value) == message
    assert len(tensors) == len(sample.tensors) > 0


@over_ops([entry for entry in forward_ops() if entry.writing_names])
def test_destinations_that_are_not_tensors(entry: OpEntry) -> None:
    function, in_place = entry.function, getattr(cppcuda.functional, f"{entry.name}_")
    for other in NO_TENSORS:
        came = type(other).__name__
        with pytest.raises(TypeError, match=rf"^{entry.name}_: input must be a Tensor, got {came}$"):
            in_place(other)
        with pytest.raises(TypeError, match=rf"^{entry.name}: input must be a Tensor, got {came}$"):
            function(other, out=torch.ones(2))
        if other is not None:
            with pytest.raises(TypeError, match=rf"^{entry.name}: out must be a Tensor, got {came}$"):
                function(torch.ones(2), out=other)


@over_ops(forward_ops())
def test_proxies_are_accepted(entry: OpEntry) -> None:
    """The functions accept the proxies of torch.fx, which are not tensors."""
    sample = entry.sample(entry.names("basic")[0])
    graph = torch.fx.Graph()
    tracer = torch.fx.proxy.GraphAppendingTracer(graph)
    proxies = iter([torch.fx.Proxy(graph.placeholder(f"t{i}"), tracer) for i in range(len(sample.tensors))])
    out = entry.function(*(next(proxies) if isinstance(arg, Tensor) else arg for arg in sample.args))
    graph.output(out.node)
    traced = torch.fx.GraphModule(torch.nn.Module(), graph)
    assert_close(traced(*sample.tensors), entry.function(*sample.args))


@over_ops(ops_with_bad_inputs())
def test_nothing_is_written_on_error(entry: OpEntry) -> None:
    for bad in entry.bad_inputs:
        args = bad.args()
        before = [a.clone() if isinstance(a, Tensor) else a for a in args]
        with pytest.raises(RuntimeError):
            entry.op(*args)
        for a, b in zip(args, before, strict=True):
            assert torch.equal(a, b) if isinstance(a, Tensor) else a == b


@over_ops(ops_with_bad_inputs())
def test_error_in_one_call_leaves_the_next_alone(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    expected = sample.bind(entry.op)(*sample.tensors)
    for bad in entry.bad_inputs:
        with pytest.raises(RuntimeError):
            entry.op(*bad.args())
        assert all(torch.equal(a, b) for a, b in zip(sample.bind(entry.op)(*sample.tensors), expected, strict=True))
