"""A torch for which the package has no library: the import builds one, once.

A program named cmake stands in for the real one and copies the package's own library, which expects the kernels in the
folder above. scripts/test_kit builds a real one.
"""

import os
import shutil
import stat
import time
from pathlib import Path

import cppcuda
import pytest
import support
import torch
from cppcuda import _load
from forked import Forked

pytestmark = pytest.mark.any_torch

PACKAGE = _load.PACKAGE
RELEASE = _load.torch_release()
LIBRARY = PACKAGE / f"lib/torch-{RELEASE}/libcppcuda.so"
NO_PACKAGES = "import importlib.metadata\nimportlib.metadata.distributions = list\n"
IMPORT = "import cppcuda; print(cppcuda.library_path())"

CMAKE = f"""#!/bin/bash
# "cmake -S <source> -B <folder>/build ...", and "cmake --build <folder>/build --target cppcuda"
if [ "$1" = --version ]; then
  echo "cmake version 3.26"
  exit
fi
if [ "$1" = -S ]; then
  echo "configured $*" >> "$FAKE/calls"
  mkdir -p "$4"
  exit
fi
echo "built" >> "$FAKE/calls"
sleep "${{FAKE_SECONDS:-0}}"
if [ -n "${{FAKE_ERROR:-}}" ]; then
  echo "$FAKE_ERROR"
  exit 1
fi
cp {LIBRARY} "$2"
ln -sf {LIBRARY.parents[1]}/libcppcuda_kernels.so "$2/.."
"""


