"""scripts/gpu_check: what happens after errors, and a rehearsal of all stages without a GPU and without a network.

CPPCUDA_REHEARSE=1  run the rehearsal, which takes minutes. .ci/run --full sets it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import load_script

TOOLS = Path(__file__).parents[2] / "tools"
gpu_check = load_script(TOOLS / "gpu_check.py")
sys.path.insert(0, str(TOOLS.parent / "benchmarks"))
import cases  # noqa: E402
import targets  # noqa: E402

# Prints what a GoogleTest program prints. It has six tests: the second fails, the third destroys the process's CUDA
# context, the fourth crashes.
GTEST = """#!/usr/bin/env python3
import os, sys
names = ["One.passes", "One.fails", "Two.breaks_cuda", "Two.crashes/0", "Two.crashes/1", "Two.is_skipped"]
if "--gtest_list_tests" in sys.argv:
    print("Running main()\\nOne.\\n  passes\\n  fails\\nTwo.")
    print("  breaks_cuda\\n  crashes/0  # GetParam() = 1\\n  crashes/1\\n  is_skipped")
    sys.exit()
broken = False
for name in [n for n in names if n in os.environ["GTEST_FILTER"].split(":")]:
    print("[ RUN      ]", name, flush=True)
    if name == "Two.crashes/0":
        os.abort()
    if name == "Two.is_skipped":
        print("[  SKIPPED ]", name, "(0 ms)", flush=True)
    elif name == "One.fails" or name == "Two.breaks_cuda" or broken:
        broken = broken or name == "Two.breaks_cuda"
        print("file.cpp:1: Failure\\n" + ("CUDA error: an illegal memory access" if broken else "1 is not 2"))
        print(f"[  FAILED  ] {name}, where GetParam() = 3 (1 ms)", flush=True)
    else:
        print(f"[       OK ] {name} (0 ms)", flush=True)
print("[  FAILED  ] One.fails\\n 1 FAILED TEST")
"""


def executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def stage(tmp_path: Path) -> Callable[..., Any]:
    def make(seconds: float = 60) -> Any:
        return gpu_check.Stage(tmp_path, time.monotonic() + seconds, dict(os.environ), {}, False)

    return make


def test_tests_after_an_error_run_in_a_new_process(stage: Callable[..., Any], tmp_path: Path) -> None:
    program = executable(tmp_path / "program", GTEST)
    names = gpu_check.gtest_names(program, dict(os.environ))
    assert names[-3:] == ["Two.crashes/0", "Two.crashes/1", "Two.is_skipped"] and len(names) == 6
    assert gpu_check.first_of_each_suite(names) == ["One.passes", "Two.breaks_cuda"]
    made = stage()
    gpu_check.run_gtest(made, [program], names, "log")
    assert list(made.results) == names
    assert made.results.pop("One.fails") == "file.cpp:1: Failure\n1 is not 2"
    assert "CUDA error: an illegal memory access" in made.results.pop("Two.breaks_cuda")
    assert made.results.pop("Two.crashes/0") == "the process ended with exit status -6"
    # In the process of Two.breaks_cuda they would have failed.
    assert set(made.results.values()) == {"passed"}
    # One process up to each of the two errors, and one for the rest.
    assert (tmp_path / "log").read_text().count("exit status") == 2


def test_a_program_without_tests_is_an_error(stage: Callable[..., Any], tmp_path: Path) -> None:
    program = executable(tmp_path / "program", "#!/bin/sh\necho 'libtorch.so: not found'; exit 127\n")
    with pytest.raises(RuntimeError, match=r"lists no tests:\nlibtorch\.so: not found"):
        gpu_check.gtest_names(program, dict(os.environ))
    with pytest.raises(RuntimeError, match="ran no test: exit status 127, see log"):
        gpu_check.run_gtest(stage(), [program], ["One.passes"], "log")


def test_what_hangs_is_ended(stage: Callable[..., Any], tmp_path: Path) -> None:
    program = executable(tmp_path / "program", "#!/bin/sh\necho '[ RUN      ] One.hangs'; sleep 60\n")
    made = stage(0.5)
    start = time.monotonic()
    gpu_check.run_gtest(made, [program], ["One.hangs"], "log")
    assert time.monotonic() - start < 10 and not made.results
    assert (tmp_path / "log").read_text().endswith("no time left\n")


def test_failures_are_named() -> None:
    results = {"a": "passed", "b": "1 is not 2", "c": "failed"}
    assert gpu_check.summary_of(results, 4) == "1 of 4 passed, FAILED: b, c"


# What the stages call on a machine with a GPU. ncu by default changes the clock rates; it does not know one of the
# metrics.
FAKES = {
    "compute-sanitizer": """
