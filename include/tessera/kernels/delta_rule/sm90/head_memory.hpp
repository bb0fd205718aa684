// What a block of the chunked delta rule with decays of heads has in shared memory: a ring of
// chunks, which warps load, others make weights of, and those that have states use up.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm90/chunk_memory.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::delta_rule::sm90 {

/// Two warps load rows, two measure them, a warpgroup makes weights of pairs of tokens, two have 64
/// columns of states each. `Returns`: of gradients of linear attention (back_scan).
template <int Keys, bool Corrects = true, bool Returns = false>
struct head_shape {
  static constexpr bool corrects = Corrects;
  static constexpr bool returns = Returns;
  static constexpr bool low_rank = false;
  static constexpr int tokens = 64;
  static constexpr int keys = Keys;
  static constexpr int columns = 128;
  static constexpr int stages = 3;
  static constexpr int loader_threads = 64, measurer_threads = 64;
  static constexpr int maker_threads = 128;
  static constexpr int walker_threads = 256;
  static constexpr int first_maker = loader_threads + measurer_threads;
  static constexpr int first_walker = first_maker + maker_threads;
  static constexpr int threads = first_walker + walker_threads;
  // The sum over the four warpgroups is 512.
  static constexpr bool wide = Keys > 64;
  static constexpr int loader_registers = wide ? 48 : 64, maker_registers = wide ? 64 : 96,
                       walker_registers = wide ? 200 : 176;
  using key_rows = panel_rows<Keys>;
  using value_rows = panel_rows<columns>;
  using weight_rows = panel_rows<tokens>;
};

/// Rows of a chunk as they come, those of no token 0, and weights of its pairs of tokens.
template <class Shape>
struct head_item {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];
  unsigned char k[Shape::key_rows::bytes];
  unsigned char v[Shape::value_rows::bytes];
  unsigned char weights[Shape::weight_rows::bytes];  ///< P
  /// M beta.
  unsigned char inverse[Shape::corrects ? Shape::weight_rows::bytes : 1024];
};

/// Numbers of a chunk's tokens.
struct alignas(16) head_facts {
  float sums[64];  ///< of log decays to base 2, up to each token
  /// What products of rows of q and k are multiplied by: 1 over lengths, and the scale of queries.
  float scale_q[64], scale_k[64];
  float front_q[64], front_k[64];  ///< the same times what is left of the state in front
  float left[64];  ///< of k, times what is left of a token behind its block of 16 tokens
  float rest[64];  ///< the same behind the chunk
  float beta[64];
  float whole;  ///< what is left of the state in front behind the chunk
  item_tokens tokens;
};

template <class Shape>
struct head_memory {
  using shape = Shape;

  head_item<Shape> items[Shape::stages];
  alignas(16) float solved[Shape::corrects ? 64 : 1][inverse_row];
  head_facts facts[Shape::stages];
  uint2 gates[Shape::tokens];   ///< decays and beta of its next one, as they come
  float decays[Shape::tokens];  ///< to base 2, of the chunk that is loaded
  int first_not_finite[Shape::columns];
  prim::cuda::ring_barriers<Shape::stages> ring;
  /// Filled with rows; measured, too; those of the ring: with weights, too.
  std::uint64_t filled[Shape::stages], loaded[Shape::stages];
  ordered_rows rows_q, rows_k, rows_v, rows_g, rows_beta, rows_out;
  // What those who load and measure would need registers for.
  head_gate<device_code> gate;
  float constant;     ///< that is added to log decays
  float token_scale;  ///< of what tokens add
  int earlier;        ///< steps between a token and the one whose decay is in front of it
  std::int64_t length, column;

  __device__ __forceinline__ void init_barriers() {
    ring.init(Shape::maker_threads, Shape::walker_threads);
    for (auto& barrier : loaded) {
      prim::cuda::init_barrier(prim::cuda::shared_address(&barrier), Shape::measurer_threads);
    }
    for (auto& barrier : filled) {
      prim::cuda::init_barrier(prim::cuda::shared_address(&barrier), Shape::loader_threads);
    }
  }
};

/// The number, which the compiler does not find out in front of a loop: what follows from it would
/// take dozens of registers there.
__device__ __forceinline__ int found_anew(int number) {
  asm volatile("" : "+r"(number));
  return number;
}

}  // namespace tessera::kernels::delta_rule::sm90
