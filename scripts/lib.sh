# shellcheck shell=bash
# Sourced by the other scripts: the Python environment, the build, the installation.
#
#   CPPCUDA_PYTHON  an interpreter that already has torch (default: make a .venv with the newest supported torch)
#   CPPCUDA_TORCH   the torch to install instead of the newest one, such as 2.11.0
#   CPPCUDA_WITH_CUDA, CUDACXX, TORCH_CUDA_ARCH_LIST  as in docs/cpp.md; choose_cuda explains the defaults
#   CPPCUDA_ISAS    as in docs/cpp.md (default: native)
#   CPPCUDA_EMULATED_ARCHITECTURES  the compute capabilities whose PTX the emulator runs, such as "75;90" (default: one)

set -euo pipefail
# Where this variable is set, as in many images, each process compiles torch's Python files again, which takes seconds.
unset PYTHONDONTWRITEBYTECODE
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
START_FOLDER=$PWD
cd "$ROOT"
NEWEST_TORCH=2.15.0
# shellcheck disable=SC2034  # the scripts that source this use it
ONNX_PACKAGES=(onnx onnxruntime onnxscript)

# An absolute path. A relative one starts at the caller's folder.
absolute() { (cd "$START_FOLDER" && realpath -m "$1"); }

say() { printf '\033[1m== %s\033[0m\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# wait_for PROCESS FILE MESSAGE: waits for a process in the background that writes to a file. If it failed, shows the file.
wait_for() { wait "$1" || { cat "$2" && fail "$3"; }; }

# Prefix of long-running commands: ends them when the script ends or is interrupted; bash would leave them running.
WITH_SCRIPT=(setpriv --pdeathsig TERM)

# Lets one script at a time run in this folder. Scripts that it calls do not wait for it.
lock_folder() {
  [ "${CPPCUDA_LOCKED:-}" != "$ROOT" ] || return 0
  mkdir -p build
  exec {lock}> build/lock
  flock --nonblock "$lock" || {
    say "waiting: another script is running in this folder (it holds build/lock)"
    flock "$lock"
  }
  export CPPCUDA_LOCKED=$ROOT
}

# Installs Debian packages, if this is possible.
apt_install() {
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo -n)
  command -v apt-get > /dev/null || return 1
  if [ "$(id -u)" != 0 ] && ! sudo -n true 2> /dev/null; then return 1; fi
  say "apt-get install $*"
  "${as_root[@]}" apt-get install -y -qq "$@" > /dev/null 2>&1 ||
    { "${as_root[@]}" apt-get update -qq && "${as_root[@]}" apt-get install -y -qq "$@" > /dev/null; }
}

# Makes the virtual environment, with torch, and sets PYTHON, CMAKE, NINJA, TORCH_VERSION and BUILD_DIR. With
# CPPCUDA_PYTHON the environment sees that interpreter's packages; nothing is written to it.
setup_python() {
  lock_folder
  command -v c++ > /dev/null || apt_install g++ || fail "no C++ compiler: install g++"
  local base=${CPPCUDA_PYTHON:-} venv=.venv made_from
  # Keeps an environment that was made from an interpreter, unless another one is requested.
  made_from=$(cat "$venv/made-from" 2> /dev/null) || true
  if [ -z "$base${CPPCUDA_TORCH:-}" ] && [ "${made_from#/}" != "$made_from" ] && [ -x "$made_from" ]; then
    say "$venv: made from $made_from (remove the folder to make another one)"
    base=$made_from
  fi
  if [ -n "$base" ]; then
    base=$(command -v "$base") || fail "CPPCUDA_PYTHON=$CPPCUDA_PYTHON was not found"
    export CPPCUDA_PYTHON=$base
    "$base" -c 'import torch' 2> /dev/null || fail "CPPCUDA_PYTHON=$base has no torch"
    made_from="$base"
  else
    base=$(command -v python3) || fail "no python3"
    "$base" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || fail "Python 3.10 or newer is needed, $base is older"
    [ -z "${CPPCUDA_TORCH:-}" ] || [ "$CPPCUDA_TORCH" = "$NEWEST_TORCH" ] || venv=.venv-torch$CPPCUDA_TORCH
    made_from="torch ${CPPCUDA_TORCH:-$NEWEST_TORCH}"
  fi
  PYTHON=$ROOT/$venv/bin/python

  if [ "$(cat "$venv/made-from" 2> /dev/null)" != "$made_from" ]; then
    [ ! -e "$venv" ] || [ -e "$venv/made-from" ] || fail "$venv exists and was not made by these scripts: move it away"
    rm -rf "$venv" && mkdir "$venv" && touch "$venv/made-from"
    say "$venv: $made_from"
    if [ -n "${CPPCUDA_PYTHON:-}" ]; then
      "$base" -m venv --without-pip "$venv"
      "$base" -c 'import sysconfig; print(*sorted({sysconfig.get_path(p) for p in ("purelib", "platlib")}), sep="\n")' \
        > "$(site_packages)/base.pth"
    else
      "$base" -m venv "$venv" 2> /dev/null ||
        { apt_install python3-venv && "$base" -m venv --clear "$venv"; } ||
        fail "$base cannot make a virtual environment: install python3-venv"
      command -v uv > /dev/null || "$PYTHON" -m pip install -q --disable-pip-version-check uv || true
      echo "The download of torch takes some gigabytes."
      install_packages "torch==${CPPCUDA_TORCH:-$NEWEST_TORCH}" numpy || fail "torch could not be installed"
    fi
    echo "$made_from" > "$venv/made-from"
  fi
  TORCH_VERSION=$("$PYTHON" -c 'from importlib.metadata import version; print(version("torch"))')
  BUILD_DIR=$ROOT/build/torch-$("$PYTHON" -c "print('.'.join('$TORCH_VERSION'.split('.')[:2]))")
  require_python "cmake>=3.26" ninja
  CMAKE=$(tool cmake)
  NINJA=$(tool ninja)
}

