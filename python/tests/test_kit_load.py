"""Errors of cppcuda.kit.load before anything is compiled. scripts/test_kit builds with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cppcuda import _compile
from cppcuda.kit import KitError, _jit, load

pytestmark = pytest.mark.any_torch

HEADER = 'namespace fast_ops {{\nstruct {name} {{\n  static constexpr char schema[] = "...";\n}};\n}}\n'


@pytest.fixture(autouse=True)
def nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def run(*arguments: object) -> None:
        raise AssertionError("a build was started")

    monkeypatch.setattr(_compile, "_run", run)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def refused(message: str, name: str, *sources: str) -> None:
    with pytest.raises(KitError, match=message):
        load(name, sources)


def test_bad_sources() -> None:
    for file in ("a.cpp", "a.txt", "plain.h"):
        Path(file).write_text("// nothing\n")
    Path("other").mkdir()
    Path("other/a.cpp").write_text("// nothing\n")
    Path("clip.h").write_text(HEADER.format(name="Clip"))
    refused("missing.cpp is no file", "fast_ops", "missing.cpp")
    refused("a.txt is no .cpp, .cu, .cuh or .h file", "fast_ops", "a.txt")
    refused("two files have the same name: a.cpp, other/a.cpp", "fast_ops", "a.cpp", "other/a.cpp")
    refused("no .cpp file and no header with an elementwise operator", "fast_ops", "plain.h")
    refused("no .cpp file and no header with an elementwise operator", "fast_ops")
    refused("clip.h: Clip must be in the namespace slow_ops", "slow_ops", "clip.h")
    refused("'torch' is a reserved name", "torch", "a.cpp")
    refused("the namespace must be lower-case letters", "Fast", "a.cpp")
    assert not Path("cache").exists()


def test_headers_become_a_family() -> None:
    for name in ("Clip", "Ramp"):
        Path(f"{name}.h").write_text(HEADER.format(name=name))
    made = _jit._elementwise("fast_ops", {p.name: p for p in map(Path, ("Clip.h", "Ramp.h"))})
    assert "Family<Clip, Ramp>" in made["elementwise/family.h"]
    assert '#include "Clip.h"\n#include "Ramp.h"\n' in made["elementwise/family.h"]
    assert {"elementwise/cpu_kernel.cpp", "elementwise/cuda.cu", "elementwise/register.cpp"} <= made.keys()
    assert "TORCH_LIBRARY_FRAGMENT(fast_ops, m)" in made["elementwise/register.cpp"]
    assert not any("my_ops" in text or "swish" in text.lower() for text in made.values())


def test_missing_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(_compile.sys, "executable", str(tmp_path / "python"))
    Path("a.cpp").write_text("// nothing\n")
    refused(r"cmake was not found \(pip install cmake ninja\)", "fast_ops", "a.cpp")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    Path("a.cpp").write_text("// nothing\n")
    refused("cannot write to .*: Permission denied", "fast_ops", "a.cpp")


def test_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    Path("a.cpp").write_text("// nothing\n")
    refused("cannot write to .*: Not a directory", "fast_ops", "a.cpp")
