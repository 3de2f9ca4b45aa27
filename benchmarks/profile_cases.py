#!/usr/bin/env python3
"""Makes cppcuda's calls of the flagship cases for a GPU once, for ncu, with the names of the cases as NVTX ranges.

benchmarks/profile_cases.py [--share I/N]    every Nth case, beginning with case I
"""

from __future__ import annotations

import argparse

import torch
from bench import call_of
from cases import Case, gpu_cases
from targets import GPU_TIME


def run(case: Case, device: torch.device) -> None:
    torch.manual_seed(0)
    call, _ = call_of(case.contestants["cppcuda"], case.mode, case.inputs(device), None)
    if device.type == "cuda":
        torch.cuda.nvtx.range_push(case.name)
    call()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.nvtx.range_pop()
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", default="0/1", metavar="I/N")
    parser.add_argument("--tiny", action="store_true", help="on the CPU, for a check without a GPU")
    options = parser.parse_args()
    first, step = map(int, options.share.split("/"))
    cases = [case for case in gpu_cases(options.tiny, "flagship") if case.regime == GPU_TIME]
    for case in cases[first::step]:
        run(case, torch.device("cpu" if options.tiny else "cuda"))


if __name__ == "__main__":
    main()
