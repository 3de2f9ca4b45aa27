"""benchmarks/bench.py: its statistics, errors for wrong results, and a run that is too short to measure anything."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import bench  # noqa: E402
import targets  # noqa: E402
import timing  # noqa: E402


def samples(*seconds: float, switches: tuple[int, ...] = ()) -> timing.Samples:
    return timing.Samples(1, list(seconds), list(switches or (0,) * len(seconds)))


def test_preempted_samples_are_dropped() -> None:
    assert timing.kept([0, 4, 0, 0, 1]) == [0, 2, 3]
    preempted = samples(1, 90, 2, 3, 80, switches=(0, 4, 0, 0, 1))
    result = timing.summary(preempted)
    assert (result["min"], result["median"], result["kept"], result["kept_though_preempted"]) == (1, 2, 3, 0)
    assert result["samples"] == [1, 90, 2, 3, 80]


def test_some_samples_are_kept_though_preempted() -> None:
    assert timing.kept([9, 0, 5, 1, 7]) == [1, 2, 3]
    assert timing.kept([2, 3]) == [0, 1]
    assert timing.kept([5, 4, 9, 8, 1, 2, 3, 7]) == [1, 4, 5, 6]
    assert timing.summary(samples(1, 2, 3, switches=(5, 0, 5)))["kept_though_preempted"] == 2


def test_ratio_is_taken_round_by_round() -> None:
    # The machine was three times slower in the last two rounds: a ratio of medians would say 2 / 3.
    median, quartiles = timing.ratio(samples(2, 2, 2, 6, 6), samples(1, 1, 3, 3, 3))
    assert median == 2 and quartiles == [2, 2]


def test_ratio_drops_rounds_in_which_either_was_preempted() -> None:
    peer = samples(2, 2, 2, 40, 2, switches=(0, 0, 0, 3, 0))
    ours = samples(1, 1, 1, 1, 50, switches=(0, 0, 0, 0, 2))
    assert timing.ratio(peer, ours) == (2, [2, 2])


def test_measure_takes_turns() -> None:
    called = []
    contestants = {name: lambda name=name: called.append(name) for name in "ab"}
    result = timing.measure(contestants, rounds=4, budget=0, sample_seconds=0)
    assert all(len(s.seconds) == len(s.switches) == timing.MINIMUM for s in result.values())
    # In each turn, the first call warms up and the second one is measured.
    turns = ["".join(called[i : i + 4]) for i in range(len(called) - 4 * timing.MINIMUM, len(called), 4)]
    assert set(turns) <= {"aabb", "bbaa"}


def test_wrong_results_are_errors() -> None:
    right = torch.randn(3000, 1000)
    bench.compare("peer", (right + 1e-6,), (right,))
    wrong = right.clone()
    wrong[-1, -1] += 1
    with pytest.raises(AssertionError, match="peer differs from cppcuda"):
        bench.compare("peer", (wrong,), (right,))
    with pytest.raises(AssertionError, match="peer differs from cppcuda"):
        bench.compare("peer", (torch.full_like(right, torch.nan),), (right,))
    with pytest.raises(AssertionError, match="shapes differ"):
        bench.compare("peer", (right,), (right, right))
    with pytest.raises(AssertionError, match="shapes differ"):
        bench.compare("peer", (right[0],), (right,))


def test_wrong_peer_is_an_error_and_a_failing_one_is_reported() -> None:
    def fail(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("cannot")

    def case(**peers: object) -> object:
        ours = bench.Contestant(torch.sin)
        contestants = {"cppcuda": ours, **{n: bench.Contestant(f) for n, f in peers.items()}}
        return bench.Case("sin", "backward", "8", 8, lambda device: (torch.randn(8),), contestants)

    options = bench.argparse.Namespace(device="cpu", compile=False, quick=False, rounds=1, budget=0)
    threads = torch.get_num_threads()
    try:
        row = bench.run(case(same=torch.sin, broken=fail), torch.device("cpu"), options)
        with pytest.raises(AssertionError, match="wrong differs"):
            bench.run(case(wrong=torch.cos), torch.device("cpu"), options)
    finally:
        torch.set_num_threads(threads)
    assert set(row["contestants"]) == {"cppcuda", "same"} and row["failed"] == {"broken": "ValueError: cannot"}
    assert any("broken" in line and "FAILED" in line for line in bench.lines(row, 10))


# A worker that reports its first case, one that fails, one that crashes the process, and the last one.
WORKER = """
import json, os, sys
say = lambda what: print(json.dumps(what), flush=True)
row = lambda i, **failed: say({"name": f"case {i}", "failed": failed})
say("machine")
for i in range(int(sys.argv[sys.argv.index("--begin") + 1]), 4):
    say(i)
    if i == 1:
        row(i, cppcuda="wrong")
        sys.exit(1)
    if i == 2:
        os.abort()
    row(i)
