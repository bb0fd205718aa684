#!/usr/bin/env bash
# What the generator refuses and how: generator.sh GENERATOR SOURCE_FOLDER.
set -uo pipefail
generator=${1:?"usage: generator.sh GENERATOR SOURCE_FOLDER"}
source=${2:?}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
faults=0
costs=$source/generated/cost

expect() { # STATUS PATTERN ARGUMENT...
  local status=$1 pattern=$2 output code
  shift 2
  output=$("$generator" --costs "$costs" "$@" 2>&1)
  code=$?
  if [[ $code != "$status" ]] || ! grep -Eq -- "$pattern" <<<"$output"; then
    echo "tessera-generate $*: status $code (expected $status), expected /$pattern/ in:"
    echo "$output" | head -20
    faults=1
  fi
}
rows() { printf '%s\n' "$@" >"$folder/rows.txt"; }
known=$(grep -o '"attention[^"]*"' "$source/generated/rows/attention.inc" | head -1 | tr -d '"')

expect 0 "total" --dry-run
expect 0 "dropped [0-9]+: cpu_avx512_bf16 and cpu_amx_bf16 rows have type bf16" --dry-run
expect 0 "" --output "$source/generated" --check

expect 0 "files" --output "$folder/table"
expect 0 "" --output "$folder/table" --check
expect 0 " 0 written, 0 removed" --output "$folder/table"
sed -i '5s/$/ /' "$folder/table/rows/attention.inc"
expect 1 "differs  rows/attention.inc: line 5" --output "$folder/table" --check
rm "$folder/table/units/runtime.cpp"
expect 1 "missing  units/runtime.cpp" --output "$folder/table" --check
cp "$folder/table/units/attention.cpp" "$folder/table/units/left_over.cpp"
expect 1 "orphan   units/left_over.cpp" --output "$folder/table" --check
expect 0 " 2 written, 1 removed" --output "$folder/table"
echo "int mine;" >"$folder/table/units/runtime.cpp"
expect 2 "runtime.cpp: exists and was not generated" --output "$folder/table"

# Kernels of the CPU and of CUDA have digests of their own; comments count for neither.
edited=$folder/edited
cp -r "$source/include" "$edited"
digest() { grep -h "device_kind::$1" "$folder/table/units/attention.cpp"; }
append() { # HEADER TEXT EXPECTED: the digests that differ afterwards
  local cpu cuda found=""
  cpu=$(digest cpu) cuda=$(digest cuda)
  echo "$2" >>"$edited/tessera/$1"
  expect 0 "files" --output "$folder/table" --include "$edited"
  [[ $cpu == "$(digest cpu)" ]] || found+=" cpu"
  [[ $cuda == "$(digest cuda)" ]] || found+=" cuda"
  if [[ -z $cpu || -z $cuda || $found != "$3" ]]; then
    echo "$1 and '$2': digests that differ are '$found', expected '$3'"
    faults=1
  fi
}
rm "$folder/table/units/runtime.cpp"
append kernels/attention/sm80/launch.hpp "// a comment" ""
append kernels/attention/sm80/launch.hpp "struct edited;" " cuda"
append kernels/attention/sm90/launch.hpp "struct edited;" " cuda"
append kernels/attention/cpu/launch.hpp "struct edited;" " cpu"
append families/attention/kernel_args.hpp "struct edited;" " cpu cuda"
# Lines of lookup tables name the kernels that they were measured with.
cp -r "$source/generated/lookup" "$folder/table/lookup"
stale="[1-9][0-9]* of [1-9][0-9]* lines were measured with other kernels"
expect 0 "$stale" --output "$folder/table" --include "$edited"
grep -q "$(digest cpu | grep -o '[0-9a-f]\{16\}')" "$folder"/table/lookup/cpu*.txt && { echo "a stale line is renewed unasked"; faults=1; }
expect 0 "lines have the digest of the present kernels" --output "$folder/table" --include "$edited" --restamp
if "$generator" --costs "$costs" --output "$folder/table" --include "$edited" --check 2>&1 | grep -Eq "$stale"; then
  echo "lines are stale behind --restamp"
  faults=1
fi
expect 0 "$stale" --output "$folder/table"

# A build that lacks the back end of a line's row lacks the line.
hopper=$(grep -o '"attention.cuda_sm90[^"]*"' "$source/generated/rows/attention.inc" | head -1 | tr -d '"')
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$source/tests/build python3 -c \
  'import sys; from lookup_lines import lookup_line; print(lookup_line(row=sys.argv[1]), end="")' \
  "$hopper" >"$folder/table/lookup/some_gpu.txt"