case "$*" in
  *--help*) echo " --kernel-name arg" ;;
  *" -c "*) echo "========= Invalid __global__ read of size 4 bytes" ;;
  *) exec "${@: -2}" ;;
esac""",
    "ncu": """
case " $* " in *" --clock-control none "*) ;; *) echo "the clocks would be locked"; exit 1 ;; esac
case "$*" in *lts__t_sectors_op_red*) echo "==ERROR== Failed to find metric lts__t_sectors_op_red.sum"; exit 1 ;; esac
while [ "$1" != --log-file ]; do shift; done
printf '%s\\n' '==PROF== Connected' \
  '"ID","Kernel Name","thread Domain:Push/Pop_Range:PL_Type","gpu__time_duration.sum"' '"","","","ns"' \
  '"0","void cppcuda::forward(P)","<default domain>:hash_grid forward 64x4 float32 gpu:none","900"' > "$2"
shift 2; exec "$@"
""",
    "nvidia-smi": """
while sleep 0.2; do echo "1980, 2619, 350.5, 45, 0x0000000000000004"; done""",
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu") / "bundle"
    command = [TOOLS / "gpu_bundle", "--as-built", "--emulated", "--out", folder]
    environment = os.environ | {"CPPCUDA_LOCKED": str(TOOLS.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if "has no cppcuda_emulated_tests" in done.stderr:
        pytest.skip("there are no emulated kernels")
    assert not done.returncode, done.stdout + done.stderr
    return folder


def rehearse(bundle: Path, folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    tools = folder / "tools"
    tools.mkdir(exist_ok=True)
    for name, text in FAKES.items():
        executable(tools / name, f"#!/bin/bash{text}\n")
    command = [bundle / "scripts/gpu_check", "--prebuilt", bundle, "--dry-run", "--minutes", "30", *options]
    if not subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode:
        command = ["unshare", "-rn", *command]  # no network
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CPPCUDA_") and k != "PYTHONPATH"}
    environment |= {"OUT": str(folder / "out"), "CPPCUDA_PYTHON": sys.executable, "OMP_WAIT_POLICY": "PASSIVE"}
    environment |= {"PATH": f"{tools}:{environment['PATH']}", "http_proxy": "http://localhost:1"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    file = folder / "out/results.json"
    return done.returncode, json.loads(file.read_text()) if file.exists() else {}, done.stdout + done.stderr


@pytest.mark.skipif("CPPCUDA_REHEARSE" not in os.environ, reason="CPPCUDA_REHEARSE=1 is not set")
def test_rehearsal(bundle: Path, tmp_path: Path) -> None:
    """Every stage runs. In the benchmark, all results are compared, and every stream kernel is checked."""
    pytest.importorskip("triton")
    status, results, printed = rehearse(bundle, tmp_path)
    stages = results["stages"]
    assert status == 0, printed
    assert list(stages) == list(gpu_check.FIRST)
    assert {entry["status"] for entry in stages.values()} == {"passed"}, printed
    assert "measured twice" in stages["flagship"]["line"]
    assert len(stages["smoke"]["results"]) == 4 and len(stages["ready"]["results"]) == 2
    assert stages["counters"]["line"] == "3 launches"
    counted = stages["counters"]["results"]["0 0"]
    assert counted["case"] == "hash_grid forward 64x4 float32 gpu" and counted["gpu__time_duration.sum"] == "900"
    assert stages["flagship"]["clocks"]["clocks.sm"] == [1980, 1980, 1980]
    assert stages["flagship"]["clocks"]["clocks_event_reasons.active"] == ["0x0000000000000004"]
    files = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert files == ["logs.tar.gz", "results.json", "summary.txt"]
    with tarfile.open(tmp_path / "out/logs.tar.gz") as archive:
        logs = set(archive.getnames())
    assert {
        "logs/gpu.csv",
        "logs/smoke/smoke-0.log",
        "logs/flagship/flagship.json",
        "logs/counters/counters-2.csv",
    } <= logs
    assert "smoke: passed" in (tmp_path / "out/summary.txt").read_text()

    # The second call repeats what failed, and goes on. Its library is compared with that of an earlier bundle.
    (failed, _), *rest = stages["smoke"]["results"].items()
    stages["smoke"] |= {"status": "FAILED", "results": {failed: "1 is not 2", **dict(rest)}}
    (tmp_path / "earlier.json").write_text(json.dumps(results))
    options = ("--resume", str(tmp_path / "earlier.json"), "--before", str(bundle))
    status, second, printed = rehearse(bundle, tmp_path, *options)
    assert status == 0, printed
    stages |= second["stages"]
    assert list(second["stages"]) == ["smoke", "before", "sanitizers", "compiled", "others", "tests"]
    assert {entry["status"] for entry in stages.values()} == {"passed"}, printed
    assert set(stages["smoke"]["results"]) == {failed, *dict(rest)}
    with tarfile.open(tmp_path / "out/logs.tar.gz") as archive:
        log = archive.extractfile("logs/smoke/smoke-0.log")
        assert log and log.read().decode().count("[ RUN ") == 1
    measured = {name: result for name, result in stages["flagship"]["results"].items() if "again" not in name}
    measured |= stages["others"]["results"]
    every = cases.gpu_cases(tiny=True)
    assert list(measured) == [case.name for case in every]
    rows = {"hash_grid", "grid_sample3d", "trilinear_indexed"}
    for case in every:
        memory_bound = case.regime == targets.GPU_TIME and case.bytes and case.op not in ("lltm_cell", *rows)
        assert (targets.STREAM in measured[case.name]) == bool(memory_bound)
        assert (targets.ROWS in measured[case.name]) == (case.op in rows)
        assert (targets.PRODUCTS in measured[case.name]) == (case.op == "lltm_cell" and case.mode != "both")
    assert set(stages["before"]["results"]) == {case.name for case in cases.gpu_cases(tiny=True, part="flagship")}
    assert list(stages["compiled"]["results"]) == [case.name for case in cases.gpu_cases(tiny=True, part="compiled")]
    assert len(stages["sanitizers"]["results"]) == 2 * 2 and len(stages["tests"]["results"]) == 2
    assert set(stages["sanitizers"]["results"].values()) == {"passed"}


def test_too_little_time(bundle: Path, tmp_path: Path) -> None:
    status, results, printed = rehearse(bundle, tmp_path, "--minutes", "0.3", "--only", "smoke", "--only", "counters")
    assert status == 1 and {entry["line"] for entry in results["stages"].values()} == {"no time left"}, printed


def test_without_a_gpu(bundle: Path, tmp_path: Path) -> None:
    command = [str(bundle / "tools/gpu_check.py"), "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    )
    assert done.returncode == 2 and done.stderr.startswith("gpu_check: no GPU that torch "), done.stderr
    assert not list(tmp_path.iterdir())


def test_folders_that_are_no_bundles(tmp_path: Path) -> None:
    done = subprocess.run([TOOLS.parent / "scripts/gpu_check", "--prebuilt", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == f"error: {tmp_path} was not made by tools/gpu_bundle\n"
    done = subprocess.run([TOOLS / "gpu_bundle", "--out", tmp_path], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == f"error: {tmp_path} exists and was not made by this script\n"
