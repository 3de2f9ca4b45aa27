"""``python -m cppcuda``: the build configuration, and the options for building a C++ program without CMake.

``python -m cppcuda build`` builds the library for the installed torch, if the package has none.
"""

import argparse
import shlex
from pathlib import Path

import torch

from cppcuda import Config, config

_TORCH = Path(torch.__file__).parent


def _cflags(c: Config) -> list[str]:
    # The same options as the imported targets in cmake/CppcudaTorch.cmake, as in _libs.
    # -isystem: torch's headers may cause warnings that the program enables.
    torch_include = _TORCH / "include"
    torch_flags = ["-isystem", str(torch_include), "-isystem", str(torch_include / "torch/csrc/api/include")]
    return ["-std=c++20", f"-I{c.include_path}", *torch_flags]


def _libs(c: Config) -> list[str]:
    folders = (c.library_path.parent, _TORCH / "lib")
    cuda_libraries = [name for name in ("torch_cuda", "c10_cuda") if (_TORCH / f"lib/lib{name}.so").exists()]
    libraries = ["cppcuda", "torch", "torch_cpu", "c10", *cuda_libraries]
    return [
        *(option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")),
        # A program that only runs exported models references no symbol of the library, but needs it.
        "-Wl,--no-as-needed",
        *(f"-l{name}" for name in libraries),
        "-Wl,--allow-shlib-undefined",
        "-pthread",
    ]


def _table(c: Config) -> str:
    rows = {
        "version": c.version,
        "torch": c.torch_version,
        "CUDA": c.cuda_version or "none",
        "CUDA architectures": ", ".join(c.cuda_architectures) or "none",
        "CPU instruction sets": f"{', '.join(c.cpu_instruction_sets)} (in use: {c.cpu_instruction_set})",
        "library": c.library_path,
        "C++ headers": c.include_path,
        "CMake prefix": c.cmake_prefix_path,
    }
    width = max(map(len, rows))
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows.items())


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m cppcuda",
        description="Prints cppcuda's build configuration and paths, or, with options, the compiler and linker flags "
        "for a C++ program that uses it.",
        epilog="example: g++ main.cpp $(python -m cppcuda --cflags --libs) -o app",
    )
    # The import of cppcuda has built the library already.
    parser.add_argument(
        "command",
        nargs="?",
        choices=["build"],
        help="build the library for the installed torch, if the package has none",
    )
    parser.add_argument("--cflags", action="store_true", help="print the compiler flags")
    parser.add_argument("--libs", action="store_true", help="print the linker flags")
    given = parser.parse_args()
    c = config()
    options = [*(_cflags(c) if given.cflags else []), *(_libs(c) if given.libs else [])]
    print(c.library_path if given.command else shlex.join(options) if options else _table(c))


if __name__ == "__main__":
    main()
