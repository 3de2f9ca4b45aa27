"""tools/count_instructions.py: how it parses its input, and what it decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import load_script

SCRIPT = Path(__file__).parents[2] / "tools" / "count_instructions.py"


counts = load_script(SCRIPT)


def loop(instructions: int, name: str = "a/forward") -> object:
    return counts.Loop(name, 64, instructions)


def test_program() -> None:
    printed = ["GCC 12 avx2 Release", "a/forward 4101", "b/backward/32 64"]
    assert counts.parse_program(printed) == ("GCC 12 avx2 Release", [("a/forward", 4101), ("b/backward/32", 64)])


def test_dump() -> None:
    text = "events: Ir\nsummary: 16552\n\nfn=(1096) main\ncalls=1 0 \n58 16552\n\ntotals: 16552\n"
    assert counts.parse_dump(text) == 16552
    with pytest.raises(counts.UncountedError, match="without a sum"):
        counts.parse_dump("events: Ir\n")


@pytest.mark.parametrize(
    ("instructions", "problem"),
    [
        (100, None),
        (105, None),
        (106, "106 instructions, more than its bound of 105"),
        (53, None),
        (52, "52 instructions, less than half of its bound of 105"),
        (0, "0 instructions, less than half of its bound of 105"),
    ],
)
def test_bounds(instructions: int, problem: str | None) -> None:
    assert counts.bound_for(100) == 105
    assert counts.problem_of(loop(instructions), {"a/forward": 105}) == problem


def test_loops_and_bounds_are_the_same_ones() -> None:
    problems = counts.problems_of([loop(100), loop(7, "new")], {"a/forward": 105, "gone": 3})
    assert problems == ["new: has no bound", "gone: has a bound, but was not counted"]


@pytest.mark.parametrize(
    ("compiler", "instructions", "status", "says"),
    [
        ("GCC 12 avx2 Release", 100, 0, "1 loops, GCC 12 avx2 Release: none out of bounds"),
        ("GCC 12 avx2 Release", 200, 1, "1 loops, GCC 12 avx2 Release: 1 out of bounds"),
        (
            "clang 19 avx2 Release",
            200,
            0,
            "1 loops, clang 19 avx2 Release: not compared (compilers with bounds: GCC 12 avx2 Release)",
        ),
    ],
)
def test_verdict(
    compiler: str,
    instructions: int,
    status: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bounds = tmp_path / "bounds.json"
    bounds.write_text(json.dumps({"GCC 12 avx2 Release": {"a/forward": 105}}))
    monkeypatch.setattr(counts, "count", lambda program: (compiler, [loop(instructions)]))
    assert counts.main(["program", "--bounds", str(bounds)]) == status
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == says
    assert f"{instructions / 64:.2f}" in printed.out

    # Recorded bounds hold, and the bounds of other compilers stay unchanged.
    assert counts.main(["program", "--bounds", str(bounds), "--record"]) == 0
    recorded = json.loads(bounds.read_text())
    assert set(recorded) == {"GCC 12 avx2 Release", compiler}
    assert recorded[compiler] == {"a/forward": instructions * 105 // 100}


def test_without_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counts.main([str(tmp_path / "none")]) == 2
    assert "error: " in capsys.readouterr().err
