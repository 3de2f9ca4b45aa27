#!/usr/bin/env bash
# Checks of the built library that are not about what its functions compute.
#
#   check_library.sh dependencies|exports|parallel <libcppcuda.so> <file with the paths of its objects>
#   check_library.sh kernels <libcppcuda_kernels.so>
#   check_library.sh capabilities <libcppcuda_kernels.so> <file with the paths of the CPU kernels' objects>
#   check_library.sh paths <libcppcuda.so> <file with the folders of the source, the build and torch>
set -euo pipefail
library=$2

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

case $1 in
  dependencies)
    dynamic=$(readelf -d "$library")
    # A program without Python must be able to load it.
    if grep -E 'NEEDED.*(libpython|libtorch_python)' <<< "$dynamic"; then fail "$library needs Python"; fi
    if grep 'TEXTREL' <<< "$dynamic"; then fail "$library is not position independent"; fi
    # One build serves torch with and without CUDA, of any version.
    needed=$(sed -nE 's/.*NEEDED.*\[(.*)\]$/\1/p' <<< "$dynamic" | grep -vE '^(libstdc\+\+|libgomp|libgcc_s|libm|libc|ld-linux.*|libasan|libubsan)\.so' | sort | xargs)
    [ "$needed" = "libc10.so libcppcuda_kernels.so libtorch_cpu.so" ] || fail "$library needs $needed"
    ;;
  kernels)
    needed=$(readelf -d "$library" | sed -nE 's/.*NEEDED.*\[(.*)\]$/\1/p' | grep -vE '^(libstdc\+\+|libgcc_s|libm|libc|ld-linux.*|libasan|libubsan)\.so' || true)
    [ -z "$needed" ] || fail "$library needs $needed"
    exported=$(nm -DC --defined-only "$library" | cut -d' ' -f2- | grep -vE '^[VWu] (.* )?(std|__gnu_cxx)::' || true)
    [ "$exported" = "T cppcuda_kernels_v1" ] || fail "$library exports" "$exported"
    # nvcc compiles a call of a __device__ function to exit(1), without a message, if the caller is a host template.
    if nm -D --undefined-only "$library" | grep -E ' exit(@|$)'; then fail "host code of $library calls a __device__ function"; fi
    # Symbols of torch's: its 16-bit types may only be among the arguments.
    torch=$(nm -C "$library" | cut -c18- | grep -E '^. ([a-z ]*[ &*])?(at|c10|torch)::' | grep -vE '^[rdbtRVWu] (typeinfo|vtable)' || true)
    [ -z "$torch" ] || fail "$library has symbols of torch:" "$torch"
    ;;
  exports)
    # Templates of torch's and the standard library's are weak and may stay; of ours only what <cppcuda/...> declares.
    exported=$(nm -DC --defined-only "$library" | cut -d' ' -f2-)
    [ -n "$exported" ] || fail "$library exports nothing"
    private=$(grep -E '^[TDBRVWu] ' <<< "$exported" | grep 'cppcuda::' | grep -vE '^T cppcuda::[a-z0-9_]+\(' || true)
    [ -z "$private" ] || fail "private symbols are exported:" "$private"
    foreign=$(grep -E '^[TDBR] ' <<< "$exported" | grep -v '^T cppcuda::' || true)
    [ -z "$foreign" ] || fail "symbols of others are exported:" "$foreign"
    if grep nlohmann <<< "$exported"; then fail "the stub of nlohmann::json left symbols"; fi
    ;;
  parallel)
    # at::parallel_for in a file that is compiled without -fopenmp is serial, and nothing says so.
    parallel=0
    while read -r object; do
      symbols=$(nm -u "$object")
      grep -q 'at8internal14set_thread_num' <<< "$symbols" || continue
      grep -q GOMP_parallel <<< "$symbols" || fail "$object calls at::parallel_for and is serial: -fopenmp is missing"
      parallel=$((parallel + 1))
    done < "$3"
    [ "$parallel" -gt 0 ] || fail "no object calls at::parallel_for"
    ;;
  capabilities)
    # What is compiled for a better processor must be called through its capability only. An inline function of others that
    # were compiled there too might be the copy that the linker keeps, and an initialiser runs on every processor.
    kernels=0
    while read -r object; do
      symbols=$(nm -C "$object" | cut -c18-)
      shared=$(grep -E '^[uvVwW] ' <<< "$symbols" | grep -vE '(base|avx2|avx512)::' || true)
      [ -z "$shared" ] || fail "$object has functions that other files may call:" "$shared"
      # Another file of kernels for the same processor may have it.
      isa=$(sed -nE 's/.*_kernels_(base|avx2|avx512)\.dir.*/\1/p' <<< "$object")
      needed=$(grep -E '^U ' <<< "$symbols" | grep -vE '^U (mem(cpy|set|move)|_GLOBAL_OFFSET_TABLE_|__(asan|ubsan|gcov|stack_chk).*)$' |
        grep -vE "^U [^<(]*::${isa:-none}::|^U cppcuda::kit::[^:]*::detail::(float|double)_functions$" || true)
      [ -z "$needed" ] || fail "$object calls functions that are not its own:" "$needed"
      if grep -q '_GLOBAL__sub_I' <<< "$symbols"; then fail "$object has an initialiser"; fi
      kernels=$((kernels + $(grep -c '^[WT] ' <<< "$symbols")))
    done < "$3"
    [ "$kernels" -gt 0 ] || fail "no CPU kernels"
    ;;
  paths)
    # What is loaded with the library; debug information may name files. RUNPATH must say where torch is.
    runpath=$(readelf -d "$library" | sed -nE 's/.*\((RUNPATH|RPATH)\).*\[(.*)\]$/\2/p')
    strings=$(strings -d "$library" | grep -vxF "$runpath")
    [ -n "$strings" ] || fail "$library has no strings"
    if grep -F -f "$3" <<< "$strings"; then fail "$library names folders of the machine that built it"; fi
    ;;
  *) fail "unknown check $1" ;;
esac
