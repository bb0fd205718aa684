// One vector register of floats per instruction set, as a set of static functions:
//
// | function | meaning |
// |---|---|
// | reg, width | the register and its floats |
// | zero, broadcast, load, store | load_n and store_n touch the first n < width floats only |
// | add, sub, mul, div, fma | fma(a, b, c) = a * b + c |
// | bit_or | of the lanes' bits |
// | max | keeps a NaN of its second operand |
// | exp2 | 2^x for x <= 127; exactly 0 for -inf; 0 or subnormal below -126; NaN stays |
// | select_below(a, b, x, y) | a < b ? x : y, lane by lane |
// | load_as, store_as (and _n) | conversion from and to f32, f16, bf16 in memory |
// | first, sum, maximum | lane 0; over all lanes |
// | sums(regs), maxima(regs) | width registers -> one register of their sums, maxima |
// | transpose(regs) | width x width block, in place |
#pragma once

#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/simd_generic.hpp>
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include <tessera/prim/cpu/simd_avx2.hpp>
#endif
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include <tessera/prim/cpu/simd_avx512.hpp>
#endif
