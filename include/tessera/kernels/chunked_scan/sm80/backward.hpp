// Backward: a block goes through the sequences and heads of its own, forward and back again
// (recurrence/sm80/replay.hpp), and what the tokens of a leaf get is summed over tiles of columns
// in shared memory. Heads that read the same k and v leave shares of their gradients
// (recurrence/sm80/head_group.hpp). No sum depends on the order of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/forward.hpp>
#include <tessera/kernels/chunked_scan/sm80/step.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/sm80/replay.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::block_states;
using recurrence::sm80::gather_tile;
using recurrence::sm80::replay;
using recurrence::sm80::scatter_tile;

/// What the kernels of a launch know besides its arguments.
struct backward_args {
  chunked_scan_kernel_args call{};
  recurrence::sm80::replay_cut cut{};
  float* states = nullptr;  ///< [blocks][floats_of_block]
  /// Shares of the heads, [tokens of all entries][H][K or V]; null where each has its own k and v.
  float *d_k = nullptr, *d_v = nullptr;
  double* d_u = nullptr;  ///< sums over the tokens of a sequence, [sequences][H][K]; null: no bonus
};

/// The workspace of a launch, placed from `base` on; null: nothing is placed. Depends on no
/// address.
struct backward_scratch {
  backward_args args{};
  std::size_t bytes = 0;

  backward_scratch(const chunked_scan_kernel_args& call, const recurrence::sm80::replay_cut& cut,
                   std::byte* base) {
    cuda::workspace_parts parts(base);
    args.call = call;
    args.cut = cut;
    parts.take(args.states, cut.blocks * cut.floats_of_block());
    if (call.heads != call.kv_heads) {
      const std::int64_t tokens = recurrence::entries_of(call) * call.tokens;
      parts.take(args.d_k, tokens * call.heads * call.keys);
      parts.take(args.d_v, tokens * call.heads * call.values);
    }
    if (call.u.data != nullptr) parts.take(args.d_u, call.sequences * call.heads * call.keys);
    bytes = parts.bytes();
  }
};

/// Shared memory of a block.
template <class Shape>
struct backward_tokens {
  static constexpr int count = tokens_at_a_time<Shape>;
  token_memory<Shape> tokens;
  recurrence::sm80::leaf_rows<Shape, token_rows, count> d_rows;
  float d_out[count][Shape::columns];
};

/// The steps of one sequence and head; see recurrence/sm80/replay.hpp.
template <class Element, class Shape, scan_kind Kind>
class scan_steps {
 public:
  using reader = token_reader<Shape>;

  __device__ scan_steps(const backward_args& args, backward_tokens<Shape>& memory,
                        const sequence& all, std::int64_t head)
      : args_(args),
        call_(args.call),
        memory_(memory),
        all_(all),
        head_(head),
        mine_(thread_place<Shape>::here()),
        reader_(args.call, all, head) {}

  /// No sums yet.
  __device__ void begin() const {
    __syncthreads();
    reader_.load_bonus(memory_.tokens);
    if (args_.d_u == nullptr) return;
    for (int c = static_cast<int>(threadIdx.x); c < call_.keys; c += Shape::threads) {
      sums()[c] = 0.0;
    }
  }

  __device__ void load_states(std::int64_t column, float* state, float* gradient) const {
    gather_tile<Shape>(call_.initial_state.data, dtype::f32, place(call_.initial_state, column),
                       state);
    gather_tile<Shape>(call_.d_final_state.data, dtype::f32, place(call_.d_final_state, column),
                       gradient);
  }
  __device__ void store_gradient(std::int64_t column, const float* gradient) const {
    const chunked_scan_states& to = call_.d_initial_state;
    if (to.data == nullptr) return;
    scatter_tile<Shape>(gradient, true, to.data, dtype::f32, place(to, column));
  }

  __device__ void load_rows(std::int64_t first, int count, bool returns) const {
    reader_.load_rows(memory_.tokens, first, count);
    if (returns) memory_.d_rows.clear();
  }
  __device__ void load_columns(std::int64_t first, int count, std::int64_t column,
                               bool returns) const {
    reader_.load_values(memory_.tokens, first, count, column);
    if (returns) {
      reader_.load_columns(memory_.d_out, call_.d_out, head_, first, count, column);
    }
  }

