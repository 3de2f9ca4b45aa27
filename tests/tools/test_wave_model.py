"""tools/wave_model.py, with a stand-in for the program that makes the calls. scripts/test runs the model itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from support import load_script

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
model = load_script(TOOLS / "wave_model.py")
sys.path.insert(0, str(TOOLS.parent / "benchmarks"))
import cases  # noqa: E402

# A stand-in for cppcuda_launches. Forward launches as many blocks as the GPU holds, and backward twice as many. Until
# the program is told that number, it asks for it.
PROGRAM = """#!/usr/bin/env python3
import os, sys
known = dict(line.split("=") for line in open(os.environ["CPPCUDA_SIMT_RESIDENT"]).read().split("\\n") if line)
with open(os.environ["CPPCUDA_SIMT_LAUNCHES"], "w") as out:
    for line in sys.stdin:
        blocks = int(known.get("1f 128 64", 1))
        if not known:
            print("? 1f 128 64", file=out)
        print(f"1f {blocks} 128 64 4096\\n", file=out)
        if line.startswith("backward"):
            print(f"1f {2 * blocks} 128 64\\n", file=out)
"""


def test_launch_rules_get_answers(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text(PROGRAM)
    path.chmod(0o755)
    asked = []

    def resident_blocks(*kernel: object) -> int:
        asked.append(kernel)
        return 396

    program = model.Program(sys.executable, resident_blocks)  # any program with symbols
    program.path, program.symbols = path, {0x1F: "kernel"}
    launch = model.Launch("kernel", 396, 128, 64, 4096)
    twice = launch._replace(blocks=2 * 396, bytes_read=0)
    assert list(program.launches(["forward a", "backward b"])) == [([launch], []), ([launch], [twice])]
    assert set(asked) == {("kernel", 128, 64)}


def test_calls_of_cases() -> None:
    lines = {case.name: model.call_of(case) for case in cases.gpu_cases(tiny=True)}
    name = "upsample_bilinear2d backward 1x8x2x2 float32 channels_last gpu"
    assert lines[name] == "backward cppcuda::upsample_bilinear2d float32:1x8x2x2:32x1x16x8 [4,4]"
    name = "trilinear forward 8x256 bfloat16 gpu"
    assert lines[name] == "forward cppcuda::trilinear bfloat16:8x8x256:2048x256x1 float32:8x3:3x1"
    name = "trilinear_indexed forward 64x2 of 4^3 float32 gpu"
    assert lines[name] == "forward cppcuda::trilinear_indexed float32:64x2:2x1 int64:64x8:8x1 float32:64x3:3x1"
    assert lines["hash_grid backward 64x4 float32 gpu"].endswith(" float32:64x3:3x1 2 2 19 16 1.3819129")
    assert sum(line.startswith("backward") for line in lines.values()) > len(lines) / 3
    assert not any(t.is_meta for t in next(cases.flagship_cases(tiny=True)).inputs(torch.device("cpu")))


def test_a_missing_library(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert model.main([str(tmp_path / "none.so"), str(tmp_path / "program")]) == 2
    assert capfd.readouterr().err.startswith("wave_model: ")
