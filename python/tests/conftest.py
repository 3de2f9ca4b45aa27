"""What all tests share: the library that is tested, warnings, and the support matrix.

CPPCUDA_EXPECTED_LIBRARY  the library that must be loaded, if not the installed package's own (a path).
CPPCUDA_SUPPORT_MATRIX    a file to write, in JSON, what passed per operator and capability. Works under xdist.
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
import setuptools  # noqa: F401  (it must come before distutils, which it replaces; inductor has them the other way round)
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

# The rows that are one test for each transform of torch: with --reduced they run for one operator per mechanism.
TRANSFORMS = {"vmap", "torch.func", "compile", "compiled autograd", "export", "AOTInductor", "TorchScript", "DTensor"}

# torch speaks of its own plans here, not of anything that a test does wrong.
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
        help="for a second version of torch: leaves out the tests marked any_torch, and runs those of transforms "
        "for one operator per mechanism",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: needs gigabytes of memory or minutes (deselect with -m 'not slow')")
    config.addinivalue_line("markers", "any_torch: does not depend on the version of torch (deselected by --reduced)")
    config.addinivalue_line("markers", "large: fills a GPU's memory, so one at a time")
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
    """Nothing compiled by an earlier test counts as a hit or as a recompile."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """After an error of CUDA nothing works in its process any more: xdist starts another one for the tests that are
    left, and reports a crash of this one."""
    if call.excinfo and "CUDA error" in call.excinfo.exconly() and "PYTEST_XDIST_WORKER" in os.environ:
        item.config.pluginmanager.getplugin("capturemanager").suspend(in_=True)
        print(f"FAILED {item.nodeid}: {call.excinfo.getrepr(style='short')}", file=sys.stderr, flush=True)
        os._exit(1)


# ---------------------------------------------------------------- support matrix

_outcomes: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))


def is_reduced_away(item: pytest.Item) -> bool:
    """Whether a run with --reduced leaves a test out."""
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
            # user_properties travel with the report, from xdist's workers too
            item.user_properties.append(("capability", [entry.name, name]))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A test that passes reports in "call"; one that fails or skips while it is set up never gets there.
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
