#!/usr/bin/env bash
# The headers of include/, device code excepted: headers.sh COMPILER|--tidy [JOBS].
# With a compiler: each compiles alone, CPU kernels also with the instruction sets of the last back
# end, headers of one set (*_avx*.hpp) only so. With --tidy: clang-tidy over one unit that includes
# them all, with those instruction sets and clang's warnings.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tool=${1:?"usage: headers.sh COMPILER|--tidy [JOBS]"}
jobs=${2:-$(nproc)}
widest="-mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16"
eigen=$(pkg-config --cflags eigen3 2>/dev/null || echo -I/usr/include/eigen3)
flags="-std=c++20 -Iinclude ${eigen/-I/-isystem } -fopenmp -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-unused-function"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

check() { # HEADER: one unit that includes it twice
  local unit=$folder/${1//\//_}.cpp
  printf '#include <%s>\n#include <%s>\n' "${1#include/}" "${1#include/}" >"$unit"
  local sets=("") set
  case $1 in
    *_avx*.hpp) sets=("$widest") ;;
    */prim/cpu/* | */kernels/*) sets=("" "$widest") ;;
  esac
  for set in "${sets[@]}"; do
    # shellcheck disable=SC2086
    "$tool" -fsyntax-only -Werror $flags $set "$unit" ||
      { echo "$1 does not compile alone, with flags: $set"; return 1; }
  done
}
export -f check
export tool flags widest folder

# Device code needs nvcc, the run time of CUDA its headers.
find include -name '*.hpp' \( ! -path '*/prim/cuda/*' -o -name arrival_table.hpp \) ! -path '*/kernels/*/sm80/*' \
  ! -path '*/runtime/impl/cuda/*' ! -name launch_cuda.hpp | sort >"$folder/list"
if [[ $tool == --tidy ]]; then
  sed 's,^include/\(.*\),#include <\1>,' "$folder/list" >"$folder/all.cpp"
  # shellcheck disable=SC2086
  clang-tidy --quiet --config-file=.clang-tidy "$folder/all.cpp" -- $flags $widest 2>"$folder/log" ||
    { cat "$folder/log"; exit 1; }
else
  xargs -P "$jobs" -I{} bash -c 'check {}' <"$folder/list"
fi
echo "$(wc -l <"$folder/list") headers"
