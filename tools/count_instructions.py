"""Counts the instructions of the CPU kernels' hot loops, and fails if a loop needs more than its bound.

usage: count_instructions.py PROGRAM [--record] [--bounds FILE]

PROGRAM is cppcuda_hot_loops (tests/cpp/counts). Callgrind executes it and writes one dump per loop, in the order of the
names that the program prints. No time is measured, so the counts are the same in every run, also on a busy machine.
They differ between compilers. Therefore bounds belong to a compiler, an instruction set and a build type, which PROGRAM
prints, such as "GCC 12 avx2 Release".

--record writes the counts plus 5 % as the bounds for PROGRAM's compiler.

Exit status: 0 if all loops are within their bounds, or if the compiler has no bounds; 1 if a loop is above its bound,
below half of it, or has none; 2 if nothing could be counted; 3 if this processor cannot execute the loops.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

BOUNDS = Path(__file__).parents[1] / "tests" / "cpp" / "counts" / "bounds.json"
HEADROOM = 1.05
MIN_SHARE = 0.5  # of the bound; with fewer instructions the loop did not run, or the bound is out of date
CANNOT_RUN = 3


class UncountedError(Exception):
    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class Loop(NamedTuple):
    name: str
    elements: int
    instructions: int


def parse_program(lines: list[str]) -> tuple[str, list[tuple[str, int]]]:
    """Parses the program's output: its compiler, then the name and the number of elements of each loop."""
    compiler, *loops = lines
    return compiler, [(name, int(elements)) for name, elements in (line.split() for line in loops)]


def parse_dump(text: str) -> int:
    """The sum over all functions in a callgrind dump."""
    found = re.search(r"^totals: (\d+)$", text, re.MULTILINE)
    if not found:
        raise UncountedError("valgrind wrote a dump without a sum")
    return int(found[1])


def count(program: Path) -> tuple[str, list[Loop]]:
    with tempfile.TemporaryDirectory() as folder:
        dumps = Path(folder) / "dump"
        options = ["--tool=callgrind", f"--callgrind-out-file={dumps}"]
        options += ["--toggle-collect=hot_loop", "--dump-after=hot_loop"]
        try:
            run = subprocess.run(["valgrind", *options, program], capture_output=True, text=True)
        except FileNotFoundError as e:
            raise UncountedError(f"{e.filename} was not found") from e
        if run.returncode == CANNOT_RUN:
            raise UncountedError("this processor cannot execute the loops", CANNOT_RUN)
        if run.returncode != 0:
            raise UncountedError(f"{program} failed under valgrind:\n{run.stderr}")
        compiler, named = parse_program(run.stdout.splitlines())
        # The dumps of the loops are numbered from 1. The one without a number is for the code after the last loop.
        counts = [parse_dump(Path(f"{dumps}.{i}").read_text()) for i in range(1, len(list(dumps.parent.iterdir())))]
    if len(counts) != len(named):
        raise UncountedError(f"{len(named)} loops, but {len(counts)} dumps")
    return compiler, [Loop(*names, instructions) for names, instructions in zip(named, counts, strict=True)]


def bound_for(instructions: int) -> int:
    return int(instructions * HEADROOM)


def problem_of(loop: Loop, bounds: dict[str, int]) -> str | None:
    bound = bounds.get(loop.name)
    if bound is None:
        return "has no bound"
    if loop.instructions > bound:
        return f"{loop.instructions} instructions, more than its bound of {bound}"
    if loop.instructions < MIN_SHARE * bound:
        return f"{loop.instructions} instructions, less than half of its bound of {bound}"
    return None


def problems_of(loops: list[Loop], bounds: dict[str, int]) -> list[str]:
    problems = [f"{loop.name}: {problem}" for loop in loops if (problem := problem_of(loop, bounds))]
    missing = sorted(bounds.keys() - {loop.name for loop in loops})
    return problems + [f"{name}: has a bound, but was not counted" for name in missing]


def print_table(loops: list[Loop], bounds: dict[str, int]) -> None:
    width = max(len(loop.name) for loop in loops)
    print(f"{'loop':{width}}  instructions  per element  bound")
    for name, elements, instructions in loops:
        bound = bounds.get(name, "-")
        print(f"{name:{width}}  {instructions:12}  {instructions / elements:11.2f}  {bound}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "program", type=Path, nargs="?", default=Path(os.environ.get("BUILD_DIR", ".")) / "tests/cpp/cppcuda_hot_loops"
    )
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--bounds", type=Path, default=BOUNDS)
    options = parser.parse_args(arguments)

    try:
        compiler, loops = count(options.program)
    except UncountedError as e:
        print(f"error: {e}", file=sys.stderr)
        return e.status
    recorded = json.loads(options.bounds.read_text()) if options.bounds.exists() else {}
    if options.record:
        recorded[compiler] = {loop.name: bound_for(loop.instructions) for loop in loops}
        options.bounds.write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
    bounds = recorded.get(compiler, {})
    print_table(loops, bounds)
    if not bounds:
        known = ", ".join(recorded) or "none"
        print(f"\n{len(loops)} loops, {compiler}: not compared (compilers with bounds: {known})")
        return 0
    problems = problems_of(loops, bounds)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    print(f"\n{len(loops)} loops, {compiler}: {len(problems) or 'none'} out of bounds")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
