"""Real spherical harmonics for PyTorch."""

from pathlib import Path

from cppcuda import load_library

from sph import _build

load_library("sph", Path(_build.__file__).parent)

# The operators are defined now.
from sph.spherical_harmonics import solid_harmonics, spherical_harmonics  # noqa: E402

__version__ = _build.VERSION
__all__ = [
    "solid_harmonics",
    "spherical_harmonics",
]
