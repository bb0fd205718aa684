// The matrix product of a warpgroup (PTX wgmma, sm_90a): 64 rows times N columns of 16-bit
// elements, 16 deep, or of f8_e4m3 or i8, 32 deep, with f32 sums in registers, of i8 whole numbers.
//
// Operands in shared memory are panels (tensor_map.hpp): a row of 128 bytes, 16-byte chunk c of row
// r at c ^ (r % 8), each panel at a multiple of 1024 bytes. Those of 8 bits never lie across.
//
// | operand | a row of its panels is | 16 deeper is | the next panel has |
// |---|---|---|---|
// | A and B | a row of A, a column of B | 32 bytes on | the next 64 deep |
// | across, and B of `sums_of` | one deep | 16 rows, 2048 bytes on | the next 64 rows, columns |
//
// Sum 4 i + e of lane l of warp w is in row 16 w + l / 4, + 8 for e >= 2, and column
// 8 i + l % 4 * 2 + e % 2. So sums packed to 16 bits, four words each of 16 columns, are A of a
// next product.
#pragma once

#include <cstdint>

#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::prim::cuda {

/// Describes panels to the matrix unit: the address, and the distances of panels and of eight rows.
__device__ __forceinline__ std::uint64_t describe_panels(std::uint32_t address,
                                                         std::uint32_t panel_bytes) {
  constexpr std::uint64_t swizzled_by_128_bytes = std::uint64_t{1} << 62;
  constexpr std::uint64_t eight_rows = 1024;
  return ((address & 0x3ffffu) >> 4) | static_cast<std::uint64_t>(panel_bytes >> 4) << 16 |
         (eight_rows >> 4) << 32 | swizzled_by_128_bytes;
}

/// Bytes of a row of a narrow panel, which has what one product of f8_e4m3 is deep: 16-byte chunk c
/// of row r is at c ^ (r / 4 % 2), each panel at a multiple of 256 bytes.
inline constexpr int narrow_row_bytes = 32;

/// Describes one narrow panel to the matrix unit.
__device__ __forceinline__ std::uint64_t describe_narrow_panel(std::uint32_t address) {
  constexpr std::uint64_t swizzled_by_32_bytes = std::uint64_t{3} << 62;
  constexpr std::uint64_t eight_rows = 8 * narrow_row_bytes;
  return ((address & 0x3ffffu) >> 4) | std::uint64_t{1} << 16 | (eight_rows >> 4) << 32 |
         swizzled_by_32_bytes;
}

/// What is added to a description to go on by so many bytes.
__device__ __forceinline__ constexpr std::uint64_t panel_step(int bytes) {
  return static_cast<std::uint64_t>(bytes) >> 4;
}

/// The description so many bytes on, by the lower word alone, which has all of the address.
__device__ __forceinline__ constexpr std::uint64_t described_further(std::uint64_t description,
                                                                     int bytes) {
  const auto lower =
      static_cast<std::uint32_t>(description) + static_cast<std::uint32_t>(bytes >> 4);
  return description >> 32 << 32 | lower;
}
/// 0, from the number of a place of a ring, of which ptxas does not know that it is small. What is
/// described by an address that this is added to is described anew in every round of a loop: a few
/// uniform operations. Ahead of the loop, descriptions of many steps fill registers, of which two
/// are moved to uniform ones for each product.
__device__ __forceinline__ std::uint32_t unknown_zero(std::uint32_t place) {
  std::uint32_t zero;
  asm volatile("shr.u32 %0, %1, 20;" : "=r"(zero) : "r"(place));
  return zero;
}

/// Four words of A in registers: rows l / 4 and l / 4 + 8 of columns l % 4 * 2 and the next, then
/// the same 8 columns on.
struct warpgroup_a {
  std::uint32_t word[4];
};

/// Products with N columns. `multiply`: sums (+)= A B, both in shared memory, lying across or not,
/// `add` false to begin with 0. `scores`: neither lies across. `sums_of`: sums += A B with A in
/// registers. `sums_of_rows`: likewise, with B that does not lie across. Between begin_products and
/// commit_products.
template <class Element, int N>
struct warpgroup_product;

// Register lists of inline assembly are literals: a ladder of them, eight registers a step.
#define TESSERA_EIGHT(i)                                                                \
  "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3]), "+f"(sum[i + 4]), \
      "+f"(sum[i + 5]), "+f"(sum[i + 6]), "+f"(sum[i + 7])
