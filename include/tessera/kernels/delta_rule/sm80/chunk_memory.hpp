// What a block of the chunked delta rule has in shared memory, and what it knows of a chunk's
// tokens.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::head_decays;
using recurrence::sm80::ordered_rows;

template <class Shape>
struct delta_chunk_memory {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];
  unsigned char k[Shape::key_rows::bytes];
  unsigned char v[Shape::value_rows::bytes];
  unsigned char weights[Shape::weight_rows::bytes];  ///< P
  unsigned char inverse[Shape::weight_rows::bytes];  ///< M, rounded
  solved_rows solved;                                ///< A; M on and above the diagonal
  head_decays decays;
  float beta[Shape::tokens];
  float scale_q[Shape::tokens], scale_k[Shape::tokens];  ///< 1 over lengths, or 1
  int first_not_finite[Shape::columns];
  ordered_rows rows_q, rows_k, rows_v, rows_g, rows_beta, rows_out;
};

/// The 16 columns of a warp, of those that a block has from `column` on, in the states of a
/// sequence and value head.
class warp_columns {
 public:
  __device__ __forceinline__ warp_columns(const delta_rule_kernel_args& args, const sequence& all,
                                          std::int64_t head, std::int64_t column)
      : args_(args),
        slot_(all.slot),
        head_(head),
        column_(column + static_cast<int>(threadIdx.x) / 32 * 16) {}

  template <class State>
  __device__ __forceinline__ void load(State& state,
                                       const delta_rule_states<const void>& from) const {
    state.load(from.data, from.type, first_of(from), place_in(from));
  }
  template <class State>
  __device__ __forceinline__ void store(State& state, const delta_rule_states<void>& to) const {
    state.store(to.data, to.type, first_of(to), place_in(to));
  }

 private:
  template <class Data>
  __device__ __forceinline__ std::int64_t first_of(const delta_rule_states<Data>& states) const {
    return slot_ * states.sequence + head_ * states.head + column_;
  }
  template <class Data>
  __device__ __forceinline__ recurrence::sm80::state_columns place_in(
      const delta_rule_states<Data>& states) const {
    return {.channel = states.channel,
            .channels = static_cast<int>(args_.key_dim),
            .columns = static_cast<int>(max(args_.value_dim - column_, std::int64_t{0}))};
  }

  const delta_rule_kernel_args& args_;
  std::int64_t slot_, head_, column_;
};

/// Decays by one warp, beta by another; behind the last token beta is 0 and nothing decays.
template <class Memory>
__device__ __forceinline__ void load_gates(const delta_rule_kernel_args& args, Memory& shared,
                                           const sequence& all, std::int64_t head,
                                           std::int64_t token) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warp > 1) return;
  float x[2] = {};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::int64_t at = token + 2 * lane + i;
    if (at >= all.length) continue;
    if (warp == 1) {
      x[i] = beta_of<device_code>(
          args, prim::cuda::number_at(args.beta.data, args.beta.type, shared.rows_beta.at(at)));
    } else if (args.decay.data != nullptr) {
      const head_gate<device_code> gate(args.gate, head);
      x[i] = recurrence::sm80::log2_decay(gate.log_decay(
          prim::cuda::number_at(args.decay.data, args.decay.type, shared.rows_g.at(at)), 0));
    }
  }
  if (warp == 0) {
    return recurrence::sm80::sum_head_decays(shared.decays, make_float2(x[0], x[1]));
  }
  shared.beta[2 * lane] = x[0];
  shared.beta[2 * lane + 1] = x[1];
}

/// 1 over the lengths of the rows of q and k, two threads a row; without norms 1.
template <class Element, class Shape, class Memory>
__device__ __forceinline__ void measure_rows(Memory& shared, bool normalizes) {
  using words = prim::cuda::half_words<Element>;
  constexpr int rows = 2 * Shape::tokens, half = Shape::key_rows::chunks / 2;
  for (int place = static_cast<int>(threadIdx.x); place < 2 * rows; place += Shape::threads) {
    const int row = place / 2 % Shape::tokens;
    const bool is_key = place >= rows;
    const std::uint32_t tile = prim::cuda::shared_address(is_key ? shared.k : shared.q);
    float sum = 0.0f;
    if (normalizes) {
#pragma unroll
      for (int i = 0; i < half; ++i) {
        std::uint32_t chunk[4];
        prim::cuda::load_shared_16(
            chunk,
            tile + Shape::key_rows::offset(static_cast<std::uint32_t>(row),
                                           static_cast<std::uint32_t>(place % 2 * half + i)));
#pragma unroll
        for (const std::uint32_t word : chunk) {
          const float low = words::unpack(static_cast<std::uint16_t>(word));
          const float high = words::unpack(static_cast<std::uint16_t>(word >> 16));
          sum = fmaf(low, low, fmaf(high, high, sum));
        }
      }
    }
    sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, 1);
    if (place % 2 == 0) {
      (is_key ? shared.scale_k : shared.scale_q)[row] =
          normalizes ? 1.0f / sqrtf(sum + 1e-6f) : 1.0f;
    }
  }
}

/// Where a lane's two numbers of a row and of a tile of eight columns lie among weights.
template <class Shape>
__device__ __forceinline__ std::uint32_t weight_offset(int row, int tile) {
  return Shape::weight_rows::offset(static_cast<std::uint32_t>(row),
                                    static_cast<std::uint32_t>(tile)) +
         threadIdx.x % 4 * 4;
}

/// 16 rows and 8 columns of the inverse, rounded, to put(offset, word).
template <class Element, class Shape, class Put>
__device__ __forceinline__ void put_rounded(int row, int tile, const prim::cuda::accumulator& sums,
                                            float sign, const Put& put) {
  using words = prim::cuda::half_words<Element>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    put(weight_offset<Shape>(row * 16 + lane / 4 + half * 8, tile),
        words::pack(sign * sums.at[2 * half], sign * sums.at[2 * half + 1]));
  }
}

}  // namespace tessera::kernels::delta_rule::sm80
