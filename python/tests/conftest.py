"""Shared by all tests: the library under test, warnings, and the support matrix.

CPPCUDA_EXPECTED_LIBRARY  the library that must be loaded, if not the installed package's own (a path).
CPPCUDA_SUPPORT_MATRIX    the JSON file for the outcomes per operator and capability. Works under xdist.
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import cppcuda
import hypothesis
import pytest
import setuptools  # noqa: F401  (must precede distutils, which it replaces; inductor imports distutils first)
import torch
from op_samples import OpEntry, register_all

register_all()  # tests are parametrised over the table when they are collected

# In the order of the printed matrix.
CAPABILITIES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "strides",
    "empty",
    "backward",
    "double backward",
    "forward AD",
    "vmap",
    "torch.func",
    "compile",
    "compiled autograd",
    "export",
    "AOTInductor",
    "TorchScript",
    "autocast",
    "meta",
    "DTensor",
)

# The rows that test a transform of torch. With --reduced, they run for one operator per mechanism.
TRANSFORMS = {"vmap", "torch.func", "compile", "compiled autograd", "export", "AOTInductor", "TorchScript", "DTensor"}

# These are about torch's own plans, not about anything that a test does wrong.
TORCH_DEPRECATIONS = (
    r"ignore:`torch\.jit\.\w+` is (deprecated|not supported in Python):DeprecationWarning",
    r"ignore:`torch\.jit\.\w+` is (deprecated|not supported in Python):FutureWarning",
)

hypothesis.settings.register_profile("cppcuda", deadline=None, derandomize=True, max_examples=60, database=None)
hypothesis.settings.load_profile("cppcuda")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--reduced",
        action="store_true",
        help="for a second version of torch: skips the tests marked any_torch, and runs the tests of transforms "
        "for one operator per mechanism",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: needs gigabytes of memory or minutes (deselect with -m 'not slow')")
    config.addinivalue_line("markers", "any_torch: does not depend on the version of torch (deselected by --reduced)")
    config.addinivalue_line("markers", "large: fills a GPU's memory, so these tests run one at a time")
    config.addinivalue_line(
        "markers", "capability(name): a row of the support matrix, for the operator that `entry` names"
    )
    for line in TORCH_DEPRECATIONS:
        config.addinivalue_line("filterwarnings", line)
    expected = os.environ.get("CPPCUDA_EXPECTED_LIBRARY")
    if expected and not cppcuda.library_path().samefile(expected):
        raise pytest.UsageError(f"the library under test is {cppcuda.library_path()}, expected {expected}")


def pytest_report_header() -> str:
    return f"cppcuda: {cppcuda.library_path()}, torch {torch.__version__}"


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


# ---------------------------------------------------------------- support matrix

_outcomes: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))


def is_reduced_away(item: pytest.Item) -> bool:
    """Whether a run with --reduced skips a test."""
    if item.get_closest_marker("any_torch"):
        return True
    params = getattr(item, "callspec", None)
    entry = params and params.params.get("entry")
    rows = {name for mark in item.iter_markers("capability") for name in mark.args}
    return isinstance(entry, OpEntry) and not entry.represents_mechanism and bool(rows & TRANSFORMS)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--reduced"):
        config.hook.pytest_deselected(items=[item for item in items if is_reduced_away(item)])
        items[:] = [item for item in items if not is_reduced_away(item)]
    for item in items:
        params = getattr(item, "callspec", None)
        entry = params and params.params.get("entry")
        if not entry:
            continue
        names = [name for mark in item.iter_markers("capability") for name in mark.args]
        if "dtype" in params.params and "dtype" in names:
            names[names.index("dtype")] = str(params.params["dtype"]).removeprefix("torch.")
        for name in names:
            assert name in CAPABILITIES, f"{item.nodeid}: unknown capability {name!r}"
            # user_properties are part of the report, also of one from an xdist worker.
            item.user_properties.append(("capability", [entry.name, name]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A test that passes has a "call" report; one that fails or is skipped during setup has none.
    if report.when == "call" or (report.when == "setup" and not report.passed):
        for key, value in report.user_properties:
            if key == "capability":
                op, capability = value
                _outcomes[op][capability][report.outcome] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("CPPCUDA_SUPPORT_MATRIX")
    if not path or hasattr(session.config, "workerinput"):
        return
    matrix = {"torch": torch.__version__, "capabilities": CAPABILITIES, "operators": _outcomes}
    Path(path).write_text(json.dumps(matrix, indent=2) + "\n")
