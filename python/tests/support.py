"""Parametrisation over the table, comparison with float64, counting of kernels, and modules that need a GPU."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from op_samples import DEVICES, OPS, TOLERANCE, OpEntry, Sample, computed
from torch import Tensor
from torch._dynamo import compiled_autograd
from torch.profiler import ProfilerActivity, profile


def over_ops(entries: Iterable[OpEntry] = OPS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", [pytest.param(e, id=e.name) for e in entries])


def over_samples(*tags: str, entries: Iterable[OpEntry] = OPS) -> pytest.MarkDecorator:
    """Parameters `entry` and `name`; `entry.sample(name, ...)` makes the sample."""
    params = [pytest.param(e, n, id=f"{e.name}-{n}") for e in entries for n in e.names(*tags)]
    return pytest.mark.parametrize(("entry", "name"), params)


def over_dtypes(entries: Iterable[OpEntry] = OPS) -> pytest.MarkDecorator:
    """Parameters `entry`, `dtype` and `mixed` (float32 beside 16 bits, if the op supports it)."""
    params = [
        pytest.param(e, dtype, mixed, id=f"{e.name}-{str(dtype)[6:]}{'-mixed' if mixed else ''}")
        for e in entries
        for dtype, mixed in e.dtypes
    ]
    return pytest.mark.parametrize(("entry", "dtype", "mixed"), params)


over_devices = pytest.mark.parametrize("device", DEVICES)


def assert_close(actual: Any, expected: Any, name: str = "", **tolerance: float) -> None:
    torch.testing.assert_close(
        actual, expected, check_dtype=False, **tolerance, msg=lambda message: f"{name}: {message}"
    )


def assert_matches_reference(entry: OpEntry, sample: Sample, actual: tuple[Tensor, ...], factor: float = 1) -> None:
    """Compares with the reference in float64 on the same inputs, within the rounding of each output's dtype."""
    expected = computed(entry.reference(*sample.double().args))
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        tolerance = {k: v * factor for k, v in value_tolerance(entry, sample, a, e).items()}
        assert_close(a.double(), e, sample.name, **tolerance)


def size_of(t: Tensor) -> float:
    return float(t.detach().abs().max()) if t.numel() else 0.0


def coarsest_eps(sample: Sample) -> float:
    return max(torch.finfo(t.dtype).eps for t in sample.tensors)


def value_tolerance(entry: OpEntry, sample: Sample, actual: Tensor, expected: Tensor) -> dict[str, float]:
    if entry.products:
        eps = coarsest_eps(sample) * entry.roundings
        return {"rtol": eps, "atol": eps * (1 + size_of(expected))}
    return {k: v * entry.roundings for k, v in TOLERANCE[actual.dtype].items()}


def gradient_eps(entry: OpEntry, sample: Sample, t: Tensor, dtype: torch.dtype) -> float:
    """The eps of a gradient. Formulas of higher order round to `dtype` between their terms."""
    if entry.products:
        return coarsest_eps(sample) * entry.roundings / 4
    return torch.finfo(t.dtype if entry.backward else dtype).eps


def some_of(choices: Iterable[tuple[Any, ...]], count: int) -> list[tuple[Any, ...]]:
    """At most `count` of the choices: the first, the last, and a random selection of the others that is always the
    same."""
    every = list(choices)
    if len(every) <= count:
        return every
    return [every[0], *random.Random(0).sample(every[1:-1], count - 2), every[-1]]


def scalar(outputs: tuple[Tensor, ...]) -> Tensor:
    """A nonlinear function of the outputs, so that no derivative of any order is a constant by accident."""
    return sum((t.sin() * (1 + t)).sum() for t in outputs)


def kernel_calls(name: str, f: Callable[[], Any]) -> int:
    """How often the kernel of an op ran. Transforms call the op again, so only the innermost calls count."""

    def inside(event: Any) -> bool:
        return any(child.name == name or inside(child) for child in event.cpu_children)

    return sum(event.name == name and not inside(event) for event in profiled(f).events())


def profiled(f: Callable[[], Any], **kwargs: Any) -> profile:
    with profile(activities=[ProfilerActivity.CPU], **kwargs) as prof:
        f()
    return prof


def allocated_bytes(f: Callable[[], Any]) -> int:
    prof = profiled(f, profile_memory=True)
    return sum(max(event.self_cpu_memory_usage, 0) for event in prof.key_averages())


def differing_dims(a: Sample, b: Sample) -> list[list[int]]:
    """For each tensor, the dims in which two sizes of a sample differ."""
    pairs = zip(a.tensors, b.tensors, strict=True)
    return [[d for d in range(t.dim()) if t.shape[d] != u.shape[d]] for t, u in pairs]


@contextmanager
def recorded_compiled_autograd(
    compile_graph: Callable[[torch.fx.GraphModule], Callable[..., Any]] = lambda graph: graph,
) -> Iterator[list[torch.fx.GraphModule]]:
    """Enables compiled autograd and yields the graphs that it captures. They run as captured, or compiled (slow)."""
    graphs: list[torch.fx.GraphModule] = []

    def compiler(graph: torch.fx.GraphModule) -> Callable[..., Any]:
        graphs.append(graph)
        return compile_graph(graph)

    compiled_autograd.reset()
    with compiled_autograd._enable(compiler):
        yield graphs


def tool(name: str) -> str:
    """The path of a program next to the interpreter, next to the interpreter whose torch it uses, or on PATH."""
    folders = [Path(sys.executable).parent, Path(torch.__file__).parents[4] / "bin", os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(map(str, folders)))
    if not found:
        pytest.skip(f"no {name}")
    return found


def load_script(path: Path) -> ModuleType:
    """Loads a file of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look up their module here
    spec.loader.exec_module(module)
    return module


def run_python(script: str, *args: object, **kwargs: Any) -> Any:
    """Runs a script in a new process; if it fails, the error shows what it printed."""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)], capture_output=True, text=True, timeout=300, **kwargs
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def require_gpu() -> None:
    """Skips the calling module without a GPU or CUDA kernels; with CPPCUDA_REQUIRE_CUDA=1, this is an error."""
    reason = (
        "no GPU"
        if not torch.cuda.is_available()
        else "cppcuda was built without CUDA"
        if not torch._C._dispatch_has_kernel_for_dispatch_key("cppcuda::trilinear", "CUDA")
        else None
    )
    if reason and os.environ.get("CPPCUDA_REQUIRE_CUDA") == "1":
        raise RuntimeError(reason)
    if reason:
        pytest.skip(reason, allow_module_level=True)


def spin() -> None:
    """Keeps the current CUDA stream busy for a few tenths of a second."""
    torch.cuda._sleep(300_000_000)


def assert_asynchronous(call: Callable[[], Any]) -> None:
    """Asserts that a call, whose kernels are already loaded, does not wait for the GPU."""
    torch.cuda.synchronize()
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        spin()
        call()
        done = torch.cuda.Event()
        done.record()
        assert not done.query(), "a call waited for the GPU"
    finally:
        torch.cuda.set_sync_debug_mode(before)
    torch.cuda.synchronize()
