#!/usr/bin/env python3
"""Machine code of the attention rows of cuda_sm90, read off the cubins in a library: products are those of
a warpgroup and follow one another without a wait (ptxas runs them one after the other where it sees a
hazard: warnings C7510 to C7519), the copy unit brings tiles, and the exponentials of a tile stand between
the wait for its scores and the wait for the products beside them.

usage: cuda_instructions.py LIBRARY [--quick] | --planted NVCC   (kernels with one fault each, which must be found)

With --quick, kernels of f16 and of paged and coded keys are not judged: the library was built with
TESSERA_QUICK_DEVICE_CODE, which optimises those of bf16, f8 and dense keys as they are shipped."""
import pathlib
import re
import struct
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/lib"))
from cuda_resources import NOT_JUDGED_QUICK, ROW, code_of, judged_text  # noqa: E402

ROW_OF_SM90 = re.compile(r"attention_cuda_sm90_\w*?_(\d+)x(\d+)_w\d+b\d+")
# The lowest 12 bits of an instruction of sm_90, 16 bytes: HGMMA and QGMMA with A in shared memory or in
# registers, UTMALDG, MUFU, and what begins products of a warpgroup or waits for them.
PRODUCTS = {0x9f0, 0xdf0, 0x9f3, 0xdf3}
COPY, SPECIAL, WARPGROUP = 0x5b4, 0x308, 0x9c5
WAITS = 1 << 47                  # of WARPGROUP: it waits
ALL_BUT_ONE = 0x100              # in the upper half of one that waits: for all products but the last group
EXPONENTIAL, KINDS = 0x800, 0xf00  # in the upper half of MUFU


def events(code):
    """The instructions that matter, in the order of their addresses: p(roduct), c(opy), e(xponential),
    w(ait for all), s (wait for all but the last group)."""
    for low, high in struct.iter_unpack("<QQ", code):
        kind = low & 0xfff
        if kind in PRODUCTS:
            yield "p"
        elif kind == COPY:
            yield "c"
        elif kind == SPECIAL and high & KINDS == EXPONENTIAL:
            yield "e"
        elif kind == WARPGROUP and low & WAITS:
            yield "s" if high & ALL_BUT_ONE else "w"


def faults_of(row, code):
    """What is wrong with the kernel of a row."""
    order = "".join(events(code))
    products, waits = order.count("p"), order.count("w") + order.count("s")
    faults = []
    if products == 0:
        faults.append("no product of a warpgroup")
    if products < 2 * waits:
        faults.append(f"{products} products with {waits} waits among them: they run one after the other")
    if "c" not in order:
        faults.append("no tile is brought by the copy unit")
    # A lane has half as many scores as its tile has keys.
    wanted = int(ROW_OF_SM90.search(row)[2]) // 2
    between = [part.count("e") for part in re.findall("s([^sw]*)w", order)]
    if max(between, default=0) < wanted:
        faults.append(f"{max(between, default=0)} exponentials between the waits for scores and for the products "
                      f"beside them, {wanted} expected")
    return faults


def judge(path, quick):
    """Prints what is found; the number of kernels with faults, or None without any kernel."""
    judged, wrong = 0, 0
    for name, code in code_of(path):
        row = ROW.search(name)
        # Rows over pages have a kernel of sm80 beside theirs.
        if not row or not ROW_OF_SM90.search(row[0]) or "14forward_kernelI" not in name or "4sm80" in name:
            continue
        if quick and NOT_JUDGED_QUICK.search(row[0]):
            continue
        judged += 1
        faults = faults_of(row[0], code)
        wrong += bool(faults)
        for fault in faults:
            print(f"{row[0]}: {fault}")
    if judged == 0:
        print(f"{path}: holds no kernel of an attention row of cuda_sm90")
        return None
    print(f"{judged} kernels of attention rows of cuda_sm90, {wrong} with faults")
    return wrong


# Of a tile of 16 keys: as it should be; products that wait for one another; exponentials behind both
# waits; no copy.
PLANTED = """
struct attention_cuda_sm90_bf16_d16_64x16_w8b1;
template <class Row, bool Serial, bool Late, bool Copies>
__global__ void forward_kernel(float* data, const unsigned long long* at) {
  float x[8], y[8];
  for (int i = 0; i < 8; ++i) x[i] = y[i] = data[threadIdx.x + i];
  const unsigned long long a = at[0], b = at[1];
  const auto multiply = [&](float (&c)[8]) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, 0, 0;"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
                 : "l"(a), "l"(b));
  };
  const auto weigh = [](float (&c)[8]) {
    for (float& f : c) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(f));
  };
  if constexpr (Copies) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%0, %0}], [%0];"
                 ::"r"(0), "l"(a) : "memory");
  }
  for (int round = 0; round < static_cast<int>(at[2]); ++round) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int step = 0; step < 4; ++step) {
      multiply(x);
      if constexpr (Serial) {
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
      }
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    for (int step = 0; step < 4; ++step) multiply(y);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if constexpr (!Late) weigh(x);
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if constexpr (Late) weigh(y);
  }
  for (int i = 0; i < 8; ++i) data[threadIdx.x + i] = x[i] + y[i];
}
using row = attention_cuda_sm90_bf16_d16_64x16_w8b1;
template __global__ void forward_kernel<row, false, false, true>(float*, const unsigned long long*);
template __global__ void forward_kernel<row, true, false, true>(float*, const unsigned long long*);
template __global__ void forward_kernel<row, false, true, true>(float*, const unsigned long long*);
template __global__ void forward_kernel<row, false, false, false>(float*, const unsigned long long*);
"""


def main():
    if sys.argv[1] != "--planted":
        return 0 if judge(sys.argv[1], quick="--quick" in sys.argv) == 0 else 1
    found = judged_text(sys.argv[2], PLANTED, "90a", lambda path: judge(path, quick=False))
    return 0 if found == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
