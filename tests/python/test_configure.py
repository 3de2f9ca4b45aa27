"""What CMake decides about torch and CUDA, and the reasons that it prints. Only configures; nothing is built."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from support import tool

ROOT = Path(__file__).parents[2]
if not (ROOT / "CMakeLists.txt").is_file():
    pytest.skip("not in a source tree", allow_module_level=True)

TORCH = Path(torch.__file__).parent
RELEASE = torch.__version__.split("+")[0]
CUDA = torch.version.cuda
MAJOR = CUDA.split(".")[0] if CUDA else ""
(RELEASE_ARCHITECTURES,) = re.findall(
    r'set\(CPPCUDA_RELEASE_ARCHITECTURES "(.*)"\)', (ROOT / "cmake/CppcudaCuda.cmake").read_text()
)

CPU_TORCH = f"off (torch {RELEASE}+cpu is a CPU build; CPPCUDA_WITH_CUDA=ON builds the kernels nevertheless)"

pytestmark = [pytest.mark.any_torch, pytest.mark.compiles]


def nvcc_of_this_torch() -> str:
    candidates = [
        os.environ.get("CUDACXX"),
        TORCH.parent / f"nvidia/cu{MAJOR}/bin/nvcc",
        shutil.which("nvcc"),
        "/usr/local/cuda/bin/nvcc",
    ]
    for nvcc in candidates:
        if CUDA and nvcc and Path(nvcc).exists():
            text = subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
            if f"release {MAJOR}." in text:
                return str(nvcc)
    pytest.skip(f"no nvcc of CUDA {MAJOR}" if CUDA else "this torch is a CPU build")


@dataclass
class Configured:
    succeeded: bool
    text: str  # in one line, because CMake wraps its errors

    @property
    def cuda(self) -> str:
        """The line that says what CMake chose and why."""
        assert self.succeeded, self.text
        (line,) = re.findall(r"-- cppcuda: CUDA (\w+ \(.*?\)) --", self.text)
        return line

    @property
    def error(self) -> str:
        assert not self.succeeded, self.text
        return self.text


@dataclass
class Configure:
    """Runs cmake on a source tree, in an environment with only the CUDA toolkit and GPUs that the test names."""

    folder: Path
    source: Path = ROOT
    runs: list[Configured] = field(default_factory=list)

    @property
    def build(self) -> Path:
        """The folder of the last run."""
        return self.folder / f"build{len(self.runs)}"

    def __call__(
        self, torch_dir: Path, *options: str, again: bool = False, path: str = "", gpus: str = "", **variables: str
    ) -> Configured:
        if not again:
            self.runs.append(Configured(False, ""))
        hidden = ("CUDA_HOME", "CUDA_PATH", "CUDACXX", "CUDAARCHS", "TORCH_CUDA_ARCH_LIST", "CMAKE_PREFIX_PATH")
        environment = {k: v for k, v in os.environ.items() if k not in hidden}
        folders = [p for p in environment.get("PATH", "").split(os.pathsep) if "cuda" not in p]
        folders = [*filter(None, [path]), str(fake_nvidia_smi(self.folder, gpus)), *folders]
        environment.update(variables, PATH=os.pathsep.join(folders))
        command = [tool("cmake"), "-S", str(self.source), "-B", str(self.build), "-G", "Ninja"]
        command += [f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}", f"-DCPPCUDA_TORCH_DIR={torch_dir}"]
        # Otherwise CMake would search for it in fixed folders; with NOTFOUND, it would search again.
        command += ["-DCPPCUDA_SYSTEM_NVCC=/nonexistent/nvcc"]
        # CMake takes seconds to check that nvcc works; only one test lets it do so.
        command += ["-DCMAKE_CUDA_COMPILER_FORCED=ON", *options]
        run = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        self.runs[-1] = Configured(run.returncode == 0, " ".join(run.stdout.split()))
        return self.runs[-1]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    return Configure(tmp_path)


def look_alike(site: Path, version: str, cuda: str | None, *, with_cuda_libraries: bool) -> Path:
    """A folder like one that pip installs, without nvcc."""
    folder = site / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "include").symlink_to(TORCH / "include")
    for library in (TORCH / "lib").iterdir():
        if with_cuda_libraries or "cuda" not in library.name:
            (folder / "lib" / library.name).symlink_to(library)
    (folder / "version.py").write_text(f"from typing import Optional\n__version__ = '{version}'\ncuda = {cuda!r}\n")
    return folder


@pytest.fixture
def cpu_torch(tmp_path: Path) -> Path:
    return look_alike(tmp_path / "cpu", f"{RELEASE}+cpu", None, with_cuda_libraries=False)


@pytest.fixture
def cuda_torch(tmp_path: Path) -> Path:
    """CUDA 13.1, without an nvcc."""
    return look_alike(tmp_path / "cuda", f"{RELEASE}+cu131", "13.1", with_cuda_libraries=True)


def fake_nvidia_smi(folder: Path, gpus: str) -> Path:
    """The folder of a program that prints the compute capabilities `gpus`, or fails if there are none."""
    program = folder / "gpus" / "nvidia-smi"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\n" + (f"printf '%s\\n' {gpus}\n" if gpus else "echo 'No devices found'; exit 6\n"))
    program.chmod(0o755)
    return program.parent


def fake_nvcc(folder: Path, release: str, architectures: str = "", *, with_runtime: bool = False) -> Path:
    """A program that supports `nvcc --version`, and `nvcc --list-gpu-arch` with these architectures."""
    nvcc = folder / f"fake-{release}" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    version = f"Cuda compilation tools, release {release}, V{release}.99"
    listed = " ".join(f"compute_{a}" for a in architectures.split())
    nvcc.write_text(f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' || printf '%s\\n' {listed}\n")
    nvcc.chmod(0o755)
    if with_runtime:
        (nvcc.parents[1] / "lib").mkdir()
        (nvcc.parents[1] / "lib" / "libcudart_static.a").touch()
    return nvcc


# ---------------------------------------------------------------- the four cases


def test_cuda_torch_with_toolkit(configure: Configure) -> None:
    nvcc = nvcc_of_this_torch()
    tried = "-DCMAKE_CUDA_COMPILER_FORCED=OFF"
    on = configure(TORCH, tried, CUDACXX=nvcc, TORCH_CUDA_ARCH_LIST="8.0 9.0+PTX").cuda
    assert re.fullmatch(rf"on \(nvcc {MAJOR}\.\d+: {re.escape(nvcc)}; architectures 80-real;90\)", on)


def test_cuda_torch_without_toolkit(configure: Configure, cuda_torch: Path) -> None:
    assert configure(cuda_torch).cuda == (
        "off (torch is built for CUDA 13.1, and no nvcc of CUDA 13 was found "
        "(pip install 'cuda-toolkit[nvcc,nvvm,cccl,cudart]==13.1.*' brings one))"
    )


def test_cpu_torch_with_toolkit(configure: Configure, cpu_torch: Path, tmp_path: Path) -> None:
    assert configure(cpu_torch, CUDACXX=str(fake_nvcc(tmp_path, "13.1"))).cuda == CPU_TORCH
    # One build of cppcuda works with CPU builds and CUDA builds of torch, so it can be made with either.
    nvcc = nvcc_of_this_torch()
    on = configure(cpu_torch, "-DCPPCUDA_WITH_CUDA=ON", CUDACXX=nvcc, TORCH_CUDA_ARCH_LIST="9.0").cuda
    assert re.fullmatch(rf"on \(nvcc {MAJOR}\.\d+: {re.escape(nvcc)}; architectures 90-real\)", on)


def test_cpu_torch_without_toolkit(configure: Configure, cpu_torch: Path) -> None:
    assert configure(cpu_torch).cuda == CPU_TORCH


# ---------------------------------------------------------------- which nvcc


def test_nvcc_of_site_packages(configure: Configure) -> None:
    nvcc_of_this_torch()
    own = TORCH.parent / f"nvidia/cu{MAJOR}/bin/nvcc"
    if not own.is_file():
        pytest.skip("nvcc is not among the interpreter's packages")
    on = configure(TORCH, "-DCMAKE_CUDA_ARCHITECTURES=90-real", TORCH_CUDA_ARCH_LIST="8.0").cuda
    assert re.fullmatch(rf"on \(nvcc {MAJOR}\.\d+: {re.escape(str(own))}; architectures 90-real\)", on)


def test_nvcc_of_another_major_version(configure: Configure, cuda_torch: Path, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path, "12.4")
    off = configure(cuda_torch, CUDACXX=str(nvcc)).cuda
    assert off.startswith(
        f"off (torch is built for CUDA 13.1, and no nvcc of CUDA 13 was found; {nvcc} is not of CUDA 13 (pip install"
    )


def test_nvcc_without_its_runtime(configure: Configure, cuda_torch: Path, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path, "13.1")
    off = configure(cuda_torch, CUDACXX=str(nvcc)).cuda
    assert off == f"off (nvcc 13.1: {nvcc}, but there is no libcudart_static.a beside it)"


# ---------------------------------------------------------------- CPPCUDA_ISAS


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="other processors have one instruction set")
def test_instruction_sets(configure: Configure, cpu_torch: Path) -> None:
    def compiled(*options: str) -> str:
        assert configure(cpu_torch, *options).succeeded, configure.runs[-1].text
        return (configure.build / "build.ninja").read_text()

    some = compiled("-DCPPCUDA_ISAS=avx2;base")
    assert "COMPILED_ISAS=base,avx2 " in some and "kernels_avx2.dir" in some and "kernels_avx512.dir" not in some
    supported = torch.backends.cpu.get_cpu_capability().lower()
    native = compiled("-DCPPCUDA_ISAS=native")
    assert f"COMPILED_ISAS={ {'default': 'base'}.get(supported, supported) } " in native
    error = configure(cpu_torch, "-DCPPCUDA_ISAS=avx2;sse9").error
    assert 'CPPCUDA_ISAS is "avx2;sse9", but must be "all", "native" or a list of some of: base;avx2;avx512' in error


# ---------------------------------------------------------------- CPPCUDA_WITH_CUDA


def test_on_fails_with_the_reason(configure: Configure, cuda_torch: Path, cpu_torch: Path) -> None:
    error = configure(cuda_torch, "-DCPPCUDA_WITH_CUDA=ON").error
    assert "cppcuda: CPPCUDA_WITH_CUDA=ON, but torch is built for CUDA 13.1, and no nvcc of CUDA 13 was found" in error
    error = configure(cpu_torch, "-DCPPCUDA_WITH_CUDA=ON").error
    assert (
        f"cppcuda: CPPCUDA_WITH_CUDA=ON, but torch {RELEASE}+cpu is a CPU build, and no nvcc was found "
        "(CUDACXX names one)" in error
    )


def test_off(configure: Configure, cuda_torch: Path, tmp_path: Path) -> None:
    off = configure(cuda_torch, "-DCPPCUDA_WITH_CUDA=OFF", CUDACXX=str(fake_nvcc(tmp_path, "13.1"))).cuda
    assert off == "off (CPPCUDA_WITH_CUDA=OFF)"


# ---------------------------------------------------------------- architectures


def test_architectures_of_a_release(configure: Configure) -> None:
    assert configure(TORCH, CUDACXX=nvcc_of_this_torch()).cuda.endswith(f"; architectures {RELEASE_ARCHITECTURES})")


def test_architectures_of_a_release_that_nvcc_knows(configure: Configure, cuda_torch: Path, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path, "13.1", "75 80 86 87 90 100", with_runtime=True)
    # The fake nvcc compiles nothing, so the rest of the configuration fails.
    assert "; architectures 75-real;80-real;86-real;90-real;100)" in configure(cuda_torch, CUDACXX=str(nvcc)).error


def test_architectures_of_the_first_time_stay(configure: Configure) -> None:
    nvcc, named = nvcc_of_this_torch(), "7.5;9.0a;12.0+PTX"
    on = configure(TORCH, CUDACXX=nvcc, TORCH_CUDA_ARCH_LIST=named).cuda
    assert on.endswith("; architectures 75-real;90a-real;120)")
    # As if ninja ran CMake again after a change of a CMakeLists.txt, in a shell without the variable.
    assert configure(TORCH, again=True).cuda == on
    # A wheel is built for the current settings.
    assert configure(TORCH, "-DSKBUILD=2", again=True).cuda.endswith(f"; architectures {RELEASE_ARCHITECTURES})")


@pytest.mark.parametrize("entry", ["Ampere", "80", "9.0+ptx"])
def test_invalid_architectures(configure: Configure, cuda_torch: Path, tmp_path: Path, entry: str) -> None:
    nvcc = str(fake_nvcc(tmp_path, "13.1"))
    error = configure(cuda_torch, CUDACXX=nvcc, TORCH_CUDA_ARCH_LIST=f"8.0 {entry}").error
    assert f"TORCH_CUDA_ARCH_LIST must hold entries such as 8.0 or 9.0+PTX, got '{entry}'" in error


# ---------------------------------------------------------------- which torch


def test_libtorch_archive(configure: Configure, cpu_torch: Path) -> None:
    (cpu_torch / "version.py").unlink()
    (cpu_torch / "build-version").write_text(f"{RELEASE}+cpu\n")
    run = configure(cpu_torch)
    assert run.cuda == CPU_TORCH
    assert f"torch {RELEASE}+cpu in {cpu_torch}" in run.text
    (cpu_torch / "build-version").write_text(f"{RELEASE}+cu991\n")
    assert configure(cpu_torch).cuda.startswith("off (torch is built for CUDA 99.1, and no nvcc of CUDA 99 was found")


@pytest.mark.parametrize("options", [(), ("-DCPPCUDA_BUILD_TESTS=ON",)], ids=["library", "tests"])
def test_torch_of_the_interpreter(configure: Configure, options: Sequence[str]) -> None:
    # An empty setting counts as none, so CMake asks the interpreter.
    run = configure(Path(), "-DCPPCUDA_TORCH_DIR=", f"-DPython3_EXECUTABLE={sys.executable}", *options)
    assert run.succeeded and f"torch {torch.__version__} in {TORCH}" in run.text


def test_no_torch(configure: Configure, tmp_path: Path, cpu_torch: Path) -> None:
    assert f"cppcuda: no torch found (looked in '{tmp_path}')" in configure(tmp_path).error
    (cpu_torch / "version.py").unlink()
    assert f"cppcuda: cannot tell the version of the torch in '{cpu_torch}'" in configure(cpu_torch).error


def test_no_torch_in_an_isolated_build(configure: Configure, tmp_path: Path) -> None:
    pip, build, uv = (
        "/tmp/pip-build-env-x1/overlay/bin",
        "/tmp/build-env-x1/bin",
        "/root/.cache/uv/builds-v0/.tmpX1/bin",
    )
    for path in (pip, build, uv):
        error = configure(tmp_path, "-DSKBUILD=2", path=path).error
        assert "cppcuda: the build is isolated" in error and "no torch found" not in error
        assert " pip install scikit-build-core cmake ninja && pip install --no-build-isolation . " in error
    # Without isolation, or without a wheel to build, the usual error appears.
    assert "cppcuda: no torch found (looked in" in configure(tmp_path, "-DSKBUILD=2").error
    assert "cppcuda: no torch found (looked in" in configure(tmp_path, path=pip).error


# ---------------------------------------------------------------- as part of another project


@pytest.fixture
def part(tmp_path: Path) -> Configure:
    """Configures a project that has cppcuda in a subdirectory."""
    source = tmp_path / "app"
    source.mkdir()
    (source / "main.cpp").write_text(
        "#include <cppcuda/version.h>\nint main() { return sizeof(CPPCUDA_VERSION) < 2; }\n"
    )
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.26)\n"
        "project(app LANGUAGES CXX)\n"
        f"add_subdirectory({ROOT} cppcuda)\n"
        "set(CMAKE_EXPORT_COMPILE_COMMANDS ON)\n"
        "add_executable(app main.cpp)\n"
        "target_link_libraries(app PRIVATE cppcuda::cppcuda)\n"
        "install(TARGETS app)\n"
    )
    return Configure(tmp_path, source)


def ninja(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        [tool("ninja"), "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout


def optimised(folder: Path) -> set[tuple[bool, bool]]:
    """The pairs (is a file of cppcuda, is optimised) over all compiled files."""
    commands = json.loads((folder / "compile_commands.json").read_text())
    assert len(commands) > 30
    flags = [(not c["file"].endswith("/main.cpp"), c["command"].split()) for c in commands]
    return {(ours, "-O3" in f and "-DNDEBUG" in f) for ours, f in flags}


def test_part_of_a_project(part: Configure, cpu_torch: Path) -> None:
    assert part(cpu_torch).succeeded
    assert optimised(part.build) == {(True, True), (False, False)}
    assert "libcppcuda" not in (part.build / "cppcuda/cmake_install.cmake").read_text()
    ninja(part.build, "CMakeFiles/app.dir/main.cpp.o")
    link = ninja(part.build, "-t", "commands", "app").splitlines()[-1]
    assert "cppcuda/libcppcuda.so" in link and "libtorch_cpu.so" in link and "--no-as-needed" in link

    assert part(cpu_torch, "-DCMAKE_BUILD_TYPE=Debug", "-DCPPCUDA_INSTALL=ON").succeeded
    assert optimised(part.build) == {(True, False), (False, False)}
    assert "libcppcuda" in (part.build / "cppcuda/cmake_install.cmake").read_text()


def test_part_of_a_project_is_for_the_gpus_of_the_machine(part: Configure) -> None:
    nvcc = nvcc_of_this_torch()
    assert part(TORCH, CUDACXX=nvcc, gpus="9.0 8.0 9.0").cuda.endswith("; architectures 90-real;80-real)")
    off = "off (this machine has no GPU, and neither TORCH_CUDA_ARCH_LIST nor CMAKE_CUDA_ARCHITECTURES names one)"
    assert part(TORCH, CUDACXX=nvcc).cuda == off


def test_part_of_a_project_that_has_cuda(part: Configure, tmp_path: Path) -> None:
    nvcc = nvcc_of_this_torch()
    file = part.source / "CMakeLists.txt"
    text = file.read_text()
    # The project enables CUDA after cppcuda does, then before.
    file.write_text(text + 'file(WRITE app.cu "")\nenable_language(CUDA)\nadd_library(kernels app.cu)\n')
    assert part(TORCH, CUDACXX=nvcc, gpus="9.0").cuda.endswith("; architectures 90-real)")
    file.write_text(text.replace("LANGUAGES CXX", "LANGUAGES CXX CUDA"))
    named = f"-DCMAKE_CUDA_COMPILER={nvcc}", "-DCMAKE_CUDA_ARCHITECTURES=86"
    assert part(TORCH, *named, gpus="9.0").cuda.endswith("; architectures 86)")
    # This nvcc belongs to a different CUDA version from torch's, and cppcuda then has no other nvcc.
    other = look_alike(tmp_path / "other", f"{RELEASE}+cu991", "99.1", with_cuda_libraries=True)
    off = part(other, *named, CUDACXX=str(fake_nvcc(tmp_path, "99.1"))).cuda
    assert off.startswith(
        f"off (torch is built for CUDA 99.1, and no nvcc of CUDA 99 was found; {nvcc} is not of CUDA 99"
    )


# ---------------------------------------------------------------- what is compiled, and when


def test_cuda_files_are_compiled_first(configure: Configure) -> None:
    # They take longest, so if they came last, most processors would be idle at the end.
    assert configure(TORCH, CUDACXX=nvcc_of_this_torch(), TORCH_CUDA_ARCH_LIST="9.0").succeeded
    # If nothing else decides, ninja follows the order of its file.
    text = (configure.build / "build.ninja").read_text()
    languages = re.findall(r"^build \S+\.o: (CUDA|CXX)_COMPILER", text, re.MULTILINE)
    count = len([*ROOT.glob("src/**/*.cu"), *ROOT.glob("src/**/loops.cpp")])
    assert languages[:count] == ["CUDA"] * count and set(languages[count:]) == {"CXX"}

    # Without CUDA, there is no emulator and almost all other commands are the same, so those files need not be compiled
    # again.
    def commands() -> set[str]:
        found = json.loads((configure.build / "compile_commands.json").read_text())
        say_it = (".cu", "/define.cpp", "/kernel_table.cpp", "/function_table.cpp")
        others = [c for c in found if Path(c["file"]).parent != ROOT / "emulator"]
        return {c["command"] for c in others if not c["file"].endswith(say_it)}

    with_cuda = commands()
    assert configure(TORCH, "-DCPPCUDA_WITH_CUDA=OFF", again=True).succeeded
    assert commands() == with_cuda


# A call of a __device__ function in a host template, whose address is taken. nvcc compiles it to exit(1).
HOST_CALLS = """
template <class T>
struct Points {
  const T* data;
  QUALIFIERS bool given() const { return data; }
};
__global__ void kernel(int* out) { *out = 1; }
template <class T>
void indirect(Points<T> points, int* out) {
  if (points.given()) kernel<<<1, 1>>>(out);
}
template <class F>
bool add(F f) {
  static F table;
  table = f;
  return true;
}
template <class T>
bool add_all() {
  return add(&indirect<T>);
}
bool added = add_all<float>();
"""


@pytest.mark.parametrize("qualifiers", ["__host__ __device__", "__device__"])
def test_host_code_that_calls_device_functions(tmp_path: Path, qualifiers: str) -> None:
    source, obj = tmp_path / "launch.cu", tmp_path / "launch.o"
    source.write_text(HOST_CALLS.replace("QUALIFIERS", qualifiers))
    compiled = subprocess.run([nvcc_of_this_torch(), "-std=c++20", "-O3", "-c", source, "-o", obj], capture_output=True)
    assert not compiled.returncode and b"given" not in compiled.stderr  # no error, and no warning of the call
    script = ROOT / "cmake/CheckHostCalls.cmake"
    command = [tool("cmake"), "-DNM=nm", "-DOBJDUMP=objdump", "-P", str(script), str(obj)]
    done = subprocess.run(command, capture_output=True, text=True)
    text = " ".join(done.stderr.split())
    if qualifiers == "__device__":
        assert done.returncode and "Host code calls a __device__ function, which nvcc compiled to exit(1)" in text
        assert f"{obj} in void indirect<float>(Points<float>, int*)" in text and "CPPCUDA_HOST_DEVICE" in text
    else:
        assert not done.returncode and not text
