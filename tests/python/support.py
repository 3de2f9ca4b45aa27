"""Parametrisation over the table for tests of some operators, other processes, and modules that need a GPU."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from cppcuda import _compile
from cppcuda.testing.samples import DEVICES, OPS, OpEntry


def over_ops(entries: Iterable[OpEntry] = OPS) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entry", [pytest.param(e, id=e.base_name) for e in entries])


def over_samples(*tags: str, entries: Iterable[OpEntry] = OPS) -> pytest.MarkDecorator:
    """Parameters `entry` and `name`; `entry.sample(name, ...)` makes the sample."""
    params = [pytest.param(e, n, id=f"{e.base_name}-{n}") for e in entries for n in e.names(*tags)]
    return pytest.mark.parametrize(("entry", "name"), params)


over_devices = pytest.mark.parametrize("device", DEVICES)


def tool(name: str) -> str:
    """The path of a program. Without it, the test is skipped."""
    try:
        return _compile.tool(name)
    except _compile.BuildError as error:
        pytest.skip(str(error))


def is_for_emulator(kernels: bytes) -> bool:
    """Whether a library of kernels was built for the emulator, with PTX as text and the lines of the sources."""
    return b"\n.loc\t" in kernels


def load_script(path: Path) -> ModuleType:
    """Loads a file of tools/ as a module."""
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
