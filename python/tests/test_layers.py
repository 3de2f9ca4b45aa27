"""Which files include which: kernels nothing of torch, core no operator, and operators and the family of elementwise
operators core alone."""

import re
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
if not SRC.is_dir():
    pytest.skip("not in a source tree", allow_module_level=True)

GENERATED = {"kernel_headers.h"}
FILES = [p for p in SRC.rglob("*") if p.suffix in (".h", ".cpp", ".cu", ".cuh")]
KERNELS = [
    p for p in FILES if p.suffix in (".cu", ".cuh") or re.match(r"cpu(_kernel)?\.|kernel_table\.|params\.", p.name)
]
SIXTEEN_BIT_TYPES = {"c10/util/BFloat16.h", "c10/util/Half.h"}


def included(file: Path) -> tuple[set[str], set[str]]:
    """The names in quotes, which are files of ours, and those in angle brackets."""
    text = file.read_text()
    ours = set(re.findall(r'#include "(.*)"', text)) - GENERATED
    assert all((SRC / name).is_file() for name in ours), file
    return ours, set(re.findall(r"#include <(.*)>", text))


def reached(file: Path) -> set[str]:
    """The headers of others that a file includes, directly or through ours."""
    seen, todo, others = {file}, [file], set[str]()
    while todo:
        ours, theirs = included(todo.pop())
        others |= theirs
        new = {SRC / name for name in ours} - seen
        seen |= new
        todo += new
    return others


def test_kernels_include_nothing_of_torch() -> None:
    assert {p.suffix for p in KERNELS} == {".h", ".cpp", ".cu", ".cuh"}
    for file in KERNELS:
        torch = {name for name in reached(file) if re.match(r"(ATen|c10|torch)/", name)}
        assert torch <= SIXTEEN_BIT_TYPES, f"{file.relative_to(SRC)} includes {sorted(torch - SIXTEEN_BIT_TYPES)}"


def test_core_includes_no_operator() -> None:
    for file in (SRC / "core").rglob("*"):
        if file in FILES:
            assert not [name for name in included(file)[0] if not name.startswith("core/")], file


def test_operators_do_not_include_each_other() -> None:
    for folder in (SRC / "elementwise", *(SRC / "ops").iterdir()):
        own = f"{folder.relative_to(SRC)}/"
        for file in (p for p in FILES if folder in p.parents):
            other = [n for n in included(file)[0] if not n.startswith(("core/", own))]
            assert not other, f"{file.relative_to(SRC)} includes {other}"
