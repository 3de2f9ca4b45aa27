"""TorchScript: script, freeze, save, load, trace; and pickling of modules."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import cppcuda
import pytest
import torch
from op_samples import OpEntry, Sample, forward_ops, outputs_of
from support import assert_close, over_ops, over_samples, run_python, scalar
from torch import Tensor, nn


class Wrapped(nn.Module):
    """A model with the op's module inside."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner


def saved_and_loaded(module: torch.jit.ScriptModule) -> torch.jit.ScriptModule:
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def results(f: Callable[..., Any], sample: Sample, order: int = 2) -> list[Tensor]:
    """Outputs and gradients of first and second order."""
    sample = sample.requires_grad()
    out = f(*sample.tensors)
    out = (out,) if isinstance(out, Tensor) else tuple(out)
    found = [*out]
    for _ in range(order):
        out = torch.autograd.grad(scalar(out), sample.tensors, create_graph=True, materialize_grads=True)
        found += out
    return found


@pytest.mark.capability("TorchScript")
@over_samples("basic", entries=forward_ops())
@pytest.mark.parametrize("freeze", [False, True])
def test_scripted_module(entry: OpEntry, name: str, freeze: bool) -> None:
    sample = entry.sample(name)
    module = entry.module(*sample.attributes).eval()
    scripted = torch.jit.script(module)
    if freeze:
        scripted = torch.jit.freeze(scripted)
    assert entry.qualified_name in str(scripted.inlined_graph)
    for _ in range(3):  # the profiling executor rewrites the graph in its first runs
        assert_close(results(scripted, sample), results(module, sample))
    assert_close(results(saved_and_loaded(scripted), sample), results(module, sample))


@pytest.mark.capability("TorchScript")
@over_samples("basic", entries=forward_ops())
def test_scripted_function(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    scripted = torch.jit.script(entry.function)
    assert_close(results(sample.bind(scripted), sample), results(sample.bind(entry.function), sample))


@pytest.mark.capability("TorchScript")
@over_samples("basic", entries=forward_ops())
def test_traced(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    f = sample.bind(entry.function)
    traced = torch.jit.trace(f, sample.tensors)
    assert entry.qualified_name in str(traced.inlined_graph)
    for _ in range(3):
        assert_close(results(traced, sample), results(f, sample))


def script_source(entry: OpEntry) -> str:
    """A function in TorchScript that calls the op; internal ops have no Python function to script."""
    schema = entry.op._schema
    arguments = ", ".join(f"{a.name}: {a.type}" for a in schema.arguments)
    count = len(schema.returns)
    returns = "Tensor" if count == 1 else f"Tuple[{', '.join(['Tensor'] * count)}]"
    names = ", ".join(a.name for a in schema.arguments)
    return f"def call({arguments}) -> {returns}:\n    return torch.ops.cppcuda.{entry.name}({names})\n"


@pytest.mark.capability("TorchScript")
@over_samples("basic")
def test_called_from_torchscript(entry: OpEntry, name: str) -> None:
    unit = torch.jit.CompilationUnit(script_source(entry))
    sample = entry.sample(name)
    for _ in range(3):
        assert_close(results(sample.bind(unit.call), sample), results(sample.bind(entry.op), sample))


@pytest.mark.capability("TorchScript")
@over_ops(forward_ops())
def test_scripted_module_in_another_process(entry: OpEntry, tmp_path: Any) -> None:
    """With only the library loaded, not the package."""
    sample = entry.sample(entry.names("basic")[0])
    torch.jit.script(entry.module(*sample.attributes)).save(tmp_path / "module.pt")
    torch.save((sample.tensors, outputs_of(entry.op(*sample.args))), tmp_path / "values.pt")
    run_python(
        """
import sys, torch
library, folder = sys.argv[1:]
torch.ops.load_library(library)
tensors, expected = torch.load(folder + "/values.pt")
actual = torch.jit.load(folder + "/module.pt")(*tensors)
actual = (actual,) if isinstance(actual, torch.Tensor) else actual
assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))
assert "cppcuda" not in sys.modules
""",
        cppcuda.library_path(),
        tmp_path,
    )


@over_ops(forward_ops())
def test_modules_pickle_and_copy(entry: OpEntry) -> None:
    sample = entry.sample(entry.names("basic")[0])
    inner = entry.module(*sample.attributes)
    for module in (inner, Wrapped(inner)):
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            call = other.inner if isinstance(other, Wrapped) else other
            pairs = zip(outputs_of(call(*sample.tensors)), outputs_of(entry.op(*sample.args)), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs)
    assert repr(inner) == f"{type(inner).__name__}({inner.extra_repr()})"


@over_ops()
def test_graph_is_copyable(entry: OpEntry) -> None:
    """Pickling an output that is part of a graph pickles its values, as for torch's own ops."""
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    out = entry.op(*sample.args)
    assert all(t.grad_fn for t in outputs_of(out))
    assert_close(pickle.loads(pickle.dumps(out)), out)
