"""Builds operators and loads them at once, for notebooks and experiments."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from cppcuda.kit._scaffold import KitError, check_namespace, elementwise_files

_PROJECT = """\
cmake_minimum_required(VERSION 3.26)
project({name} LANGUAGES CXX)
find_package(cppcuda CONFIG REQUIRED COMPONENTS kit)
cppcuda_add_operators({name} SOURCES "{sources}")
"""


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if not found:
        raise KitError(f"{name} was not found: pip install {name}")
    return found


def _files(sources: str | Path | Sequence[str | Path]) -> dict[str, Path]:
    """The files of a build by their places in the folder of sources."""
    if isinstance(sources, str | Path) and Path(sources).is_dir():
        folder = Path(sources)
        return {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
    given = [Path(p) for p in ([sources] if isinstance(sources, str | Path) else sources)]
    # cppcuda_add_operators searches .cu files in ops/*/cuda. Headers are found from every file.
    files = {f"ops/all/cuda/{p.name}" if p.suffix == ".cu" else p.name: p for p in given}
    if len(files) != len(given):
        raise KitError(f"two files have the same name: {', '.join(map(str, given))}")
    for p in given:
        if not p.is_file():
            raise KitError(f"{p} is no file")
        if p.suffix not in (".cpp", ".cu", ".cuh", ".h"):
            raise KitError(f"{p} is no .cpp, .cu, .cuh or .h file")
    return files


def _elementwise(name: str, files: dict[str, Path]) -> dict[str, str]:
    """The files that make the elementwise operators of the headers, if these are not part of a whole folder."""
    headers = {place: file.read_text() for place, file in files.items() if file.suffix == ".h"}
    found = {
        place: re.findall(r"struct (\w+) \{\s*static constexpr char schema\[\]", t) for place, t in headers.items()
    }
    structs = [struct for names in found.values() for struct in names]
    if not structs or "elementwise/family.h" in files:
        return {}
    for place, names in found.items():
        if names and not re.search(rf"^namespace {name} \{{", headers[place], re.M):
            raise KitError(f"{files[place]}: {names[0]} must be in the namespace {name}")
    made = elementwise_files(name)
    includes = "".join(f'#include "{place}"\n' for place, names in found.items() if names)
    members = f"using Family = cppcuda::kit::Family<{', '.join(structs)}>;"
    family = f"#pragma once\n\n{includes}\nnamespace {name} {{\n{members}\n}}\n"
    return {**made, "elementwise/family.h": family}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cppcuda" / "kit"


def _run(command: Sequence[str | Path], log: Path, what: str, verbose: bool) -> None:
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with log.open("a") as file:
        file.write(done.stdout)
    if verbose:
        print(done.stdout)
    if done.returncode:
        lines = done.stdout.splitlines()
        first = next((i for i, line in enumerate(lines) if "error" in line.lower()), max(0, len(lines) - 10))
        shown = "\n".join(lines[first : first + 10])
        raise KitError(f"{what} failed; the whole output is in {log}:\n{shown}")


def load(
    name: str,
    sources: str | Path | Sequence[str | Path],
    cuda: Literal["AUTO", "ON", "OFF"] = "AUTO",
    build_folder: str | Path | None = None,
    verbose: bool = False,
) -> Any:
    """Builds operators from sources and loads them.

    The result is kept, and is built again only if a source, torch, cppcuda or an argument changes. Processes that
    need the same build wait for the first one. This needs g++, cmake and ninja (``pip install cmake ninja``).

    Args:
        name: the namespace of the operators.
        sources: headers with elementwise operators, ``.cpp`` files with other operators, ``.cu`` files with CUDA
            kernels, and the headers that they include; or a folder with the files that ``cppcuda_add_operators``
            expects, such as ``src`` of a project that :func:`cppcuda.kit.new` made.
        cuda: whether to compile the ``.cu`` files. ``"AUTO"``: if there are a GPU, a CUDA build of torch and its nvcc.
        build_folder: the folder of the build (default: one in ``~/.cache/cppcuda/kit`` for each set of sources).
        verbose: print what the compilers print.

    Returns:
        ``torch.ops.<name>``.

    Raises:
        KitError: A file is missing, a tool is missing, or the build failed. The message has the compiler's first error
            and the path of the whole output.
    """
    import cppcuda

    check_namespace(name)
    files = _files(sources)
    made = _elementwise(name, files)
    if not made and not any(place.endswith(".cpp") for place in files):
        raise KitError("no .cpp file and no header with an elementwise operator is among the sources")
    architectures = ""
    if cuda == "AUTO" and not torch.cuda.is_available():
        cuda = "OFF"
    if cuda != "OFF" and "TORCH_CUDA_ARCH_LIST" not in os.environ:
        capabilities = [torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())]
        architectures = ";".join(sorted({f"{major}{minor}-real" for major, minor in capabilities})) or "90-real"
    digest = hashlib.sha256(repr((cppcuda.__version__, torch.__version__, str(cppcuda.library_path()), cuda)).encode())
    for place, file in files.items():
        digest.update(place.encode() + b"\0" + file.read_bytes() + b"\0")
    folder = Path(build_folder) if build_folder else _cache() / f"{name}-{digest.hexdigest()[:16]}"
    library, stamp = folder / "build" / f"lib{name}.so", folder / "built"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise KitError(f"cannot write to {folder}: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"cppcuda.kit: waiting for another process to build {name} in {folder}", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.is_file() and stamp.read_text() == digest.hexdigest() and library.is_file()):
            print(f"cppcuda.kit: building {name} in {folder}", file=sys.stderr)
            _write(files, made, folder / "sources")
            options = [f"-D{name.upper()}_WITH_CUDA={cuda}", f"-DCMAKE_CUDA_ARCHITECTURES={architectures}"]
            _build(name, folder, options if architectures else options[:1], verbose)
            stamp.write_text(digest.hexdigest())
    torch.ops.load_library(library)
    return getattr(torch.ops, name)


def _write(files: dict[str, Path], made: dict[str, str], folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for place in (*files, *made):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
    for place, file in files.items():
        shutil.copyfile(file, folder / place)
    for place, text in made.items():
        (folder / place).write_text(text)


def _build(name: str, folder: Path, options: list[str], verbose: bool) -> None:
    import cppcuda

    cmake, ninja, log = _tool("cmake"), _tool("ninja"), folder / "log.txt"
    (folder / "built").unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    (folder / "CMakeLists.txt").write_text(_PROJECT.format(name=name, sources=folder.absolute() / "sources"))
    configure: list[str | Path] = [
        cmake,
        "-S",
        folder,
        "-B",
        folder / "build",
        "-G",
        "Ninja",
        f"-DCMAKE_MAKE_PROGRAM={ninja}",
    ]
    configure += [f"-DCMAKE_PREFIX_PATH={cppcuda.cmake_prefix_path()}", "-DCMAKE_BUILD_TYPE=Release"]
    configure += [f"-DCPPCUDA_TORCH_DIR={Path(torch.__file__).parent}", *options]
    _run(configure, log, f"{name}: configuring", verbose)
    _run([cmake, "--build", folder / "build", "--target", name], log, f"{name}: the build", verbose)