class Installation:
    """A copy of the package without a library for this torch, a cache folder, and the program in place of cmake."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site, self.cache = folder, folder / "site", folder / "cache"
        self.package = self.site / "cppcuda"
        shutil.copytree(
            PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__", "torch-*", "include", "emulator")
        )
        (self.package / "lib/torch-2.3").mkdir()
        (self.package / "lib/torch-2.3/libcppcuda.so").touch()
        self.bin = folder / "bin"
        self.bin.mkdir()
        cmake = self.bin / "cmake"
        cmake.write_text(CMAKE)
        cmake.chmod(0o755)

    def environment(self, **variables: str) -> dict[str, str]:
        given = {"XDG_CACHE_HOME": str(self.cache), "FAKE": str(self.folder), **variables}
        return {**os.environ, **given}

    def start(self, program: str = IMPORT, **variables: str) -> Forked:
        # Tools are searched beside the interpreter first.
        program = f"import sys; sys.executable = '{self.bin}/python'\n{program}"
        return Forked(program, paths=[self.site], environment=self.environment(**variables), cwd=self.folder)

    def run(self, program: str = IMPORT, **variables: str) -> tuple[str, str]:
        done = self.start(program, **variables).wait()
        return done.out.strip(), done.err

    def calls(self) -> int:
        """How often a library was built."""
        file = self.folder / "calls"
        return file.read_text().splitlines().count("built") if file.exists() else 0

    def error(self, before: str = "", **variables: str) -> str:
        """The message of the ImportError."""
        out, err = self.run(f"{before}try:\n  import cppcuda\nexcept ImportError as e:\n  print(e)", **variables)
        assert out, err
        return out


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def test_the_library_is_built_once(installation: Installation) -> None:
    """Into the cache folder: the installation may be read-only."""
    before = {p: p.stat().st_mtime_ns for p in installation.package.rglob("*")}
    path, err = installation.run(PYTHONDONTWRITEBYTECODE="1")
    assert path.startswith(f"{installation.cache}/cppcuda/cppcuda-torch-{RELEASE}-") and "building it in" in err, err
    assert {p: p.stat().st_mtime_ns for p in installation.package.rglob("*")} == before
    again = "import runpy, sys; sys.argv[1:] = ['build']; runpy.run_module('cppcuda', run_name='__main__')"
    assert installation.run(again) == (path, "")
    assert installation.calls() == 1
    configured = (installation.folder / "calls").read_text()
    assert f"-DCPPCUDA_TORCH_DIR={Path(torch.__file__).parent}" in configured
    assert f"-S {installation.package}/share/cppcuda " in configured


def test_other_processes_wait(installation: Installation) -> None:
    first = installation.start(FAKE_SECONDS="3")
    while not installation.calls():
        time.sleep(0.05)
    others = [installation.start() for _ in range(2)]
    assert len({process.wait().out for process in (first, *others)}) == 1
    assert installation.calls() == 1
    waiting = f"cppcuda for torch {torch.__version__}: waiting for process {first.process.pid}, which builds it in"
    assert all(waiting in process.err for process in others)


def test_an_interrupted_build_is_repeated(installation: Installation) -> None:
    first = installation.start(FAKE_SECONDS="3")
    while not installation.calls():
        time.sleep(0.05)
    first.process.kill()
    first.wait(check=False)
    began = time.monotonic()
    path, err = installation.run()
    # The compilers of the first process go on after it and keep the lock.
    assert "waiting for" in err and time.monotonic() - began > 1, err
    assert Path(path).is_file() and installation.calls() == 2


def test_a_failure_is_kept_until_something_changes(installation: Installation) -> None:
    for _ in range(2):
        message = installation.error(FAKE_ERROR="node.h:3: error: no member 'next_edges'")
        assert message.startswith(f"cppcuda has no library for torch {torch.__version__} (it has libraries for 2.3), ")
        assert "no member 'next_edges'" in message and "log.txt" in message
        assert installation.calls() == 1
    assert "is tried again when something changes" in message
    os.utime(installation.package / "lib/libcppcuda_kernels.so")  # as after another installation
    assert Path(installation.run()[0]).is_file() and installation.calls() == 2


@pytest.mark.parametrize(
    "error",
    [
        "fatal error: error writing to /tmp/cc.s: No space left on device",
        "g++: fatal error: Killed signal terminated program cc1plus",  # there was not enough memory
    ],
)
def test_too_few_resources_are_tried_again(installation: Installation, error: str) -> None:
    assert error in installation.error(FAKE_ERROR=error)
    assert Path(installation.run()[0]).is_file() and installation.calls() == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(installation: Installation) -> None:
    installation.cache.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
    assert f"cannot write to {installation.cache}/cppcuda" in installation.error()


def test_a_cache_that_is_a_file(installation: Installation) -> None:
    installation.cache.touch()
    assert f"cannot write to {installation.cache}/cppcuda" in installation.error()


@pytest.mark.parametrize(("tool", "hint"), [("cmake", "Run: pip install 'cmake>=3.26'"), ("c++", "Install g++.")])
def test_a_missing_tool(installation: Installation, tool: str, hint: str) -> None:
    """A PATH without the tool, an interpreter without tools next to it, and no packages."""
    for name in {"cmake", "ninja", "c++", "bash"} - {tool}:
        if not (installation.bin / name).exists():
            (installation.bin / name).symlink_to(shutil.which(name) or support.tool(name))
    if tool == "cmake":
        (installation.bin / "cmake").unlink()
    message = installation.error(NO_PACKAGES, PATH=str(installation.bin))
    assert f"{tool} was not found. {hint}" in message, message


def test_the_environment_variable_forbids_it(installation: Installation) -> None:
    message = installation.error(CPPCUDA_BUILD="0")
    assert message.endswith(", and CPPCUDA_BUILD=0 forbids building one.")
    assert installation.calls() == 0


def test_no_sources(installation: Installation) -> None:
    shutil.rmtree(installation.package / "share")
    assert "no sources to build one from. Install cppcuda again." in installation.error()


def test_a_source_tree_without_a_library(installation: Installation) -> None:
    shutil.rmtree(installation.site)
    left_out = shutil.ignore_patterns("_build.py", "lib", "share", "include", "__pycache__")
    shutil.copytree(PACKAGE, installation.folder / "python/cppcuda", ignore=left_out)
    access = "import cppcuda\ntry:\n  cppcuda.functional\nexcept AttributeError as e:\n  print(e)"
    message, _ = installation.run(f"import sys\nsys.path.insert(0, 'python')\n{access}")
    assert "cppcuda has no functional, because " in message and "pip install --no-build-isolation -e " in message


def test_the_installed_package_has_a_library() -> None:
    assert cppcuda.library_path() == LIBRARY
