"""scripts/lib.sh: which CUDA kernels are built, locking, and what a signal terminates. tools/mutations.py, and
tools/schema_coverage."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import load_script, tool

SCRIPTS = Path(__file__).parents[2] / "scripts"

Start = Callable[..., subprocess.Popen]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts bash code that uses lib.sh with a temporary folder as the source tree."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "lib.sh", tmp_path / "scripts")
    started: list[subprocess.Popen] = []

    def run(code: str, **variables: str) -> subprocess.Popen:
        hidden = ("CPPCUDA_WITH_CUDA", "TORCH_CUDA_ARCH_LIST", "CPPCUDA_LOCKED")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        code = f"source {tmp_path}/scripts/lib.sh; BUILD_DIR=$ROOT/build/test; {code}"
        process = subprocess.Popen(
            ["bash", "-c", code],
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            # If the tests were started in the background, they and their child processes may ignore SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.02)


# ---------------------------------------------------------------- CUDA


@pytest.mark.parametrize(
    ("gpus", "built", "arguments", "variables", "chosen"),
    [
        ("", "", "", {}, "OFF/"),  # scripts/demo
        ("", "", "9.0", {}, "AUTO/9.0"),  # scripts/test
        ("9.0 8.0 9.0", "", "", {}, "AUTO/8.0;9.0"),
        ("12.0 6.1", "", "9.0", {}, "AUTO/12.0"),
        ("6.1", "", "", {}, "OFF/"),
        ("", "13.2", "", {}, "AUTO/"),  # scripts/demo after scripts/test --all: CMake knows for which architectures
        ("", "13.2", "9.0", {}, "AUTO/"),
        ("8.0", "13.2", "", {}, "AUTO/8.0"),
        ("", "", "", {"TORCH_CUDA_ARCH_LIST": "7.5"}, "AUTO/7.5"),
        ("8.0", "", "9.0", {"TORCH_CUDA_ARCH_LIST": "7.5"}, "AUTO/7.5"),
        ("", "", "", {"CPPCUDA_WITH_CUDA": "ON"}, "ON/"),
        ("8.0", "13.2", "9.0", {"CPPCUDA_WITH_CUDA": "OFF"}, "OFF/"),
    ],
)
def test_which_cuda_kernels(
    start: Start, tmp_path: Path, gpus: str, built: str, arguments: str, variables: dict[str, str], chosen: str
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\n" + (f"printf '%s\\n' {gpus}\n" if gpus else "echo 'No devices were found'; exit 6\n"))
    smi.chmod(0o755)
    build = tmp_path / "build/test"
    (build / "cppcuda_generated").mkdir(parents=True)
    (build / "libcppcuda_kernels.so").touch()
    (build / "cppcuda_generated/_build.py").write_text(f'CUDA: str | None = "{built}" or None\n')
    code = f"choose_cuda {arguments}; echo ${{CPPCUDA_WITH_CUDA:-AUTO}}/${{TORCH_CUDA_ARCH_LIST:-}}"
    process = start(code, PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **variables)
    printed = process.communicate()[0].splitlines()
    assert printed[-1] == chosen
    says = "no GPU: building without the CUDA kernels (CPPCUDA_WITH_CUDA=ON builds them)"
    assert [says in line for line in printed[:-1]] == ([True] if chosen == "OFF/" and not variables else [])


# ---------------------------------------------------------------- tools


def test_tools_of_packages(start: Start, tmp_path: Path) -> None:
    """A package that the environment sees may be that of another one, whose programs are not on PATH."""
    (tmp_path / "python").symlink_to(SCRIPTS.parent / "python")
    site = tmp_path / "other/lib/site-packages"
    info = site / "no_such_tool-1.20.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: no_such_tool\nVersion: 1.20\n")
    (info / "RECORD").write_text("../../bin/no_such_tool,,\n")
    tool = tmp_path / "other/bin/no_such_tool"
    tool.parent.mkdir()
    tool.touch(0o755)
    code = f'PYTHON={sys.executable}; tool no_such_tool; install_packages() {{ echo install "$@"; }}; '
    code += (
        "require_python no_such_tool==1.20 'no_such_tool>=1.3'; require_python 'no_such_tool>=1.21' no_such_tool==1.2; "
    )
    process = start(code + "tool no_such_program; echo went on", PYTHONPATH=str(site))
    assert process.communicate()[0].splitlines() == [
        str(tool),
        "install no_such_tool>=1.21 no_such_tool==1.2",
        "error: no_such_program was not found. Run: pip install no_such_program",
    ]


# ---------------------------------------------------------------- one at a time


def test_one_run_at_a_time(start: Start, tmp_path: Path) -> None:
    # The first one calls another script, which is part of the same run.
    inner = f"source {tmp_path}/scripts/lib.sh; lock_folder; touch inner"
    first = start(f"lock_folder; bash -c '{inner}'; until [ -e go ]; do sleep 0.05; done")
    wait_for((tmp_path / "inner").exists)
    second = start("lock_folder; echo ran")
    line = second.stdout.readline()
    assert "waiting: another script is running in this folder (it holds build/lock)" in line
    time.sleep(0.2)
    assert second.poll() is None
    (tmp_path / "go").touch()
    assert first.wait(20) == 0
    assert second.communicate(timeout=20)[0] == "ran\n"


# ---------------------------------------------------------------- interrupts


@pytest.mark.parametrize("interrupt", ["terminal", "script"])
def test_an_interrupt_ends_the_build(start: Start, tmp_path: Path, interrupt: str) -> None:
    build = tmp_path / "build/test"
    build.mkdir(parents=True)
    # Not a shell that starts sleep, because dash loses a signal that arrives between its vfork and its exec.
    (build / "compiler.py").write_text(
        "import os, pathlib, time\npathlib.Path('compiler.pid').write_text(str(os.getpid()))\ntime.sleep(1000)\n"
    )
    (build / "build.ninja").write_text(
        f"rule compile\n  command = {sys.executable} compiler.py; :\nbuild object: compile\n"
    )
    process = start('compile "$BUILD_DIR"; touch went-on', NINJA=tool("ninja"))
    pid = build / "compiler.pid"
    wait_for(lambda: pid.exists() and pid.read_text())
    compiler = Path("/proc", pid.read_text().strip())
    assert compiler.exists()
    # Ctrl-C reaches all processes of the terminal; a signal from another program reaches only the script.
    if interrupt == "terminal":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    assert process.wait(20) != 0
    wait_for(lambda: not compiler.exists())
    assert not (tmp_path / "went-on").exists()


def test_mutations_apply() -> None:
    mutations = load_script(SCRIPTS.parent / "tools/mutations.py").MUTATIONS
    assert len({m.name for m in mutations}) == len(mutations) >= 20
    for m in mutations:
        assert (SCRIPTS.parent / m.file).read_text().count(m.text) == 1, f"{m.name}: {m.file} has other text now"


def test_schema_coverage(tmp_path: Path) -> None:
    tool("c++")
    command = SCRIPTS.parent / "tools/schema_coverage"
    schemas = tmp_path / "schemas.txt"
    lines = (
        "# a comment",
        "torchvision\ttorchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
        "mine\tmine::f(Dict x) -> Tensor",
        "mine\tmine::g(Tensor[] xs, Tensor? y=None) -> (Tensor, int)",
    )
    schemas.write_text("\n".join(lines))
    done = subprocess.run([command, schemas], capture_output=True, text=True)
    printed = done.stdout.splitlines()
    assert done.returncode == 0 and not done.stderr
    assert printed[0] == "mine: mine::f(Dict x) -> Tensor" and printed[1].startswith("  Dict is an unknown type")
    assert [line.split() for line in printed[2:4]] == [
        ["1", "of", "2", "(", "50", "%)", "mine"],
        ["1", "of", "1", "(100", "%)", "torchvision"],
    ]
    assert printed[-1] == "2 of 3 schemas (67 %) can be declared"
    schemas.write_text("without a tab")
    assert subprocess.run([command, schemas], capture_output=True).returncode == 2
    assert subprocess.run([command, tmp_path / "none"], capture_output=True).returncode == 2
