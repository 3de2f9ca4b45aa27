#!/usr/bin/env python3
"""Times every operator beside plain torch, torch.compile, the closest built-in and the memory roofline.

    benchmarks/bench.py [--quick] [--out DIR] [--case PATTERN]          see scripts/bench
    benchmarks/bench.py --device cuda [--part PART] [--seconds S] [--out DIR]   on a GPU

Results are compared before anything is timed. A case that fails or gives wrong results is reported, and the exit status
is then not 0. Backward is torch.autograd.grad on a graph that was recorded before. If outputs are large, page faults
dominate the time, so there are several regimes. The first three differ in the environment variables of the process:

    default   the call allocates its outputs
    thp       as default, with THP_MEM_ALLOC_ENABLE=1: torch's own allocations use huge pages too
    reused    as default, with a malloc that keeps freed memory: outputs are in memory that was touched before
    out       the call writes to an existing output, if the operator can

On a GPU there are two others: gpu is the time that the GPU takes, host the time of a caller, who also launches kernels.

The contestant "stream" moves the operator's bytes and computes nothing (stream.cpp, on a GPU gpu_timing.py). On the CPU
it takes part if the working set is at least twice as large as the last-level cache. Its ratio is the fraction of the
roofline. "products" are lltm_cell's matrix products. Where points choose rows of a table, "rows" takes the place of
"stream": it moves the same rows and computes no weights (gather.py).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as functorch_config
import torch._inductor.config as inductor_config
from cases import Case, Contestant, Tensors, cases, gpu_cases
from machine import caches, machine
from stream import PREFETCH_DISTANCES, Stream
from targets import BOUNDS, HOST_TIME, LSTM, OWN_LSTM, PRODUCTS, ROWS, STREAM, evaluate, targeted_peers
from timing import Samples, kept, measure, ratio, summary

# The environment variables of each regime's process. Other regimes share the process of "default".
ENVIRONMENT: dict[str, dict[str, str]] = {
    "default": {},
    "thp": {"THP_MEM_ALLOC_ENABLE": "1"},
    "reused": {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)},
}
# Tolerances relative to the largest value.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def process_of(case: Case) -> str:
    return case.regime if case.regime in ENVIRONMENT else "default"


def as_tuple(result: Any) -> Tensors:
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def compare(name: str, results: Tensors, expected: Tensors, tolerance: float = 0) -> None:
    """Raises an error unless the results agree. Compares them part by part, so that temporary tensors stay in cache."""
    if [t.shape for t in results] != [t.shape for t in expected]:
        raise AssertionError(f"{name}: the shapes differ from cppcuda's")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the operators are short, and more threads would wait for other work on the machine
    for got, want in zip(results, expected, strict=True):
        rows = max(1, len(want) * 2**18 // max(1, want.numel()))
        tolerance = max(tolerance, TOLERANCE[got.dtype], TOLERANCE[want.dtype])
        for actual, reference in zip(got.detach().split(rows), want.detach().split(rows), strict=True):
            error, allowed = float((actual - reference).abs().max()), tolerance * float(reference.abs().max())
            if not error <= allowed:  # also true for NaN
                raise AssertionError(f"{name} differs from cppcuda by {error:.2e}, more than {allowed:.2e}")
    torch.set_num_threads(threads)


def call_of(
    contestant: Contestant, mode: str, inputs: Tensors, grads: Tensors | None
) -> tuple[Callable[[], Any], Tensors]:
    """The call to time, and the gradients of its outputs: `grads` if given, else new ones."""
    inputs = contestant.prepare(*inputs)
    if mode == "forward" or not contestant.has_gradients:
        return partial(contestant.call, *inputs), ()
    leaves = tuple(t.detach().requires_grad_(t.is_floating_point()) for t in inputs)
    variables = tuple(t for t in leaves if t.requires_grad)
    outputs = as_tuple(contestant.call(*leaves))
    grads = grads or tuple(torch.randn_like(t) for t in outputs)
    if mode == "backward":
        return partial(torch.autograd.grad, outputs, variables, grads, retain_graph=True), grads
    return lambda: torch.autograd.grad(as_tuple(contestant.call(*leaves)), variables, grads), grads


def compiled(contestant: Contestant, threads: int) -> Contestant:
    torch._dynamo.reset()
    inductor_config.cpp.threads = threads  # of the compiled code, even if it comes from a cache
    return Contestant(torch.compile(contestant.call, dynamic=False), contestant.prepare)


def measured(
    case: Case, calls: dict[str, list[Callable[[], Any]]], device: torch.device, options: argparse.Namespace
) -> dict[str, Samples]:
    """Times the calls and, for a memory-bound case, a stream kernel, whose time is scaled to the case's bytes."""
    if options.device == "cuda" and case.regime != HOST_TIME:
        import gpu_timing  # it needs Triton

        has_stream = case.bytes and ROWS not in calls
        if has_stream:
            stream = gpu_timing.stream_of(*case.bytes, len(calls["cppcuda"]), device)
            calls = calls | {STREAM: stream.calls}
        samples = gpu_timing.measure(calls, device=device, rounds=options.rounds)
        if has_stream:
            samples[STREAM] = samples[STREAM].scaled(sum(case.bytes) / stream.bytes)
        if "products" in samples:
            parts = zip(samples["products"].seconds, samples.pop(STREAM).seconds, strict=True)
            samples[PRODUCTS] = dataclasses.replace(samples["products"], seconds=[p + s for p, s in parts])
        return samples

    first = {name: per_set[0] for name, per_set in calls.items()}
    if device.type == "cuda":
        # Samples are long, so that synchronisation is only a small part of them.
        gpu: dict[str, Any] = {"synchronize": torch.cuda.synchronize, "sample_seconds": 0.05}
        return measure(first, rounds=options.rounds, budget=options.budget, **gpu)
    # The roofline is that of memory, and does not apply to data that the caches hold.
    if not case.bytes or sum(case.bytes) < 2 * max(caches().values(), default=0):
        return measure(first, rounds=options.rounds, budget=options.budget)
    loop = Stream(*case.bytes)
    threads = torch.get_num_threads()
    loop.check(threads)
    first |= {f"{STREAM} {distance}": loop.call(distance, threads) for distance in PREFETCH_DISTANCES}
    samples = measure(first, rounds=options.rounds, budget=options.budget)
    tried = [samples.pop(f"{STREAM} {distance}") for distance in PREFETCH_DISTANCES]
    best = min(tried, key=lambda s: statistics.median(s.seconds[i] for i in kept(s.switches)))
    samples[STREAM] = best.scaled(sum(case.bytes) / loop.bytes)
    return samples


