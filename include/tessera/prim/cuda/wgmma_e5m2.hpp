// wgmma of f8_e5m2 with f8_e5m2 or, on either side, f8_e4m3, as prim/cuda/wgmma.hpp has products of
// f8_e4m3: `scores` with 96 columns.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/wgmma.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::prim::cuda {

/// The elements of A and of B, where they differ or are f8_e5m2.
template <class A, class B>
struct float8_pair {};

#define TESSERA_FOUR(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define TESSERA_SIXTEEN(i) \
  TESSERA_FOUR(i), TESSERA_FOUR(i + 4), TESSERA_FOUR(i + 8), TESSERA_FOUR(i + 12)
#define TESSERA_PRODUCT_OF_PAIR(a_type, b_type, names)                                 \
  template <>                                                                          \
  struct warpgroup_product<float8_pair<f8_##a_type, f8_##b_type>, 96> {                \
    using sum_type = float;                                                            \
    static __device__ __forceinline__ void scores(float (&sum)[48], std::uint64_t a,   \
                                                  std::uint64_t b, bool add) {         \
      asm volatile(                                                                    \
          "{ .reg .pred add; setp.ne.b32 add, %50, 0;\n"                               \
          "wgmma.mma_async.sync.aligned.m64n96k32.f32." #a_type "." #b_type " {" names \
          "}, %48, %49, add, 1, 1; }"                                                  \
          : TESSERA_SIXTEEN(0), TESSERA_SIXTEEN(16), TESSERA_SIXTEEN(32)               \
          : "l"(a), "l"(b), "r"(static_cast<int>(add)));                               \
    }                                                                                  \
  };
#define TESSERA_NAMES                                                                \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"

TESSERA_PRODUCT_OF_PAIR(e5m2, e5m2, TESSERA_NAMES)
TESSERA_PRODUCT_OF_PAIR(e5m2, e4m3, TESSERA_NAMES)
TESSERA_PRODUCT_OF_PAIR(e4m3, e5m2, TESSERA_NAMES)

#undef TESSERA_NAMES
#undef TESSERA_PRODUCT_OF_PAIR
#undef TESSERA_SIXTEEN
#undef TESSERA_FOUR

}  // namespace tessera::prim::cuda
