#!/usr/bin/env bash
# What a library weighs without its kernels: core_size.sh LIBRARY SHARED FAMILY [NAME=FAMILY...], the most
# bytes of what all families share, of a family, and of families that are named. Code and data of the
# objects that belong to no back end, as a program keeps them when symbols are stripped.
set -euo pipefail
usage="usage: core_size.sh LIBRARY SHARED FAMILY [NAME=FAMILY...]"
library=${1:?$usage}
most_shared=${2:?$usage}
most_of_family=${3:?$usage}
declare -A most_of
for named in "${@:4}"; do most_of[${named%%=*}]=${named#*=}; done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

mapfile -t members < <(ar t "$library" | grep -v -e '_units_' -e '\.cu\.o$')
((${#members[@]})) || { echo "$library: every object belongs to a back end"; exit 1; }
library=$(realpath "$library")
(cd "$folder" && ar x "$library" "${members[@]}")
shared=0 total=0 failed=0
for member in "${members[@]}"; do
  strip --strip-unneeded "$folder/$member"
  bytes=$(size "$folder/$member" | awk 'NR == 2 { print $1 + $2 }')
  printf '%8d  %s\n' "$bytes" "$member"
  total=$((total + bytes))
  case $member in
    runtime.* | families.* | lookup.*) shared=$((shared + bytes)) ;;
    *)
      most=${most_of[${member%%.*}]:-$most_of_family}
      if ((bytes > most)); then
        echo "$member has $bytes bytes, the most is $most"
        failed=1
      fi
      ;;
  esac
done
echo "the core without kernels has $total bytes, of which all families share $shared; the most is $most_shared"
((shared <= most_shared && failed == 0))