def run(case: Case, device: torch.device, options: argparse.Namespace) -> dict[str, Any]:
    threads = 1 if case.threads == "one" else len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    sets = 1
    if options.device == "cuda" and case.bytes:
        from gpu_timing import input_sets

        sets = input_sets(case.bytes[0], device)
    inputs = [case.inputs(device) for _ in range(sets)]
    contestants = dict(case.contestants)
    if case.plain and options.compile:
        contestants["torch.compile"] = compiled(case.plain, threads)
    if options.quick:
        targeted = {"cppcuda", *targeted_peers(case.key, options.device)}
        contestants = {name: c for name, c in contestants.items() if name in targeted or not c.comparable}

    calls: dict[str, list[Callable[[], Any]]] = {}
    failed: dict[str, str] = {}
    grads: list[Tensors | None] = [None] * sets
    expected: Tensors = ()
    for name, contestant in contestants.items():
        # Contestants that compute something else have other outputs, and get gradients of their own.
        given = grads if contestant.comparable else [None] * sets
        try:
            made = [call_of(contestant, case.mode, i, g) for i, g in zip(inputs, given, strict=True)]
            calls[name] = [call for call, _ in made]
            results = as_tuple(calls[name][0]())
        except Exception as error:
            if name == "cppcuda":
                raise
            # A peer that fails is reported; a peer with wrong results is an error.
            failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
            calls.pop(name, None)
            continue
        if case.mode != "forward":
            results = contestant.restore(*results)
        if name == "cppcuda":
            grads, expected = [g for _, g in made], results
        elif contestant.comparable:
            compare(f"{case.name}: {name}", results, expected, TOLERANCE[getattr(torch, case.dtype)])
        del results, made
    del expected
    return record(case, contestants, measured(case, calls, device, options), failed, options.device)