#define TESSERA_NAMES_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define TESSERA_SUMS_8 TESSERA_EIGHT(0)
#define TESSERA_NAMES_16 TESSERA_NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define TESSERA_SUMS_16 TESSERA_SUMS_8, TESSERA_EIGHT(8)
#define TESSERA_NAMES_24 TESSERA_NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define TESSERA_SUMS_24 TESSERA_SUMS_16, TESSERA_EIGHT(16)
#define TESSERA_NAMES_32 TESSERA_NAMES_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define TESSERA_SUMS_32 TESSERA_SUMS_24, TESSERA_EIGHT(24)
#define TESSERA_NAMES_40 TESSERA_NAMES_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TESSERA_SUMS_40 TESSERA_SUMS_32, TESSERA_EIGHT(32)
#define TESSERA_NAMES_48 TESSERA_NAMES_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TESSERA_SUMS_48 TESSERA_SUMS_40, TESSERA_EIGHT(40)
#define TESSERA_NAMES_56 TESSERA_NAMES_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TESSERA_SUMS_56 TESSERA_SUMS_48, TESSERA_EIGHT(48)
#define TESSERA_NAMES_64 TESSERA_NAMES_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TESSERA_SUMS_64 TESSERA_SUMS_56, TESSERA_EIGHT(56)
#define TESSERA_NAMES_72 TESSERA_NAMES_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TESSERA_SUMS_72 TESSERA_SUMS_64, TESSERA_EIGHT(64)
#define TESSERA_NAMES_80 TESSERA_NAMES_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TESSERA_SUMS_80 TESSERA_SUMS_72, TESSERA_EIGHT(72)
#define TESSERA_NAMES_88 TESSERA_NAMES_80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TESSERA_SUMS_88 TESSERA_SUMS_80, TESSERA_EIGHT(80)
#define TESSERA_NAMES_96 TESSERA_NAMES_88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TESSERA_SUMS_96 TESSERA_SUMS_88, TESSERA_EIGHT(88)
#define TESSERA_NAMES_104 TESSERA_NAMES_96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TESSERA_SUMS_104 TESSERA_SUMS_96, TESSERA_EIGHT(96)
#define TESSERA_NAMES_112 TESSERA_NAMES_104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TESSERA_SUMS_112 TESSERA_SUMS_104, TESSERA_EIGHT(104)
#define TESSERA_NAMES_120 TESSERA_NAMES_112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TESSERA_SUMS_120 TESSERA_SUMS_112, TESSERA_EIGHT(112)
#define TESSERA_NAMES_128 TESSERA_NAMES_120 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define TESSERA_SUMS_128 TESSERA_SUMS_120, TESSERA_EIGHT(120)

// `registers` is n / 2; o0 to o4: the names of the operands behind them. Lists are pasted here, in
// the innermost macro: handed on, their commas would make further arguments.
#define TESSERA_PRODUCT(element, ptx, n, registers, o0, o1, o2, o3, o4)                           \
  template <>                                                                                     \
  struct warpgroup_product<element, n> {                                                          \
    using sum_type = float;                                                                       \
    template <bool AcrossA, bool AcrossB>                                                         \
    static __device__ __forceinline__ void multiply(float (&sum)[registers], std::uint64_t a,     \
                                                    std::uint64_t b, bool add) {                  \
      asm volatile("{ .reg .pred add; setp.ne.b32 add, " o2                                       \
                   ", 0;\n"                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx "." ptx                  \
                   " {" TESSERA_NAMES_##registers "}, " o0 ", " o1 ", add, 1, 1, " o3 ", " o4     \
                                                  "; }"                                           \
                   : TESSERA_SUMS_##registers                                                     \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(AcrossA ? 1 : 0),            \
                     "n"(AcrossB ? 1 : 0));                                                       \
    }                                                                                             \
    static __device__ __forceinline__ void scores(float (&sum)[registers], std::uint64_t a,       \
                                                  std::uint64_t b, bool add) {                    \
      multiply<false, false>(sum, a, b, add);                                                     \
    }                                                                                             \
    static __device__ __forceinline__ void sums_of(float (&sum)[registers], const warpgroup_a& a, \
                                                   std::uint64_t b) {                             \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx "." ptx                  \
                   " {" TESSERA_NAMES_##registers "}, {" o0 ", " o1 ", " o2 ", " o3 "}, " o4      \
                                                  ", 1, 1, 1, 1;"                                 \
                   : TESSERA_SUMS_##registers                                                     \
                   : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b));     \
    }                                                                                             \
    static __device__ __forceinline__ void sums_of_rows(float (&sum)[registers],                  \
                                                        const warpgroup_a& a, std::uint64_t b) {  \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx "." ptx                  \
                   " {" TESSERA_NAMES_##registers "}, {" o0 ", " o1 ", " o2 ", " o3 "}, " o4      \
                                                  ", 1, 1, 1, 0;"                                 \
                   : TESSERA_SUMS_##registers                                                     \
                   : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b));     \
    }                                                                                             \
  };
