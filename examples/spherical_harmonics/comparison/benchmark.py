"""Compares the times of spherical_harmonics and of sphericart on the CPU.

python benchmark.py [--points 10000] [--seconds 1]

Needs sphericart-torch, and a version of torch that it supports. Both libraries compute the same values, which is
checked. The calls are interleaved, and the table has medians. Each number of threads has a process of its own, because
sphericart 2.0.4 corrupts the heap if the number grows.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import sphericart.torch  # noqa: F401 (registers the operators)
import torch
from torch import Tensor

import sph

OTHER = torch.ops.sphericart_torch
PAIRS = {
    "spherical": (sph.spherical_harmonics, OTHER.spherical_harmonics),
    "solid": (sph.solid_harmonics, OTHER.solid_harmonics),
}


def forward(harmonics: Callable[[Tensor, int], Tensor], xyz: Tensor, degree: int) -> Tensor:
    with torch.no_grad():
        return harmonics(xyz, degree)


def gradient(harmonics: Callable[[Tensor, int], Tensor], xyz: Tensor, degree: int) -> Tensor:
    values = harmonics(xyz, degree)
    return torch.autograd.grad(values, xyz, torch.ones_like(values))[0]


def measure(name: str, degree: int, dtype: torch.dtype, call: Callable[..., Tensor], args: argparse.Namespace) -> str:
    xyz = torch.randn(args.points, 3, dtype=dtype, requires_grad=True)
    ours, theirs = (call(f, xyz, degree) for f in PAIRS[name])
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance * theirs.abs().max().item())
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + args.seconds
    while time.perf_counter() < end:
        for f, spent in zip(PAIRS[name], times, strict=True):
            start = time.perf_counter()
            call(f, xyz, degree)
            spent.append(time.perf_counter() - start)
    mine, its = (f"{statistics.median(t) * 1e3:.2f}" for t in times)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    what = "forward" if call is forward else "forward and backward"
    return f"| {name} | {degree} | {dtype} | {args.threads} | {what} | {its} | {mine} | {ratio:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1, help="for each row of the table")
    parser.add_argument("--threads", type=int, help="default: a table for one and one for two")
    args = parser.parse_args()
    if args.threads is None:
        print("| harmonics | degree | dtype | threads | call | sphericart, ms | this library, ms | ratio |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
        for threads in ("1", "2"):
            subprocess.run([sys.executable, *sys.argv, "--threads", threads], check=True)
        return
    torch.set_num_threads(args.threads)
    for name in PAIRS:
        for degree in (4, 10):
            for dtype in (torch.float32, torch.float64):
                for call in (forward, gradient):
                    print(measure(name, degree, dtype, call, args), flush=True)


if __name__ == "__main__":
    main()
