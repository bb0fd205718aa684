#!/usr/bin/env bash
# Compiles every header of include/ alone, device code excepted: headers.sh COMPILER [JOBS]. CPU kernels also with the
# instruction sets of the last back end, headers of one set (*_avx*.hpp) only so. With --tidy instead of a compiler, runs clang-tidy on each.
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
  if [[ $tool == --tidy ]]; then
    # shellcheck disable=SC2086
    clang-tidy --quiet --config-file=.clang-tidy "$unit" -- $flags $widest 2>"$unit.log" || { cat "$unit.log"; return 1; }
  else
    local sets=("")
    case $1 in
      *_avx*.hpp) sets=("$widest") ;;
      */prim/cpu/* | */kernels/*) sets=("" "$widest") ;;
    esac
    local set
    for set in "${sets[@]}"; do
      # shellcheck disable=SC2086
      "$tool" -fsyntax-only -Werror $flags $set "$unit" ||
        { echo "$1 does not compile alone, with flags: $set"; return 1; }
    done
  fi
}
export -f check
export tool flags widest folder

find include -name '*.hpp' ! -path '*/prim/cuda/*' \( ! -path '*/kernels/flash_attention/sm80*' -o -name sm80_plan.hpp \) | sort >"$folder/list"
xargs -P "$jobs" -I{} bash -c 'check {}' <"$folder/list"
echo "$(wc -l <"$folder/list") headers"
