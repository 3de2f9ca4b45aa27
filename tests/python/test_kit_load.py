"""Errors of cppcuda.kit.load before anything is compiled. scripts/test_kit builds with it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from cppcuda import _compile
from cppcuda.kit import KitError, __main__, _jit, load, new

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
    Path("clip.h").write_text(HEADER.format(name="Clip").replace('"..."', '"slow_ops::clip(Tensor x)"'))
    refused(
        "clip.h: slow_ops::clip is in another namespace than fast_ops, the name of the library", "fast_ops", "clip.h"
    )
    refused("'torch' is a reserved name", "torch", "a.cpp")
    refused("the namespace must be lower-case letters", "Fast", "a.cpp")
    assert not Path("cache").exists()


def test_nothing_is_emulated_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    Path("clip.h").write_text(HEADER.format(name="Clip"))
    with pytest.raises(KitError, match="torch uses the GPU of this machine"):
        load("fast_ops", "clip.h", emulate=True)


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


# ---------------------------------------------------------------- tools


def program(folder: Path, name: str, version: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\necho {name} version {version}\n")
    file.chmod(0o755)
    return file


def package(site: Path, name: str, version: str, recorded: str) -> None:
    """What pip leaves in site-packages of a package that has one program."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{recorded},,\n")


@pytest.fixture
def only_own_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hides all programs but those that a test makes. Returns site-packages of another environment."""
    site = tmp_path / "other/lib/python3/site-packages"
    monkeypatch.setattr(_compile.sys, "executable", str(tmp_path / "bin/python"))
    monkeypatch.setenv("PATH", str(tmp_path / "system"))
    monkeypatch.setattr(sys, "path", [str(site)])
    return site


def test_missing_tools(only_own_tools: Path) -> None:
    Path("a.cpp").write_text("// nothing\n")
    refused(r"cmake was not found\. Run: pip install 'cmake>=3\.26'$", "fast_ops", "a.cpp")


def test_cmake_that_is_too_old(only_own_tools: Path, tmp_path: Path) -> None:
    old = program(tmp_path / "system", "cmake", "3.25.1")
    Path("a.cpp").write_text("// nothing\n")
    message = f"CMake 3.26 or newer is needed, but {old} is version 3.25.1. Run: pip install 'cmake>=3.26'"
    refused(f"{re.escape(message)}$", "fast_ops", "a.cpp")
    old.write_text("no program\n")
    refused(f"{re.escape(str(old))} does not run", "fast_ops", "a.cpp")


@pytest.mark.parametrize("recorded", ["../../../bin/cmake", "cmake/data/bin/cmake", "../../bin/cmake"])
def test_tools_of_another_environment(
    only_own_tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    recorded: str,
) -> None:
    """pip does not install again what PYTHONPATH or a parent environment has. Debian's CMake is on PATH."""
    program(tmp_path / "system", "cmake", "3.25.1")
    package(only_own_tools, "cmake", "4.0", recorded)
    # The last one is what pip install --target records; the program is in another folder.
    place = only_own_tools / ("bin/cmake" if recorded == "../../bin/cmake" else recorded)
    new_one = program(place.resolve().parent, "cmake", "4.0.3")
    assert _compile.tool("cmake") == str(new_one)
    monkeypatch.setattr(sys, "argv", ["kit", "tool", "cmake"])
    assert (__main__.main(), capsys.readouterr().out) == (0, f"{new_one}\n")


def test_the_first_cmake_that_is_new_enough(only_own_tools: Path, tmp_path: Path) -> None:
    for version, folder in (("3.25", "bin"), ("3.26", "system"), ("4.0", "system/other")):
        program(tmp_path / folder, "cmake", version)
    assert _compile.tool("cmake") == str(tmp_path / "system/cmake")


def test_progress_of_a_build_in_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.undo()  # _run
    command = [sys.executable, "-c", "print('-- no progress'); print('[1/2] a'); print('[2/2] b')"]
    for seconds, shown in ((0, "ops: [1/2]\nops: [2/2]\n"), (1000, "")):
        monkeypatch.setattr(_compile, "_PROGRESS_SECONDS", seconds)
        with (tmp_path / "lock").open("w") as lock:
            _compile._run(command, lock, tmp_path / "log", "ops", verbose=False)
        assert capsys.readouterr().err == shown


def test_the_first_error_says_where_it_comes_from() -> None:
    """gcc prints the line and the name of a wrong args["..."] before the error. A linker prints no `error`."""
    before = [
        "[1/2] Building",
        "a.cpp: In function 'f':",
        f"a.cpp:7: in 'constexpr' expansion of 'Key<{400 * 'x'}>(\"y\")'",
    ]
    error = "pattern.h:17: error: expression '<throw-expression>' is not a constant expression"
    shown = _compile._first_error([*before, error, *["more"] * 20]).splitlines()
    assert (
        shown[0] == before[1] and "expansion of" in shown[1] and shown[1].endswith('x>("y")\'') and len(shown[1]) < 300
    )
    assert shown[2:] == [error, *["more"] * 9]
    assertion = "formula.h:9: error: static assertion failed: forward() takes the row"
    shown = _compile._first_error([*before, assertion]).splitlines()
    assert shown[0] == "forward() takes the row" and shown[-1] == assertion
    linked = [
        "[2/2] Linking",
        "ld: a.o: in function `f':",
        "a.cpp:(.text+0x1): undefined reference to `g()'",
        "collect2: error",
    ]
    assert _compile._first_error(linked) == "\n".join(linked[1:])


# ---------------------------------------------------------------- folders


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    Path("a.cpp").write_text("// nothing\n")
    refused("cannot write to .*: Permission denied", "fast_ops", "a.cpp")


def test_cache_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    Path("a.cpp").write_text("// nothing\n")
    refused("cannot write to .*: Not a directory", "fast_ops", "a.cpp")
