"""Fair timing of contestants that take turns, and its statistics.

A sample is the mean time of as many calls as fit into a few milliseconds. Each round takes one sample of every
contestant, in a new order, so that other work on the machine affects all of them. The result of a call is freed before
the next call.

Each sample starts with calls that are not timed, so that the timed ones reuse their memory. The host of a virtual
machine takes back memory that was free for a second or two, and touching it again takes many times as long as a call.

On a shared core a preempted sample is many times too long. The process counts its involuntary context switches, and
samples with any are dropped, as long as enough others remain.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from timeit import Timer
from typing import Any

import numpy as np

# Statistics use at least this many samples, and at least half of all, even if some of those were preempted.
MINIMUM = 3
# If a sample is a single call, untimed calls before it take at least this share of the case's budget.
WARM_UP = 0.02


@dataclass
class Samples:
    """The samples of a contestant, one per round: seconds per call, and involuntary context switches meanwhile."""

    calls: int
    seconds: list[float] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)

    def scaled(self, factor: float) -> Samples:
        return Samples(self.calls, [s * factor for s in self.seconds], self.switches)


def kept(switches: Sequence[int]) -> list[int]:
    """The rounds that count: those without a context switch or, if these are too few, those with the fewest."""
    minimum = max(MINIMUM, len(switches) // 2)
    calm = [i for i, n in enumerate(switches) if n == 0]
    return calm if len(calm) >= minimum else sorted(sorted(range(len(switches)), key=lambda i: switches[i])[:minimum])


def summary(samples: Samples) -> dict[str, Any]:
    chosen = kept(samples.switches)
    low, median, high = np.percentile([samples.seconds[i] for i in chosen], (25, 50, 75)).tolist()
    return {
        "min": min(samples.seconds[i] for i in chosen),
        "median": median,
        "quartiles": [low, high],
        "kept": len(chosen),
        "kept_though_preempted": sum(samples.switches[i] > 0 for i in chosen),
        "calls_per_sample": samples.calls,
        "samples": samples.seconds,
        "involuntary_switches": samples.switches,
    }


def ratio(peer: Samples, ours: Samples) -> tuple[float, list[float]]:
    """Median and quartiles of peer / ours. Ratios are taken within a round, whose samples are close in time."""
    chosen = kept([p + o for p, o in zip(peer.switches, ours.switches, strict=True)])
    low, median, high = np.percentile([peer.seconds[i] / ours.seconds[i] for i in chosen], (25, 50, 75)).tolist()
    return median, [low, high]


def measure(
    contestants: dict[str, Callable[[], Any]],
    *,
    rounds: int,
    budget: float,
    sample_seconds: float = 2e-3,
    synchronize: Callable[[], Any] = lambda: None,
) -> dict[str, Samples]:
    """Times the contestants in turn until `rounds` rounds were free of context switches, 2 * `rounds` rounds are done,
    or `budget` seconds have passed, but for at least MINIMUM rounds (or `rounds`, if that is less)."""

    def sample(timer: Timer, calls: int) -> tuple[float, int]:
        warm = time.perf_counter() + (WARM_UP * budget if calls == 1 else 0)
        timer.timeit(1)
        while time.perf_counter() < warm:
            timer.timeit(1)
        synchronize()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        start = time.perf_counter()
        timer.timeit(calls)
        synchronize()
        seconds = time.perf_counter() - start
        return seconds / calls, resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - before

    timers = {name: Timer(call) for name, call in contestants.items()}
    result = {}
    for name, timer in timers.items():
        calls = 1
        # The number of calls doubles, because the first ones are slower: memory, code and branch predictors are cold.
        while (took := calls * sample(timer, calls)[0]) < sample_seconds / 2:
            calls *= 2
        result[name] = Samples(max(1, round(calls * sample_seconds / took)))
    generator, order = random.Random(0), list(timers)
    calm = done = 0
    end = time.perf_counter() + budget
    while done < min(MINIMUM, rounds) or (calm < rounds and done < 2 * rounds and time.perf_counter() < end):
        generator.shuffle(order)
        for name in order:
            seconds, switches = sample(timers[name], result[name].calls)
            result[name].seconds.append(seconds)
            result[name].switches.append(switches)
        done += 1
        calm += not any(s.switches[-1] for s in result.values())
    return result
