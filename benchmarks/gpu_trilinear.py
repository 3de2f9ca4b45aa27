#!/usr/bin/env python3
"""trilinear on a GPU: forward and backward beside plain torch, torch.compile and the memory roofline.

    benchmarks/gpu_trilinear.py --out DIR     times everything; writes DIR/gpu_trilinear.json and .png
    benchmarks/gpu_trilinear.py --check       compares the results of all contestants, times nothing

Without a GPU the sizes are tiny and the numbers mean nothing; the code that runs is the same.

What a time holds: the GPU's work of one call. Every contestant allocates its outputs in the call, through torch's
caching allocator, warm: that costs the host some time and the GPU none. Backward is torch.autograd.grad on a graph
that was recorded before, through torch's autograd engine for every contestant. The bytes of an op are what it must
move: each input read once, each output written once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported

import cppcuda.functional
import torch._functorch.config as functorch_config
import triton
from gpu_timing import Contestant, Samples, Stream, StreamConfig, copy_rate, measure, mix
from machine import machine
from peers import trilinear_bmm, trilinear_corners, trilinear_sum
from torch import Tensor
from tqdm import tqdm

Function = Callable[[Tensor, Tensor], Tensor]


EAGER: dict[str, Function] = {
    "eager corners": trilinear_corners,
    "eager sum": trilinear_sum,
    "eager bmm": trilinear_bmm,
}
COMPILED: dict[str, Function] = {"compile corners": trilinear_corners, "compile sum": trilinear_sum}


@dataclass(frozen=True)
class Case:
    features: int
    rows: int
    dtype: torch.dtype
    modes: tuple[str, ...] = ("forward", "backward")
    compiled: bool = False

    @property
    def name(self) -> str:
        return f"F={self.features} N={self.rows} {str(self.dtype).removeprefix('torch.')}"

    def bytes(self, mode: str) -> tuple[int, int]:
        """Read and written."""
        values = self.rows * self.features * self.dtype.itemsize
        points = 3 * self.rows * 4
        return {
            "forward": (8 * values + points, values),
            "backward": (9 * values + points, 8 * values + points),
            "backward feats": (values + points, 8 * values),
            "backward points": (9 * values + points, points),
        }[mode]


def cases(tiny: bool) -> list[Case]:
    """The most wanted first. The same bytes each, but for two that show what small calls cost."""
    every = ("forward", "backward", "backward feats", "backward points")
    f32, f16, bf16 = torch.float32, torch.float16, torch.bfloat16
    work = 2**12 if tiny else 2**24
    few = 64 if tiny else 65536
    return [
        Case(256, work // 256, f32, every, compiled=True),
        Case(256, work // 256, bf16, compiled=True),
        Case(8, work // 8, f32, compiled=True),
        Case(1, work, f32, compiled=True),
        Case(3, work // 3, f32, compiled=True),
        Case(32, work // 32, f32, compiled=True),
        Case(64, work // 64, f32),
        Case(256, work // 256, f16),
        Case(8, work // 8, bf16),
        Case(3, work // 3, bf16),
        Case(32, few, f32),
        Case(8, few, f32),
    ]


def _inputs(case: Case, mode: str, sets: int, device: torch.device) -> list[tuple[Tensor, Tensor, Tensor]]:
    """feats, points, grad"""
    generator = torch.Generator(device).manual_seed(case.features)
    result = []
    for _ in range(sets):
        shape = (case.rows, 8, case.features)
        feats = torch.empty(shape, dtype=case.dtype, device=device).normal_(generator=generator)
        points = torch.empty(case.rows, 3, device=device).uniform_(-1, 1, generator=generator)
        grad = torch.empty(case.rows, case.features, dtype=case.dtype, device=device).normal_(generator=generator)
        feats.requires_grad_(mode in ("backward", "backward feats"))
        points.requires_grad_(mode in ("backward", "backward points"))
        result.append((feats, points, grad))
    return result


def _caller(function: Function, mode: str, inputs: list[tuple[Tensor, Tensor, Tensor]]) -> Callable[[int], Any]:
    if mode == "forward":

        def forward(i: int) -> Tensor:
            with torch.no_grad():
                return function(inputs[i][0], inputs[i][1])

        return forward

    outputs = [function(feats, points) for feats, points, _ in inputs]
    wanted = [[t for t in (feats, points) if t.requires_grad] for feats, points, _ in inputs]
    return lambda i: torch.autograd.grad(outputs[i], wanted[i], inputs[i][2], retain_graph=True)


def _expected(mode: str, inputs: tuple[Tensor, Tensor, Tensor], rows: Tensor) -> list[Tensor]:
    """In float64, for some rows."""
    feats, points, grad = (t.detach()[rows].double() for t in inputs)
    if mode == "forward":
        return [trilinear_sum(feats, points)]
    wanted = [t.requires_grad_(like.requires_grad) for t, like in zip((feats, points), inputs, strict=False)]
    wanted = [t for t in wanted if t.requires_grad]
    return list(torch.autograd.grad(trilinear_sum(feats, points), wanted, grad))


def _check(name: str, case: Case, result: Any, expected: list[Tensor], rows: Tensor) -> None:
    """The largest error beside the largest value: one unit in the last place and the error of a float32 sum; plain
    torch rounds every intermediate result to the dtype, several times more."""
    results = [result] if isinstance(result, Tensor) else list(result)
    for got, want in zip(results, expected, strict=True):
        tolerance = (1 if name == "cppcuda" else 8) * max(torch.finfo(case.dtype).eps, 1e-5)
        error = ((got.detach()[rows].double() - want).abs().max() / want.abs().max()).item()
        if not (error <= tolerance and torch.isfinite(got).all()):
            sys.exit(f"{case.name}: {name} is off by {error:.1e} of the largest value, more than {tolerance:.1e}")


def _contestants(
    case: Case, mode: str, inputs: list[tuple[Tensor, Tensor, Tensor]], compiled: bool
) -> list[Contestant]:
    functions: dict[str, Function] = {"cppcuda": cppcuda.functional.trilinear, **EAGER}
    if case.compiled and compiled:
        torch._dynamo.reset()
        functions |= {name: torch.compile(f, fullgraph=True, dynamic=False) for name, f in COMPILED.items()}
    return [Contestant(name, _caller(f, mode, inputs)) for name, f in functions.items()]


def _fitted(case: Case, device: torch.device) -> Case:
    """Fewer rows where the memory is small."""
    if device.type != "cuda":
        return case
    # A set of inputs, its gradients, the peers' graphs and the stream kernel's buffers, twice.
    needed = 16 * sum(case.bytes("backward"))
    shrink = max(0, math.ceil(math.log2(needed / torch.cuda.mem_get_info(device)[0])))
    return Case(case.features, case.rows >> shrink, case.dtype, case.modes, case.compiled)


def _sets(case: Case, device: torch.device) -> int:
    if device.type != "cuda":
        return 2
    inputs = case.bytes("backward")[0]
    return max(2, math.ceil(4 * torch.cuda.get_device_properties(device).L2_cache_size / inputs) + 1)


@dataclass
class Options:
    device: torch.device
    tiny: bool
    rounds: int
    deadline: float
    compiled: bool


def check(options: Options) -> None:
    count = 0
    for case in tqdm(cases(options.tiny), desc="compare", leave=False, disable=None):
        case = _fitted(case, options.device)
        rows = torch.linspace(0, case.rows - 1, min(case.rows, 2048), device=options.device).long()
        for mode in case.modes:
            inputs = _inputs(case, mode, 1, options.device)
            expected = _expected(mode, inputs[0], rows)
            for c in _contestants(case, mode, inputs, compiled=False):
                _check(c.name, case, c.call(0), expected, rows)
                count += 1
    print(f"{count} results agree with plain torch in float64")


def run(options: Options) -> Iterator[dict[str, Any]]:
    """One record per case and mode, while there is time."""
    tuned: dict[tuple[int, int], StreamConfig] = {}
    jobs = [(case, mode) for case in cases(options.tiny) for mode in case.modes]
    longest = 0.0
    for case, mode in tqdm(jobs, desc="measure", leave=False, disable=None):
        start = time.monotonic()
        # What took longest so far is the guess for the next one.
        if start + longest > options.deadline:
            tqdm.write(f"no time left for {case.name} {mode}")
            continue
        case = _fitted(case, options.device)
        sets = _sets(case, options.device)
        rows = torch.linspace(0, case.rows - 1, min(case.rows, 2048), device=options.device).long()
        inputs = _inputs(case, mode, sets, options.device)
        contestants = _contestants(case, mode, inputs, options.compiled)
        expected = _expected(mode, inputs[0], rows)
        for c in contestants:
            _check(c.name, case, c.call(0), expected, rows)

        read, written = case.bytes(mode)
        ratio = mix(read, written)
        stream = Stream(*ratio, read + written, sets, options.device)
        rates = {}
        if ratio in tuned:
            stream.config = tuned[ratio]
            stream.check()
        else:
            rates = stream.tune(options.device, rounds=3)
            tuned[ratio] = stream.config
        samples = measure(
            [*contestants, Contestant("stream", stream.call)],
            sets=sets,
            device=options.device,
            rounds=options.rounds,
        )
        stream_rate = stream.bytes / samples["stream"].median
        yield _record(case, mode, sets, ratio, stream, rates, stream_rate, samples)
        longest = max(longest, time.monotonic() - start)
        del inputs, contestants, expected, stream
        if options.device.type == "cuda":
            torch.cuda.empty_cache()


def _record(
    case: Case,
    mode: str,
    sets: int,
    ratio: tuple[int, int],
    stream: Stream,
    rates: dict[str, float],
    stream_rate: float,
    samples: dict[str, Samples],
) -> dict[str, Any]:
    read, written = case.bytes(mode)
    ours = samples["cppcuda"]
    return {
        "case": case.name,
        "mode": mode,
        "features": case.features,
        "rows": case.rows,
        "dtype": str(case.dtype).removeprefix("torch."),
        "points_dtype": "float32",
        "input_sets": sets,
        "bytes_read": read,
        "bytes_written": written,
        "bytes_per_second": (read + written) / ours.median,
        "stream": {
            "reads_to_writes": list(ratio),
            "bytes": stream.bytes,
            "bytes_per_second": stream_rate,
            "config": vars(stream.config),
            "configs_tried": rates,
        },
        "fraction_of_stream": (read + written) / ours.median / stream_rate,
        "speedup_over": {n: s.median / ours.median for n, s in samples.items() if n not in ("cppcuda", "stream")},
        "times": {n: s.record() for n, s in samples.items()},
    }


def _table(records: list[dict[str, Any]]) -> str:
    peers = [*EAGER, *COMPILED]
    head = ["mode", "case", "us", "p10", "p90", "TB/s", "of stream", *(f"x {p}" for p in peers)]
    rows = [
        [
            r["mode"],
            r["case"],
            *(f"{r['times']['cppcuda'][k]:.1f}" for k in ("median_us", "p10_us", "p90_us")),
            f"{r['bytes_per_second'] / 1e12:.2f}",
            f"{r['fraction_of_stream']:.2f}",
            *(f"{r['speedup_over'][p]:.1f}" if p in r["speedup_over"] else "-" for p in peers),
        ]
        for r in records
    ]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]

    def line(row: list[str]) -> str:
        return "  ".join(v.ljust(w) if i < 2 else v.rjust(w) for i, (v, w) in enumerate(zip(row, widths, strict=True)))

    return "\n".join(map(line, [head, *rows]))


def _plot(result: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np

    records = result["records"]
    peers = [*EAGER, *COMPILED]
    labels = [f"{r['mode']}\n{r['case']}" for r in records]
    y = np.arange(len(records))
    figure, (left, right) = plt.subplots(1, 2, figsize=(14, 2 + 0.55 * len(records)), sharey=True, layout="constrained")
    left.barh(y, [r["fraction_of_stream"] for r in records], color="tab:blue")
    left.axvline(1, color="black", linewidth=1)
    left.set_xlabel("bytes per second, of a stream kernel with the same reads and writes")
    left.set_yticks(y, labels, fontsize=8)
    left.margins(y=0.01)
    left.invert_yaxis()
    height = 0.8 / len(peers)
    for i, peer in enumerate(peers):
        values = [r["speedup_over"].get(peer, np.nan) for r in records]
        right.barh(y + (i - (len(peers) - 1) / 2) * height, values, height, label=peer)
    right.axvline(1, color="black", linewidth=1)
    right.set_xscale("log")
    right.set_xlabel("time of the peer over time of cppcuda")
    right.legend(fontsize=8)
    about = result["machine"]
    gpu = about["gpu"] or "no GPU: not a measurement"
    commit = (about["commit"] or "unknown")[:10] + ("+changes" if about["uncommitted_changes"] else "")
    figure.suptitle(f"trilinear, {gpu}, torch {about['torch']}, commit {commit}")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/gpu_check"), help="folder for the JSON and the picture")
    parser.add_argument("--check", action="store_true", help="compare the results only")
    parser.add_argument("--budget", type=float, default=150, help="seconds after which no further case is begun")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each contestant")
    parser.add_argument("--no-compile", action="store_true", help="leave out torch.compile")
    args = parser.parse_args()

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tiny = device.type == "cpu"
    options = Options(device, tiny, args.rounds, time.monotonic() + args.budget, not args.no_compile)
    # The graph is kept from call to call, which buffers that are given away do not allow.
    functorch_config.donated_buffer = False
    if args.check:
        check(options)
        return

    args.out.mkdir(parents=True, exist_ok=True)
    gib = 2**20 if tiny else 2**30
    copy = copy_rate(gib, 2, device, rounds=5)
    even = Stream(1, 1, gib, 2, device)
    even_rates = even.tune(device, rounds=5)
    result: dict[str, Any] = {
        "machine": machine() | {"triton": triton.__version__},
        "rounds": args.rounds,
        "copy_bytes_per_second": copy,
        "stream_1_to_1_bytes_per_second": even_rates,
        "records": [],
    }
    del even
    for record in run(options):
        result["records"].append(record)
        (args.out / "gpu_trilinear.json").write_text(json.dumps(result, indent=1) + "\n")
    if not result["records"]:
        sys.exit("nothing was measured: more time is needed (--budget)")
    _plot(result, args.out / "gpu_trilinear.png")

    about = result["machine"]
    print(f"{about['gpu'] or 'no GPU: not a measurement'}, driver {about.get('driver')}, torch {about['torch']}")
    print(
        f"copy_ {copy / 1e12:.2f} TB/s; stream kernel 1:1 {max(even_rates.values()) / 1e12:.2f} TB/s (read and written)"
    )
    print(_table(result["records"]))


if __name__ == "__main__":
    main()
