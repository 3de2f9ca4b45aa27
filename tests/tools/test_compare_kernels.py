"""tools/compare_kernels.py: what counts as the same code, and what counts as different code."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
if not shutil.which("c++") or not shutil.which("objdump"):
    pytest.skip("no compiler", allow_module_level=True)
sys.path.insert(0, str(TOOLS))
from compare_kernels import cpu_functions, differences  # noqa: E402

SUM = """
double {name}(const double* x, int n) {{
  double sum = {start};
  for (int i = 0; i < n; ++i) sum += x[i] > 1 ? x[i] : {factor} * x[i];
  return sum;
}}
"""


def functions(folder: Path, *sources: str) -> dict[str, list[str]]:
    folder.mkdir()
    (folder / "kernel.cpp").write_text("".join(sources))
    subprocess.run(["c++", "-O2", "-c", "kernel.cpp", "-o", "kernel.o"], cwd=folder, check=True)
    return cpu_functions([folder / "kernel.o"])


def test_moved_and_renamed_functions_are_the_same(tmp_path: Path) -> None:
    other = "int next(int i) { return i + 1; }\n"
    before = functions(tmp_path / "before", SUM.format(name="total", start=0, factor=2.5))
    after = functions(tmp_path / "after", other, SUM.format(name="sum_of", start=0, factor=2.5))
    gone, added = differences(before, after)
    assert gone == [] and len(added) == 1 and "next" in added[0]


def test_other_code_is_found(tmp_path: Path) -> None:
    before = functions(tmp_path / "before", SUM.format(name="total", start=0, factor=2.5))
    after = functions(tmp_path / "after", SUM.format(name="total", start="x[0]", factor=2.5))
    gone, added = differences(before, after)
    assert len(gone) == len(added) == 1 and "total" in gone[0]


def test_duplicate_functions_count_twice() -> None:
    before, after = {"a": ["ret"], "b": ["ret"]}, {"c": ["ret"]}
    assert differences(before, after) == (["b"], [])
    assert differences(after, before) == ([], ["b"])


def test_unreadable_files_are_not_a_difference(tmp_path: Path) -> None:
    """The exit status is 2; a status of 1 would mean that code differs."""
    command = [sys.executable, str(TOOLS / "compare_kernels.py"), str(tmp_path), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("error: ")