def record(
    case: Case, contestants: dict[str, Contestant], samples: dict[str, Samples], failed: dict[str, str], device: str
) -> dict[str, Any]:
    row: dict[str, Any] = {**case.key, "bytes": case.bytes, "contestants": {}, "failed": failed}
    row["targeted"] = bool(targeted_peers(case.key, device))
    for name, values in samples.items():
        row["contestants"][name] = summary(values)
        if name != "cppcuda" and (name in (*BOUNDS, LSTM, OWN_LSTM) or contestants[name].comparable):
            median, quartiles = ratio(values, samples["cppcuda"])
            row["contestants"][name] |= {"ratio": median, "ratio_quartiles": quartiles}
    return row


def format_seconds(seconds: float) -> str:
    scale, unit = next((s, u) for s, u in ((1, "s"), (1e-3, "ms"), (1e-6, "us"), (0, "ns")) if seconds >= s)
    return f"{seconds / (scale or 1e-9):.3g} {unit}"


def header(width: int) -> str:
    return f"{'':{width}}  {'':16}{'min':>9}{'median':>9}  {'quartiles':<20}time / cppcuda's (quartiles)"


def lines(row: dict[str, Any], width: int) -> Iterator[str]:
    """The lines of the table for this row, one for each contestant."""
    title = row["name"]
    for name, c in row["contestants"].items():
        low, high = map(format_seconds, c["quartiles"])
        shortest, median = format_seconds(c["min"]), format_seconds(c["median"])
        text = f"{title:{width}}  {name:16}{shortest:>9}{median:>9}  {low + ' to ' + high:<20}"
        if "ratio" in c:
            low, high = (f"{q:.2f}" for q in c["ratio_quartiles"])
            text += f"{c['ratio']:.2f} ({low} to {high})" + ", of the roofline" * (name in BOUNDS)
        if c["kept_though_preempted"]:
            text += f"  {c['kept_though_preempted']} of {c['kept']} samples preempted"
        if name in ("cppcuda", STREAM, ROWS) and row["bytes"] and not BOUNDS.isdisjoint(row["contestants"]):
            text += f"  {sum(row['bytes']) / c['median'] / 1e9:.0f} GB/s"
        yield text.rstrip()
        title = ""
    for name, error in row["failed"].items():
        yield f"{title:{width}}  {name:16}FAILED: {error}"


def target_lines(targets: list[dict[str, Any]]) -> Iterator[str]:
    for t in targets:
        against = "the roofline" if t["against"] in (STREAM, ROWS) else t["against"]
        start = f"{t['target']:54}{against:18}>= {t['at_least']:<6.3g}"
        if not t["cases"]:
            yield f"{start}{'':7}  not measured"
            continue
        verdict = "holds" if t["holds"] else "MISSED" if t["measured"] < t["at_least"] else "not all measured"
        verdict += " (preempted)" * t["preempted"]
        yield f"{start}{t['measured']:>7.2f}  {verdict:20}{t['case']}"
        for missed in t["missed"] if len(t["missed"]) > 1 else ():
            low, high = missed["ratio_quartiles"]
            yield f"    missed: {missed['ratio']:.2f} ({low:.2f} to {high:.2f})  {missed['case']}"


