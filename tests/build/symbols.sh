#!/usr/bin/env bash
# What the objects of a library may hold: symbols.sh LIBRARY [--initialisers].
# The objects of a CPU back end define launchers only, so that no inline function compiled with the
# flags of an instruction set can become the program's copy. With --initialisers also: nothing in
# the library runs before main, but for nvcc's own registration of kernels (*.cu.o).
set -euo pipefail
library=${1:?"usage: symbols.sh LIBRARY [--initialisers]"}

faults=0
units=$(ar t "$library" | grep -c '_units_' || true)
((units > 0)) || { echo "$library: has no objects of back ends"; exit 1; }
while IFS= read -r line; do
  echo "$line: a global symbol beside the launchers"
  faults=1
done < <(nm -A --defined-only --extern-only "$library" | grep '_units_' |
  grep -Ev ' [TW] _ZN7tessera7kernels(16cpu_entry_points|[0-9]+[a-z_]+3cpu(6launch|15workspace_bytes)INS_4rows)' || true)

if [[ ${2:-} == --initialisers ]]; then
  while IFS= read -r line; do
    echo "$library: $line: runs before main"
    faults=1
  done < <(objdump -h "$library" | awk '/file format/ { object = $1 } object !~ /\.cu\.o:?$/ && $2 ~ /^\.(init_array|ctors)/ { print object " " $2 }')
fi
((faults)) || echo "$units objects of back ends define launchers only"
exit $faults