"""


def test_cases_after_one_that_fails_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)
    mine = list(bench.gpu_cases(tiny=True))[:4]
    monkeypatch.setattr(bench, "__file__", str(worker))
    monkeypatch.setattr(bench, "cases_of", lambda *args: mine)
    options = bench.argparse.Namespace(tiny=False, seconds=60, device="cuda")
    about, first, wrong, crashed, last = bench.results_of("default", options)
    assert about == "machine" and not first["failed"] and not last["failed"]
    assert wrong["failed"] == {"cppcuda": "wrong"}
    assert crashed["name"] == mine[2].name and "ended with status -6" in crashed["failed"]["cppcuda"]


def test_a_worker_that_cannot_begin_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "worker.py"))
    monkeypatch.setattr(bench, "cases_of", lambda *args: list(bench.gpu_cases(tiny=True)))
    with pytest.raises(SystemExit, match="ended with status 3"):
        list(bench.results_of("default", bench.argparse.Namespace(tiny=False, seconds=None, device="cuda")))


def test_cases_of_earlier_calls_are_skipped(tmp_path: Path) -> None:
    names = [case.name for case in bench.gpu_cases(tiny=True, part="others")]
    (tmp_path / "done.json").write_text(json.dumps(names[:5]))
    options = bench.argparse.Namespace(
        device="cuda", tiny=True, part="others", quick=False, case="", own=False, again=False
    )
    options.skip = tmp_path / "done.json"
    assert [case.name for case in bench.selected(options)] == names[5:]


def test_failed_cases_are_the_exit_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = next(c for c in bench.gpu_cases(tiny=True) if targets.targeted_peers(c.key, "cuda"))
    row = bench.failed_row(case, "AssertionError: differs\nby much", "cuda")
    about = dict.fromkeys(("commit", "uncommitted_changes", "torch", "gpu"), False)
    monkeypatch.setattr(bench, "results_of", lambda *args: iter([about, row]))
    file = tmp_path / "bench.json"
    pattern = f"^{bench.re.escape(case.name)}$"
    monkeypatch.setattr(sys, "argv", ["bench.py", "--tiny", "--case", pattern, "--json", str(file)])
    with pytest.raises(SystemExit, match=f"1 of 1 cases FAILED: {bench.re.escape(case.name)}"):
        bench.main()
    printed = capsys.readouterr().out
    assert "FAILED: AssertionError: differs\n" in printed and "not measured" in printed
    assert json.loads(file.read_text())["rows"] == json.loads(json.dumps([row]))


@pytest.mark.parametrize(("late", "spins"), [(0, 1), (2, 3), (9, 4)])
def test_samples_of_a_gpu_that_waited_are_taken_again(monkeypatch: pytest.MonkeyPatch, late: int, spins: int) -> None:
    gpu_timing = pytest.importorskip("gpu_timing", exc_type=ImportError)
    slept: list[int] = []

    class Event:
        def __init__(self, **kwargs: object) -> None: ...

        def record(self) -> None: ...

        def synchronize(self) -> None: ...

        def query(self) -> bool:
            return len(slept) <= late

        def elapsed_time(self, end: object) -> float:
            return 3.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", slept.append)
    calls: list[int] = []
    seconds = gpu_timing._sample([lambda: calls.append(1)], 3, 1e-3, torch.device("cuda"))
    assert seconds == pytest.approx(1e-3) and len(slept) == spins and len(calls) == 3 * spins
    assert slept == sorted(set(slept))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_target_has_cases(device: str) -> None:
    cases = list(bench.cases() if device == "cpu" else bench.gpu_cases())
    assert len({case.name for case in cases}) == len(cases)
    if device == "cuda":
        cases += bench.gpu_cases(part="compiled")
    for target in targets.TARGETS[device]:
        chosen = [case for case in cases if target.selects(case.key)]
        assert chosen, target
        if target.against == "torch.compile":
            assert any(case.plain for case in chosen), target
        elif target.against not in (targets.STREAM, targets.PRODUCTS):
            assert any(target.against in case.contestants for case in chosen), target


def test_target_counts_by_its_worst_case() -> None:
    target = next(t for t in targets.TARGETS["cpu"] if t.text == "sigmoid, any smaller size")
    keys = [case.key for case in bench.cases() if target.selects(case.key)]

    def evaluated(ratios: list[float]) -> tuple[dict[str, Any], str]:
        rows = []
        for key, ratio in zip(keys, ratios, strict=False):
            calm = {"ratio": ratio, "ratio_quartiles": [ratio, ratio], "kept_though_preempted": 0}
            rows.append(key | {"contestants": {"cppcuda": calm, "torch.sigmoid": calm}})
        (result,) = targets.evaluate(rows, keys, "cpu")
        return result, *bench.target_lines([result])

    most, worst = [2.0] * (len(keys) - 1), keys[-1]["name"]
    result, line = evaluated([*most, 1.0])
    assert result["holds"] and result["case"] == worst and "holds" in line
    result, line = evaluated([*most, 0.99])
    assert not result["holds"] and result["measured"] == 0.99 and result["case"] == worst and "MISSED" in line
    result, line, *missed = evaluated([0.9, *most[1:], 0.8])
    assert result["case"] == worst and ["0.90" in missed[0], "0.80" in missed[1]] == [True, True]
    result, line = evaluated(most)
    assert not result["holds"] and "not all measured" in line
    result, line = evaluated([])
    assert not result["holds"] and "not measured" in line


MOVED = [
    case
    for case in bench.gpu_cases(tiny=True)
    # The bytes of lltm_cell are those of the pointwise part, and lltm has products. The others read rows of a table
    # several times.
    if case.op not in ("lltm_cell", "lltm", "trilinear_indexed", "grid_sample3d", "hash_grid")
]


@pytest.mark.parametrize("case", MOVED, ids=lambda case: case.name)
def test_bytes_are_those_of_the_tensors(case: bench.Case) -> None:
    inputs = case.inputs(torch.device("cpu"))
    size_of = lambda tensors: sum(t.nbytes for t in tensors)  # noqa: E731
    out = size_of(bench.as_tuple(case.contestants["cppcuda"].call(*inputs)))
    if case.mode == "forward":
        assert case.bytes == (size_of(inputs), out)
    else:
        # The backward of upsample_bilinear2d, which is linear, does not read the inputs.
        read = out if case.op == "upsample_bilinear2d" else out + size_of(inputs)
        assert case.bytes == (read, size_of(inputs))


GATHER = """
import torch, gather, peers
for shape, factor in (((2, 3, 4, 5), 2), ((1, 8, 3, 2), 4), ((1, 2, 1, 1), 2)):
    for layout in (torch.contiguous_format, torch.channels_last):
        for dtype, rtol in ((torch.float32, 1e-5), (torch.bfloat16, 8e-3)):
            x = torch.randn(shape).to(dtype).to(memory_format=layout).requires_grad_()
            grad = torch.randn(*shape[:2], factor * shape[2], factor * shape[3]).to(dtype)
            exact = x.detach().double().requires_grad_()
            wanted = torch.nn.functional.interpolate(exact, scale_factor=factor, mode="bilinear", align_corners=False)
            (expected,) = torch.autograd.grad(wanted, exact, grad.double())
            (actual,) = torch.autograd.grad(gather.upsample(x, factor), x, grad)
            assert actual.stride() == x.stride()
            torch.testing.assert_close(actual.double(), expected, rtol=rtol, atol=1e-5)
            if dtype == torch.float32:
                out = peers.grid_sample_upsample(x, factor)
                torch.testing.assert_close(out.double(), wanted, rtol=1e-5, atol=1e-5)
