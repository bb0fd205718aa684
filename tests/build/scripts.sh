#!/usr/bin/env bash
# What the set-up scripts refuse, before they touch anything, and what tools/quickstart does in which
# order.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
faults=0

expect() { # STATUS PATTERN COMMAND...
  local status=$1 pattern=$2 output code
  shift 2
  output=$("$@" 2>&1)
  code=$?
  if [[ $code != "$status" ]] || ! grep -Eq -- "$pattern" <<<"$output"; then
    echo "$*: status $code (expected $status), expected /$pattern/ in: $output"
    faults=1
  fi
}

expect 2 "cuda needs nvcc of CUDA 12" env CUDACXX=/none/nvcc tools/quickstart --backends cpu,cuda
expect 2 "cuda needs nvcc of CUDA 12" env CUDACXX=/none/nvcc tools/quickstart --backends=cuda
expect 2 "'rocm' is not a back end; valid: cpu, cuda" tools/quickstart --backends rocm
expect 2 "needs a list" tools/quickstart --backends
expect 2 "'--fast' is not an option" tools/quickstart --fast
expect 0 "usage" tools/quickstart --help
expect 2 "usage" tools/bench --help
expect 2 "usage" tools/bench one two
expect 2 "'--fast' is not an option" tools/device-check --fast
expect 2 "'speed' is not one of: tests" tools/device-check --only speed
expect 2 "--package needs a value" tools/device-check --package
expect 0 "usage" tools/tune-machine --help
expect 2 "no model description" tools/tune-machine
expect 2 "none.json: there is no such model description" tools/tune-machine none.json
expect 2 "'--fast' is not an option" tools/tune-machine --fast
expect 2 "--output needs a value" tools/tune-machine --output
expect 2 "--budget: 'soon' is not a number of seconds" tools/tune-machine --budget soon
expect 2 "--loss: 'x%' is not a percentage" tools/tune-machine --loss=x%
# tools/quickstart with programs that only note what they are asked for.
pretended=$(mktemp -d)
trap 'rm -rf "$pretended"' EXIT
pretend() { # PROGRAM: its text is read
  mkdir -p "$pretended/bin"
  { echo '#!/usr/bin/env bash' && cat; } >"$pretended/bin/$1"
  chmod +x "$pretended/bin/$1"
}
pretend dpkg-query <<<'echo "ii "'
pretend nvcc <<<'echo "Cuda compilation tools, release 12.4, V12.4.1"'
pretend nvidia-smi <<<'echo "$GPUS"'
pretend tessera <<<'[[ $1 == list ]] && echo "\"eligible\": true" || echo "tessera $1 $([[ $* == *cuda* ]] && echo cuda)" >>"$NOTES"'
pretend cmake <<'END'
if [[ $1 == --build ]]; then
  [[ $* != *" -n" ]] || exit 0
  [[ $* != *"target tessera_command"* ]] || cp "${BASH_SOURCE[0]%/*}/tessera" "$2/bin/tessera"
  echo "build ${*: -1}" >>"$NOTES"
else
  mkdir -p "$4/bin" && touch "$4/CMakeCache.txt"
  echo "configure $([[ $* == *ARCHITECTURES=[0-9]* ]] && echo cuda)" >>"$NOTES"
fi
END
expect_steps() { # GPUS STEPS ARGUMENT...: steps are separated by commas
  local gpus=$1 steps=$2 notes=$pretended/notes found
  shift 2
  rm -rf "$pretended/build" "$notes"
  env -u TESSERA_CUDA_ARCHITECTURES PATH="$pretended/bin:$PATH" GPUS="$gpus" NOTES="$notes" \
    CUDACXX="$pretended/bin/nvcc" TESSERA_BUILD_DIR="$pretended/build" tools/quickstart "$@" &>"$pretended/said"
  found=$(sed 's/ *$//' "$notes" | paste -sd,)
  [[ $found == "$steps" ]] || {
    echo "tools/quickstart $*, GPUs '$gpus': the steps are $found, expected $steps"
    cat "$pretended/said"
    faults=1
  }
}
cpu="configure,build tessera_command,tessera check,tessera model,tessera model,tessera replay"
cuda="configure cuda,build tessera_command,tessera check cuda,tessera model cuda,tessera model cuda,tessera replay cuda"
expect_steps "GPU 0: some" "$cpu,$cuda,build tessera_package"
expect_steps "GPU 0: some" "$cpu,build tessera_package" --backends cpu
expect_steps "" "$cpu,$cuda,build tessera_package" --backends cpu,cuda
# Back ends of processors that are not this one; there is no generator to go on with.
expect_backends() { # LIST FLAGS
  rm -rf "$pretended/build"
  echo "flags : $2" >"$pretended/cpuinfo"
  expect 1 "1 of 3: every row of $1 that could serve qwen3-0.6b.json" env PATH="$pretended/bin:$PATH" \
    NOTES="$pretended/notes" TESSERA_BUILD_DIR="$pretended/build" TESSERA_CPUINFO="$pretended/cpuinfo" \
    tools/tune-machine tools/models/qwen3-0.6b.json
}
avx512="avx2 fma f16c avx512f avx512bw avx512dq avx512vl"
expect_backends cpu_generic "sse2 avx fma f16c"
expect_backends cpu_avx2 "sse2 avx2 fma f16c amx_bf16"
expect_backends cpu_avx2,cpu_avx512 "sse2 $avx512"
expect_backends cpu_avx2,cpu_avx512,cpu_avx512_vnni "$avx512 avx512_vnni"
expect_backends cpu_avx2,cpu_avx512,cpu_avx512_vnni,cpu_avx512_bf16,cpu_amx_bf16 \
  "$avx512 avx512_vnni avx512_bf16 amx_tile amx_bf16"
compgen -G '/dev/nvidia[0-9]*' >/dev/null || expect_steps "" "$cpu,build tessera_package"

for script in bench/peers/*.py tests/build/*.py tools/measure-cost tools/lib/measured-compile; do
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$script" || faults=1
done
for script in tools/quickstart tools/test tools/bench tools/tune-machine tools/device-check tools/lib/setup.sh .ci/run; do
  bash -n "$script" || faults=1
done
((faults)) || echo "the scripts refuse and do what they should"
exit $faults
