"""scripts/check_ops says in plain words which parts of an operator are missing. scripts/test runs it for cppcuda."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_ops.py"
if not SCRIPT.is_file():
    pytest.skip("not in a source tree", allow_module_level=True)
pytest.importorskip("onnxscript")

pytestmark = pytest.mark.any_torch


def check(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_missing_parts() -> None:
    """The folders of cppcuda have no files for the operators of another library."""
    library = os.environ.get("CPPCUDA_SECOND_LIBRARY")
    if not library:
        pytest.skip("CPPCUDA_SECOND_LIBRARY is not set (scripts/test sets it)")
    status, text = check("--library", library, "--namespace", "second", "swish")
    assert status == 1
    for line in (
        "C++      MISSING: no public header include/cppcuda/ops/swish.h",
        "Python   MISSING: no function swish in python/cppcuda/functional.py, or it is not in __all__",
        "module   MISSING: no module in python/cppcuda/nn.py",
        "samples  MISSING: no entry for swish in tests/python/samples",
        "ONNX     no translation",
        "DTensor  ...->... ...",
        "support  MISSING: no column in docs/support.md",
    ):
        assert line in text, text


def test_no_such_operator() -> None:
    status, text = check("nonsense")
    assert status == 2 and "no operator nonsense in cppcuda: " in text and ", lltm_cell, quick_gelu, " in text
