"""Child processes of a process that has run operators on several threads behave as docs/performance.md promises.

A forked child that uses several threads hangs, as with torch's own operators; no test waits for that.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run_parent(*args: object) -> None:
    command = [sys.executable, str(Path(__file__).with_name("child_processes.py")), *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("method", "threads"), [("fork", 1), ("spawn", 4), ("forkserver", 4)])
def test_process(method: str, threads: int, tmp_path: Path) -> None:
    run_parent("process", method, threads, tmp_path / "results.pt")


def test_worker_of_data_loader() -> None:
    """This needs no setting, because torch gives each worker one thread."""
    run_parent("data_loader")
