"""Shared by all tests: the library under test, and the suite cppcuda.testing over the operators of samples/.

CPPCUDA_EXPECTED_LIBRARY  the library that must be loaded, if not the installed package's own (a path).
CPPCUDA_SUPPORT_MATRIX    the JSON file for the outcomes per operator and row. Works under xdist.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import cppcuda
import hypothesis
import pytest
import torch

if TYPE_CHECKING:
    from cppcuda.testing.samples import OpEntry

pytest_plugins = ("cppcuda.testing.plugin",)

hypothesis.settings.register_profile("cppcuda", deadline=None, derandomize=True, max_examples=60, database=None)
hypothesis.settings.load_profile("cppcuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reduced",
        action="store_true",
        help="for a second version of torch: skips the tests marked any_torch and those of internal operators, which "
        "public ones call, and runs the tests of transforms for one operator per mechanism",
    )
    parser.addoption(
        "--only",
        metavar="OPERATOR",
        help="of the properties, only those of this operator and of its backward operators",
    )


# The file of samples/ that registers each operator.
FILES: dict[str, str] = {}


def register_all() -> None:
    """Imports the files of samples/, each of which registers its operators."""
    from cppcuda.testing.samples import OPS

    for file in sorted((Path(__file__).parent / "samples").glob("*.py")):
        count = len(OPS)
        importlib.import_module(f"samples.{file.stem}")
        FILES.update({entry.name: file.stem for entry in OPS[count:]})


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: needs gigabytes of memory or minutes (deselect with -m 'not slow')")
    config.addinivalue_line("markers", "any_torch: does not depend on the version of torch (deselected by --reduced)")
    config.addinivalue_line("markers", "large: fills a GPU's memory, so these tests run one at a time")
    register_all()  # tests are parametrised over the table when they are collected
    expected = os.environ.get("CPPCUDA_EXPECTED_LIBRARY")
    if expected and not cppcuda.library_path().samefile(expected):
        raise pytest.UsageError(f"the library under test is {cppcuda.library_path()}, expected {expected}")


def pytest_report_header() -> str:
    return f"torch {torch.__version__}"


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Resets the compiler, so that functions compiled by earlier tests count neither as hits nor as recompiles."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Ends an xdist worker after a CUDA error, because CUDA no longer works in that process. xdist reports a crash and
    starts another worker for the remaining tests."""
    if call.excinfo and "CUDA error" in call.excinfo.exconly() and "PYTEST_XDIST_WORKER" in os.environ:
        item.config.pluginmanager.getplugin("capturemanager").suspend(in_=True)
        print(f"FAILED {item.nodeid}: {call.excinfo.getrepr(style='short')}", file=sys.stderr, flush=True)
        os._exit(1)


def entry_of(item: pytest.Item) -> OpEntry | None:
    """The operator of a test that is parametrised over them."""
    from cppcuda.testing.samples import OpEntry

    entry = item.callspec.params.get("entry") if hasattr(item, "callspec") else None
    return entry if isinstance(entry, OpEntry) else None


# Values of operators, which the kernels compute. All versions of torch have the same kernels.
KERNEL_PROPERTIES = ("large_against_float64", "against_further_oracles", "same_bits_every_time")


def is_reduced_away(item: pytest.Item) -> bool:
    """Whether a run with --reduced skips a test."""
    from cppcuda.testing.registry import TRANSFORMS

    if item.get_closest_marker("any_torch"):
        return True
    entry = entry_of(item)
    if not entry:
        return False
    check = item.callspec.params.get("check")  # type: ignore[attr-defined]
    if check and check.name in KERNEL_PROPERTIES:
        return True
    rows = {name for mark in item.iter_markers("capability") for name in mark.args}
    return entry.is_internal or (not entry.represents_mechanism and bool(rows & TRANSFORMS))


def is_of_another_operator(item: pytest.Item, operator: str) -> bool:
    entry = entry_of(item)
    if not entry or FILES.get(entry.name) == operator:
        return False
    return entry.base_name != operator and not entry.base_name.startswith(f"_{operator}_")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    operator = config.getoption("--only")
    left_out = [
        item
        for item in items
        if (config.getoption("--reduced") and is_reduced_away(item))
        or (operator and is_of_another_operator(item, operator))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(left_out)
        items[:] = [item for item in items if item not in dropped]