"""


ROWS = """
import gather, peers, torch
# Two dense levels and two hashed ones.
grid = peers.HashGrid(4, 9, 4, 2.0)
levels = [(v.scale, v.resolution, v.first_row, v.is_hashed * v.rows) for v in grid.levels]
assert [bool(hashed) for *_, hashed in levels] == [False, False, True, True]
points = 0.8 * torch.rand(37, 3)  # inside of the last vertices
rows = torch.stack([row for row, _ in grid.corners(points)], 2)
count = levels[-1][2] + 512
for features in (2, 8):
    table, out = torch.randn(count, features), torch.full((37, 4, features), torch.nan)
    gather.rows(table, points, out, levels)
    torch.testing.assert_close(out, table[rows].sum(2))
    sums, grads = torch.zeros_like(table), out.unsqueeze(2).expand(-1, -1, 8, -1)
    gather.rows(sums, points, out, levels, add=True)
    torch.testing.assert_close(sums, torch.zeros_like(table).index_add_(0, rows.flatten(), grads.flatten(0, 2)))
    corners, out = torch.randint(count, (37, 8)), torch.full((37, 1, features), torch.nan)
    gather.rows(table, points, out, ((0, 0, 0, 0),), corners)
    torch.testing.assert_close(out[:, 0], table[corners].sum(1))