def describe(about: dict[str, Any], device: str) -> str:
    commit = (about["commit"] or "unknown")[:10] + " with changes" * about["uncommitted_changes"]
    if device == "cuda":
        machine = f"{about['gpu'] or 'no GPU: not a measurement'}, driver {about.get('driver')}"
        if "copy_bytes_per_second" in about:
            machine += f", copy_ at {about['copy_bytes_per_second'] / 1e9:.0f} GB/s"
    else:
        machine = f"{about['cpu']}, {about['threads']} threads, {about['cpu_capability']}"
        machine += f", load average {about['load_average']:.1f} at the start"
    return f"{machine}; torch {about['torch']}, commit {commit}"


def selected(options: argparse.Namespace) -> list[Case]:
    chosen = list(gpu_cases(options.tiny, options.part) if options.device == "cuda" else cases())
    if options.quick:
        chosen = [c for c in chosen if targeted_peers(c.key, options.device)]
    skipped = json.loads(options.skip.read_text()) if options.skip else ()
    chosen = [c for c in chosen if re.search(options.case, c.name) and c.name not in skipped]
    if options.own:
        chosen = [dataclasses.replace(c, contestants={"cppcuda": c.contestants["cppcuda"]}) for c in chosen]
    if options.again:
        chosen += [dataclasses.replace(c, size=f"{c.size}, again") for c in chosen[:1]]
    return chosen


def cases_of(regime: str, options: argparse.Namespace) -> list[Case]:
    return [c for c in selected(options) if process_of(c) == regime]


def work(options: argparse.Namespace) -> None:
    """Measures one regime. Prints JSON lines on stdout: the machine, then the index and the row of each case."""
    stdout, sys.stdout = sys.stdout, sys.stderr

    def send(message: Any) -> None:
        print(json.dumps(message), file=stdout, flush=True)

    # Backward runs many times on one graph, which donated buffers do not allow.
    functorch_config.donated_buffer = False
    about = machine() | {"threads": torch.get_num_threads()}
    device = torch.device("cpu" if options.tiny else options.device)
    if device.type == "cuda":
        import gpu_timing

        about["copy_bytes_per_second"] = gpu_timing.copy_rate(2**30, device)
    send(about)
    mine = cases_of(options.worker, options)
    began, recent = time.perf_counter(), [0.0]
    for i, case in enumerate(mine[options.begin :], options.begin):
        start = time.perf_counter()
        print(f"{options.worker} {i + 1}/{len(mine)}: {case.name}", end=" ", file=sys.stderr, flush=True)
        # Assume that a case takes as long as the longest of the last five.
        if options.seconds is not None and start - began + max(recent) > options.seconds:
            print("(no time left)", file=sys.stderr, flush=True)
            continue
        send(i)
        try:
            send(run(case, device, options))
        except Exception as error:
            traceback.print_exc()
            send(failed_row(case, f"{type(error).__name__}: {error}", options.device))
            sys.exit(1)  # after a CUDA error nothing else works in this process
        recent = [*recent[-4:], time.perf_counter() - start]
        print(f"({recent[-1]:.1f} s)", file=sys.stderr, flush=True)
        if device.type == "cuda":
            torch.cuda.empty_cache()


def failed_row(case: Case, error: str, device: str) -> dict[str, Any]:
    return record(case, {}, {}, {"cppcuda": error.splitlines()[0]}, device)


