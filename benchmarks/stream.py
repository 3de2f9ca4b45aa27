"""Compiles stream.cpp for this machine, and runs it with an operator's size and mix of reads and writes."""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from pathlib import Path

import torch

LINE = 64  # bytes
# In lines, 0 for none. All are measured and the best one counts; otherwise an operator could beat its roofline.
PREFETCH_DISTANCES = (0, 8, 32, 128)


@cache
def _library() -> ctypes.CDLL:
    source = Path(__file__).with_name("stream.cpp")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "stream.so"
        options = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-Wno-psabi"]
        subprocess.run([os.environ.get("CXX", "c++"), *options, str(source), "-o", str(library)], check=True)
        # torch has loaded its own libgomp before, so that all contestants share one pool of threads.
        return ctypes.CDLL(str(library))


class Stream:
    """Buffers with about the given numbers of bytes, in whole lines. They are allocated like inputs, and touched."""

    def __init__(self, read: int, written: int) -> None:
        mix = Fraction(read, written).limit_denominator(9)
        self.reads, self.writes = mix.numerator, mix.denominator
        self.blocks = max(1, (read + written) // ((self.reads + self.writes) * LINE))
        self.bytes = self.blocks * (self.reads + self.writes) * LINE
        self.source = torch.arange(self.blocks * self.reads * LINE // 8)
        self.target = torch.zeros(self.blocks * self.writes * LINE // 8, dtype=torch.int64)

    def call(self, distance: int, threads: int) -> Callable[[], None]:
        return partial(
            _library().stream,
            ctypes.c_void_p(self.source.data_ptr()),
            ctypes.c_void_p(self.target.data_ptr()),
            ctypes.c_int64(self.blocks),
            self.reads,
            self.writes,
            distance,
            threads,
        )

    def check(self, threads: int) -> None:
        """Raises an error unless stream.cpp reads and writes all of the buffers."""
        self.target.fill_(-1)
        self.call(PREFETCH_DISTANCES[-1], threads)()
        sums = self.source.view(self.blocks, self.reads, -1).sum(1, keepdim=True)
        if not torch.equal(self.target.view(self.blocks, self.writes, -1), sums.expand(-1, self.writes, -1)):
            raise AssertionError("stream.cpp does not read and write what it should")
