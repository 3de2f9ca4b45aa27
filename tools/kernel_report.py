"""Prints what the compiler made of every CUDA kernel in a library, and fails if a kernel spills or splits an access.

usage: kernel_report.py [LIBRARY] [--arch sm_90] [--filter REGEX] [--json FILE]

The columns, for each kernel and architecture, computed from the output of cuobjdump:

  regs       registers per thread
  spills     instructions that load from or store to local memory
  local      bytes of local memory per thread: the stack frame and declared local memory
  shared     bytes of static shared memory per block; from sm_90 on, with the 1,024 that the system reserves
  ld16 st16  16-byte loads and 16-byte stores
  fma/lds    multiplications (FFMA, DFMA) per 16-byte load of shared memory, if a kernel has such loads. A load takes
             two clocks of an SM or more, and an FFMA of a warp a quarter of one: below 8 the loads are the bound

A pack is an aligned vector of values, loaded and stored with one instruction. A kernel with packs is one whose first
template argument N is at least 2, and N values of one of its element types take 16 bytes or more; N = 1 is for memory
that does not allow packs. Such a kernel must have 16-byte accesses, and no pack may be split. Narrower loads or stores
through one address register count as a split pack if they cover a multiple of 16 contiguous bytes. A kernel that writes
no packs needs no 16-byte stores; the three gradients of a point, for example, are not a pack.

Exit status: 1 if a kernel spills, uses local memory, lacks 16-byte accesses or splits packs; 2 if nothing can be read.
"""

import argparse
import ctypes
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ELEMENT_BYTES = {"double": 8, "float": 4, "Half": 2, "BFloat16": 2}


class UnreadableError(Exception):
    pass


# ---------------------------------------------------------------- instructions


class Instruction(NamedTuple):
    address: int
    guard: str  # "P0", "!P0", or nothing
    opcode: str
    operands: tuple[str, ...]

    @property
    def is_load(self) -> bool:
        return self.opcode.startswith(("LDG.", "LD."))

    @property
    def is_store(self) -> bool:
        return self.opcode.startswith(("STG.", "ST."))

    @property
    def is_local(self) -> bool:
        return self.opcode.split(".")[0] in ("LDL", "STL")

    @property
    def bytes(self) -> int:
        """The bytes per thread that a load or a store moves."""
        suffixes = self.opcode.split(".")
        return next((size for suffix, size in ACCESS_BYTES.items() if suffix in suffixes), 4)


