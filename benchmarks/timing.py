"""Fair timing of contestants in turn, and the statistics of it.

A sample is the mean time of as many calls as last a few milliseconds. In each round every contestant is sampled once,
in a new order, so that other work on the machine meets all of them. What a call returns is freed before the next one.
A sample begins with calls that do not count, whose memory it finds warm: the host of a virtual machine takes back what
was free for a second or two, and the first to touch it again pays for it, many times what a call takes.
On a shared core a preempted sample is many times too long: the process counts its involuntary context switches, and
samples with any are left out, as long as enough others are there.
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

# A statistic is made of at least this many samples, and of at least half of them, even if they were preempted.
MINIMUM = 3
# Before a sample that is one call: at least one that does not count, more until this part of a case's budget is over.
WARM_UP = 0.02


@dataclass
class Samples:
    """Of one contestant, one entry per round: seconds per call, and involuntary context switches meanwhile."""

    calls: int
    seconds: list[float] = field(default_factory=list)
    switches: list[int] = field(default_factory=list)

    def scaled(self, factor: float) -> Samples:
        return Samples(self.calls, [s * factor for s in self.seconds], self.switches)


def kept(switches: Sequence[int]) -> list[int]:
    """Which rounds count: those without a switch; if they are too few, those with the fewest."""
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
    """Median and quartiles of peer / ours, taken round by round: neighbours in time."""
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
    """Times the contestants in turn until `rounds` rounds were calm, or for `budget` seconds (but MINIMUM rounds), or
    twice as many rounds."""

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
        # Doubling, as what comes first is slower: cold memory, code and branch predictors.
        while (took := calls * sample(timer, calls)[0]) < sample_seconds / 2:
            calls *= 2
        result[name] = Samples(max(1, round(calls * sample_seconds / took)))
    shuffled, order = random.Random(0), list(timers)
    calm = done = 0
    end = time.perf_counter() + budget
    while done < min(MINIMUM, rounds) or (calm < rounds and done < 2 * rounds and time.perf_counter() < end):
        shuffled.shuffle(order)
        for name in order:
            seconds, switches = sample(timers[name], result[name].calls)
            result[name].seconds.append(seconds)
            result[name].switches.append(switches)
        done += 1
        calm += not any(s.switches[-1] for s in result.values())
    return result
