"""Errors of cppcuda.kit.load before anything is compiled. scripts/test_kit builds with it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from cppcuda import _compile
from cppcuda.kit import KitError, _jit, load, new

EXAMPLE = Path(__file__).parents[2] / "examples/spherical_harmonics"

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
    refused("there is no file missing.cpp", "fast_ops", "missing.cpp")
    refused("sources must be .cpp, .cu, .cuh or .h files, got a.txt", "fast_ops", "a.txt")
    refused(r"other is a folder; pass it alone, not in a list of files: load\(name, 'other'\)", "fast_ops", "other")
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


@pytest.mark.parametrize("kind", ["elementwise", "rows", "example"])
def test_headers_of_a_project_are_found(tmp_path: Path, kind: str) -> None:
    """scripts/test_kit builds such a folder."""
    project, namespace = tmp_path / "project", "fast_ops"
    if kind == "example":
        project, namespace = EXAMPLE, "sph"
        if not project.is_dir():
            pytest.skip("not in a source tree")
    else:
        new(project, namespace, **{kind: "soft_clip"})  # type: ignore[arg-type]
    files = _jit._files(project / "src")
    texts = [file.read_text() for file in files.values()]
    included = {name for text in texts for name in re.findall(r'^#include [<"](.*)[>"]$', text, re.M)}
    own = {name for name in included if name.startswith((f"{namespace}/", "ops/", "elementwise/"))}
    assert any(name.startswith(f"{namespace}/") for name in own) and own <= files.keys(), own - files.keys()
    assert not _jit._elementwise(namespace, files)  # the folder has these files


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
