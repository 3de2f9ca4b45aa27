"""cppcuda.config() and python -m cppcuda give correct information about the library."""

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import cppcuda
import pytest
import torch
from cppcuda import _config
from cppcuda.__main__ import main
from support import is_for_emulator, load_script, run_python

KERNELS = cppcuda.library_path().parents[1] / "libcppcuda_kernels.so"

ROOT = Path(__file__).parents[2]


Printed = Callable[..., str]


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Printed:
    """Returns what `python -m cppcuda` prints. Runs in this process: a new one takes seconds to import torch."""

    def run(*options: str) -> str:
        monkeypatch.setattr(sys, "argv", ["cppcuda", *options])
        main()
        return capsys.readouterr().out

    return run


def test_versions() -> None:
    config = cppcuda.config()
    header = (config.include_path / "cppcuda/version.h").read_text()
    assert f'"{config.version}"' in header
    assert config.version == cppcuda.__version__
    assert config.torch_version.split(".")[:2] == torch.__version__.split(".")[:2]
    has_kernels = torch._C._dispatch_has_kernel_for_dispatch_key("cppcuda::trilinear", "CUDA")
    assert (config.cuda_version is not None) == has_kernels
    if config.cuda_version and torch.version.cuda:
        assert config.cuda_version.split(".")[0] == torch.version.cuda.split(".")[0]
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.version = "2"


def test_paths() -> None:
    config = cppcuda.config()
    assert config.library_path == cppcuda.library_path() and config.library_path.is_file()
    assert (config.include_path / "cppcuda/cppcuda.h").is_file()
    assert config.cmake_prefix_path == cppcuda.cmake_prefix_path()
    for path in (config.library_path, config.include_path, config.cmake_prefix_path):
        assert path.is_absolute()


def test_cuda_architectures() -> None:
    """The architectures are those for which the library has code."""
    config = cppcuda.config()
    if config.cuda_version is None:
        assert config.cuda_architectures == ()
        pytest.skip("cppcuda was built without CUDA")
    report = load_script(ROOT / "tools/kernel_report.py")
    try:
        dump = report.Cuobjdump(KERNELS)
    except report.UnreadableError as e:
        pytest.skip(str(e))
    machine_code = report.architectures(dump.lines("--list-elf"))
    ptx = {f"compute_{m[1]}" for line in dump.lines("--list-ptx") if (m := re.search(r"\.sm_(\d+[a-z]?)\.ptx", line))}
    if is_for_emulator(KERNELS.read_bytes()):  # which adds PTX
        ptx &= {*config.cuda_architectures}
    assert sorted(config.cuda_architectures) == sorted([*machine_code, *ptx]) != []


@pytest.mark.parametrize(
    ("cmake", "names"),
    [
        ("75-real;90a-real;120", ("sm_75", "sm_90a", "sm_120", "compute_120")),
        ("90-virtual", ("compute_90",)),
        ("native", ("native",)),
        ("all-major", ("all-major",)),
    ],
)
def test_names_of_architectures(cmake: str, names: tuple[str, ...]) -> None:
    assert _config.torch_names(cmake) == names


@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_cpu_instruction_sets(capability: str) -> None:
    """ATEN_CPU_CAPABILITY selects one of the instruction sets that the processor has."""
    built, in_use, of_torch = run_python(
        "import cppcuda, torch; config = cppcuda.config(); print(*config.cpu_instruction_sets, sep=',');"
        "print(config.cpu_instruction_set); print(torch.backends.cpu.get_cpu_capability())",
        env={**os.environ, "ATEN_CPU_CAPABILITY": capability},
    ).stdout.split()
    order = ["base", "avx2", "avx512"]
    of_build = built.split(",")
    assert of_build and of_build == [isa for isa in order if isa in of_build]
    supported = order[: order.index({"AVX2": "avx2", "AVX512": "avx512"}.get(of_torch, "base")) + 1]
    assert in_use == next((isa for isa in reversed(of_build) if isa in supported), "none")


def test_printed_table() -> None:
    config = cppcuda.config()
    command, environment = [sys.executable, "-m", "cppcuda"], {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    rows = dict(re.split(r" {2,}", line) for line in text.splitlines())
    oldest = "base" if "base" in config.cpu_instruction_sets else "none"
    assert rows == {
        "version": config.version,
        "torch": config.torch_version,
        "CUDA": config.cuda_version or "none",
        "CUDA architectures": ", ".join(config.cuda_architectures) or "none",
        "CPU instruction sets": f"{', '.join(config.cpu_instruction_sets)} (in use: {oldest})",
        "library": str(config.library_path),
        "C++ headers": str(config.include_path),
        "CMake prefix": str(config.cmake_prefix_path),
    }
    assert len({re.match(r".*? {2,}", line).end() for line in text.splitlines()}) == 1  # in one column


def test_both_options_together(printed: Printed) -> None:
    cflags, libs = printed("--cflags"), printed("--libs")
    assert "-std=c++20" in cflags and "-lcppcuda" in libs and "-lcppcuda" not in cflags and "-I" not in libs
    assert printed("--libs", "--cflags").split() == [*cflags.split(), *libs.split()]


def test_help(printed: Printed, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        printed("--help")
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert "g++ main.cpp $(python -m cppcuda --cflags --libs) -o app" in text
    assert re.search(r"--cflags +\w+", text) and re.search(r"--libs +\w+", text)


def test_program_that_names_no_symbol_of_the_library(printed: Printed, tmp_path: Path) -> None:
    """It still gets the operators, even if the linker drops unused libraries, as on some distributions."""
    source = ROOT / "tests/consumer/links_only.cpp"
    options = ["-Wl,--as-needed", *shlex.split(printed("--cflags", "--libs"))]
    build = ["g++", "-Wall", "-Wextra", "-Werror", str(source), *options, "-o", "app"]
    subprocess.run(build, check=True, cwd=tmp_path)
    # Without settings of the shell such as LD_LIBRARY_PATH.
    subprocess.run([tmp_path / "app"], check=True, env={})
    plain = subprocess.run(["readelf", "-d", tmp_path / "app"], check=True, capture_output=True, text=True).stdout
    assert "libcppcuda.so" in plain and "libpython" not in plain
