// Rows of 64 tokens in shared memory as wgmma takes them, and what the delta rule needs of the
// matrix unit besides wgmma.hpp.
#pragma once

#include <cstdint>

#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/wgmma.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// 64 rows of `Width` 16-bit elements, a multiple of 64: panels of 64 columns, of which each row
/// has 128 bytes with 16-byte chunk c of row r at c ^ (r % 8). For `copy_rows` like
/// prim::cuda::shared_tile.
template <int Width>
struct panel_rows {
  static constexpr int rows = 64;
  static constexpr int width = Width;
  static constexpr int chunks = Width / 8;
  static constexpr int row_bytes = 128;
  static constexpr int panel_bytes = rows * row_bytes;
  static constexpr int bytes = Width / 64 * panel_bytes;

  static __device__ __forceinline__ std::uint32_t offset(std::uint32_t row, std::uint32_t chunk) {
    return (chunk / 8) * panel_bytes + row * row_bytes + ((chunk % 8) ^ (row % 8)) * 16;
  }
  /// As an operand whose rows are rows or columns of the product: 16 `step` columns on.
  static __device__ __forceinline__ std::uint64_t along(std::uint64_t panels, int step) {
    return panels + prim::cuda::panel_step(step / 4 * panel_bytes + step % 4 * 32);
  }
  /// As an operand that lies across, whose rows are those that are summed: 16 `step` rows on.
  static __device__ __forceinline__ std::uint64_t across(std::uint64_t panels, int step) {
    return panels + prim::cuda::panel_step(step * 16 * row_bytes);
  }
  static __device__ __forceinline__ std::uint64_t describe(std::uint32_t address) {
    return prim::cuda::describe_panels(address, panel_bytes);
  }
};

template <class Rows>
__device__ __forceinline__ std::uint64_t describe_rows(const unsigned char* rows) {
  return Rows::describe(prim::cuda::shared_address(rows));
}

/// sums (+)= A B^T, A of 64 rows in registers, B of 64 rows in panels, 16 columns deep; `add` false
/// to begin with 0.
__device__ __forceinline__ void rows_product(float (&sum)[32], const prim::cuda::warpgroup_a& a,
                                             std::uint64_t b, bool add) {
  asm volatile(
      "{ .reg .pred add; setp.ne.b32 add, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, "
      "add, 1, 1, 0; }"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
        "+f"(sum[6]), "+f"(sum[7]), "+f"(sum[8]), "+f"(sum[9]), "+f"(sum[10]), "+f"(sum[11]),
        "+f"(sum[12]), "+f"(sum[13]), "+f"(sum[14]), "+f"(sum[15]), "+f"(sum[16]), "+f"(sum[17]),
        "+f"(sum[18]), "+f"(sum[19]), "+f"(sum[20]), "+f"(sum[21]), "+f"(sum[22]), "+f"(sum[23]),
        "+f"(sum[24]), "+f"(sum[25]), "+f"(sum[26]), "+f"(sum[27]), "+f"(sum[28]), "+f"(sum[29]),
        "+f"(sum[30]), "+f"(sum[31])
      : "r"(a.word[0]), "r"(a.word[1]), "r"(a.word[2]), "r"(a.word[3]), "l"(b),
        "r"(static_cast<int>(add)));
}

/// Stores four 8x8 tiles of 16-bit elements, each transposed; lane l gives the address of row l % 8
/// of tile l / 8.
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t address,
                                                          const std::uint32_t (&words)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
      : "memory");
}

/// Whether something holds for any of `threads` threads that come together at barrier `number`.
__device__ __forceinline__ bool any_of_threads(int number, int threads, bool holds) {
  int any;
  asm volatile(
      "{ .reg .pred own, any; setp.ne.b32 own, %1, 0;\n"
      "bar.red.or.pred any, %2, %3, own; selp.b32 %0, 1, 0, any; }"
      : "=r"(any)
      : "r"(static_cast<int>(holds)), "r"(number), "r"(threads)
      : "memory");
  return any != 0;
}

}  // namespace tessera::kernels::delta_rule::sm90
