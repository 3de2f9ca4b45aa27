"""PyTorch operators in C++ and CUDA that behave like torch's own.

Importing the package registers the operators (``torch.ops.cppcuda.*``). ``cppcuda.functional`` has them as
functions, ``cppcuda.nn`` as modules.
"""

from pathlib import Path

import cppcuda._build as _build
from cppcuda import _config, _load
from cppcuda._config import Config
from cppcuda._load import load_library

_path = _load.load()

from cppcuda import distributed, flop_counter, functional, nn, onnx  # noqa: E402  (they need the ops)

__version__ = _build.VERSION


def library_path() -> Path:
    """The path of the shared library with the operators.

    ``torch.ops.load_library(path)`` loads it without this package; C++ programs that use ``torch::jit`` or AOTInductor
    link it or ``dlopen`` it.
    """
    return _path


def cmake_prefix_path() -> Path:
    """The folder for ``CMAKE_PREFIX_PATH``, with which ``find_package(cppcuda CONFIG)`` finds this package."""
    return Path(__file__).parent


def config() -> Config:
    """The library's build configuration and paths. ``python -m cppcuda`` prints them."""
    return _config.make(library_path(), Path(__file__).parent)


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
