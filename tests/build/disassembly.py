#!/usr/bin/env python3
"""The hot loops of the AVX-512 attention rows keep their vectors in registers and call nothing.

usage: disassembly.py OBJECT... [--list]    judges the attention units among them
       disassembly.py --planted COMPILER    shows that it finds a spill and a call that were planted

A hot loop is an innermost loop with many packed multiply-adds (VFMADD, VDPBF16PS): the register
tiles have 28, the exponential five. Reading or writing a whole vector register on the stack within
a register tile is a spill; one per 32 multiply-adds passes, for sums that a loop hands on through
the stack. A call within any loop of packed multiply-adds is a scalar function where a vector should
be. One call is none: that of next_row, by which the loop that makes weights beside products of AMX
tiles ends a row, once for all of its columns; around it vectors lie on the stack. Rows for any head
dim (dany, and the dense row under gradients of blocksparse attention) are not judged: the compiler
keeps one vector of some of their tiles on the stack.
Ends with 77 (skipped) where objdump is missing."""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TILE = 8        # packed multiply-adds that make a loop a register tile
POLYNOMIAL = 4  # that make it worth a vector function
PER_SPILL = 32  # packed multiply-adds that pay for a vector operand on the stack
# Faults of GCC 12 that are still to be mended: the row, and the vector operands of its worst tile. No
# other row and no larger number passes.
KNOWN = {
    "attention_cpu_avx512_f32_d128_decode_16x128": 1,
    "attention_cpu_avx512_f32_d128_decode_paged_soft_cap_16x128": 1,
    "attention_cpu_avx512_f32_d256_decode_16x128": 1,
    "attention_cpu_avx512_f32_d256_decode_paged_soft_cap_16x128": 1,
    "attention_cpu_avx512_f32_d256_decode_soft_cap_16x128": 19,
    "attention_cpu_avx512_f32_d32_896x256": 30,
    "latent_attention_cpu_avx512_expanded_backward": 4,
}
ENDS_ROW = re.compile(r"softmax_steps.*next_row")
ANY_HEAD_DIM = re.compile(r"_dany_|\bdense_gradient_row\b|18dense_gradient_row")
ROW = re.compile(r"rows::(?:\d+)?((?:latent_|sparse_)?attention_cpu_\w+)|"
                 r"rows\d+((?:latent_|sparse_)?attention_cpu_\w+?)E")

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\s+(\S+)\s*(.*)$")
RELOCATION = re.compile(r"^\s+[0-9a-f]+: R_X86_64_\S+\s+(\S+?)(?:[-+]0x[0-9a-f]+)?$")
MULTIPLY_ADD = re.compile(r"^(vfn?m(add|sub)\d+ps|vdpbf16ps)$")
VECTOR = re.compile(r"\b[yz]mm\d+\b")
JUMP = re.compile(r"^j\w+$")


class Function:
    def __init__(self, name):
        self.name = name
        self.code = []       # (address, mnemonic, operands)
        self.called = {}     # index of an instruction -> name from the relocation
        self.framed = False  # rbp points at the stack

    def add(self, address, mnemonic, operands):
        self.code.append((address, mnemonic, operands))
        self.framed |= mnemonic == "mov" and operands.replace(" ", "") == "rbp,rsp"

    def on_stack(self, operands, register):
        base = r"\[(rsp|rbp)\b" if self.framed else r"\[rsp\b"
        return re.search(base, operands) and register in operands

    def innermost_loops(self):
        """(first, last) indices of backward jumps that hold no other."""
        place = {address: index for index, (address, _, _) in enumerate(self.code)}
        loops = []
        for index, (address, mnemonic, operands) in enumerate(self.code):
            target = re.match(r"([0-9a-f]+)\b", operands)
            if JUMP.match(mnemonic) and target and int(target[1], 16) <= address:
                first = place.get(int(target[1], 16))
                if first is not None:
                    loops.append((first, index))
        return [one for one in loops
                if not any(other != one and one[0] <= other[0] and other[1] <= one[1]
                           for other in loops)]


def functions_of(path, objdump, wanted):
    text = subprocess.run([objdump, "-dr", "--no-show-raw-insn", "-M", "intel", str(path)],
                          capture_output=True, text=True, check=True).stdout
    member, current = "", None
    for line in text.splitlines():
        if line.endswith(("elf64-x86-64", "file format elf64-x86-64")):
            member, current = line.split(":")[0], None
            continue
        found = FUNCTION.match(line)
        if found:
            if current is not None:
                yield current
            current = Function(found[1]) if wanted(member, found[1]) else None
            continue
        if current is None:
            continue
        relocation = RELOCATION.match(line)
        if relocation:
            current.called[len(current.code) - 1] = relocation[1]
            continue
        found = INSTRUCTION.match(line)
        if found:
            current.add(int(found[1], 16), found[2], found[3])
    if current is not None:
        yield current


def tolerated(name):
    """Vector operands on the stack that the function's row may have in a tile."""
    found = ROW.search(name)
    return KNOWN.get(found[1] or found[2], 0) if found else 0


