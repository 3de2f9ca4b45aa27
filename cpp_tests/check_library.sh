#!/usr/bin/env bash
# Checks of the built library that are not about what its functions compute.
#
#   check_library.sh dependencies|exports|parallel <libcppcuda.so> <file with the paths of its objects>
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
  *) fail "unknown check $1" ;;
esac