#define TESSERA_PRODUCTS(n, registers, ...)                \
  TESSERA_PRODUCT(bf16, "bf16", n, registers, __VA_ARGS__) \
  TESSERA_PRODUCT(f16, "f16", n, registers, __VA_ARGS__)

TESSERA_PRODUCTS(16, 8, "%8", "%9", "%10", "%11", "%12")
TESSERA_PRODUCTS(32, 16, "%16", "%17", "%18", "%19", "%20")
TESSERA_PRODUCTS(48, 24, "%24", "%25", "%26", "%27", "%28")
TESSERA_PRODUCTS(64, 32, "%32", "%33", "%34", "%35", "%36")
TESSERA_PRODUCTS(80, 40, "%40", "%41", "%42", "%43", "%44")
TESSERA_PRODUCTS(96, 48, "%48", "%49", "%50", "%51", "%52")
TESSERA_PRODUCTS(112, 56, "%56", "%57", "%58", "%59", "%60")
TESSERA_PRODUCTS(128, 64, "%64", "%65", "%66", "%67", "%68")
TESSERA_PRODUCTS(144, 72, "%72", "%73", "%74", "%75", "%76")
TESSERA_PRODUCTS(160, 80, "%80", "%81", "%82", "%83", "%84")
TESSERA_PRODUCTS(176, 88, "%88", "%89", "%90", "%91", "%92")
TESSERA_PRODUCTS(192, 96, "%96", "%97", "%98", "%99", "%100")
TESSERA_PRODUCTS(208, 104, "%104", "%105", "%106", "%107", "%108")
TESSERA_PRODUCTS(224, 112, "%112", "%113", "%114", "%115", "%116")
TESSERA_PRODUCTS(240, 120, "%120", "%121", "%122", "%123", "%124")
TESSERA_PRODUCTS(256, 128, "%128", "%129", "%130", "%131", "%132")

// Of 8 bits: `scores` and `sums_of` alone.
#define TESSERA_PRODUCT_OF_CODES(n, registers, o0, o1, o2, o3, o4)                                \
  template <>                                                                                     \
  struct warpgroup_product<f8_e4m3, n> {                                                          \
    using sum_type = float;                                                                       \
    static __device__ __forceinline__ void scores(float (&sum)[registers], std::uint64_t a,       \
                                                  std::uint64_t b, bool add) {                    \
      asm volatile("{ .reg .pred add; setp.ne.b32 add, " o2                                       \
                   ", 0;\n"                                                                       \
                   "wgmma.mma_async.sync.aligned.m64n" #n                                         \
                   "k32.f32.e4m3.e4m3"                                                            \
                   " {" TESSERA_NAMES_##registers "}, " o0 ", " o1 ", add, 1, 1; }"               \
                   : TESSERA_SUMS_##registers                                                     \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                 \
    }                                                                                             \
    static __device__ __forceinline__ void sums_of(float (&sum)[registers], const warpgroup_a& a, \
                                                   std::uint64_t b) {                             \
      asm volatile("wgmma.mma_async.sync.aligned.m64n" #n                                         \
                   "k32.f32.e4m3.e4m3"                                                            \
                   " {" TESSERA_NAMES_##registers "}, {" o0 ", " o1 ", " o2 ", " o3 "}, " o4      \
                                                  ", 1, 1, 1;"                                    \
                   : TESSERA_SUMS_##registers                                                     \
                   : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b));     \
    }                                                                                             \
  };
