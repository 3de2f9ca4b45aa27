#!/usr/bin/env bash
# Uses an installed cppcuda from a CMake project that knows nothing else.
#
#   run.sh <python with the torch of the build> <build folder> <installed library>
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# Not resolved: the interpreter of a virtual environment is a link to another one.
python=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
build=$(cd "$2" && pwd)

say() { printf 'consumer: %s\n' "$*"; }
fail() {
  printf 'consumer: %s\n' "$*" >&2
  exit 1
}
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
cmake=$(cached CMAKE_COMMAND)
torch=$(cached CPPCUDA_TORCH_DIR)

temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
library=$3 prefix=${3%/lib/torch-*}
cp -r "$here" "$temp/source"

say "export models (AOTInductor compiles one)"
mkdir "$temp/models"
(cd "$temp" && TORCHINDUCTOR_CACHE_DIR=$temp/inductor "$python" source/make_models.py "$library" models) \
  > "$temp/models.log" 2>&1 || { cat "$temp/models.log" && fail "making the models failed"; }

# Nothing of this shell's settings: no CUDA_HOME, no LD_LIBRARY_PATH, no virtual environment. Two things are told to
# the project, where the package and where torch is.
clean() { env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$temp" "$@"; }
generator=(-G "$(cached CMAKE_GENERATOR)" -DCMAKE_MAKE_PROGRAM="$(cached CMAKE_MAKE_PROGRAM)"
  -DCMAKE_CXX_COMPILER="$(cached CMAKE_CXX_COMPILER)")
tells() { # log of CMake, which breaks the lines of its messages; what it has to say
  tr -s ' \n' ' ' < "$1" | grep -qE "$2" || { cat "$1" && fail "the reason is not told"; }
}
configure() { # build folder, further arguments
  local folder=$1
  shift
  clean "$cmake" -S "$temp/source" -B "$folder" "${generator[@]}" "$@"
}

say "configure and build"
if ! configure "$temp/build" "-DCMAKE_PREFIX_PATH=$prefix;$torch/share/cmake" > "$temp/build.log" 2>&1 ||
  ! clean "$cmake" --build "$temp/build" >> "$temp/build.log" 2>&1; then
  cat "$temp/build.log"
  fail "the project does not build"
fi
if grep -n 'warning:' "$temp/build.log"; then fail "the headers of cppcuda cause warnings"; fi

say "run"
cd "$temp/build"
run() { # program, arguments
  local program=$1
  shift
  clean "./$program" "$@" || fail "$program failed"
}
run calls
run models "$temp/models"
run includes_only
run links_only

for binary in calls models includes_only links_only "$library"; do
  needed=$(clean ldd "$binary")
  if grep 'not found' <<< "$needed"; then fail "$binary: a library is not found"; fi
  if grep -E 'libpython|libtorch_python' <<< "$needed"; then fail "$binary needs Python"; fi
  [[ $binary == /* ]] || grep -q "$library" <<< "$needed" || fail "$binary does not load the package"
done

say "another torch is refused"
other=$temp/other-torch
mkdir "$other"
ln -s "$torch/include" "$torch/lib" "$other/"
sed "s/^__version__ = .*/__version__ = '2.1.0'/" "$torch/version.py" > "$other/version.py"
if configure "$temp/refused" -DCMAKE_PREFIX_PATH="$prefix" -DCPPCUDA_TORCH_DIR="$other" > "$temp/refused.log" 2>&1; then
  fail "the package accepts another torch than its own"
fi
tells "$temp/refused.log" 'cppcuda was built with torch 2\.[0-9., ]+, found torch 2\.1\.0'

say "no torch is not found, and no error where cppcuda is optional"
sed -i 's/^find_package(cppcuda CONFIG REQUIRED)/find_package(cppcuda CONFIG)\nif(NOT cppcuda_FOUND)\n  return()\nendif()/' \
  "$temp/source/CMakeLists.txt"
configure "$temp/optional" -DCMAKE_PREFIX_PATH="$prefix" -DCPPCUDA_TORCH_DIR="$temp" > "$temp/optional.log" 2>&1 ||
  { cat "$temp/optional.log" && fail "a project cannot go on without cppcuda"; }
tells "$temp/optional.log" 'cppcuda: no torch found .looked in'
say "passed"