ACCESS_BYTES = {"256": 32, "128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
REGISTER = re.compile(r"(?<![A-Z])R(\d+)")


def parse_instruction(line: str) -> Instruction | None:
    found = INSTRUCTION.match(line)
    if not found:
        return None
    address, guard, opcode, operands = found.groups()
    return Instruction(int(address, 16), guard or "", opcode, tuple(o.strip() for o in operands.split(",") if o))


def split_packs(code: Iterable[Instruction]) -> dict[str, int]:
    """The number of packs that are split into narrow "loads" or "stores" through one address register."""
    result = {"loads": 0, "stores": 0}
    runs: dict[tuple[str, int], set[int]] = {}  # (kind, register) to the offsets of the accessed bytes

    def end(key: tuple[str, int]) -> None:
        offsets = runs.pop(key, set())
        starts = [first for first in offsets if first - 1 not in offsets]
        lengths = [next(n for n in range(1, len(offsets) + 1) if first + n not in offsets) for first in starts]
        result[key[0]] += sum(length % 16 == 0 for length in lengths)

    for instruction in code:
        access = instruction.is_load or instruction.is_store
        if access and instruction.bytes < 16:
            address = next((o for o in instruction.operands if "[" in o), "")
            place = re.search(r"\[R(\d+)(?:\.\w+)?(?:\+(-?0x[0-9a-f]+))?\]", address)
            if place:
                first = int(place[2] or "0", 16)
                offsets = runs.setdefault(("loads" if instruction.is_load else "stores", int(place[1])), set())
                offsets.update(range(first, first + instruction.bytes))
        if not instruction.is_store and instruction.operands:
            written = REGISTER.match(instruction.operands[0])
            for key in [k for k in runs if written and k[1] in (int(written[1]), int(written[1]) - 1)]:
                end(key)
    for key in list(runs):
        end(key)
    return result


# ---------------------------------------------------------------- names


def demangle(symbol: str) -> str:
    """Uses the C++ runtime, which is loaded wherever torch is."""
    runtime = ctypes.CDLL("libstdc++.so.6")
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    address = runtime.__cxa_demangle(symbol.encode(), None, None, None)
    if not address:
        return symbol
    name = ctypes.string_at(address).decode()
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return name


def without_parameters(function: str) -> str:
    """`void f<int>(long)` -> `f<int>`"""
    depth = 0
    for i in range(len(function) - 1, -1, -1) if function.endswith(")") else ():
        depth += {")": 1, "(": -1}.get(function[i], 0)
        if depth == 0:
            function = function[:i]
            break
    return function.removeprefix("void ")


def is_ours(function: str) -> bool:
    """Whether the kernel is cppcuda's own, and not from CUDA's headers."""
    return without_parameters(function).startswith("cppcuda::")


def short_name(function: str) -> str:
    name = without_parameters(function)
    for noise in (
        "cppcuda::ops::",
        "cppcuda::elementwise::",
        "cppcuda::kit::",
        "cppcuda::",
        "detail::",
        "c10::",
        "(anonymous namespace)::",
    ):
        name = name.replace(noise, "")
    return re.sub(r"\bv\d+(_\d+)*::", "", name)  # the inline namespace of the kit's version


def op_of(function: str) -> str:
    name = without_parameters(function)
    if found := re.search(r"cppcuda::ops::(\w+)", name):
        return found[1]
    if found := re.search(r"cppcuda::elementwise::(\w+)", name):
        return re.sub(r"\B([A-Z])", r"_\1", found[1]).lower()  # QuickGelu is quick_gelu
    return "kit"


def template_arguments(name: str) -> list[str]:
    arguments, depth = [""], 0
    for c in name[name.find("<") + 1 : -1] if name.endswith(">") else "":
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(c, 0)
        if c == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += c
    return [a.strip() for a in arguments]


def moves_packs(name: str) -> bool:
    first, *others = template_arguments(name)
    if not first.isdigit() or int(first) < 2:
        return False
    return any(int(first) * ELEMENT_BYTES.get(other, 0) >= 16 for other in others)


# ---------------------------------------------------------------- kernels


@dataclasses.dataclass(frozen=True)
class Resources:
    registers: int
    stack: int
    shared: int
    local: int


@dataclasses.dataclass(frozen=True)
class Kernel:
    arch: str
    symbol: str
    op: str
    name: str
    packs: bool
    registers: int
    spills: int
    local: int
    shared: int
    wide_loads: int
    wide_stores: int
    fma_per_load: float | None
    problems: tuple[str, ...]


def number_of(arch: str) -> int:
    """The compute capability without its point: 90 for "sm_90" and "sm_90a"."""
    return int(re.sub(r"\D", "", arch))


def problems_of(packs: bool, local: int, code: list[Instruction]) -> tuple[str, ...]:
    problems = []
    spills = sum(i.is_local for i in code)
    if spills or local:
        problems.append(f"uses local memory: {local} bytes per thread, {spills} loads and stores (spills)")
    if packs:
        if not any((i.is_load or i.is_store) and i.bytes >= 16 for i in code):
            problems.append("no 16-byte accesses in a kernel with packs")
        problems += [
            f"{n} split packs ({kind}): kit::load and kit::store access 16 bytes with one instruction"
            for kind, n in split_packs(code).items()
            if n
        ]
    return tuple(problems)


def kernel_of(arch: str, symbol: str, function: str, code: list[Instruction], resources: Resources) -> Kernel:
    name = short_name(function)
    local = resources.stack + resources.local
    shared_loads = sum(i.opcode.startswith("LDS") and i.bytes >= 16 for i in code)
    return Kernel(
        arch=arch,
        symbol=symbol,
        op=op_of(function),
        name=name,
        packs=moves_packs(name),
        registers=resources.registers,
        spills=sum(i.is_local for i in code),
        local=local,
        shared=resources.shared,
        wide_loads=sum(i.is_load and i.bytes >= 16 for i in code),
        wide_stores=sum(i.is_store and i.bytes >= 16 for i in code),
        fma_per_load=sum(i.opcode.startswith(("FFMA", "DFMA")) for i in code) / shared_loads if shared_loads else None,
        problems=problems_of(moves_packs(name), local, code),
    )


# ---------------------------------------------------------------- cuobjdump


def architectures(lines: Iterable[str]) -> list[str]:
    """Parses the output of --list-elf."""
    found = {m[1] for line in lines if (m := re.search(r"\.(sm_\d+[a-z]?)\.cubin", line))}
    return sorted(found, key=lambda arch: (number_of(arch), arch))


def parse_resources(lines: Iterable[str]) -> dict[str, Resources]:
    """Parses the output of --dump-resource-usage. Returns the resources by symbol."""
    result, symbol = {}, ""
    for line in lines:
        if found := re.match(r"\s*Function (\S+):", line):
            symbol = found[1]
        elif symbol and "REG:" in line:
            used = {name: int(value) for name, value in re.findall(r"(\w+):(\d+)", line)}
            result[symbol] = Resources(used["REG"], used["STACK"], used["SHARED"], used["LOCAL"])
            symbol = ""
    return result


def parse_listing(lines: Iterable[str]) -> Iterator[tuple[str, list[Instruction]]]:
    """Parses the output of --dump-sass. Yields the symbols with their instructions."""
    symbol, code = "", list[Instruction]()
    for line in lines:
        if found := re.match(r"\s*Function : (\S+)", line):
            if symbol:
                yield symbol, code
            symbol, code = found[1], []
        elif instruction := parse_instruction(line):
            code.append(instruction)
    if symbol:
        yield symbol, code


class Cuobjdump:
    """Runs cuobjdump, which calls nvdisasm for listings. Prefers those from PyPI, which are new enough."""

    def __init__(self, library: Path) -> None:
        packages = [str(d) for entry in sys.path for d in sorted(Path(entry).glob("nvidia/cu*/bin"))]
        toolkit = os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin"
        self.environment = os.environ | {"PATH": os.pathsep.join([*packages, os.environ.get("PATH", ""), toolkit])}
        found = [shutil.which(name, path=self.environment["PATH"]) for name in ("cuobjdump", "nvdisasm")]
        if not found[0] or not found[1]:
            raise UnreadableError(
                "cuobjdump and nvdisasm were not found (pip install nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm)"
            )
        self.program, self.library = found[0], library

    def lines(self, *arguments: str) -> Iterator[str]:
        command = [self.program, *arguments, str(self.library)]
        with subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1 << 20
        ) as process:
            assert process.stdout and process.stderr
            yield from process.stdout
            errors = process.stderr.read().strip()
        if process.returncode:
            reason = errors.splitlines()[0] if errors else f"exit status {process.returncode}"
            raise UnreadableError(f"cuobjdump {' '.join(arguments)}: {reason}")


