// Rows of a few tokens of a chunk in shared memory, as the kernels of state spaces that go token by
// token read them; decays; sums over lanes.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/activations.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// Rows of a few tokens, as floats: of a block's channels, and of a tile of states. All rows are as
/// far apart as the longest are.
struct staged_rows {
  float x[stage_tokens * most_channels];
  float dt[stage_tokens * most_channels];  ///< state_space_v2: of the token, then its decay
  float b[stage_tokens * most_states];
  float c[stage_tokens * most_states];
};

/// Element (entry, token, head, 0) of a tensor of tokens.
__device__ __forceinline__ std::int64_t row_of(const scan_tensor& tensor, std::int64_t entry,
                                               std::int64_t token, std::int64_t head) {
  return entry * tensor.entry + token * tensor.token + head * tensor.head;
}

/// A parameter of a column, or of its head (stride 0); absent: 0.
__device__ __forceinline__ float parameter_at(const scan_tensor& from, std::int64_t head,
                                              std::int64_t column) {
  if (from.data == nullptr) return 0.0f;
  return prim::cuda::number_at(from.data, from.type, head * from.head + column * from.column);
}

/// Makes the rows of tokens of a chunk. `first` counts from the chunk's first token. Threads have a
/// column of the block and every few tokens. The barriers are the caller's.
template <bool SharesSteps>
class row_reader {
 public:
  __device__ row_reader(const state_space_launch& all, const scan_chunk& chunk,
                        const channel_block& block)
      : all_(all),
        args_(all.call),
        chunk_(chunk),
        block_(block),
        column_(static_cast<int>(threadIdx.x) & (all.cut.channels() - 1)),
        first_row_(static_cast<int>(threadIdx.x) >> all.cut.log_channels()),
        rows_apart_(block_threads >> all.cut.log_channels()) {
    if (column_ >= block.columns) return;
    bias_ = parameter_of(args_.dt_bias);
    skip_ = parameter_of(args_.D);
  }

  /// Steps of the block's channels, or of its head with their decays.
  __device__ void load_steps(staged_rows& to, int first, int count) const {
    if constexpr (SharesSteps) {
      const int i = static_cast<int>(threadIdx.x);
      if (i >= count) return;
      const float step = step_of(args_, raw_step(first + i)).step;
      to.dt[i] = step;
      const float rate =
          prim::cuda::number_at(args_.A.data, args_.A.type, block_.head * args_.A.head);
      to.dt[stage_tokens + i] = expf(rate * step);
    } else {
      load_rows(to.dt, args_.dt, first, count,
                [&](float raw, int) { return step_of(args_, raw + bias_).step; });
    }
  }
  __device__ void load_x(staged_rows& to, int first, int count) const {
    load_rows(to.x, args_.x, first, count, [](float x, int) { return x; });
  }
  /// The gradient of h C + D x.
  __device__ void load_d_y(float* to, int first, int count) const {
    if (args_.norm) {
      for (int i = first_row_; i < count; i += rows_apart_) {
        to[i * most_channels + column_] =
            column_ < block_.columns ? *column_at(first + i, column_) : 0.0f;
      }
    } else if (args_.z.data == nullptr) {
      load_rows(to, args_.d_out, first, count, [](float x, int) { return x; });
    } else {
      load_rows(to, args_.d_out, first, count, [&](float x, int i) {
        return x * silu(element_of(args_.z, first + i, column_)).value;
      });
    }
  }
  /// B or C.
  __device__ void load_states(float* to, const scan_tensor& from, std::int64_t tile, int first,
                              int count) const {
    const int log = all_.cut.log_states(), n = static_cast<int>(threadIdx.x) & ((1 << log) - 1);
    const std::int64_t state = (tile << log) + n;
    const std::int64_t place =
        row_of(from, chunk_.entry, chunk_.begin + first, block_.head / args_.heads_per_group) +
        state;
    const int row = static_cast<int>(threadIdx.x) >> log, apart = block_threads >> log;
    prim::cuda::with_elements(from.data, from.type, [&](const auto* elements) {
#pragma unroll 4
      for (int i = row; i < count; i += apart) {
        to[i * most_states + n] =
            state < args_.states ? prim::cuda::float_of(elements[place + i * from.token]) : 0.0f;
      }
    });
  }

  /// An element of a tensor shaped like x.
  __device__ __forceinline__ float element_of(const scan_tensor& from, int i, int column) const {
    return prim::cuda::number_at(from.data, from.type, place_of(from, i) + column);
  }
  __device__ __forceinline__ void put_element(const scan_tensor& to, int i, int column,
                                              float x) const {
    prim::cuda::put_number(to.data, to.type, place_of(to, i) + column, x);
  }
  /// The block's columns of a token in a tensor shaped like x.
  template <class Element>
  __device__ __forceinline__ Element* elements_of(const scan_tensor& tensor, int i) const {
    return static_cast<Element*>(tensor.data) + place_of(tensor, i);
  }
  /// dt of the thread's column, or of the head, and its bias.
  __device__ __forceinline__ float raw_step(int i) const {
    const std::int64_t at = SharesSteps ? row_of(args_.dt, chunk_.entry, token(i), block_.head)
                                        : place_of(args_.dt, i) + column_;
    const float bias = SharesSteps ? parameter_of(args_.dt_bias) : bias_;
    return prim::cuda::number_at(args_.dt.data, args_.dt.type, at) + bias;
  }
  /// D of the thread's column, or of the head.
  __device__ __forceinline__ float skip() const {
    return SharesSteps ? parameter_of(args_.D) : skip_;
  }
  /// The thread's column; its first row of a stage, and the rows from one to the next.
  __device__ __forceinline__ int column() const {
    return column_;
  }
  __device__ __forceinline__ int first_row() const {
    return first_row_;
  }
  __device__ __forceinline__ int rows_apart() const {
    return rows_apart_;
  }

