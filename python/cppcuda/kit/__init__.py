"""The kit: what libraries of operators are made with. ``python -m cppcuda.kit`` makes a new library.

:func:`new` writes a project with one operator, :func:`add` adds operators to it. docs/kit.md is the tutorial.
"""

from cppcuda.kit._scaffold import LICENSES, KitError, add, new

__all__ = ["LICENSES", "KitError", "add", "new"]
