#!/usr/bin/env python3
"""Tries other values of the constants in CUDA launch rules, and prints the default and the best.

    tools/gpu_tune.py [--seconds S] [--json FILE] [--tiny]

The kernels must be built with CPPCUDA_TUNING: then a launch rule reads its constants from the environment
(include/cppcuda/kit/cuda/tunable.h). Their library is in a folder named tuning, which LD_LIBRARY_PATH names. One
constant is changed at a time. The results are compared with those of the default, and the values
take turns, as in the benchmark.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import gpu_timing
import torch
from bench import TOLERANCE, as_tuple, call_of, compare
from cases import Case, gpu_cases
from targets import GPU_TIME
from timing import ratio, summary


class Tunable(NamedTuple):
    name: str
    cases: str  # a regular expression
    values: tuple[int, ...]  # to try instead of the default


TUNABLES = (Tunable("lltm_steps_rows", "lltm .*x4096/", (4, 12)),)


def with_value(name: str, value: int | None, call: Callable[[], Any]) -> Any:
    variable = f"CPPCUDA_TUNE_{name}"
    os.environ.pop(variable, None)
    if value is not None:
        os.environ[variable] = str(value)
    try:
        return call()
    finally:
        os.environ.pop(variable, None)


def tried(tunable: Tunable, case: Case, device: torch.device) -> dict[str, Any]:
    """The time of the default by that of each value, for one case."""
    torch.manual_seed(0)
    sets = gpu_timing.input_sets(case.bytes[0], device) if case.bytes else 1
    calls = [call_of(case.contestants["cppcuda"], case.mode, case.inputs(device), None)[0] for _ in range(sets)]
    expected = as_tuple(calls[0]())
    contestants: dict[str, gpu_timing.Calls] = {}
    for value in (None, *tunable.values):
        got = as_tuple(with_value(tunable.name, value, calls[0]))
        compare(f"{tunable.name} = {value}", got, expected, TOLERANCE[expected[0].dtype])
        contestants["default" if value is None else str(value)] = [
            partial(with_value, tunable.name, value, call) for call in calls
        ]
    del expected, got
    samples = gpu_timing.measure(contestants, device=device, rounds=7, warm_up=0.1)
    row: dict[str, Any] = {"tunable": tunable.name, "case": case.name, "values": {}}
    row["default_seconds"] = summary(samples["default"])["median"]
    for value in map(str, tunable.values):
        median, quartiles = ratio(samples["default"], samples[value])
        row["values"][value] = {"speedup": median, "quartiles": quartiles}
    return row


def rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    began, longest = time.perf_counter(), 0.0
    cases = [case for case in gpu_cases(options.tiny) if case.regime == GPU_TIME]
    for tunable in TUNABLES:
        matching = [case for case in cases if re.search(tunable.cases, case.name)]
        for case in matching[: 1 if options.tiny else None]:
            start = time.perf_counter()
            if options.seconds is not None and start - began + longest > options.seconds:
                print("no time left")
                return
            yield tried(tunable, case, torch.device("cpu" if options.tiny else "cuda"))
            longest = max(longest, time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, help="begin nothing that is likely to exceed this time")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument(
        "--tiny",
        action="store_true",
        help="one case for each constant, on the CPU with tiny sizes: a check without a GPU",
    )
    options = parser.parse_args()
    loaded = set(re.findall(r"\S+/libcppcuda_kernels\.so", Path("/proc/self/maps").read_text()))
    if not all(path.endswith("tuning/libcppcuda_kernels.so") for path in loaded):
        sys.exit(f"the constants of {', '.join(loaded)} cannot be changed: name the folder tuning in LD_LIBRARY_PATH")
    found: list[dict[str, Any]] = []
    for row in rows(options):
        found.append(row)
        best = max(row["values"], key=lambda value: row["values"][value]["speedup"])
        low, high = row["values"][best]["quartiles"]
        speedup = row["values"][best]["speedup"]
        print(
            f"{row['tunable']:24} {row['case']:56} {row['default_seconds'] * 1e6:8.1f} us by default; with {best}: "
            f"{speedup:.3f} times as fast ({low:.3f} to {high:.3f})",
            flush=True,
        )
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} pairs of a constant and a case")


if __name__ == "__main__":
    main()
