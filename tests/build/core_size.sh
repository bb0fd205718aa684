#!/usr/bin/env bash
# What a library weighs without its kernels: core_size.sh LIBRARY MOST, in bytes. Code and data of the
# objects that belong to no back end, as a program keeps them when symbols are stripped.
set -euo pipefail
library=${1:?"usage: core_size.sh LIBRARY MOST"}
most=${2:?}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mapfile -t members < <(ar t "$library" | grep -v -e '_units_' -e '\.cu\.o$')
((${#members[@]})) || { echo "$library: every object belongs to a back end"; exit 1; }
(cd "$folder" && ar x "$(realpath "$library")" "${members[@]}")
total=0
for member in "${members[@]}"; do
  strip --strip-unneeded "$folder/$member"
  bytes=$(size "$folder/$member" | awk 'NR == 2 { print $1 + $2 }')
  printf '%8d  %s\n' "$bytes" "$member"
  total=$((total + bytes))
done
echo "the core without kernels has $total bytes, the most is $most"
((total <= most))