# The environment's site-packages.
site_packages() { "$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }

# The path of a program in the environment, in a package that the environment sees, or on PATH.
tool() { PYTHONPATH=$ROOT/python${PYTHONPATH:+:$PYTHONPATH} "$PYTHON" -m cppcuda.kit tool "$1"; }

# Installs packages from PyPI into the environment: with uv, which takes half of pip's time for torch, or with pip if uv
# is missing or fails. uv does not see the packages of CPPCUDA_PYTHON, so an environment made from it uses pip.
install_packages() {
  say "install $*"
  local uv=""
  [ -n "${CPPCUDA_PYTHON:-}" ] || uv=$(PATH=$(dirname "$PYTHON"):$PATH command -v uv) || true
  if [ -n "$uv" ] && "${WITH_SCRIPT[@]}" "$uv" pip install --python "$PYTHON" "$@"; then return; fi
  "${WITH_SCRIPT[@]}" "$PYTHON" -m pip install -q --progress-bar on --disable-pip-version-check "$@"
}

# Installs the given PyPI packages ("name", "name==version" or "name>=version") if they are missing.
require_python() {
  local missing
  missing=$("$PYTHON" - "$@" << 'EOF'
import re
import sys
from importlib.metadata import PackageNotFoundError, version

def is_installed(spec: str) -> bool:
    name, comparison, required = re.fullmatch("([^=>]+)(==|>=|)(.*)", spec).groups()
    try:
        found = version(name)
    except PackageNotFoundError:
        return False
    if comparison == ">=":
        found, required = ([int(number) for number in re.findall("[0-9]+", v)] for v in (found, required))
        return found >= required
    return not comparison or found == required

print(*[s for s in sys.argv[1:] if not is_installed(s)])
EOF
  )
  [ -z "$missing" ] && return
  # shellcheck disable=SC2086
  install_packages $missing || fail "could not install: $missing"
}

# The architectures of this machine's GPUs in the form of TORCH_CUDA_ARCH_LIST. The kernels need 7.5 or newer.
gpu_architectures() {
  nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | sort -uV |
    awk '$1 ~ /^[0-9]+\.[0-9]$/ && $1 >= 7.5' | paste -sd ';'
}

# choose_cuda [architecture | ptx]: selects the CUDA kernels to build if CPPCUDA_WITH_CUDA and TORCH_CUDA_ARCH_LIST do not:
# those for the GPUs of this machine; without a GPU, the kernels that the build folder already has, otherwise those for
# the given architecture, or only their PTX, which the emulator runs, otherwise none.
choose_cuda() {
  [ -z "${TORCH_CUDA_ARCH_LIST:-}" ] && [ "${CPPCUDA_WITH_CUDA:-AUTO}" != OFF ] || return 0
  local architectures
  architectures=$(gpu_architectures) || true
  if [ -n "$architectures" ]; then
    export TORCH_CUDA_ARCH_LIST=$architectures
  elif has_cuda; then
    return
  elif [ "${1:-}" = ptx ]; then
    CUDA_ARCHITECTURES=90-virtual
  elif [ $# -gt 0 ]; then
    export TORCH_CUDA_ARCH_LIST=$1
  elif [ -z "${CPPCUDA_WITH_CUDA:-}" ]; then
    CPPCUDA_WITH_CUDA=OFF
    say "no GPU: building without the CUDA kernels (CPPCUDA_WITH_CUDA=ON builds them)"
  fi
}

# Installs nvcc from PyPI, if CMake found a CUDA build of torch and no nvcc for it. Returns whether there is one now.
install_nvcc() {
  grep -q 'no nvcc of CUDA' "$BUILD_DIR/configure.log" || return 1
  local cuda packages
  read -r cuda packages < <("$PYTHON" - << 'EOF'
import importlib.util
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

scope: dict[str, object] = {}
exec(Path(importlib.util.find_spec("torch").origin).with_name("version.py").read_text(), scope)
# In some releases nvcc's packages do not pin each other's versions, but all must be of one release.
try:
    toolkit = version("cuda-toolkit")
    pins = [r.split(";")[0].split("==")[1].strip() for r in requires("cuda-toolkit") or [] if "nvidia-cuda-nvcc==" in r]
except PackageNotFoundError:
    toolkit, pins = f"{scope['cuda']}.*", []
print(scope["cuda"], f"cuda-toolkit[nvcc,nvvm,cccl,cudart]=={toolkit}", *(f"nvidia-cuda-crt=={v}" for v in pins[:1]))
EOF
  )
  CUDACXX=$(site_packages)/nvidia/cu${cuda%%.*}/bin/nvcc
  export CUDACXX
  [ ! -x "$CUDACXX" ] || return 0
  # --ignore-installed puts all of them into one folder, even if torch's environment has some in another one.
  # shellcheck disable=SC2086
  install_packages ${CPPCUDA_PYTHON:+--ignore-installed} $packages && return
  unset CUDACXX
  echo "no nvcc of CUDA $cuda could be installed: building without CUDA"
  return 1
}

# Installs the disassemblers that tools/kernel_report.py uses; without them it looks for those of the CUDA toolkit.
# One version serves every torch, because they read the output of older compilers. PyPI has none before 13.2.
setup_cuobjdump() {
  (require_python nvidia-cuda-cuobjdump==13.2.86 nvidia-cuda-nvdisasm==13.2.86) || true
}

# Returns whether CUDA kernels were built in BUILD_DIR.
has_cuda() { [ -e "$BUILD_DIR/libcppcuda_kernels.so" ] && grep -q '^CUDA: .* = "[0-9]' "$BUILD_DIR/cppcuda_generated/_build.py"; }

# Returns whether they have machine code, and not only PTX.
has_machine_code() { has_cuda && grep -qE '^CUDA_ARCHITECTURES = "(.*;)?[0-9]+[af]?(-real)?[;"]' "$BUILD_DIR/cppcuda_generated/_build.py"; }

# Installs GoogleTest, if possible; otherwise CMake downloads it.
setup_gtest() {
  [ -n "${GTest_ROOT:-}" ] || [ -e /usr/include/gtest/gtest.h ] || apt_install libgtest-dev || true
}

# Installs valgrind, if possible. Returns whether there is one.
setup_valgrind() {
  command -v valgrind > /dev/null || apt_install valgrind
}

# configure_library [CMake arguments]
configure_library() {
  say "configure (${BUILD_DIR#"$ROOT"/})"
  mkdir -p "$BUILD_DIR"
  local status=0
  # A build folder may refer to a compiler or a torch that no longer exists; then start afresh.
  run_cmake "$@" || run_cmake --fresh "$@" || status=$?
  if install_nvcc; then
    status=0
    run_cmake "$@" || status=$?
  fi
  [ "$status" = 0 ] || { cat "$BUILD_DIR/configure.log" && fail "configuring failed"; }
  grep -E '^-- cppcuda' "$BUILD_DIR/configure.log"
}

run_cmake() {
  "${WITH_SCRIPT[@]}" "$CMAKE" -S . -B "$BUILD_DIR" -G Ninja -DCMAKE_MAKE_PROGRAM="$NINJA" -DPython3_EXECUTABLE="$PYTHON" \
    -DCPPCUDA_WITH_CUDA="${CPPCUDA_WITH_CUDA:-AUTO}" -DCPPCUDA_ISAS="${CPPCUDA_ISAS:-native}" \
    -DCMAKE_CUDA_ARCHITECTURES="${CUDA_ARCHITECTURES:-}" -DCPPCUDA_PREBUILT_KERNELS="" \
    -DCPPCUDA_EMULATED_ARCHITECTURES="${CPPCUDA_EMULATED_ARCHITECTURES:-}" "$@" > "$BUILD_DIR/configure.log" 2>&1
}

# compile FOLDER [ninja arguments]. ninja ends its compilers if it is interrupted; cmake --build would leave it running.
compile() {
  say "build (${1#"$ROOT"/})"
  "${WITH_SCRIPT[@]}" "$NINJA" -C "$@"
}

# build_library [CMake arguments]
build_library() {
  configure_library "$@"
  compile "$BUILD_DIR"
}

# install_package [folder]: installs the library and the Python package into a site-packages folder, by default the
# environment's, and sets PACKAGE to the package's folder, which is also a CMake prefix.
install_package() {
  PACKAGE=${1:-$(site_packages)}/cppcuda
  rm -rf "$PACKAGE"
  "$CMAKE" --install "$BUILD_DIR" --prefix "$PACKAGE" > /dev/null
  "$CMAKE" --install "$BUILD_DIR" --prefix "$PACKAGE" --component python > /dev/null
}
