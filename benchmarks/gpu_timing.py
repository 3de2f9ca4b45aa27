"""Fair timing on a GPU, and the stream kernel that measures its roofline.

A sample is the mean time of several calls between two CUDA events. The GPU spins while the host queues the calls, so
that a sample contains GPU time only, even if a call takes longer on the host than on the GPU. Contestants take turns
within a round, so that a change of clock rates affects all of them. Successive calls use different inputs, which
together are larger than the L2 cache.

Without a GPU the same code runs on the CPU, with Triton's interpreter. That checks the benchmark but measures nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from timing import Samples, summary

Calls = Sequence[Callable[[], Any]]  # one for each set of inputs

# The GPU spins for the time that the host needs to queue the calls, times a factor. If the GPU stops spinning too
# early, the sample is taken again with the next factor.
_SPIN_FACTORS = (1.5, 4, 10, 25)
_SPIN_CYCLES_PER_SECOND = 2e9
# The queue of launches holds 1024 kernels, and a call may launch many.
_MAX_CALLS = 40


def input_sets(input_bytes: int, device: torch.device) -> int:
    """The number of input sets that together are several times as large as the L2 cache."""
    if device.type != "cuda":
        return 2
    return max(2, math.ceil(4 * torch.cuda.get_device_properties(device).L2_cache_size / input_bytes) + 1)


def _sample(calls: Calls, count: int, host_seconds: float, device: torch.device) -> float:
    # Results are kept until their inputs are used again, so that outputs rotate too.
    kept: list[Any] = [None] * len(calls)
    if device.type != "cuda":
        start = time.perf_counter()
        for i in range(count):
            kept[i % len(calls)] = calls[i % len(calls)]()
        return (time.perf_counter() - start) / count
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for factor in _SPIN_FACTORS:
        torch.cuda._sleep(int(factor * host_seconds * count * _SPIN_CYCLES_PER_SECOND) + 1000)
        begin.record()
        for i in range(count):
            kept[i % len(calls)] = calls[i % len(calls)]()
        end.record()
        queued_in_time = not begin.query()  # else the GPU may have waited for the host
        end.synchronize()
        if queued_in_time or host_seconds == 0:
            break
    return begin.elapsed_time(end) / 1e3 / count


def _host_seconds(calls: Calls, device: torch.device) -> float:
    """The time that a call takes on the host, without waiting for the GPU."""
    start = time.perf_counter()
    kept = [call() for call in calls]
    seconds = (time.perf_counter() - start) / len(calls)
    del kept
    if device.type == "cuda":
        torch.cuda.synchronize()
    return seconds


def measure(
    contestants: dict[str, Calls],
    *,
    device: torch.device,
    rounds: int,
    sample_seconds: float = 2e-3,
    warm_up: float = 0.3,
) -> dict[str, Samples]:
    """Times the contestants in turn, `rounds` times. Each sample lasts about sample_seconds, but has at least two calls
    and uses every set of inputs. Before the first round the GPU works for warm_up seconds, because its clock rates are
    low after it was idle, during compilation for example."""
    host: dict[str, float] = {}
    result: dict[str, Samples] = {}
    for name, calls in contestants.items():
        # Two passes over all inputs trigger lazy compilation and fill the allocator's cache.
        _sample(calls, 2 * len(calls), 0, device)
        host[name] = max(_host_seconds(calls, device) for _ in range(3))
        once = _sample(calls, len(calls), host[name], device)
        result[name] = Samples(max(2, len(calls), min(_MAX_CALLS, round(sample_seconds / max(once, 1e-9)))))
    until = time.perf_counter() + warm_up
    while device.type == "cuda" and time.perf_counter() < until:
        for name, calls in contestants.items():
            _sample(calls, result[name].calls, 0, device)
    for _ in range(rounds):
        for name, calls in contestants.items():
            result[name].seconds.append(_sample(calls, result[name].calls, host[name], device))
            result[name].switches.append(0)  # context switches do not affect GPU time
    return result


@triton.jit
def _stream(
    src,  # noqa: ANN001 (Triton would evaluate the annotation)
    dst,  # noqa: ANN001
    n,  # noqa: ANN001  elements of one array, a multiple of BLOCK
    READS: tl.constexpr,  # noqa: N803
    WRITES: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    ADJACENT: tl.constexpr,  # noqa: N803
) -> None:
    # If ADJACENT, a program reads READS adjacent blocks; otherwise it reads one block of each of READS arrays.
    block = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    if ADJACENT:
        read_from, read_step = block * READS * BLOCK, BLOCK
        write_to, write_step = block * WRITES * BLOCK, BLOCK
    else:
        read_from, read_step = block * BLOCK, n
        write_to, write_step = block * BLOCK, n
    total = tl.load(src + read_from + lane)
    for r in tl.static_range(1, READS):
        total += tl.load(src + read_from + r * read_step + lane)
    for w in tl.static_range(WRITES):
        tl.store(dst + write_to + w * write_step + lane, total)


@dataclass(frozen=True)
class StreamConfig:
    block: int
    warps: int
    adjacent: bool


# Few, because each is compiled for each mix of reads and writes.
_CONFIGS = [StreamConfig(1024, 4, adjacent) for adjacent in (True, False)]


def mix(read_bytes: float, written_bytes: float) -> tuple[int, int]:
    """Small integers (reads, writes) with the ratio of the bytes: the smallest within 1.5 %, else the closest."""
    ratio = read_bytes / written_bytes
    pairs = sorted(((r, w) for r in range(1, 26) for w in range(1, 26)), key=sum)
    error = {p: abs(p[0] / p[1] / ratio - 1) for p in pairs}
    return next((p for p in pairs if error[p] < 0.015), min(pairs, key=lambda p: error[p]))


class Stream:
    """A kernel that reads `reads` float32 arrays and writes `writes`, moving about total_bytes per call."""

    def __init__(self, reads: int, writes: int, total_bytes: float, sets: int, device: torch.device) -> None:
        unit = max(c.block for c in _CONFIGS)
        self.reads, self.writes, self.device = reads, writes, device
        self.n = max(1, round(total_bytes / 4 / (reads + writes) / unit)) * unit
        self.config = _CONFIGS[0]
        self._buffers = [
            (torch.rand(reads * self.n, device=device), torch.empty(writes * self.n, device=device))
            for _ in range(sets)
        ]

    @property
    def bytes(self) -> int:
        return 4 * self.n * (self.reads + self.writes)

    def _call(self, i: int) -> None:
        src, dst = self._buffers[i]
        c = self.config
        _stream[(self.n // c.block,)](
            src,
            dst,
            self.n,
            READS=self.reads,
            WRITES=self.writes,
            BLOCK=c.block,
            ADJACENT=c.adjacent,
            num_warps=c.warps,
        )

    @property
    def calls(self) -> list[Callable[[], Any]]:
        return [partial(self._call, i) for i in range(len(self._buffers))]

    def check(self) -> None:
        """Raises an error unless the current configuration reads and writes all arrays."""
        src, dst = self._buffers[0]
        dst.fill_(float("nan"))
        self._call(0)
        c = self.config
        shape = (self.n // c.block, self.reads, c.block) if c.adjacent else (self.reads, self.n)
        sums = src.view(shape).sum(1 if c.adjacent else 0)
        sums = sums.unsqueeze(1 if c.adjacent else 0)
        shape = (self.n // c.block, self.writes, c.block) if c.adjacent else (self.writes, self.n)
        torch.testing.assert_close(dst.view(shape), sums.expand(shape))

    def tune(self) -> None:
        """Selects the fastest configuration."""
        seconds = {}
        for config in _CONFIGS:
            self.config = config
            self.check()
            samples = measure({"stream": self.calls}, device=self.device, rounds=3, warm_up=0.05)
            seconds[config] = summary(samples["stream"])["median"]
        self.config = min(seconds, key=lambda c: seconds[c])


_tuned: dict[tuple[int, int], StreamConfig] = {}


def stream_of(read: int, written: int, sets: int, device: torch.device) -> Stream:
    """A stream with an operator's mix of reads and writes, in the configuration that is fastest for this mix."""
    ratio = mix(read, written)
    stream = Stream(*ratio, read + written, sets, device)
    if ratio in _tuned:
        stream.config = _tuned[ratio]
        stream.check()
    else:
        stream.tune()
        _tuned[ratio] = stream.config
    return stream


def copy_rate(total_bytes: int, device: torch.device) -> float:
    """The bytes per second that torch's copy_ reads and writes."""
    n = total_bytes // 8
    pairs = [(torch.rand(n, device=device), torch.empty(n, device=device)) for _ in range(2)]
    samples = measure({"copy": [partial(to.copy_, source) for source, to in pairs]}, device=device, rounds=5)
    return 8 * n / float(summary(samples["copy"])["median"])
