"""``python -m cppcuda``: what the library was built with, and the options for building a C++ program without CMake."""

import argparse
import shlex
from pathlib import Path

import torch

from cppcuda import Config, config

_TORCH = Path(torch.__file__).parent


def _cflags(c: Config) -> list[str]:
    # The options of the imported targets in cmake/CppcudaTorch.cmake, as those of _libs are.
    # -isystem: a program may ask for more warnings than torch's headers are free of.
    torch_include = _TORCH / "include"
    of_torch = ["-isystem", str(torch_include), "-isystem", str(torch_include / "torch/csrc/api/include")]
    return ["-std=c++20", f"-I{c.include_path}", *of_torch]


def _libs(c: Config) -> list[str]:
    folders = (c.library_path.parent, _TORCH / "lib")
    of_cuda = [name for name in ("torch_cuda", "c10_cuda") if (_TORCH / f"lib/lib{name}.so").exists()]
    libraries = ["cppcuda", "torch", "torch_cpu", "c10", *of_cuda]
    return [
        *(option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")),
        # A program that only runs exported models names no symbol of the library, and still needs it.
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
        description="Prints what cppcuda was built with and where its files are; "
        "or, with options, what a C++ program that uses it is compiled and linked with.",
        epilog="example: g++ main.cpp $(python -m cppcuda --cflags --libs) -o app",
    )
    parser.add_argument("--cflags", action="store_true", help="print the options of the compiler")
    parser.add_argument("--libs", action="store_true", help="print the options of the linker")
    given = parser.parse_args()
    c = config()
    options = [*(_cflags(c) if given.cflags else []), *(_libs(c) if given.libs else [])]
    print(shlex.join(options) if options else _table(c))


if __name__ == "__main__":
    main()
