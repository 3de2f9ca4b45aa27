"""The pytest plugin of the suite: its parameters, and the support matrix. ``cppcuda_pytest`` has its options."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from pathlib import Path

import pytest

try:
    import setuptools  # noqa: F401  (must precede distutils, which it replaces; inductor imports distutils first)
except ImportError:
    pass

pytest.register_assert_rewrite("cppcuda.testing.properties", "cppcuda.testing.compare")

import cppcuda  # noqa: E402
import cppcuda.testing.properties  # noqa: E402
from cppcuda.testing.matrix import Matrix  # noqa: E402
from cppcuda.testing.registry import PROPERTIES, ROWS, causes  # noqa: E402
from cppcuda.testing.samples import OPS  # noqa: E402

pytest_plugins = ("cppcuda_pytest",)

# These are about torch's own plans, not about anything that a test does wrong.
TORCH_DEPRECATIONS = (
    r"ignore:`torch\.jit\.\w+` is (deprecated|not supported in Python):DeprecationWarning",
    r"ignore:`torch\.jit\.\w+` is (deprecated|not supported in Python):FutureWarning",
)

_matrix = Matrix()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "capability(name): a row of the support matrix, for the operator that `entry` names"
    )
    config.addinivalue_line("markers", "compiles: runs a compiler (-m 'not compiles' leaves these out)")
    for line in TORCH_DEPRECATIONS:
        config.addinivalue_line("filterwarnings", line)
    modules = config.getoption("operators")
    if modules:
        sys.path.insert(0, str(config.invocation_params.dir))
    for module in modules:
        import_samples(module)


def import_samples(name: str) -> None:
    """Imports a module that registers operators."""
    before = len(OPS)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise pytest.UsageError(f"--operators: there is no module {name!r}") from None
        raise
    if len(OPS) == before:
        raise pytest.UsageError(f"--operators: the module {name!r} registers no operator (cppcuda.testing.register)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes one test of each property, operator and case."""
    if metafunc.definition.originalname != "test_operator":
        return
    if not OPS:
        raise pytest.UsageError(
            "cppcuda.testing: no operators to test; --operators names the module with their samples"
        )
    params = []
    one_namespace = len({entry.namespace for entry in OPS}) == 1
    full = metafunc.config.getoption("full")
    for check, entry in itertools.product(PROPERTIES, OPS):
        if check.internal or full or not entry.is_internal:
            for case in check.cases(entry):
                operator = entry.base_name if one_namespace else entry.name
                name = "-".join(filter(None, (check.name, operator, case.name)))
                marks = [pytest.mark.capability(row) for row in check.rows_of(case)]
                marks += [pytest.mark.compiles] * check.compiles
                params.append(pytest.param(check, entry, case, id=name, marks=marks))
    metafunc.parametrize(("check", "entry", "case"), params)


# ---------------------------------------------------------------- support matrix


@pytest.hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]  # before -k selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        params = getattr(item, "callspec", None)
        entry = params.params.get("entry") if params else None
        if entry is None:
            continue
        for mark in item.iter_markers("capability"):
            # user_properties are part of the report, also of one from an xdist worker.
            item.user_properties.append(("capability", [entry.name, mark.args[0]]))
            item.extra_keyword_matches.add(mark.args[0].replace(" ", "_"))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A test that passes has a "call" report; one that fails or is skipped during setup has none.
    if report.when == "call" or (report.when == "setup" and not report.passed):
        for key, value in report.user_properties:
            if key == "capability":
                assert isinstance(value, list)
                operator, row = value
                _matrix.add(operator, row, report.outcome)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("support_matrix") or os.environ.get("CPPCUDA_SUPPORT_MATRIX")
    if path and not hasattr(session.config, "workerinput"):
        _matrix.write(Path(path))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if terminalreporter.config.getoption("operators") and _matrix.operators:
        terminalreporter.section("support matrix")
        terminalreporter.write_line(_matrix.text())
        for operator, rows in _matrix.operators.items():
            for cause, others in causes(row for row in ROWS if rows[row]["failed"]).items():
                terminalreporter.write_line(f"{operator}: mend {cause} first; {', '.join(others)} may only repeat it")
    for entry in OPS:
        for row, reason in entry.skip.items():
            terminalreporter.write_line(f"{entry.name}: {row} is not checked: {reason}")
        if entry.template_files:
            files = ", ".join(entry.template_files)
            terminalreporter.write_line(
                f"{entry.name} still has the code of the kit's template in {files}", yellow=True
            )


def pytest_report_header() -> str:
    return f"cppcuda: {cppcuda.library_path()}"
