#!/usr/bin/env bash
# Fails when the emulator did not run every kernel: each __global__ function of the sources, in each of its instances.
#
#   check_kernels.sh <program> <folder with sources>... -- <files that its runs wrote to $CPPCUDA_SIMT_KERNELS>...
set -euo pipefail

fail() {
  printf '%s\n' "$@" >&2
  exit 1
}

program=$1
sources=()
shift
while [ "$1" != -- ]; do
  sources+=("$1")
  shift
done
shift
launched=("$@")

# "my_ops::name" of each kernel in the sources. The namespace is the first one that the file opens.
declared=$(find "${sources[@]}" -name '*.cuh' -o -name '*.cu' | while read -r file; do
  namespace=$(sed -nE '/^namespace [a-z]/{s/^namespace ([a-z0-9_:]+)(::inline .*)? \{.*/\1/p;q}' "$file")
  { grep -ozP '__global__\s+void\s+(__launch_bounds__\(([^()]|\([^()]*\))*\)\s+)?\K\w+(?=\()' "$file" || true; } | tr '\0' '\n' |
    sed "s|^|$namespace::|"
done | sort -u)
[ -n "$declared" ] || fail "no kernel found in ${sources[*]}"
[ "$(grep -rhow '__global__' --include='*.cuh' --include='*.cu' "${sources[@]}" | wc -l)" = "$(wc -l <<< "$declared")" ] ||
  fail "a __global__ function was not understood; found:" "$declared"
other=$(grep -v '_kernel$' <<< "$declared" || true)
[ -z "$other" ] || fail "kernels whose names do not end in _kernel:" "$other"
# Static arrays in templates are neither filled nor bounds-checked by the emulator.
static=$(grep -rnE '\b__shared__\b' --include='*.cuh' --include='*.cu' "${sources[@]}" | grep -v 'kit/cuda/shared_memory.cuh' || true)
[ -z "$static" ] || fail "shared memory that is not taken from kit::shared_memory or kit::warp_memory:" "$static"

# "address name" of each instance, without the inline namespace of the kit's version and anonymous namespaces.
instances=$(nm -C --defined-only "$program" | sed -E 's/kit::v[0-9_]+::/kit::/g; s/\(anonymous namespace\):://g' |
  grep -E '^[0-9a-f]+ [TtWw] (void )?[a-z0-9_:]+_kernel(<|\()' | grep -vE '\[clone|\{lambda' |
  sed -E 's/^0*([0-9a-f]+) . (void )?/\1 /' | sort -u)
launchable=$(sed -E 's/^[0-9a-f]+ ([a-z0-9_:]+_kernel)[<(].*/\1/' <<< "$instances" | sort -u)
missing=$(comm -23 <(echo "$launchable") <(echo "$declared"))
[ -z "$missing" ] || fail "functions named as kernels that are none:" "$missing"
# A library need not use every kernel of the kit.
missing=$(comm -13 <(echo "$launchable") <(echo "$declared") | grep -v '^cppcuda::kit::' || true)
[ -z "$missing" ] || fail "kernels that no launcher uses:" "$missing"
missing=$(join -v 1 <(sort -k1,1 <<< "$instances") <(sort -u "${launched[@]}"))
[ -z "$missing" ] || fail "kernels that no test ran in the emulator:" "$missing"
echo "$(wc -l <<< "$instances") instances of $(wc -l <<< "$launchable") kernels ran"