  __device__ __forceinline__ bool begins(int, const state_tile<Shape>&) const { return true; }
  __device__ __forceinline__ void step(int i, state_tile<Shape>& state) const {
    column_values<Shape> answer;
    step_state<Shape, Kind>(state, memory_.tokens.rows_of(i), mine_,
                            columns_of<Shape, Kind>(memory_.tokens, i, mine_), answer);
  }
  __device__ __forceinline__ void step_back(int i, std::int64_t first, std::int64_t column,
                                            const float* before,
                                            state_tile<Shape>& gradient) const {
    column_values<Shape> d_out, d_value, d_value_decay;
    take_columns<Shape>(d_out, memory_.d_out[i], mine_);
    sm80::step_back<Shape, Kind>(before, memory_.tokens.rows_of(i), memory_.tokens.u, mine_,
                                 columns_of<Shape, Kind>(memory_.tokens, i, mine_), d_out, gradient,
                                 memory_.d_rows.of_warp(), d_value, d_value_decay);
    store_values(first + i, column, d_value);
    if constexpr (Kind == scan_kind::value_decays) {
      if (call_.d_gv.data != nullptr) {
        store_of_head(call_.d_gv, first + i, column, d_value_decay);
      }
    }
    __syncthreads();
    memory_.d_rows.template add_warps<token_rows::count - (Kind == scan_kind::bonus ? 0 : 1)>(i);
    __syncthreads();
  }

