"""TorchScript: script, freeze, save, load, trace; and pickling of modules."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from cppcuda.testing.compare import assert_close, named, scalar
from cppcuda.testing.registry import DIFFERENTIABLE, HAS_FUNCTION, HAS_MODULE, PUBLIC, checks, each, samples
from cppcuda.testing.samples import OpEntry, Sample, apply, is_variable, outputs_of, split_keywords


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


def results(entry: OpEntry, f: Callable[..., Any], sample: Sample) -> dict[str, Tensor]:
    """Outputs and gradients of first and second order."""
    if not entry.orders:
        return named("output", outputs_of(f(*sample.tensors)))
    sample = sample.requires_grad()
    out = tuple(t for t in outputs_of(f(*sample.tensors)) if is_variable(t))
    found = named("output", out)
    for kind in ("gradient", "second derivative")[: entry.orders]:
        out = torch.autograd.grad(scalar(out), sample.tensors, create_graph=True, materialize_grads=True)
        found |= named(kind, out)
    return found


def expected_results(entry: OpEntry, sample: Sample) -> dict[str, Tensor]:
    return results(entry, sample.bind(entry.reference), sample)


@checks("TorchScript", over=(samples("basic"), each("freeze", (False, True))), needs=(HAS_MODULE,))
def scripted_module(entry: OpEntry, name: str, freeze: bool) -> None:
    assert entry.module
    sample = entry.sample(name)
    scripted = torch.jit.script(apply(entry.module, sample.attributes).eval())
    if freeze:
        scripted = torch.jit.freeze(scripted)
    assert entry.qualified_name in str(scripted.inlined_graph), "the operator is not in the graph"
    expected = expected_results(entry, sample)
    for _ in range(3):  # the profiling executor rewrites the graph in its first runs
        assert_close(results(entry, sample.bind_module(scripted), sample), expected, name)
    loaded = sample.bind_module(saved_and_loaded(scripted))
    assert_close(results(entry, loaded, sample), expected, f"{name}, loaded")


@checks("TorchScript", over=(samples("basic"),), needs=(HAS_FUNCTION,))
def scripted_function(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    scripted: Any = torch.jit.script(entry.function)
    assert_close(results(entry, sample.bind(scripted), sample), expected_results(entry, sample), name)


@checks("TorchScript", over=(samples("basic"),), needs=(PUBLIC,))
def traced(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    graph = torch.jit.trace(sample.bind(entry.function or entry.op), sample.tensors)
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(entry.op.name(), "CompositeImplicitAutograd")
    # Instead of an operator that is made of others, these may be traced.
    assert composite or entry.qualified_name in str(graph.inlined_graph), "the operator is not in the graph"
    for _ in range(3):
        assert_close(results(entry, graph, sample), expected_results(entry, sample), name)


def script_source(entry: OpEntry, sample: Sample) -> str:
    """A function in TorchScript that calls the op with the arguments that the sample has, and with the defaults of the
    others. Internal ops have no Python function to script."""
    schema = entry.op._schema
    positional, named = split_keywords(sample.args)
    given = [a for i, a in enumerate(schema.arguments) if i < len(positional) or a.name in named]
    arguments = ", ".join(f"{a.name}: {str(a.type).replace('number', 'float')}" for a in given)
    count = len(schema.returns)
    returns = "Tensor" if count == 1 else f"Tuple[{', '.join(['Tensor'] * count)}]"
    names = ", ".join(f"{a.name}={a.name}" if a.name in named else a.name for a in given)
    call = f"torch.ops.{entry.namespace}.{entry.base_name}({names})"
    return f"def call({arguments}) -> {returns}:\n    return {call}\n"


@checks("TorchScript", over=(samples("basic"),))
def called_from_torchscript(entry: OpEntry, name: str) -> None:
    sample = entry.sample(name)
    unit = torch.jit.CompilationUnit(script_source(entry, sample))
    for _ in range(3):
        assert_close(results(entry, sample.bind(unit.call), sample), expected_results(entry, sample), name)


IN_ANOTHER_PROCESS = """
import sys, torch
folder, package, *libraries = sys.argv[1:]
for library in libraries:
    torch.ops.load_library(library)
tensors, expected = torch.load(folder + "/values.pt")
actual = torch.jit.load(folder + "/module.pt")(*tensors)
actual = (actual,) if isinstance(actual, torch.Tensor) else actual
assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))
assert package not in sys.modules
"""


@checks("TorchScript", needs=(HAS_MODULE,))
def scripted_module_in_another_process(entry: OpEntry) -> None:
    """With only the libraries loaded, not the package of the module."""
    assert entry.module
    sample = entry.sample(entry.names("basic")[0])
    module = apply(entry.module, sample.attributes)
    with tempfile.TemporaryDirectory() as folder:
        torch.jit.script(module).save(f"{folder}/module.pt")
        torch.save((sample.inputs, outputs_of(sample.call(entry.op))), f"{folder}/values.pt")
        package = type(module).__module__.split(".")[0] if entry.made_with_kit else ""
        command = [sys.executable, "-c", IN_ANOTHER_PROCESS, folder, package, *map(str, torch.ops.loaded_libraries)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@checks("TorchScript", needs=(HAS_MODULE,))
def modules_pickle_and_copy(entry: OpEntry) -> None:
    assert entry.module
    sample = entry.sample(entry.names("basic")[0])
    inner = apply(entry.module, sample.attributes)
    for module in (inner, Wrapped(inner)):
        for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            call = other.inner if isinstance(other, Wrapped) else other
            pairs = zip(outputs_of(call(*sample.inputs)), outputs_of(sample.call(entry.op)), strict=True)
            assert all(torch.equal(a, b) for a, b in pairs), "a copy gives other values"
    assert repr(inner) == f"{type(inner).__name__}({inner.extra_repr()})", repr(inner)


@checks("TorchScript", needs=(DIFFERENTIABLE,))
def graph_is_copyable(entry: OpEntry) -> None:
    """Pickling an output that is part of a graph pickles its values, as for torch's own ops."""
    sample = entry.sample(entry.names("basic")[0]).requires_grad()
    out = sample.call(entry.op)
    assert_close(pickle.loads(pickle.dumps(out)), out)
