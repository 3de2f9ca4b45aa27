"""The options of the suite ``cppcuda.testing`` for pytest, which loads this module by its entry point.

It is a module of its own, because pytest loads entry points in every run, and importing ``cppcuda`` loads torch.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cppcuda.testing")
    group.addoption(
        "--operators",
        action="append",
        default=[],
        metavar="MODULE",
        help="for pytest --pyargs cppcuda.testing: a module that registers operators and their samples",
    )
    group.addoption(
        "--full",
        action="store_true",
        help="also test the transforms of internal operators, whose names begin with an underscore",
    )
    group.addoption(
        "--support-matrix",
        metavar="FILE",
        help="write which properties hold for which operators, as Markdown (FILE.md) or JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("operators"):
        config.pluginmanager.import_plugin("cppcuda.testing.plugin")
