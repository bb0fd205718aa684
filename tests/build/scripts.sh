#!/usr/bin/env bash
# What the set-up scripts refuse, before they touch anything.
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
for script in bench/peers/*.py tests/build/*.py tools/measure-cost tools/lib/measured-compile; do
  python3 -c 'import ast, sys; ast.parse(open(sys.argv[1]).read(), sys.argv[1])' "$script" || faults=1
done
for script in tools/quickstart tools/test tools/bench tools/device-check tools/lib/setup.sh .ci/run; do
  bash -n "$script" || faults=1
done
((faults)) || echo "the scripts refuse what they should"
exit $faults