expect 0 "some_gpu.txt: 1 of 1 lines were measured with other kernels" --output "$folder/table"
of_hopper="/defined(TESSERA_CUDA_SM90)/,/#endif/"
sed "$of_hopper!d" "$folder/table/units/lookup.cpp" | grep -q "$hopper" || { echo "no line of $hopper"; faults=1; }
sed "$of_hopper d" "$folder/table/units/lookup.cpp" | grep -q "$hopper" && { echo "every build has a line of $hopper"; faults=1; }
rm "$folder/table/lookup/some_gpu.txt"

expect 0 "written" --output "$folder/table"
expect 0 "" --output "$folder/table" --check

rows "# a comment" "" "  $known  # and another" "$known"
expect 0 "1 rows in 1 units" --rows "$folder/rows.txt" --dry-run
rows "$known" "attention.cpu_avx2.f32.d80.48x128"
expect 0 "2 rows in" --rows "$folder/rows.txt" --dry-run
rows "$known" "${known%?}"
expect 2 "rows.txt:2: '.*nearest rows" --rows "$folder/rows.txt"
rows "attention.cpu_avx2.f32.d64.47x128"
expect 2 "rows.txt:1: .*is not a legal row: block_q of a prefill row is a positive multiple of the register tile's rows" --rows "$folder/rows.txt"
rows "attention.cpu_avx2.f32.d064.48x128"
expect 2 "own name, attention.cpu_avx2.f32.d64.48x128" --rows "$folder/rows.txt"
rows "attention.cpu_avx2.f32.d64.causal.48x128"
expect 2 "is not the name of a row" --rows "$folder/rows.txt"
cuda=attention.cuda_sm80.bf16.d80.128x64
rows "$cuda.w4b2" "$cuda.w4b2r" attention.cuda_sm80.f16.d128.soft_cap.128x64.w4b2
expect 0 "3 rows in 2 units" --rows "$folder/rows.txt" --dry-run
for wrong in "$cuda" "$cuda.w4" "$cuda.w4b" "$cuda.4b2" "$cuda.w4b2x" "$cuda.w04b2"; do
  rows "$wrong"
  expect 2 "is not the name of a row|own name, $cuda.w4b2" --rows "$folder/rows.txt"
done
rows "attention.cuda_sm80.bf16.d80.120x64.w4b2"
expect 2 "is not a legal row: block_q of a CUDA row is a positive multiple of 16 rows for each warp" --rows "$folder/rows.txt"
rows "attention.cuda_sm80.bf16.d256.128x64.w4b1"
expect 2 "is not a legal row: the tiles of a CUDA row take at most 166912 bytes of shared memory" --rows "$folder/rows.txt"
rows "attention.cpu_avx2.f32.d80.48x128.w4b2"
expect 2 "is not the name of a row" --rows "$folder/rows.txt"
models=$source/tools/models
for model in llama-3.1-8b gemma-3-1b gpt-oss-20b; do
  expect 0 "attention: [1-9][0-9]* rows" --models "$models/$model.json" --backends cuda_sm80 --dry-run
done
echo "flash_attention q=[1,64,8,36]bf16 k=[1,64,8,36]" >"$folder/odd.txt"
expect 0 "attention: 1 rows" --trace "$folder/odd.txt" --backends cuda_sm80 --dry-run
rows "ragged_fwd.cpu_avx2.f32.d64.causal.48x128"
expect 2 "belongs to no family" --rows "$folder/rows.txt"
rows attention.cpu_avx512.f32.d64.448x256 attention.cpu_avx512.f32.d64.decode.16x64
expect 0 "attention: 12 rows" --rows "$folder/rows.txt" --candidates --dry-run
expect 2 "--candidates: of which rows" --candidates --dry-run
rows "# nothing"
expect 2 "name no row" --rows "$folder/rows.txt"
expect 2 "cannot read" --rows "$folder/none.txt"
expect 2 "cannot read" --rows "$folder"
rows "attention.cpu_avx2.f32.d64.48x128"
expect 2 "none of the 1 rows is of the backends cpu_avx512" --rows "$folder/rows.txt" --backends cpu_avx512
expect 0 "1 rows" --rows "$folder/rows.txt" --backends cpu --dry-run
expect 2 "'cuda_sm70' is not a backend" --backends cuda_sm70

expect 1 "the budget is 5" --budget-rows 5
expect 1 "the budget is 1 s" --budget-seconds 1 --dry-run
expect 1 "bytes, the budget is 100" --budget-bytes 100
mkdir "$folder/cost"
echo "$known 61 100 100" >"$folder/cost/attention.txt"
costs=$folder/cost
expect 1 "the budget of a unit is 60" --dry-run
echo "$known 1 2000 100" >"$folder/cost/attention.txt"
expect 1 "MiB, the budget of a unit is 1536 MiB"  --dry-run
echo "$known much" >"$folder/cost/attention.txt"
expect 2 "attention.txt:1: expected" 
expect 2 "" --no-such-option

((faults)) || echo "the generator refuses what it should"
exit $faults
