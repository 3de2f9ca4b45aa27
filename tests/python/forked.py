"""Runs programs in processes that are forked from one that has imported torch, and not cppcuda.

A new interpreter takes seconds to import torch. This module imports little, because each process imports it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import traceback
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch"])


def _run(program: str, argv: list[str], paths: list[str], environment: dict[str, str], cwd: str, out: str) -> None:
    for stream in (1, 2):
        os.dup2(os.open(f"{out}.{stream}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))  # else read when the server starts
    os.chdir(cwd)
    sys.path[:0] = paths
    sys.argv = ["-c", *argv]
    try:
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    except Exception:
        traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


class Forked:
    """A program that runs in a forked process. What it prints is in ``out`` and ``err`` when it has ended."""

    def __init__(
        self,
        program: str,
        *arguments: object,
        paths: list[Path] | None = None,
        environment: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self._files = tempfile.mkdtemp() + "/output"
        given = (program, [str(a) for a in arguments], [str(p) for p in paths or []])
        target = (*given, environment or dict(os.environ), str(cwd or Path.cwd()), self._files)
        self.process: ForkServerProcess = _CONTEXT.Process(target=_run, args=target)
        self.process.start()

    def wait(self, check: bool = True) -> Forked:
        self.process.join(300)
        self.out, self.err = (Path(f"{self._files}.{stream}").read_text() for stream in (1, 2))
        assert not check or self.process.exitcode == 0, self.out + self.err
        return self


def run_forked(program: str, *arguments: object) -> str:
    """Runs a program, and returns what it printed."""
    return Forked(program, *arguments).wait().out