  /// Of the workspace's columns.
  __device__ __forceinline__ float* column_at(int i, int column) const {
    return all_.memory.columns + column_place(i, column);
  }
  __device__ __forceinline__ std::int64_t column_place(int i, int column) const {
    return row(i) * all_.cut.channels_of_call + block_.head * args_.columns + block_.first + column;
  }
  /// The token's row of the workspace.
  __device__ __forceinline__ std::int64_t row(int i) const {
    return chunk_.entry * args_.sequences.tokens + token(i);
  }
  __device__ __forceinline__ std::int64_t token(int i) const {
    return chunk_.begin + i;
  }

 private:
  __device__ __forceinline__ std::int64_t place_of(const scan_tensor& tensor, int i) const {
    return row_of(tensor, chunk_.entry, token(i), block_.head) + block_.first;
  }
  /// Of the thread's column, or of the head (stride 0).
  __device__ __forceinline__ float parameter_of(const scan_tensor& from) const {
    return parameter_at(from, block_.head, block_.first + column_);
  }
  template <class Make>
  __device__ void load_rows(float* to, const scan_tensor& from, int first, int count,
                            const Make& make) const {
    const std::int64_t place = place_of(from, first) + column_;
    prim::cuda::with_elements(from.data, from.type, [&](const auto* elements) {
#pragma unroll 4
      for (int i = first_row_; i < count; i += rows_apart_) {
        to[i * most_channels + column_] =
            column_ < block_.columns
                ? make(prim::cuda::float_of(elements[place + i * from.token]), i)
                : 0.0f;
      }
    });
  }

  const state_space_launch& all_;
  const state_space_kernel_args& args_;
  const scan_chunk& chunk_;
  const channel_block& block_;
  int column_, first_row_, rows_apart_;
  float bias_ = 0.0f, skip_ = 0.0f;
};

/// The rates at which a thread's states decay; the one of a head is in its tokens. Powers of calls
/// of 16-bit elements, whose steps are known to 8 or 11 bits, are those of the hardware.
template <bool SharesSteps>
struct decay_rates {
  float rate[thread_states];  ///< for powers of 2 if `fast`
  float unit = 1.0f;          ///< what a rate counts
  bool fast;

  __device__ decay_rates(const thread_states_of& own, const state_space_kernel_args& args)
      : fast(args.x.type != dtype::f32) {
    if constexpr (SharesSteps) return;
    own.load(rate, args.A, 0);
    if (!fast) return;
    unit = 0.693147180559945f;
#pragma unroll
    for (float& each : rate) each *= 1.44269504088896f;
  }
  /// The step of staged token i.
  __device__ __forceinline__ float step(const staged_rows& rows, int i,
                                        const thread_place& mine) const {
    return rows.dt[SharesSteps ? i : i * most_channels + mine.column];
  }
  __device__ __forceinline__ void decays(float (&to)[thread_states], const staged_rows& rows, int i,
                                         float dt) const {
    if (SharesSteps) {
      const float of_head = rows.dt[stage_tokens + i];
#pragma unroll
      for (float& decay : to) decay = of_head;
    } else if (fast) {
#pragma unroll
      for (int r = 0; r < thread_states; ++r) to[r] = prim::cuda::exp2_fast(rate[r] * dt);
    } else {
#pragma unroll
      for (int r = 0; r < thread_states; ++r) to[r] = expf(rate[r] * dt);
    }
  }
};

__device__ __forceinline__ void take_four(float (&to)[thread_states], const float* from) {
  const float4 x = *reinterpret_cast<const float4*>(from);
  to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
}

/// Adds values up over lanes, in as many rounds as it takes or fewer: in each a lane gives one half
/// of them away and keeps the sums of the other, the upper one where its bit is set, from `Step`
/// on.
template <int Count, int Step, int Rounds>
__device__ __forceinline__ void fold_values(float (&values)[Count], int lane) {
#pragma unroll
  for (int round = 0; round < Rounds; ++round) {
    const int half = Count >> (round + 1), step = Step << round;
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float keep = upper ? values[i + half] : values[i];
      const float send = upper ? values[i] : values[i + half];
      values[i] = keep + __shfl_xor_sync(prim::cuda::all_lanes, send, step);
    }
  }
}
/// Sums over `Count` lanes that differ in the bits from `Step` on, of as many values: each lane has
/// the sum of the value whose number `summed_value` gives.
template <int Count, int Step>
__device__ __forceinline__ float sum_of_values(float (&values)[Count], int lane) {
  constexpr int rounds = Count == 8 ? 3 : 2;
  static_assert(Count == 1 << rounds);
  fold_values<Count, Step, rounds>(values, lane);
  return values[0];
}
template <int Count, int Step>
__device__ __forceinline__ int summed_value(int lane) {
  int value = 0;
#pragma unroll
  for (int half = Count / 2, step = Step; half > 0; half /= 2, step *= 2) {
    if ((lane & step) != 0) value += half;
  }
  return value;
}

}  // namespace tessera::kernels::selective_scan::sm80