def results_of(regime: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the machine, then a row for each case. A case that fails ends its process; the next has a new one."""
    hidden = {name for variables in ENVIRONMENT.values() for name in variables}
    environment = {k: v for k, v in os.environ.items() if k not in hidden} | ENVIRONMENT[regime]
    if options.tiny:
        environment["TRITON_INTERPRET"] = "1"  # before the process starts, because Triton reads it on import
    mine, start, begin, has_machine = cases_of(regime, options), time.perf_counter(), 0, False
    while begin < len(mine):
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", regime, "--begin", str(begin)]
        if options.seconds is not None:
            command += ["--seconds", str(options.seconds - (time.perf_counter() - start))]
        answered = False
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            if (about := process.stdout.readline()) and not has_machine:
                has_machine = True
                yield json.loads(about)
            for message in map(json.loads, process.stdout):
                answered = not isinstance(message, int)
                if answered:
                    yield message
                else:
                    begin = message
        if not process.returncode:
            return
        status = f"the process of regime {regime} ended with status {process.returncode}"
        if not has_machine:
            sys.exit(status)
        if not answered:
            yield failed_row(mine[begin], status, options.device)
        begin += 1


def write(result: dict[str, Any], options: argparse.Namespace) -> None:
    path = options.json or options.out / "bench.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def draw_pictures(rows: list[dict[str, Any]], title: str, folder: Path) -> None:
    try:
        from plots import draw
    except ImportError as error:
        print(f"no pictures: {error}")
    else:
        draw(rows, title, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="only the cases that have a target")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="folder for bench.json and the pictures")
    parser.add_argument("--json", type=Path, help="write only this file, and no pictures")
    parser.add_argument("--case", default="", metavar="PATTERN", help="only cases whose name matches")
    parser.add_argument("--rounds", type=int, help="samples without preemption per contestant (default: 15 or 9)")
    parser.add_argument("--budget", type=float, help="seconds after which a case starts no further round")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, help="start no case that is likely to exceed this time")
    parts = ("all", "flagship", "others", "compiled")
    parser.add_argument("--part", choices=parts, default="all", help="of the cases for a GPU")
    parser.add_argument("--own", action="store_true", help="measure cppcuda's calls only")
    parser.add_argument("--again", action="store_true", help="measure the first case twice, which shows the noise")
    parser.add_argument("--skip", type=Path, metavar="FILE", help="a JSON list of names of cases to leave out")
    parser.add_argument("--tiny", action="store_true", help="check the GPU's cases on the CPU with tiny inputs")
    parser.add_argument("--no-compile", action="store_true", help="do not measure torch.compile")
    parser.add_argument("--worker", choices=ENVIRONMENT, help=argparse.SUPPRESS)
    parser.add_argument("--begin", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.rounds = options.rounds or (9 if options.quick else 15)
    if options.budget is None:
        options.budget = 0.6 if options.quick else 5.0
    options.compile = not options.no_compile
    if options.tiny:
        options.device = "cuda"
    if options.worker:
        work(options)
        return

    chosen = selected(options)
    if not chosen and options.skip:
        print("nothing is left to measure")
        return
    if not chosen:
        sys.exit(f"no case has a name that matches {options.case!r}")
    width = max(len(c.name) for c in chosen)
    keys = [case.key for case in chosen]
    result: dict[str, Any] = {"options": {k: str(v) for k, v in vars(options).items()}, "rows": []}
    result["targets"] = evaluate([], keys, options.device)
    print(header(width))
    for regime in filter({process_of(c) for c in chosen}.__contains__, ENVIRONMENT):
        records = results_of(regime, options)
        result.setdefault("machine", next(records))
        for row in records:
            result["rows"].append(row)
            result["targets"] = evaluate(result["rows"], keys, options.device)
            write(result, options)  # after each row, so that an interrupted run keeps its results
            print(*lines(row, width), sep="\n", flush=True)

    title = describe(result["machine"], options.device)
    print(f"\n{title}")
    print("\nTargets; if a target has several cases, the worst one is shown:")
    print(*target_lines(result["targets"]), sep="\n")
    write(result, options)
    if not options.json:
        draw_pictures([row for row in result["rows"] if row["contestants"]], title, options.out)
    if wrong := [row["name"] for row in result["rows"] if "cppcuda" in row["failed"]]:
        sys.exit(f"{len(wrong)} of {len(chosen)} cases FAILED: {', '.join(wrong)}")
    holding = sum(t["holds"] for t in result["targets"])
    print(
        f"\n{holding} of {len(result['targets'])} targets hold, {len(result['rows'])} of {len(chosen)} cases measured"
    )


if __name__ == "__main__":
    main()
