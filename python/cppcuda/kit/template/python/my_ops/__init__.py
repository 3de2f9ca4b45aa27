"""PyTorch operators. Change: this docstring; `python -m cppcuda.kit add` adds the operators."""

from pathlib import Path

from cppcuda import load_library

from my_ops import _build

load_library("my_ops", Path(_build.__file__).parent)

# The operators are defined now.
from my_ops.swish import swish  # noqa: E402

__version__ = _build.VERSION
__all__ = [
    "swish",
]
