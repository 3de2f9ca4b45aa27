"""Builds operators and loads them at once, for notebooks and experiments."""

from __future__ import annotations

import atexit
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from cppcuda import _compile
from cppcuda.kit._scaffold import KitError, check_namespace, elementwise_files

_PROJECT = """\
cmake_minimum_required(VERSION 3.26)
project({name} LANGUAGES CXX)
find_package(cppcuda CONFIG REQUIRED COMPONENTS kit)
cppcuda_add_operators({name} SOURCES "{sources}")
"""
_EMULATED = "cppcuda_add_emulated_library({name}_emulated {name})\n"
_loaded: dict[str, str] = {}  # the keys of the builds by their names
# What functions of torch.cuda return while kernels are emulated.
_EMULATED_DEVICE = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "get_device_capability": (9, 0),
    "get_device_name": "emulator",
    "is_bf16_supported": True,
    "synchronize": None,
}


def _files(sources: str | Path | Sequence[str | Path]) -> dict[str, Path]:
    """The files of a build by their places in the folder of sources."""
    if isinstance(sources, str | Path) and Path(sources).is_dir():
        folder = Path(sources).resolve()
        headers = folder.parent / "include"  # of a project; every source finds the headers of its own folder
        files = {str(p.relative_to(headers)): p for p in sorted(headers.rglob("*.h"))}
        return files | {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
    given = [Path(p) for p in ([sources] if isinstance(sources, str | Path) else sources)]
    # cppcuda_add_operators searches .cu files in ops/*/cuda. Headers are found from every file.
    files = {f"ops/all/cuda/{p.name}" if p.suffix == ".cu" else p.name: p for p in given}
    if len(files) != len(given):
        raise KitError(f"two files have the same name: {', '.join(map(str, given))}")
    for p in given:
        if p.is_dir():
            raise KitError(f"{p} is a folder; pass it alone, not in a list of files: load(name, {str(p)!r})")
        if not p.is_file():
            raise KitError(f"there is no file {p}")
        if p.suffix not in (".cpp", ".cu", ".cuh", ".h"):
            raise KitError(f"sources must be .cpp, .cu, .cuh or .h files, got {p}")
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
        for operator in re.findall(r'schema\[\] =\s*"(\w+::\w+)', headers[place]):
            if not operator.startswith(f"{name}::"):
                raise KitError(
                    f"{files[place]}: {operator} is in another namespace than {name}, the name of the library"
                )
    made = elementwise_files(name)
    includes = "".join(f'#include "{place}"\n' for place, names in found.items() if names)
    members = f"using Family = cppcuda::kit::Family<{', '.join(structs)}>;"
    family = f"#pragma once\n\n{includes}\nnamespace {name} {{\n{members}\n}}\n"
    return {**made, "elementwise/family.h": family}


def load(
    name: str,
    sources: str | Path | Sequence[str | Path],
    cuda: Literal["AUTO", "ON", "OFF"] = "AUTO",
    build_folder: str | Path | None = None,
    verbose: bool = False,
    emulate: bool = False,
    decompose: bool = True,
) -> Any:
    """Builds operators from sources and loads them.

    The result is kept, also an error of the compiler, until a source, torch, cppcuda or an argument changes. Processes
    that need the same build wait for the first one. This needs g++, cmake and ninja (``pip install cmake ninja``).

    Args:
        name: the namespace of the operators.
        sources: headers with elementwise operators, ``.cpp`` files with other operators, ``.cu`` files with CUDA
            kernels, and the headers that they include; or the folder ``src`` of a project like those that
            :func:`cppcuda.kit.new` makes. The headers in the folder ``include`` next to it are found.
        cuda: whether to compile the ``.cu`` files. ``"AUTO"``: if there are a GPU, a CUDA build of torch and its nvcc.
        build_folder: the folder of the build, in which only what has changed is compiled again (default: a folder in
            ``~/.cache/cppcuda/kit`` for each set of sources).
        verbose: print what the compilers print.
        emulate: run the CUDA kernels on the CPU, for tests on a machine that has nvcc but no GPU. The device ``"cuda"``
            of the process is then the emulator's, and torch's own operators on its tensors run on the CPU. It finds
            accesses outside of tensors and misaligned ones, and races if ``CPPCUDA_EMULATOR_RACES=1`` is in the
            environment; ``docs/kernels.md`` has the others. The first such call must come before the first backward of
            the process.
        decompose: whether ``torch.compile`` may replace elementwise operators by their formulas, as in
            :func:`cppcuda.load_library`.

    Returns:
        ``torch.ops.<name>``.

    Raises:
        KitError: A file is missing, a tool is missing, or the build failed. The message has the compiler's first error
            and the path of the whole output. The name was loaded with other sources or arguments. Or ``emulate`` is
            set, and torch uses a GPU, or a backward came before.
    """
    import torch

    import cppcuda
    from cppcuda import _load

    check_namespace(name)
    files = _files(sources)
    made = _elementwise(name, files)
    if not made and not any(place.endswith(".cpp") for place in files):
        raise KitError("no .cpp file and no header with an elementwise operator is among the sources")
    is_emulated = torch.cuda.is_available.__module__ == __name__  # by an earlier call
    if emulate:
        if torch.cuda.is_available() and not is_emulated:
            raise KitError(
                "torch uses the GPU of this machine, so nothing is emulated; hide it: CUDA_VISIBLE_DEVICES=''"
            )
        options, environment = [f"-D{name.upper()}_WITH_CUDA=ON", "-DCMAKE_CUDA_ARCHITECTURES=90-virtual"], None
    else:
        options, environment = _compile.cuda_options(name, "OFF" if cuda == "AUTO" and is_emulated else cuda)
    options.append(f"-DCMAKE_PREFIX_PATH={cppcuda.cmake_prefix_path()}")
    options.append(f"-DCPPCUDA_ISAS={_compile.instruction_set()}")
    torch_and_kit = (torch.__version__, str(cppcuda.library_path()), cppcuda.library_path().stat().st_mtime_ns)
    contents = [(place, file.read_bytes()) for place, file in files.items()]
    key = _compile.digest(torch_and_kit, options, environment, contents, emulate)
    if _loaded.get(name, key) != key:
        raise KitError(
            f"this process has loaded {name} from other sources or arguments; restart it to load {name} again"
        )
    folder = Path(build_folder).absolute() if build_folder else _compile.cache_folder() / "kit" / f"{name}-{key}"

    def write_project() -> None:
        _write(files, made, folder / "sources")
        project = _PROJECT + _EMULATED if emulate else _PROJECT
        (folder / "CMakeLists.txt").write_text(project.format(name=name, sources=folder / "sources"))

    target = f"{name}_emulated" if emulate else name
    try:
        library = _compile.build(
            target, folder, folder, key, options, what=f"cppcuda.kit: {name}", prepare=write_project, verbose=verbose
        )
    except _compile.BuildError as error:
        raise KitError(str(error)) from None
    torch.ops.load_library(library)
    _loaded[name] = key
    if decompose:
        _load.allow_decomposition(name, library)
    if emulate and not is_emulated:
        _use_emulated_device()
    return getattr(torch.ops, name)


def _use_emulated_device() -> None:
    """Makes ``torch.cuda`` describe the emulator's device."""
    import torch

    torch.cuda._lazy_init = lambda: None
    try:
        torch.ones(1, device="cuda", requires_grad=True).sum().backward()
    except RuntimeError:
        raise KitError(
            "torch counted the devices at the first backward of this process; restart it, and load before"
        ) from None
    for name, value in _EMULATED_DEVICE.items():
        setattr(torch.cuda, name, lambda *_, value=value: value)
    # torch's thread for the device may still wait for the interpreter's lock. At exit it would find none and abort.
    atexit.register(time.sleep, 0.1)


def _write(files: dict[str, Path], made: dict[str, str], folder: Path) -> None:
    """Copies the sources into a folder. A file that has not changed is not written, so it is not compiled again."""
    wanted = {place: file.read_bytes() for place, file in files.items()}
    wanted |= {place: text.encode() for place, text in made.items()}
    for old in [p for p in folder.rglob("*") if p.is_file() and str(p.relative_to(folder)) not in wanted]:
        old.unlink()
    for place, content in wanted.items():
        file = folder / place
        if not file.is_file() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
