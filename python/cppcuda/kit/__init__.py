"""The kit: what libraries of operators are made with. ``python -m cppcuda.kit`` makes a new library.

:func:`new` writes a project with one operator, :func:`add` adds operators to it. :func:`load` builds and loads
operators at once, without a project. docs/kit.md is the tutorial.
"""

from cppcuda.kit._jit import load
from cppcuda.kit._scaffold import LICENSES, KitError, add, new

__all__ = ["LICENSES", "KitError", "add", "load", "new"]
