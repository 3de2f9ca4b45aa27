#!/usr/bin/env python3
"""Runs cppcuda's calls of the flagship cases for a GPU a few times, for a profiler.

    benchmarks/profile_cases.py                  under ncu, which shows what it measures
    benchmarks/profile_cases.py --trace FILE     with torch's profiler: prints every kernel, and writes a trace

With --trace, a line has the kernel's mean time, its grid and block, and as torch's profiler estimates them, registers
per thread, blocks per multiprocessor and occupancy.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch
from bench import call_of
from cases import Case, flagship_cases
from torch.profiler import ProfilerActivity, profile, record_function

CALLS = 3


def run(case: Case, device: torch.device) -> None:
    torch.manual_seed(0)
    call, _ = call_of(case.contestants["cppcuda"], case.mode, case.inputs(device), None)
    with record_function(case.name):
        for _ in range(CALLS):
            call()
    if device.type == "cuda":
        torch.cuda.synchronize()


def kernels(trace: Path) -> dict[str, list[dict[str, Any]]]:
    """The launches in a trace by the kernel's name."""
    launches: dict[str, list[dict[str, Any]]] = {}
    for event in json.loads(trace.read_text())["traceEvents"]:
        if event.get("cat") == "kernel":
            launches.setdefault(event["name"], []).append(event)
    return launches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--tiny", action="store_true", help="on the CPU, for a check without a GPU")
    options = parser.parse_args()
    device = torch.device("cpu" if options.tiny else "cuda")
    for case in flagship_cases(options.tiny):
        if not options.trace:
            run(case, device)
            continue
        run(case, device)  # the first call loads the kernels
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            run(case, device)
        profiler.export_chrome_trace(str(options.trace))
        print(case.name, flush=True)
        for name, launches in kernels(options.trace).items():
            about = launches[0]["args"]
            microseconds = statistics.mean(launch["dur"] for launch in launches)
            known = ", ".join(
                f"{key} {about[key]}"
                for key in ("grid", "block", "registers per thread", "blocks per SM", "est. achieved occupancy %")
                if key in about
            )
            print(f"  {microseconds:8.1f} us  {known}  {name[:150]}", flush=True)


if __name__ == "__main__":
    main()
