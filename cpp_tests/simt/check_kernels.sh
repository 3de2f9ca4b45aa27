#!/usr/bin/env bash
# Fails when the emulator did not run every kernel: each __global__ function of the sources, in each of its instances.
#
#   check_kernels.sh <repository> <cppcuda_simt_tests> <files that its runs wrote to $CPPCUDA_SIMT_KERNELS>...
set -euo pipefail

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

sources=("$1/include/cppcuda/kit" "$1/src")
# "kit::name" or "ops::<op>::name", of the sources and of the functions in the program.
declared=$(find "${sources[@]}" -name '*.cuh' -o -name '*.cu' | while read -r file; do
  namespace=$(sed -E 's|.*/cppcuda/kit/.*|kit|; s|.*/ops/([^/]*)/.*|ops::\1|' <<< "$file")
  { grep -ozP '__global__\s+void\s+(__launch_bounds__\(([^()]|\([^()]*\))*\)\s+)?\K\w+(?=\()' "$file" || true; } | tr '\0' '\n' |
    sed "s|^|$namespace::|"
done | sort -u)
[ -n "$declared" ] || fail "no kernel found in $1"
[ "$(grep -rhow '__global__' --include='*.cuh' --include='*.cu' "${sources[@]}" | wc -l)" = "$(wc -l <<< "$declared")" ] ||
  fail "a __global__ function was not understood; found:" "$declared"
other=$(grep -v '_kernel$' <<< "$declared" || true)
[ -z "$other" ] || fail "kernels whose names do not end in _kernel:" "$other"
# Static arrays in templates are neither filled nor bounds-checked by the emulator.
static=$(grep -rnE '\b__shared__\b' --include='*.cuh' --include='*.cu' "${sources[@]}" | grep -v 'kit/cuda/shared_memory.cuh' || true)
[ -z "$static" ] || fail "shared memory that is not taken from kit::shared_memory:" "$static"

# "address name" of each instance.
instances=$(nm -C --defined-only "$2" | grep -E '^[0-9a-f]+ [TtWw] (void )?cppcuda::[a-z0-9_:]+_kernel(<|\()' | grep -vE '\[clone|\{lambda' |
  sed -E 's/^0*([0-9a-f]+) . /\1 /' | sort -u)
launchable=$(sed -E 's/.* cppcuda::([a-z0-9_:]+_kernel)[<(].*/\1/' <<< "$instances" | sort -u)
missing=$(comm -23 <(echo "$launchable") <(echo "$declared"))
[ -z "$missing" ] || fail "functions named as kernels that are none:" "$missing"
missing=$(comm -13 <(echo "$launchable") <(echo "$declared"))
[ -z "$missing" ] || fail "kernels that no launcher uses:" "$missing"
missing=$(join -v 1 <(sort -k1,1 <<< "$instances") <(sort -u "${@:3}"))
[ -z "$missing" ] || fail "kernels that no test ran in the emulator:" "$missing"
echo "$(wc -l <<< "$instances") instances of $(wc -l <<< "$declared") kernels ran"
