"""The library's build configuration and paths."""

import re
from dataclasses import dataclass
from pathlib import Path

import torch

import cppcuda._build as _build
from cppcuda._compile import INSTRUCTION_SETS, instruction_set


@dataclass(frozen=True)
class Config:
    """The result of :func:`cppcuda.config`.

    Attributes:
        version: the version of cppcuda
        torch_version: the version of torch that the library was built with, such as ``"2.15.0"``
        cuda_version: the CUDA version of the kernels, such as ``"13.2"``; None if there are no CUDA kernels
        cuda_architectures: the architectures of the CUDA kernels, with the names of :func:`torch.cuda.get_arch_list`:
            ``sm_90`` is machine code, ``compute_120`` is PTX, which runs on later GPUs too
        cpu_instruction_sets: the instruction sets of the CPU kernels, such as ``("base", "avx2", "avx512")``
        cpu_instruction_set: the instruction set that this process uses, which follows torch's choice
            (``torch.backends.cpu.get_cpu_capability()``, the environment variable ``ATEN_CPU_CAPABILITY``)
        library_path: the shared library; see :func:`cppcuda.library_path`
        include_path: the folder of the C++ headers, for ``#include <cppcuda/cppcuda.h>``
        cmake_prefix_path: the folder for ``CMAKE_PREFIX_PATH``; see :func:`cppcuda.cmake_prefix_path`
    """

    version: str
    torch_version: str
    cuda_version: str | None
    cuda_architectures: tuple[str, ...]
    cpu_instruction_sets: tuple[str, ...]
    cpu_instruction_set: str
    library_path: Path
    include_path: Path
    cmake_prefix_path: Path


def torch_names(architectures: str) -> tuple[str, ...]:
    """CMake's list of architectures with torch's names: "80-real;90" is sm_80, sm_90 and compute_90."""
    names = []
    for entry in architectures.split(";"):
        found = re.fullmatch(r"(\d+[af]?)(-real|-virtual)?", entry)
        number, kind = found.groups() if found else (None, None)
        if number is None:
            names.append(entry)  # a keyword of CMake, such as "native"
        if number and kind != "-virtual":
            names.append(f"sm_{number}")
        if number and kind != "-real":
            names.append(f"compute_{number}")
    return tuple(names)


def make(library: Path, package: Path) -> Config:
    built = tuple(_build.CPU_INSTRUCTION_SETS.split(";"))
    supported = INSTRUCTION_SETS[: INSTRUCTION_SETS.index(instruction_set()) + 1]
    return Config(
        version=_build.VERSION,
        torch_version=torch.ops.cppcuda._torch_version(),
        cuda_version=_build.CUDA,
        cuda_architectures=torch_names(_build.CUDA_ARCHITECTURES) if _build.CUDA else (),
        cpu_instruction_sets=built,
        cpu_instruction_set=next((isa for isa in reversed(built) if isa in supported), "none"),
        library_path=library,
        include_path=package / "include",
        cmake_prefix_path=package,
    )