def judge(function):
    """(register tiles, loops of a polynomial, faults): of each kind of fault the worst loop."""
    tiles, polynomials, calls, spills = 0, 0, [], []
    for first, last in function.innermost_loops():
        body = range(first, last + 1)
        packed = sum(1 for index in body if MULTIPLY_ADD.match(function.code[index][1])
                     and VECTOR.search(function.code[index][2]))
        if packed < POLYNOMIAL:
            continue
        tiles += packed >= TILE
        polynomials += packed < TILE
        offset = function.code[first][0] - function.code[0][0]
        where = f"+{offset:#x}, a loop of {packed} packed multiply-adds,"
        ends_rows = False
        for index in body:
            _, mnemonic, operands = function.code[index]
            if mnemonic == "call":
                target = function.called.get(index) or operands.partition("<")[2].rstrip(">")
                if target and ENDS_ROW.search(target):
                    ends_rows = True
                    continue
                calls.append((packed, f"{where} calls {target or operands}"))
        # Only registers as wide as the products: a narrower copy hands results on.
        width = "zmm" if any("zmm" in function.code[index][2] for index in body) else "ymm"
        on_stack = sum(1 for index in body if function.on_stack(function.code[index][2], width))
        if packed >= TILE and not ends_rows and on_stack > max(packed // PER_SPILL,
                                                               tolerated(function.name)):
            spills.append((on_stack / packed,
                           f"{where} has {on_stack} vector operands on the stack"))
    worst = [max(kind) for kind in (calls, spills) if kind]
    return tiles, polynomials, [f"{function.name}: {text}" for _, text in worst]


def check(path, objdump, wanted, listing=False):
    tiles, polynomials, faults = 0, 0, []
    for function in functions_of(path, objdump, wanted):
        more_tiles, more_polynomials, more_faults = judge(function)
        if listing and more_tiles + more_polynomials:
            print(f"{more_tiles:4} {more_polynomials:4}  {function.name}")
        tiles, polynomials = tiles + more_tiles, polynomials + more_polynomials
        faults += more_faults
    return tiles, polynomials, faults


PLANTED = r"""
#include <immintrin.h>
extern "C" float expf(float);
template <int Rows>
__attribute__((always_inline)) static inline void tile(const float* a, const float* b, float* c,
                                                       long n) {
  __m512 sum[Rows][2];
#pragma GCC unroll 32
  for (int r = 0; r < Rows; ++r) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
  for (long k = 0; k < n; ++k) {
    const __m512 left = _mm512_loadu_ps(b + 32 * k), right = _mm512_loadu_ps(b + 32 * k + 16);
#pragma GCC unroll 32
    for (int r = 0; r < Rows; ++r) {
      const __m512 row = _mm512_set1_ps(a[k + 512 * r]);
      sum[r][0] = _mm512_fmadd_ps(row, left, sum[r][0]);
      sum[r][1] = _mm512_fmadd_ps(row, right, sum[r][1]);
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < Rows; ++r) {
    _mm512_storeu_ps(c + 32 * r, sum[r][0]);
    _mm512_storeu_ps(c + 32 * r + 16, sum[r][1]);
  }
}
extern "C" void clean(const float* a, const float* b, float* c, long n) { tile<14>(a, b, c, n); }
extern "C" void spilling(const float* a, const float* b, float* c, long n) { tile<20>(a, b, c, n); }
extern "C" void calling(float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) {
    __m512 p = _mm512_loadu_ps(x + 16 * i);
#pragma GCC unroll 8
    for (int k = 0; k < 6; ++k) p = _mm512_fmadd_ps(p, p, _mm512_set1_ps(y[k]));
    _mm512_storeu_ps(x + 16 * i, p);
    y[0] = expf(y[0]);
  }
}
"""


def planted(compiler, objdump):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "planted.cpp"
        source.write_text(PLANTED)
        done = source.with_suffix(".o")
        subprocess.run([compiler, "-O3", "-mavx512f", "-mfma", "-fno-math-errno", "-c", str(source),
                        "-o", str(done)], check=True)
        wrong = []
        for name, expected in (("clean", None), ("spilling", "on the stack"),
                               ("calling", "calls expf")):
            tiles, polynomials, faults = check(done, objdump, lambda _, found: found == name)
            if tiles + polynomials == 0:
                wrong.append(f"{name}: its loop was not found")
            if expected is None and faults:
                wrong.append(f"{name}: {faults[0]}")
            if expected and not any(expected in fault for fault in faults):
                wrong.append(f"{name}: planted, and not found ('{expected}')")
        print("\n".join(wrong) if wrong else "the planted spill and call are found")
        return 1 if wrong else 0


def main():
    objdump = shutil.which("objdump")
    if objdump is None:
        print("objdump is not installed (Debian and Ubuntu: binutils)")
        return 77
    if sys.argv[1] == "--planted":
        return planted(sys.argv[2], objdump)
    tiles, polynomials, faults = 0, 0, []
    for unit in (path for path in sys.argv[1:] if "attention" in pathlib.Path(path).name):
        backend = pathlib.Path(unit).parent.name  # rows for tiles of AMX have loops of AVX-512 too
        judged = lambda _, name, of=backend: ("avx512" in of + name and "attention" in name
                                              and not ANY_HEAD_DIM.search(name))
        more_tiles, more_polynomials, more_faults = check(unit, objdump, judged, "--list" in sys.argv)
        tiles, polynomials, faults = tiles + more_tiles, polynomials + more_polynomials, faults + more_faults
    if tiles == 0:
        faults.append("no register tile in the AVX-512 attention rows: nothing judged")
    if faults and shutil.which("c++filt"):
        faults = subprocess.run(["c++filt"], input="\n".join(faults), capture_output=True,
                                text=True, check=True).stdout.splitlines()
    print("\n".join(faults) if faults else
          f"{tiles} register tiles and {polynomials} shorter loops of the AVX-512 attention rows: "
          "no vector on the stack but those of KNOWN, no call")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