def read_kernels(library: Path, arch: str | None = None, pattern: str = "") -> list[Kernel]:
    if not library.is_file():
        raise UnreadableError(f"no such library: {library}")
    cuobjdump = Cuobjdump(library)
    try:
        archs = architectures(cuobjdump.lines("--list-elf"))
    except UnreadableError as e:
        raise UnreadableError(f"no CUDA code in {library}") if "device code" in str(e) else e from None
    if not archs:
        raise UnreadableError(f"no CUDA machine code in {library}")
    if arch and arch not in archs:
        raise UnreadableError(f"no code for {arch} in {library}, only for {', '.join(archs)}")
    kernels: dict[tuple[str, str], Kernel] = {}
    for each in [arch] if arch else archs:
        only = ("--gpu-architecture", each)
        resources = parse_resources(cuobjdump.lines("--dump-resource-usage", *only))
        for symbol, code in parse_listing(cuobjdump.lines("--dump-sass", *only)):
            function = demangle(symbol)
            if symbol in resources and is_ours(function) and re.search(pattern, short_name(function)):
                kernels[each, symbol] = kernel_of(each, symbol, function, code, resources[symbol])
    if not kernels:
        raise UnreadableError(f"no kernel of cppcuda{' that matches ' + pattern if pattern else ''} in {library}")
    order = {name: i for i, name in enumerate(archs)}
    return sorted(kernels.values(), key=lambda k: (order[k.arch], k.op, k.name))


# ---------------------------------------------------------------- report


def row(kernel: Kernel) -> list[str]:
    return [
        kernel.name,
        str(kernel.registers),
        str(kernel.spills),
        str(kernel.local),
        str(kernel.shared),
        str(kernel.wide_loads),
        str(kernel.wide_stores),
        "" if kernel.fma_per_load is None else f"{kernel.fma_per_load:.1f}",
        "WRONG" if kernel.problems else "",
    ]


HEADER = ["kernel", "regs", "spills", "local", "shared", "ld16", "st16", "fma/lds", ""]


def table(kernels: list[Kernel]) -> str:
    rows = [HEADER, *map(row, kernels)]
    widths = [max(len(r[column]) for r in rows) for column in range(len(HEADER))]

    def line(cells: list[str]) -> str:
        return "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))

    lines, arch, op = [], "", ""
    for kernel, cells in zip(kernels, rows[1:], strict=True):
        if kernel.arch != arch:
            lines += ["", f"{kernel.arch}:", line(HEADER).rstrip()]
        elif kernel.op != op:
            lines.append("")
        arch, op = kernel.arch, kernel.op
        lines.append(line(cells).rstrip())
    return "\n".join(lines[1:])


def verdict(kernels: list[Kernel]) -> str:
    archs = len({k.arch for k in kernels})
    wrong = sum(bool(k.problems) for k in kernels)
    found = f"{wrong} WRONG" if wrong else "no spills, no local memory, no split packs"
    return f"{len(kernels)} kernels, {archs} architecture{'s' if archs > 1 else ''}: {found}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "library", type=Path, nargs="?", default=Path(os.environ.get("BUILD_DIR", ".")) / "libcppcuda_kernels.so"
    )
    parser.add_argument("--arch", help="only this architecture, such as sm_90")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only kernels whose printed name matches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all numbers to this file")
    options = parser.parse_args(arguments)
    try:
        kernels = read_kernels(options.library, options.arch, options.filter)
    except (UnreadableError, re.error) as e:
        print(f"kernel_report: {e}", file=sys.stderr)
        return 2
    print(table(kernels))
    for kernel in kernels:
        for problem in kernel.problems:
            print(f"error: {kernel.arch} {kernel.name}: {problem}", file=sys.stderr)
    print(f"\n{verdict(kernels)}")
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(k) for k in kernels], indent=2) + "\n")
    return int(any(k.problems for k in kernels))


if __name__ == "__main__":
    sys.exit(main())
