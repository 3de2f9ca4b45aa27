"""Prints how well the launches of the benchmark's GPU cases fill a GPU, and fails if a flagship case leaves much idle.

usage: wave_model.py LIBRARY PROGRAM [--arch sm_90] [--at-least 0.85]

LIBRARY has the kernels, and PROGRAM (cppcuda_launches) prints the launches of calls without running them. No GPU is
needed. The columns, for each kernel that a case launches:

  blocks, threads   the grid, and the size of a block
  shared            bytes of shared memory per block
  regs              registers per thread
  per SM            blocks that a multiprocessor holds at once; registers, shared memory and threads limit them
  waves             blocks of the grid by the blocks that the GPU holds at once
  busy              the part of the time in which the GPU is full, if all blocks take equally long: waves by waves
                    rounded up
  reads             the bytes that the blocks read from global memory by those that the case must read: 1 if no two
                    blocks read the same bytes. A sample of the blocks runs in the emulator to count them

Exit status: 1 if a flagship case that is bound by memory has less than --at-least in "busy"; 2 if nothing can be read.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kernel_report import (
    Cuobjdump,
    UnreadableError,
    architectures,
    demangle,
    gpu_of,
    parse_resources,
    short_name,
    static_shared,
    warps_per_sm,
)


class Launch(NamedTuple):
    symbol: str
    blocks: int
    threads: int
    shared: int
    bytes_read: float = 0  # 0: not counted


class Gpu:
    """The GPU of an architecture, and what the kernels in a library use of it."""

    def __init__(self, library: Path, arch: str | None) -> None:
        cuobjdump = Cuobjdump(library)
        self.library = library
        self.arch = arch or architectures(cuobjdump.lines("--list-elf"))[-1]
        lines = cuobjdump.lines("--dump-resource-usage", "--gpu-architecture", self.arch)
        self.resources = parse_resources(lines)
        self.multiprocessors = gpu_of(self.arch).sms

    def blocks_per_multiprocessor(self, symbol: str, threads: int, shared: int) -> int:
        if symbol not in self.resources:
            raise UnreadableError(f"{self.library} has no kernel {demangle(symbol)} for {self.arch}")
        used = self.resources[symbol]
        shared += static_shared(self.arch, used)
        return warps_per_sm(self.arch, used.registers, shared, threads) // -(-threads // 32)

    def resident_blocks(self, symbol: str, threads: int, shared: int) -> int:
        return self.multiprocessors * self.blocks_per_multiprocessor(symbol, threads, shared)


def call_of(case: Any) -> str:
    """The case as a line for the program."""
    import torch

    inputs = case.inputs(torch.device("meta"))
    words = ["forward" if case.mode == "forward" else "backward", f"cppcuda::{case.op}"]
    for t in inputs:
        sizes, strides = ("x".join(map(str, numbers)) for numbers in (t.shape, t.stride()))
        # The points of a hash grid are integers where they have no gradient; the launches are the same.
        dtype = torch.float32 if t.dtype == torch.int32 else t.dtype
        words.append(f"{str(dtype).removeprefix('torch.')}:{sizes}:{strides}")
    if case.op == "upsample_bilinear2d":
        out = case.contestants["cppcuda"].call(*inputs)
        words.append(f"[{out.shape[2]},{out.shape[3]}]")
    if case.op == "hash_grid":
        from cases import HASH_GRID

        n_levels = case.elements // len(inputs[1]) // HASH_GRID["n_features_per_level"]
        words += map(str, (HASH_GRID | {"n_levels": n_levels}).values())
    return " ".join(words)


class Program:
    """cppcuda_launches. Its launch rules ask how many blocks a GPU holds; `resident_blocks` answers for a kernel."""

    def __init__(self, path: Path, resident_blocks: Callable[[str, int, int], int]) -> None:
        self.path, self.resident_blocks = path, resident_blocks
        listed = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=True).stdout
        self.symbols = {int(address, 16): name for address, _, name in map(str.split, listed.splitlines())}

    def _run(self, calls: Sequence[str], answers: dict[str, int]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            files = {"CPPCUDA_SIMT_LAUNCHES": f"{folder}/launches", "CPPCUDA_SIMT_RESIDENT": f"{folder}/resident"}
            text = "".join(f"{question}={blocks}\n" for question, blocks in answers.items())
            Path(files["CPPCUDA_SIMT_RESIDENT"]).write_text(text)
            environment = os.environ | files | {"ASAN_OPTIONS": "detect_leaks=0"}
            done = subprocess.run([self.path], input="\n".join(calls), env=environment, capture_output=True, text=True)
            if done.returncode:
                raise UnreadableError(f"{self.path} failed: {' '.join(done.stderr.splitlines()[:2])}")
            return Path(files["CPPCUDA_SIMT_LAUNCHES"]).read_text().splitlines()

    def launches(self, calls: Sequence[str]) -> Iterator[tuple[list[Launch], list[Launch]]]:
        """The launches of each call, of forward and of backward."""
        answers: dict[str, int] = {}
        lines = self._run(calls, answers)
        while questions := [line.removeprefix("? ") for line in lines if line.startswith("? ")]:
            for question in questions:
                offset, threads, shared = question.split()
                answers[question] = self.resident_blocks(self.symbols[int(offset, 16)], int(threads), int(shared))
            lines = self._run(calls, answers)
        rest = iter(lines)
        for call in calls:
            parts: list[list[Launch]] = [[], []]
            for part in parts[: 1 if call.startswith("forward") else 2]:
                for line in iter(rest.__next__, ""):
                    offset, blocks, threads, shared, *read = line.split()
                    numbers = int(blocks), int(threads), int(shared)
                    part.append(Launch(self.symbols[int(offset, 16)], *numbers, *map(float, read)))
            yield parts[0], parts[1]


def launches_of_cases(gpu: Gpu, program: Path) -> Iterator[tuple[Any, bool, Launch]]:
    """A case, whether it is a flagship case that is bound by memory, and a launch of it."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    from cases import gpu_cases
    from targets import GPU_TIME

    flagship = [case for case in gpu_cases(part="flagship") if case.regime == GPU_TIME]
    cases = [*flagship, *gpu_cases(part="others")]
    found = Program(program, gpu.resident_blocks).launches(list(map(call_of, cases)))
    for i, (case, (forward, backward)) in enumerate(zip(cases, found, strict=True)):
        for launch in {"forward": forward, "backward": backward, "both": forward + backward}[case.mode]:
            yield case, i < len(flagship) and bool(case.bytes), launch


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    build = Path(os.environ.get("BUILD_DIR", "."))
    parser.add_argument("library", type=Path, nargs="?", default=build / "libcppcuda_kernels.so")
    parser.add_argument("program", type=Path, nargs="?", default=build / "tests/cpp/simt/cppcuda_launches")
    parser.add_argument("--arch", help="such as sm_90 (default: the newest one in the library)")
    parser.add_argument("--at-least", type=float, default=0.85)
    options = parser.parse_args(arguments)
    wrong, count, last = [], 0, ""
    header = (
        f"{'blocks':>8} {'threads':>7} {'shared':>6} {'regs':>4} {'per SM':>6} {'waves':>7} {'busy':>5} {'reads':>5}"
    )
    print(header)
    try:
        gpu = Gpu(options.library, options.arch)
        for case, is_flagship, launch in launches_of_cases(gpu, options.program):
            if case.name != last:
                print(case.name)
            last, count = case.name, count + 1
            per_sm = gpu.blocks_per_multiprocessor(launch.symbol, launch.threads, launch.shared)
            waves = launch.blocks / (per_sm * gpu.multiprocessors)
            busy = waves / math.ceil(waves)
            registers = gpu.resources[launch.symbol].registers
            is_wrong = is_flagship and busy < options.at_least
            grid = f"{launch.blocks:8} {launch.threads:7} {launch.shared:6} {registers:4}"
            kernel = short_name(demangle(launch.symbol))
            reads = f"{launch.bytes_read / case.bytes[0]:.2f}" if launch.bytes_read and case.bytes else ""
            wrong_mark = "  WRONG" if is_wrong else ""
            print(f"{grid} {per_sm:6} {waves:7.2f} {busy:5.2f} {reads:>5}  {kernel}{wrong_mark}")
            if is_wrong:
                wrong.append(f"{case.name}: {busy:.2f}")
    except UnreadableError as error:
        print(f"wave_model: {error}", file=sys.stderr)
        return 2
    text = f"{len(wrong)} flagship cases WRONG: {'; '.join(wrong)}" if wrong else "no flagship case leaves the GPU idle"
    print(f"{count} launches: {text}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
