"""What users of CUDA rely on, for every operator of the table including backward operators: streams, graphs, several
devices, no synchronisation, the same bits on every run. test_cuda.py has more such tests for one operator.

Operators that have the same bits on every run only under torch.use_deterministic_algorithms are tested with and without
it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from cppcuda.testing.samples import OPS, OpEntry, Sample, computed
from support import assert_asynchronous, over_ops, require_gpu, spin
from torch import Tensor

require_gpu()


def sample_of(entry: OpEntry, dtype: torch.dtype = torch.float32) -> Sample:
    return entry.sample(entry.names("basic")[0], dtype, "cuda")


def run(entry: OpEntry, args: Any) -> tuple[Tensor, ...]:
    return computed(entry.op(*args))


def assert_same_bits(actual: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    assert all(torch.equal(a, b) for a, b in zip(actual, expected, strict=True))


AssertSame = Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], None]


@pytest.fixture
def assert_same(entry: OpEntry, mode: str) -> Iterator[AssertSame]:
    """Compares results of the same call: bits, if the operator promises them in this mode."""
    if mode == "default" and not entry.deterministic_on_cuda:
        yield torch.testing.assert_close
    else:
        with entry.same_bits("cuda"):
            yield assert_same_bits


in_each_mode = pytest.mark.parametrize(
    ("entry", "mode"),
    [
        pytest.param(entry, mode, id=entry.base_name if mode == "default" else f"{entry.base_name}-{mode}")
        for entry in OPS
        for mode in (("default",) if entry.deterministic_on_cuda else ("default", "deterministic"))
    ],
)


@in_each_mode
def test_runs_on_the_current_stream(entry: OpEntry, assert_same: AssertSame) -> None:
    """The inputs are ready late, on a side stream; another stream would read NaN."""
    inputs = sample_of(entry)
    expected = run(entry, inputs.args)
    late = inputs.map(lambda t: torch.full_like(t, torch.nan))
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        spin()
        for t, value in zip(late.tensors, inputs.tensors, strict=True):
            t.copy_(value)
        actual = run(entry, late.args)
        torch.cuda.current_stream().synchronize()
    assert_same(actual, expected)


@in_each_mode
def test_no_synchronisation(entry: OpEntry, assert_same: AssertSame) -> None:
    inputs = sample_of(entry)
    run(entry, inputs.args)  # loads the kernels
    assert_asynchronous(lambda: run(entry, inputs.args))


@in_each_mode
def test_cuda_graph(entry: OpEntry, assert_same: AssertSame) -> None:
    static, fresh = sample_of(entry), sample_of(entry).map(lambda t: t.flip(0))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(entry, static.args)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run(entry, static.args)
    for t, value in zip(static.tensors, fresh.tensors, strict=True):
        t.copy_(value)
    graph.replay()
    torch.cuda.synchronize()
    assert_same(out, run(entry, static.args))


# The kernels have a CUDA runtime of their own, beside torch's, which does its set-up at the first launch of a process.
FIRST_LAUNCH = """
import importlib, pathlib, sys, threading
import cppcuda, torch
from cppcuda.testing.samples import OPS, computed

sys.path.insert(0, sys.argv[1])
for file in pathlib.Path(sys.argv[1], "samples").glob("*.py"):
    importlib.import_module(f"samples.{file.stem}")

name, place = sys.argv[2:]
entry = next(e for e in OPS if e.name == name)
sample = entry.sample(entry.names("basic")[0], torch.float32, "cuda:1" if place == "other device" else "cuda")
square = torch.ones(2, 2, device="cuda")
square @ square  # the set-up of torch's matrix products
torch.cuda.synchronize()
out = []
call = lambda: out.extend(computed(entry.op(*sample.args)))
if place == "graph":
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    graph.replay()
elif place == "thread":
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
elif place == "stream":
    with torch.cuda.stream(torch.cuda.Stream()):
        call()
else:
    call()
torch.cuda.synchronize()
assert torch.cuda.current_device() == 0
first = list(out)
out.clear()
call()
same = torch.equal if entry.deterministic_on_cuda else torch.allclose
assert first and all(same(a, b) for a, b in zip(first, out, strict=True))
"""


@pytest.mark.parametrize("place", ["graph", "thread", "stream", "other device"])
@over_ops()
def test_first_launch_of_a_process(entry: OpEntry, place: str) -> None:
    if place == "other device" and torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    command = [sys.executable, "-c", FIRST_LAUNCH, str(Path(__file__).parent), entry.name, place]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@over_ops()
def test_same_bits_on_every_run(entry: OpEntry) -> None:
    inputs = sample_of(entry)
    with entry.same_bits("cuda"):
        expected = run(entry, inputs.args)
        for _ in range(5):
            assert_same_bits(run(entry, inputs.args), expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
@in_each_mode
def test_other_device_than_the_current_one(entry: OpEntry, assert_same: AssertSame) -> None:
    inputs = sample_of(entry)
    elsewhere = inputs.to("cuda:1")
    with torch.cuda.device(0):
        actual = run(entry, elsewhere.args)
        assert torch.cuda.current_device() == 0
    assert all(t.device == torch.device("cuda:1") for t in actual)
    assert_same(tuple(t.to("cuda:0") for t in actual), run(entry, inputs.args))
