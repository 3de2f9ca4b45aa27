"""PyTorch operators in C++ and CUDA that behave like torch's own.

Importing the package registers the operators (``torch.ops.cppcuda.*``). ``cppcuda.functional`` has them as
functions, ``cppcuda.nn`` as modules.
"""

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

# ``python -m cppcuda.kit`` imports this package first. It needs neither the operators nor torch, whose import takes
# seconds. While Python looks for the module of -m, sys.argv begins with "-m".
_runs_kit = sys.argv[:1] == ["-m"] and sys.orig_argv[-len(sys.argv)].removeprefix("-m") == "cppcuda.kit"

# A source tree has no _build.py, which CMake writes.
if TYPE_CHECKING or (importlib.util.find_spec("cppcuda._build") and not _runs_kit):
    from pathlib import Path

    import cppcuda._build as _build
    from cppcuda import _config, _load
    from cppcuda._config import Config
    from cppcuda._load import load_library

    _path = load_library("cppcuda", _load.PACKAGE)

    from cppcuda import distributed, flop_counter, functional, nn, onnx  # they need the ops

    __version__ = _build.VERSION

    def library_path() -> Path:
        """The path of the shared library with the operators.

        ``torch.ops.load_library(path)`` loads it without this package; C++ programs that use ``torch::jit`` or
        AOTInductor link it or ``dlopen`` it.
        """
        return _path

    def cmake_prefix_path() -> Path:
        """The folder for ``CMAKE_PREFIX_PATH``, with which ``find_package(cppcuda CONFIG)`` finds this package."""
        return _load.PACKAGE

    def config() -> Config:
        """The library's build configuration and paths. ``python -m cppcuda`` prints them."""
        return _config.make(library_path(), _load.PACKAGE)

else:

    def __getattr__(name: str) -> Any:
        raise AttributeError(
            f"cppcuda has no {name}, because {__path__[0]} is a source tree without a library. Install it: "
            "pip install --no-build-isolation -e <path of the source tree>"
        )


__all__ = [
    "Config",
    "__version__",
    "cmake_prefix_path",
    "config",
    "distributed",
    "flop_counter",
    "functional",
    "library_path",
    "load_library",
    "nn",
    "onnx",
]
