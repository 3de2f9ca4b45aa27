"""Compares the machine code of the kernels of two builds: a refactoring that only moves or renames changes none of it.

usage: compare_kernels.py BUILD_FOLDER BUILD_FOLDER [--filter REGEX]

Compared are the functions of the CPU kernels' objects (one set for each instruction set) and the kernels in the
device code of libcppcuda_kernels.so, without addresses, offsets of constants and names of symbols. Functions are
matched by their code, and what is left over is printed by name, so that a renamed function is no difference.

Exit status: 0 when all code is the same, 1 when some is not, 2 when nothing could be read.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from kernel_report import Cuobjdump, UnreadableError

Functions = dict[str, list[str]]  # the code of each, by its name


def run(*command: str | Path) -> Iterator[str]:
    process = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
    return iter(process.stdout.splitlines())


def cpu_functions(objects: list[Path]) -> Functions:
    """Jumps within a function keep their distance; whatever else is addressed is left to the linker."""
    functions: Functions = defaultdict(list)
    for path in objects:
        name, start = "", 0
        for line in run("objdump", "-dC", "--no-show-raw-insn", path):
            if match := re.fullmatch(r"([0-9a-f]+) <(.*)>:", line):
                name, start = f"{path.parent.name}/{path.name}: {match[2]}", int(match[1], 16)
            elif match := re.fullmatch(r"\s*[0-9a-f]+:\t(.*)", line):
                code = re.sub(r"\s*#.*|\s+$", "", match[1])
                if jump := re.search(r"\b([0-9a-f]+) <.*>", code):
                    code = f"{code[: jump.start()]}{int(jump[1], 16) - start:+x}"
                code = re.sub(r"-?0x[0-9a-f]+\(%rip\)", "(%rip)", code)
                if not code.startswith(("nop", "cs nop", "data16", "xchg   %ax,%ax")):  # between functions
                    functions[name].append(code)
    return functions


def cuda_functions(library: Path) -> Functions:
    functions: Functions = defaultdict(list)
    architecture = name = ""
    for line in Cuobjdump(library).lines("--dump-sass"):
        if match := re.search(r"arch = (\w+)", line):
            architecture = match[1]
        elif match := re.search(r"Function : (\S+)", line):
            name = f"{architecture}: {match[1]}"
        elif match := re.match(r"\s*/\*[0-9a-f]+\*/\s+(.*?;)", line):
            functions[name].append(match[1])
    return functions


def differences(before: Functions, after: Functions) -> tuple[list[str], list[str]]:
    """The names of functions whose code the other side does not have."""

    def rest(one: Functions, other: Functions) -> list[str]:
        codes = Counter(tuple(code) for code in other.values())
        missing = []
        for name, code in sorted(one.items()):
            codes[tuple(code)] -= 1
            if codes[tuple(code)] < 0:
                missing.append(name)
        return missing

    return rest(before, after), rest(after, before)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--filter", default="", help="compare only functions whose name matches")
    options = parser.parse_args()

    def kernels(build: Path) -> tuple[Functions, Functions]:
        objects = sorted(p for p in build.rglob("*.o") if "cpu_kernel" in p.name or "/cpu/" in str(p))
        sides = cpu_functions(objects), cuda_functions(build / "libcppcuda_kernels.so")
        return tuple({n: c for n, c in side.items() if re.search(options.filter, n)} for side in sides)  # type: ignore[return-value]

    try:
        before, after = kernels(options.before), kernels(options.after)
    except (OSError, subprocess.CalledProcessError, UnreadableError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    if not any(before) or not any(after):
        print("error: no kernels were found", file=sys.stderr)
        sys.exit(2)
    same = True
    for kind, old, new in zip(("CPU", "CUDA"), before, after, strict=True):
        gone, added = differences(old, new)
        print(f"{kind}: {len(old)} functions before, {len(new)} after, {len(gone)} and {len(added)} of them differ")
        for sign, names in (("-", gone), ("+", added)):
            for name in names:
                print(f"  {sign} {name}")
        same &= not gone and not added
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
