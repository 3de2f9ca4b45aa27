"""Compares the machine code of the kernels in two builds. Moving or renaming source code must not change it.

usage: compare_kernels.py BUILD_FOLDER BUILD_FOLDER [--filter REGEX]

It compares the functions in the CPU kernels' object files (one per instruction set) and the kernels in the device code
of libcppcuda_kernels.so. Addresses, offsets of constants and names of symbols are ignored. Functions are matched by
their code, so a renamed function is no difference; functions without a match are printed by name.

Exit status: 0 if all code is the same, 1 if some of it differs, 2 if nothing could be read.
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

Functions = dict[str, list[str]]  # from names to lines of assembly


def run(*command: str | Path) -> Iterator[str]:
    process = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True)
    return iter(process.stdout.splitlines())


def cpu_functions(objects: list[Path]) -> Functions:
    """Jumps become offsets within their function. Addresses that the linker fills in are dropped."""
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
                if not code.startswith(("nop", "cs nop", "data16", "xchg   %ax,%ax")):  # padding for alignment
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
    """The names of the functions whose code is only in `before`, and of those whose code is only in `after`."""

    def unmatched(functions: Functions, others: Functions) -> list[str]:
        codes = Counter(tuple(code) for code in others.values())
        names = []
        for name, code in sorted(functions.items()):
            codes[tuple(code)] -= 1
            if codes[tuple(code)] < 0:
                names.append(name)
        return names

    return unmatched(before, after), unmatched(after, before)


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
        print(f"{kind}: {len(old)} functions before, {len(new)} after; {len(gone)} gone, {len(added)} new")
        for sign, names in (("-", gone), ("+", added)):
            for name in names:
                print(f"  {sign} {name}")
        same &= not gone and not added
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
