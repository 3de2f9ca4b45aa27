"""Which files may include which: kernels include nothing from torch, the kit includes no operator, operators include
only the kit and what a family of operators shares, and families include only the kit."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
KIT = ROOT / "include" / "cppcuda" / "kit"
if not SRC.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)

GENERATED = {"kernel_headers.h", "cppcuda/version.h"}
FILES = [
    p for folder in (SRC, ROOT / "include") for p in folder.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh")
]
KERNEL_FILES = re.compile(
    r"\.cuh?$|/(params|kernel_table|cpu_kernel|cpu_loop|cpu_table|math|cells)\.h$|/kernel_table\.cpp$"
    r"|/kit/(cpu|cuda|math)/|/(ops/\w+|interpolation)/(cpu|cuda)/|/src/elementwise/cpu"
)
FAMILIES = [SRC / "elementwise", SRC / "interpolation"]
KERNELS = [p for p in FILES if KERNEL_FILES.search(str(p))]
SIXTEEN_BIT_TYPES = {"c10/util/BFloat16.h", "c10/util/Half.h"}

pytestmark = pytest.mark.any_torch


def path_of(name: str) -> Path:
    return ROOT / "include" / name if name.startswith("cppcuda/") else SRC / name


def included(file: Path) -> tuple[set[str], set[str]]:
    """The names of our own files that a file includes, and those of other files."""
    names = set(re.findall(r'#include ["<](.*)[">]', file.read_text())) - GENERATED
    ours = {name for name in names if re.match(r"(cppcuda|ops|elementwise|interpolation)/", name)}
    assert all(path_of(name).is_file() for name in ours), file
    return ours, names - ours


def reached(file: Path) -> set[str]:
    """The headers of others that a file includes, directly or through our own files."""
    seen, todo, others = {file}, [file], set[str]()
    while todo:
        ours, theirs = included(todo.pop())
        others |= theirs
        new = {path_of(name) for name in ours} - seen
        seen |= new
        todo += new
    return others


def test_kernels_include_nothing_of_torch() -> None:
    assert {p.suffix for p in KERNELS} == {".h", ".cpp", ".cu", ".cuh"}
    for file in KERNELS:
        torch = {name for name in reached(file) if re.match(r"(ATen|c10|torch)/", name)}
        assert torch <= SIXTEEN_BIT_TYPES, f"{file.relative_to(ROOT)} includes {sorted(torch - SIXTEEN_BIT_TYPES)}"


def test_the_kit_includes_no_operator() -> None:
    files = [p for p in FILES if KIT in p.parents or SRC / "kit" in p.parents]
    assert {p.suffix for p in files} == {".h", ".cpp", ".cuh"}
    for file in files:
        other = [name for name in included(file)[0] if not name.startswith("cppcuda/kit/")]
        assert not other, f"{file.relative_to(ROOT)} includes {other}"


def test_operators_do_not_include_each_other() -> None:
    for folder in (*FAMILIES, *(SRC / "ops").iterdir()):
        own = f"{folder.relative_to(SRC)}/"
        shared = () if folder in FAMILIES else ("interpolation/",)
        allowed = ("cppcuda/kit/", "cppcuda/ops/", own, *shared)  # cppcuda/ops: the public functions
        for file in (p for p in FILES if folder in p.parents):
            other = [name for name in included(file)[0] if not name.startswith(allowed)]
            assert not other, f"{file.relative_to(SRC)} includes {other}"
