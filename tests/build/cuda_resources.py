#!/usr/bin/env python3
"""Registers and local memory of the CUDA kernels in a library. Fails if a row of fixed head dims uses
local memory: what did not fit in its registers lies there. Kernels of the gradients of attention may
use some (GRADIENTS). Kernels of other families hold no row in their names and are not seen.

usage: cuda_resources.py LIBRARY [--quick] | --planted NVCC   (two kernels that spill, which must be found)

With --quick, kernels of f16 and of paged and coded keys are not judged: the library was built with
TESSERA_QUICK_DEVICE_CODE, which optimises those of bf16, f32, f8 and dense keys as they are shipped."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
from cuda_resources import NOT_JUDGED_QUICK, judged_text, kernels_of  # noqa: E402

# Bytes of local memory of rows that are still to be mended: of no other row, and no more.
KNOWN: dict[str, int] = {}
# Most bytes of local memory of a thread of the gradients of attention, by backend and by what scores are:
# sums of two gradients and two tiles of scores fill the 255 registers. "all" calls a function for each
# score, whose registers it saves.
GRADIENTS = {("sm80", "plain"): 64, ("sm80", "computed"): 112, ("sm80", "all"): 384,
             ("sm90", "plain"): 48, ("sm90", "computed"): 80, ("sm90", "all"): 192,
             ("sm90", "dropped"): 48}
GRADIENT = re.compile(r"attention_backward_(sm\d\d)_\w+_gradients_\w+?_(plain|computed|all|dropped)(?![a-z])")


def known_bytes(row):
    found = GRADIENT.match(row)
    return GRADIENTS.get(found.groups(), 0) if found else KNOWN.get(row, 0)


# A kernel of a row, and one of gradients: both spill.
PLANTED = """
__device__ __forceinline__ void spill(float* data, const int* order) {
  float held[96];
  for (int i = 0; i < 96; ++i) held[i] = data[i * 1024 + threadIdx.x];
  for (int round = 0; round < order[0]; ++round) {
    for (int i = 0; i < 96; ++i) held[i] = held[i] * held[(i + 7) % 96] + data[round];
  }
  for (int i = 0; i < 96; ++i) data[i * 1024 + threadIdx.x] = held[i];
}
struct attention_cuda_sm80_bf16_d8_16x16_w1b1;
template <class Row>
__global__ void __launch_bounds__(1024, 2) spilling(float* data, const int* order) { spill(data, order); }
template __global__ void spilling<attention_cuda_sm80_bf16_d8_16x16_w1b1>(float*, const int*);
namespace tessera {
struct bf16;
namespace kernels::attention_backward::sm80 {
enum class score_kind { plain };
template <class Element, int Width, score_kind Kind>
__global__ void __launch_bounds__(1024, 2) spilling_gradients(float* data, const int* order) {
  spill(data, order);
}
template __global__ void spilling_gradients<bf16, 8, score_kind::plain>(float*, const int*);
}
}
"""


def judge(path, quick):
    """Prints what is found; the number of rows that spill and should not, or None without any row."""
    kernels = sorted(one for one in kernels_of(path) if not (quick and NOT_JUDGED_QUICK.search(one.row)))
    if not kernels:
        print(f"{path}: holds no kernel of a CUDA row")
        return None
    faults = 0
    for one in kernels:
        if one.local_bytes > 0:
            tuned = "_dany_" not in one.row
            faults += tuned and one.local_bytes > known_bytes(one.row)
            print(f"{one.row}: {one.registers} registers and {one.local_bytes} bytes of local memory a thread" +
                  ("" if tuned and one.local_bytes > known_bytes(one.row) else ", which is known" if tuned
                   else ", which a row for any head dim may have"))
    print(f"{len({one.row for one in kernels})} rows, {len(kernels)} kernels, at most "
          f"{max(one.registers for one in kernels)} registers")
    return faults


def main():
    if sys.argv[1] != "--planted":
        return 0 if judge(sys.argv[1], quick="--quick" in sys.argv) == 0 else 1
    found = judged_text(sys.argv[2], PLANTED, "80", lambda path: judge(path, quick=False))
    return 0 if found == 2 else 1


if __name__ == "__main__":
    sys.exit(main())