"""


# The interpreter does not show whether the kernel compiles, nor whether it is as good as its description.
GATHER_PTX = r"""
import re, gather
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
names = gather._gather.arg_names
for dtype, itemsize in (("fp32", 4), ("bf16", 2)):
    for channels_last in (False, True):
        constants = {"factor": 2, "channels_last": channels_last, "block": gather.block_size(itemsize, channels_last)}
        types = dict.fromkeys(names, "i32") | dict.fromkeys(("grad", "out"), "*" + dtype)
        divisible = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name not in constants}
        source = ASTSource(gather._gather, types | dict.fromkeys(constants, "constexpr"), constants, divisible)
        ptx = compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
        accesses = re.findall(r"(?:ld|st)\.global\S*?((?:\.v\d)?\.b\d+)", ptx)
        assert accesses == [".v4.b32" if channels_last else f".b{8 * itemsize}"] * 17, (dtype, accesses)
        assert not re.search(r"(div|rem)\.[su]64", ptx), dtype  # a function of many instructions
"""


@pytest.mark.parametrize(
    ("script", "interprets"), [(GATHER, "1"), (GATHER_PTX, "0"), (ROWS, "1")], ids=["upsample", "code", "rows"]
)
def test_peers_on_a_gpu(script: str, interprets: str) -> None:
    pytest.importorskip("triton")
    environment = os.environ | {"TRITON_INTERPRET": interprets, "PYTHONPATH": str(BENCHMARKS)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_stream_is_scaled_to_the_bytes(monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """The stream moves whole lines or blocks, and therefore slightly more or fewer bytes than the operator."""
    bytes_of = (3 * 10**6 + 50, 10**6 + 7)
    contestants = {"cppcuda": bench.Contestant(torch.sin)}
    regime = targets.GPU_TIME if device == "cuda" else "default"
    case = bench.Case("sin", "forward", "8", 8, lambda device: (), contestants, bytes=bytes_of, regime=regime)

    def measure(calls: dict[str, Any], **kwargs: Any) -> dict[str, timing.Samples]:
        return {name: samples(1, 1, 1) for name in calls}

    if device == "cuda":
        gpu_timing = pytest.importorskip("gpu_timing", exc_type=ImportError)
        stream = gpu_timing.Stream(*gpu_timing.mix(*bytes_of), sum(bytes_of), 1, torch.device("cpu"))
        monkeypatch.setattr(gpu_timing, "stream_of", lambda *args: stream)
        monkeypatch.setattr(gpu_timing, "measure", measure)
        moved = stream.bytes
    else:
        monkeypatch.setattr(bench, "caches", dict)
        monkeypatch.setattr(bench, "measure", measure)
        moved = bench.Stream(*bytes_of).bytes
    options = bench.argparse.Namespace(device=device, rounds=1, budget=0)
    result = bench.measured(case, {"cppcuda": [torch.sin]}, torch.device("cpu"), options)
    assert result[targets.STREAM].seconds == [sum(bytes_of) / moved] * 3
    assert moved != sum(bytes_of) and abs(moved / sum(bytes_of) - 1) < 0.05


def test_stream_reads_and_writes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = bench.Stream(300_000, 100_000)
    stream.check(2)
    monkeypatch.setattr(stream, "call", lambda ahead, threads: lambda: None)
    with pytest.raises(AssertionError, match="stream"):
        stream.check(2)


def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plots = importlib.import_module("plots")
    contestant = {"median": 1e-3, "quartiles": [1e-3, 2e-3], "ratio": 0.5, "ratio_quartiles": [0.4, 0.6]}
    rows = [
        case.key | {"targeted": True, "contestants": dict.fromkeys([*case.contestants, targets.STREAM], contestant)}
        for case in bench.cases()
        if bench.targeted_peers(case.key, "cpu") and not case.op.startswith("trilinear")
    ]
    plots.draw(rows, "title", tmp_path)
    names = {"roofline", "time_forward", "time_backward"}
    groups = ("elementwise", "points", "rows", "grid_sample3d", "hash_grid", "upsample", "lltm")
    names |= {f"ratio_{group}" for group in groups}
    assert {path.stem for path in tmp_path.glob("*.png")} == names


def run_bench(file: Path, *options: str) -> tuple[Any, subprocess.CompletedProcess[str]]:
    """Runs one round of each case. Returns the file that it wrote, and the finished process."""
    command = [sys.executable, str(BENCHMARKS / "bench.py"), "--rounds", "1", "--no-compile", "--json", str(file)]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}  # other tests run at the same time
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True, env=environment)
    return json.loads(file.read_text()), done


def test_run(tmp_path: Path) -> None:
    pattern = r"^(quick_gelu forward 2\^10|lltm_cell both 16/32/128) float32 (default|out)$"
    result, done = run_bench(tmp_path / "bench.json", "--case", pattern, "--budget", "0")
    rows = {row["name"]: row for row in result["rows"]}
    assert set(rows) == {f"quick_gelu forward 2^10 float32 {r}" for r in ("default", "out")} | {
        "lltm_cell both 16/32/128 float32 default"
    }
    for name, row in rows.items():
        assert not row["failed"] and name in done.stdout and name in done.stderr
        assert row["contestants"]["eager"]["ratio"] > 0 and len(row["contestants"]["cppcuda"]["samples"]) == 1
    assert "ratio" not in rows["lltm_cell both 16/32/128 float32 default"]["contestants"]["nn.LSTMCell"]
    assert {"cpu", "caches", "transparent_hugepage", "cpu_capability", "torch", "commit"} <= set(result["machine"])
    eager, compiled = result["targets"]
    assert eager["target"] in done.stdout and eager["holds"] == (eager["measured"] >= eager["at_least"])
    assert compiled["against"] == "torch.compile" and "not measured" in done.stdout