  /// A warp for each token; then the sums of the bonus, a thread for each channel.
  __device__ void store_leaf(std::int64_t first, int count) const {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x) / 32; i < count; i += Shape::warps) {
      store_token(all_.token(first + i), memory_.d_rows.of_token(i));
    }
    if (args_.d_u == nullptr) return;
    for (int c = static_cast<int>(threadIdx.x); c < call_.keys; c += Shape::threads) {
      for (int i = 0; i < count; ++i) {
        sums()[c] += static_cast<double>(memory_.d_rows.of_token(i).bonus[c]);
      }
    }
  }

  /// Zeros for tokens that belong to no sequence.
  __device__ void clear_tokens() const {
    __syncthreads();
    memory_.d_rows.clear();
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32;
    for (std::int64_t step = warp; step < all_.length; step += Shape::warps) {
      store_token(all_.token(step), memory_.d_rows.of_token(0));
    }
    for (std::int64_t column = 0; column < call_.values; column += Shape::columns) {
      for (std::int64_t step = 0; step < all_.length; ++step) {
        store_values(step, column, {});
        if (call_.d_gv.data != nullptr) store_of_head(call_.d_gv, step, column, {});
      }
    }
  }

 private:
  __device__ state_place place(const chunked_scan_states& states, std::int64_t column) const {
    return place_of(states, call_, all_.slot, head_, column);
  }
  __device__ double* sums() const {
    return args_.d_u + (all_.number * call_.heads + head_) * call_.keys;
  }
  /// The head's share of a token.
  __device__ std::int64_t share_of(std::int64_t token) const {
    return (all_.entry * call_.tokens + token) * call_.heads + head_;
  }

  __device__ __forceinline__ void store_values(std::int64_t step, std::int64_t column,
                                               const column_values<Shape>& d_value) const {
    const std::int64_t left = call_.values - column, token = all_.token(step);
    if (args_.d_v != nullptr) {
      return recurrence::sm80::store_columns<float, Shape>(
          args_.d_v + share_of(token) * call_.values + column, left, mine_, d_value);
    }
    if (call_.d_v.data == nullptr) return;
    auto* const row = static_cast<Element*>(call_.d_v.data) +
                      row_of(call_.d_v, all_.entry, token, reader_.kv_head()) + column;
    store_columns<Element, Shape>(row, left, mine_, d_value);
  }
  __device__ __forceinline__ void store_of_head(const chunked_scan_rows& to, std::int64_t step,
                                                std::int64_t column,
                                                const column_values<Shape>& values) const {
    const std::int64_t row = row_of(to, all_.entry, all_.token(step), head_) + column;
    prim::cuda::with_elements(to.data, to.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      store_columns<element, Shape>(elements + row, call_.values - column, mine_, values);
    });
  }

  template <class Value>
  __device__ __forceinline__ void put_row(const chunked_scan_rows& to, std::int64_t token,
                                          std::int64_t head, const Value& value) const {
    if (to.data == nullptr) return;
    const std::int64_t at = row_of(to, all_.entry, token, head);
    reader::for_each_channel([&](int c) {
      if (c < call_.keys) prim::cuda::put_number(to.data, to.type, at + c, value(c));
    });
  }
  __device__ void store_token(std::int64_t token, const token_rows& d_of) const {
    put_row(call_.d_q, token, head_, [&](int c) { return call_.scale * d_of.query[c]; });
    if (args_.d_k != nullptr) {
      float* const share = args_.d_k + share_of(token) * call_.keys;
      reader::for_each_channel([&](int c) {
        if (c < call_.keys) share[c] = d_of.key[c];
      });
    } else {
      put_row(call_.d_k, token, reader_.kv_head(), [&](int c) { return d_of.key[c]; });
    }
    if (call_.d_g.data != nullptr) {
      float sum = 0.0f;
      reader::for_each_channel([&](int c) { sum += c < call_.keys ? d_of.decay[c] : 0.0f; });
      sum = prim::cuda::sum_of_warp(sum);
      if (threadIdx.x % 32 == 0) {
        prim::cuda::put_number(call_.d_g.data, call_.d_g.type,
                               row_of(call_.d_g, all_.entry, token, head_), sum);
      }
    }
    put_row(call_.d_gk, token, head_, [&](int c) {
      if (!call_.raw_decay || all_.is_rest) return d_of.decay[c];  // the rest may hold anything
      const std::int64_t at = row_of(call_.gk, all_.entry, token, head_) + c;
      const float raw = prim::cuda::number_at(call_.gk.data, call_.gk.type, at);
      return d_of.decay[c] * log_decay_of_raw(raw);  // the derivative of -exp(w) is itself
    });
  }

  const backward_args& args_;
  const chunked_scan_kernel_args& call_;
  backward_tokens<Shape>& memory_;
  const sequence& all_;
  std::int64_t head_;
  thread_place<Shape> mine_;
  reader reader_;
};

template <class Element, class Shape, scan_kind Kind>
__global__ void __launch_bounds__(Shape::threads, 2)
    step_back_through(__grid_constant__ const backward_args args) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<backward_tokens<Shape>*>(shared);
  const block_states states{args.cut, args.states + blockIdx.x * args.cut.floats_of_block()};
  const std::int64_t items = sequences_with_rest(args.call) * args.call.heads;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const sequence all = sequence_of<device_code>(args.call, item / args.call.heads);
    const scan_steps<Element, Shape, Kind> steps(args, memory, all, item % args.call.heads);
    if (all.is_rest) {
      steps.clear_tokens();
    } else if (all.has_states) {
      steps.begin();
      replay<Shape, scan_steps<Element, Shape, Kind>>(states, all.length, steps).run();
    }
  }
}

/// d_u: sums over sequences. A thread for each channel of a head.
template <class Element>
__global__ void __launch_bounds__(256) add_bonus_sums(__grid_constant__ const backward_args args) {
  const chunked_scan_kernel_args& call = args.call;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= call.heads * call.keys) return;
  double sum = 0.0;
  for (std::int64_t n = 0; n < call.sequences; ++n) {
    if (sequence_of<device_code>(call, n).has_states) {
      sum += args.d_u[n * call.heads * call.keys + at];
    }
  }
  prim::cuda::put_number(call.d_u.data, call.d_u.type,
                         at / call.keys * call.d_u.head + at % call.keys, static_cast<float>(sum));
}

}  // namespace tessera::kernels::chunked_scan::sm80