TESSERA_PRODUCT_OF_CODES(64, 32, "%32", "%33", "%34", "%35", "%36")
TESSERA_PRODUCT_OF_CODES(96, 48, "%48", "%49", "%50", "%51", "%52")
TESSERA_PRODUCT_OF_CODES(128, 64, "%64", "%65", "%66", "%67", "%68")
TESSERA_PRODUCT_OF_CODES(160, 80, "%80", "%81", "%82", "%83", "%84")
TESSERA_PRODUCT_OF_CODES(192, 96, "%96", "%97", "%98", "%99", "%100")
TESSERA_PRODUCT_OF_CODES(224, 112, "%112", "%113", "%114", "%115", "%116")
TESSERA_PRODUCT_OF_CODES(256, 128, "%128", "%129", "%130", "%131", "%132")

// Of i8: `multiply` and `scores`, neither operand across, with sums that are whole numbers.
#undef TESSERA_EIGHT
#define TESSERA_EIGHT(i)                                                                \
  "+r"(sum[i]), "+r"(sum[i + 1]), "+r"(sum[i + 2]), "+r"(sum[i + 3]), "+r"(sum[i + 4]), \
      "+r"(sum[i + 5]), "+r"(sum[i + 6]), "+r"(sum[i + 7])
#define TESSERA_PRODUCT_OF_BYTES(n, registers, o0, o1, o2)                                       \
  template <>                                                                                    \
  struct warpgroup_product<std::int8_t, n> {                                                     \
    using sum_type = std::int32_t;                                                               \
    template <bool AcrossA, bool AcrossB>                                                        \
    static __device__ __forceinline__ void multiply(sum_type (&sum)[registers], std::uint64_t a, \
                                                    std::uint64_t b, bool add) {                 \
      static_assert(!AcrossA && !AcrossB);                                                       \
      asm volatile("{ .reg .pred add; setp.ne.b32 add, " o2                                      \
                   ", 0;\n"                                                                      \
                   "wgmma.mma_async.sync.aligned.m64n" #n                                        \
                   "k32.s32.s8.s8"                                                               \
                   " {" TESSERA_NAMES_##registers "}, " o0 ", " o1 ", add; }"                    \
                   : TESSERA_SUMS_##registers                                                    \
                   : "l"(a), "l"(b), "r"(static_cast<int>(add)));                                \
    }                                                                                            \
    static __device__ __forceinline__ void scores(sum_type (&sum)[registers], std::uint64_t a,   \
                                                  std::uint64_t b, bool add) {                   \
      multiply<false, false>(sum, a, b, add);                                                    \
    }                                                                                            \
  };
TESSERA_PRODUCT_OF_BYTES(96, 48, "%48", "%49", "%50")
TESSERA_PRODUCT_OF_BYTES(128, 64, "%64", "%65", "%66")
TESSERA_PRODUCT_OF_BYTES(192, 96, "%96", "%97", "%98")

#undef TESSERA_PRODUCT_OF_BYTES
#undef TESSERA_PRODUCT_OF_CODES
#undef TESSERA_PRODUCTS
#undef TESSERA_PRODUCT
#undef TESSERA_EIGHT
#undef TESSERA_NAMES_8
#undef TESSERA_SUMS_8
#undef TESSERA_NAMES_16
#undef TESSERA_SUMS_16
#undef TESSERA_NAMES_24
#undef TESSERA_SUMS_24
#undef TESSERA_NAMES_32
#undef TESSERA_SUMS_32
#undef TESSERA_NAMES_40
#undef TESSERA_SUMS_40
#undef TESSERA_NAMES_48
#undef TESSERA_SUMS_48
#undef TESSERA_NAMES_56
#undef TESSERA_SUMS_56
#undef TESSERA_NAMES_64
#undef TESSERA_SUMS_64
#undef TESSERA_NAMES_72
#undef TESSERA_SUMS_72
#undef TESSERA_NAMES_80
#undef TESSERA_SUMS_80
#undef TESSERA_NAMES_88
#undef TESSERA_SUMS_88
#undef TESSERA_NAMES_96
#undef TESSERA_SUMS_96
#undef TESSERA_NAMES_104
#undef TESSERA_SUMS_104
#undef TESSERA_NAMES_112
#undef TESSERA_SUMS_112
#undef TESSERA_NAMES_120
#undef TESSERA_SUMS_120
#undef TESSERA_NAMES_128
#undef TESSERA_SUMS_128

}  // namespace tessera::prim::cuda
