// Scans on the matrix unit, 64 tokens at a time: the way forward, and gradients (chunk_scans.hpp).
// With S the state in front of a chunk and G_t the sum of log decays up to token t,
//
//   P_tj = (q_t . k_j) exp(G_t - G_j)  for j <= t, else 0
//   out_t = scale (exp(G_t) S^T q_t + sum over j of P_tj v_j)
//   S <- exp(G_end) S + sum over t of exp(G_end - G_t) k_t v_t^T
//
// `for each chunk { P, a block of rows a warp; out = q S; for each 16 tokens { out += P v; S += k
// v^T } store }`. A block has some columns of the state of a sequence and head; a warp has 16
// `tiles` of them, in registers from the first token to the last. Operands that are no inputs are
// rounded to 16 bits: P, the state that is read, and tokens times decays.
//
// Of f16, whose range is short, rows of P and a warp's state are relative to their largest number.
//
// With decays by channel, the rows of q and k have the decays, with decays by column those of v and
// the answers (chunk_channels.hpp). With a bonus u a token reads the state in front of it, and
// itself as q . (u k): P has these on its diagonal, and exp(G_{t-1}) in the place of exp(G_t).
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_channels.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_products.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/chunked_scan/sm80/kept_states.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::chunk_answers;

/// One head of a sequence, and the columns of a block. `Back`: the scan is of gradients, and may go
/// from the last token on.
template <class Element, class Shape, chunk_decay Decay, bool Back>
class chunk_walk {
  using memory = chunk_memory<Shape, Decay>;
  using words = prim::cuda::half_words<Element>;
  static constexpr bool by_channel = decays_by_channel(Decay);
  static constexpr bool by_column = decays_by_column(Decay);
  static constexpr bool has_bonus = reads_before(Decay);

 public:
  __device__ __forceinline__ chunk_walk(const chunk_launch<Back>& launch, const chunk_scan& scan,
                                        memory& shared, const sequence& all, std::int64_t head,
                                        int column)
      : launch_(launch),
        scan_(scan),
        shared_(shared),
        all_(all),
        head_(head),
        column_(column),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    const chunked_scan_kernel_args& args = launch.call;
    if (args.g_gamma != nullptr) {
      gamma_ = args.g_gamma[all.number * args.gamma_sequence + head * args.gamma_head];
    }
    for (int i = static_cast<int>(threadIdx.x); i < Shape::columns; i += Shape::threads) {
      shared.first_not_finite[i] = Shape::tokens;
    }
    if (threadIdx.x == 0) {
      const std::int64_t kv_head = recurrence::shared_head(head, args.heads, args.kv_heads);
      shared.rows_q = ordered_rows::of(scan.q, all, returns() ? kv_head : head);
      shared.rows_k = ordered_rows::of(scan.k, all, returns() ? head : kv_head);
      shared.rows_v = ordered_rows::of(scan.v, all, returns() ? head : kv_head);
      shared.rows_g = ordered_rows::of(args.g, all, head);
      shared.rows_gk = ordered_rows::of(args.gk, all, head);
      shared.rows_out = ordered_rows::of(scan.out, all, head);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void copy_keys(std::int64_t token, int count, int place) const {
    using rows = typename Shape::key_rows;
    recurrence::sm80::copy_rows<Element, rows, Shape::threads>(
        prim::cuda::shared_address(shared_.q[place]), scan_.q.data, shared_.rows_q, token, count,
        scan_.keys);
    recurrence::sm80::copy_rows<Element, rows, Shape::threads>(
        prim::cuda::shared_address(shared_.k[place]), scan_.k.data, shared_.rows_k, token, count,
        scan_.keys);
  }
  __device__ __forceinline__ void copy_values(std::int64_t token, int count, int place) const {
    const auto* const v = static_cast<const Element*>(scan_.v.data) + column_;
    recurrence::sm80::copy_rows<Element, typename Shape::value_rows, Shape::threads>(
        prim::cuda::shared_address(shared_.v[place]), v, shared_.rows_v, token, count,
        scan_.values - column_);
  }
  /// Log decays of the lane's two tokens of a chunk, whose tokens may be none.
  __device__ __forceinline__ float2 load_head_decays(std::int64_t token, int count) const {
    float decay[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = token + 2 * lane_ + i - (returns() ? 1 : 0);
      decay[i] = 2 * lane_ + i < count && at >= 0 ? head_decay(at) : 0.0f;
    }
    return make_float2(decay[0], decay[1]);
  }
  __device__ __forceinline__ float head_decay(std::int64_t token) const {
    const chunked_scan_rows& g = launch_.call.g;
    float x = gamma_;
    if (g.data != nullptr) x += prim::cuda::number_at(g.data, g.type, shared_.rows_g.at(token));
    return log2_decay(x);
  }

  /// The state goes through all tokens; answers are stored.
  template <class State>
  __device__ __forceinline__ void go_through(State& state) {
    if constexpr (by_channel) {
      go_by_channel(state);
    } else {
      go_by_head(state);
    }
  }

 private:
  /// Forward tokens add what they are, and answers are scaled.
  __device__ __forceinline__ float log2_token_scale() const {
    return Back ? scan_.log2_token_scale : 0.0f;
  }
  __device__ __forceinline__ bool returns() const {
    return Back && scan_.returns;
  }
  /// Values that tokens have of themselves, column by column, are read to the end.
  static constexpr bool keeps_values = by_column && has_bonus;
  /// Of what tokens have of themselves.
  __device__ __forceinline__ float token_scale() const {
    return prim::cuda::exp2_fast(log2_token_scale());
  }
  /// The steps between a token and the one whose decay is in front of it.
  __device__ __forceinline__ int earlier() const {
    return returns() && !has_bonus ? 1 : 0;
  }
  /// Tokens of the chunk from `token` on; chunks begin at the same tokens from both ends.
  __device__ __forceinline__ int count_at(std::int64_t token) const {
    if (returns() && token == 0) return static_cast<int>((all_.length - 1) % Shape::tokens) + 1;
    return static_cast<int>(min(all_.length - token, static_cast<std::int64_t>(Shape::tokens)));
  }
  __device__ __forceinline__ recurrence::sm80::chunk_outputs outputs() const {
    const chunked_scan_rows& out = scan_.out;
    void* const data = Back && out.type == dtype::f32
                           ? static_cast<void*>(static_cast<float*>(out.data) + column_)
                           : static_cast<void*>(static_cast<Element*>(out.data) + column_);
    return {data, scan_.values - column_, scan_.answer_scale};
  }
  __device__ __forceinline__ void store(const chunk_answers<Element, Shape>& answers,
                                        unsigned char* values, std::int64_t token,
                                        const chunk_segment& rows, bool finite, bool last) const {
    if (Back && scan_.out.type == dtype::f32) {
      answers.store_singles(shared_, outputs(), token, rows, finite);
    } else {
      answers.store(shared_, outputs(), values, token, rows, finite, last);
    }
  }

  template <class State>
  __device__ __forceinline__ void go_by_head(State& state) {
    copy_keys(0, count_at(0), 0);
    copy_values(0, count_at(0), 0);
    prim::cuda::commit_copies();
    if (warp_ == 0) {
      sum_head_decays(shared_.of_heads[0], load_head_decays(0, count_at(0)), log2_token_scale());
    }
    int place = 0;
    for (std::int64_t token = 0, next = 0; token < all_.length; token = next, place ^= 1) {
      keep(state, token);
      next = token + (Back ? count_at(token) : Shape::tokens);
      prim::cuda::wait_copies<0>();
      __syncthreads();
      float2 next_decays = make_float2(0.0f, 0.0f);
      if (next < all_.length) {
        copy_keys(next, count_at(next), place ^ 1);
        copy_values(next, count_at(next), place ^ 1);
        prim::cuda::commit_copies();
        if (warp_ == 0) next_decays = load_head_decays(next, count_at(next));
      }
      const head_decays& decays = shared_.of_heads[place];
      const std::uint32_t q = prim::cuda::shared_address(shared_.q[place]);
      const std::uint32_t k = prim::cuda::shared_address(shared_.k[place]);
      make_weights<Element, Shape>(shared_, decays, q, k, warp_, log2_token_scale());
      chunk_answers<Element, Shape> answers = {};
      constexpr bool is_short = recurrence::sm80::range_is_short<Element>;
      recurrence::sm80::range_scale of_state;
      if constexpr (is_short) of_state = recurrence::sm80::range_scale::of(state.largest());
      answers.read(state, q, of_state.factor);
      answers.multiply_tokens(decays.front, of_state.inverse);
      state.multiply(decays.whole);
      __syncthreads();
      if constexpr (is_short) answers.multiply_tokens(shared_.of_weights.factor);
      const bool finite =
          add_tokens(state, answers, k, shared_.v[place], {0, Shape::tokens}, decays.rest);
      if (warp_ == 0) {
        sum_head_decays(shared_.of_heads[place ^ 1], next_decays, log2_token_scale());
      }
      if constexpr (is_short) answers.multiply_tokens(shared_.of_weights.inverse);
      store(answers, shared_.v[place], token, {0, count_at(token)}, finite, true);
    }
    if (returns()) state.multiply(prim::cuda::exp2_fast(head_decay(all_.length - 1)));
  }

  template <class State>
  __device__ __forceinline__ void go_by_channel(State& state) {
    const chunked_scan_kernel_args& args = launch_.call;
    channel_scaler<Element, Shape, Decay> scaler(
        shared_, args,
        {.first = by_column ? column_ : 0,
         .count = by_column ? scan_.values - column_ : scan_.keys,
         .earlier = earlier(),
         .log2_token_scale = log2_token_scale()},
        gamma_);
    scaler.begin();
    if (has_bonus) {
      load_bonus<Shape, Decay>(shared_, args.u, head_, by_column ? column_ : 0,
                               by_column ? scan_.values - column_ : scan_.keys);
    }
    copy_keys(0, count_at(0), 0);
    copy_values(0, count_at(0), 0);
    prim::cuda::commit_copies();
    int place = 0;
    for (std::int64_t token = 0, next = 0; token < all_.length; token = next, place ^= 1) {
      keep(state, token, scaler);
      const int count = count_at(token);
      next = token + count;
      scaler.load(token, count);
      prim::cuda::wait_copies<0>();
      __syncthreads();
      scaler.add_earlier();
      for (chunk_segment segment; segment.end < count;) {
        segment = scaler.segment_from(segment.end);
        scaler.scale(segment);
        if constexpr (!by_column && has_bonus) {
          make_bonus<Element, Shape>(shared_, segment, token_scale(), warp_);
        }
        __syncthreads();
        const bool last = segment.end >= count, goes_on = last && next < all_.length;
        if (goes_on) {
          copy_keys(next, count_at(next), by_column ? place ^ 1 : 0);
          if (!keeps_values) copy_values(next, count_at(next), by_column ? 0 : place ^ 1);
          prim::cuda::commit_copies();
        }
        const std::uint32_t q = prim::cuda::shared_address(shared_.q[by_column ? place : 1]);
        const std::uint32_t k = prim::cuda::shared_address(shared_.k[by_column ? place : 1]);
        unsigned char* const v = shared_.v[by_column ? 1 : place];
        multiply_by_factors(state);
        make_weights<Element, Shape>(shared_, shared_.of_heads[0], q, k, warp_);
        chunk_answers<Element, Shape> answers = {};
        answers.read(state, q);
        __syncthreads();
        const bool finite = add_tokens(state, answers, k, v, segment, nullptr);
        if constexpr (by_column) {
          decay_answers(answers, shared_.of_answers.at, warp_);
          if constexpr (keeps_values) {
            add_own(answers, shared_.v[0], shared_.of_channels.own, shared_.of_channels.u,
                    token_scale(), warp_);
            __syncthreads();
            if (goes_on) copy_values(next, count_at(next), 0);
            prim::cuda::commit_copies();
          }
        }
        store(answers, v, token, {segment.first, min(segment.end, count)}, finite, last);
      }
    }
    if (earlier() > 0) scaler.decay_by(all_.length - 1);
    flush(state, scaler);
  }

  template <class State>
  __device__ __forceinline__ void multiply_by_factors(State& state) const {
    const float* const factors = shared_.of_channels.factors;
    if constexpr (by_column) {
      state.multiply_columns(factors + warp_ * Shape::tiles * 16);
    } else {
      state.multiply_channels(factors);
    }
  }
  /// The state becomes what it is: nothing is left to multiply it by.
  template <class State, class Scaler>
  __device__ __forceinline__ void flush(State& state, Scaler& scaler) const {
    __syncthreads();
    scaler.finish();
    __syncthreads();
    multiply_by_factors(state);
  }

  /// Keeps the state in front of the chunk of `token`.
  template <class State, class... Scaler>
  __device__ __forceinline__ void keep(State& state, std::int64_t token, Scaler&... scaler) const {
    if constexpr (Back && (by_column || !by_channel) && std::is_same_v<Element, bf16>) {
      if (scan_.kept == nullptr) return;
      (flush(state, scaler), ...);
      (scaler.begin(), ...);
      const std::int64_t last = all_.length - token - 1;
      const std::int64_t chunk = (scan_.returns ? last : token) / chunk_states::tokens;
      keep_state<Shape::keys>(state, scan_.kept, first_chunk_of(launch_.states, all_) + chunk,
                              launch_.call, head_, column_ / 16 + warp_ * Shape::tiles);
    }
  }

  /// What the tokens of a segment add to answers and state; whether all of their values are finite.
  template <class State>
  __device__ __forceinline__ bool add_tokens(State& state, chunk_answers<Element, Shape>& answers,
                                             std::uint32_t k, const unsigned char* all_v,
                                             const chunk_segment& segment,
                                             const float* rest) const {
    using value_rows = typename Shape::value_rows;
    using weight_rows = typename Shape::weight_rows;
    const auto lane = prim::cuda::thread_index() % 32;
    const std::uint32_t v = prim::cuda::shared_address(all_v) + value_rows::lane_of_a(lane);
    const std::uint32_t weights =
        prim::cuda::shared_address(shared_.weights) + weight_rows::lane_of_a(lane);
    k += Shape::key_rows::lane_of_a(lane);
    bool finite = true;
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      prim::cuda::fragment_b2 values[Shape::tiles];
      prim::cuda::fragment_a added[Shape::tiles];
#pragma unroll
      for (int i = 0; i < Shape::tiles; ++i) {
        prim::cuda::load_matrices_transposed(values[i].reg,
                                             value_rows::step(v, step, warp_ * Shape::tiles + i));
        prim::cuda::fragment_b2 all_values = values[i];
        int* const first = shared_.first_not_finite + (warp_ * Shape::tiles + i) * 16;
        if (remove_not_finite<Element, Shape>(values[i], first, step * 16)) {
          finite = false;
          if (by_channel) keep_tokens(all_values, values[i], segment, step * 16);
        }
        added[i] = by_channel ? recurrence::sm80::transposed(all_values)
                              : scaled_values<Element>(all_values, rest + step * 16);
      }
      answers.add(weights, step, values);
      state.template add_tokens<Element, typename Shape::key_rows>(added, k, step);
    }
    return finite;
  }

  const chunk_launch<Back>& launch_;
  const chunk_scan& scan_;
  memory& shared_;
  const sequence& all_;
  std::int64_t head_;
  int column_, warp_, lane_;
  float gamma_ = 0.0f;
};

template <class Element, class Shape, chunk_decay Decay, bool Back>
__global__ void __launch_bounds__(Shape::threads, 256 / Shape::threads)
    chunk_through(__grid_constant__ const chunk_launch<Back> launch) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<chunk_memory<Shape, Decay>*>(memory);
  const chunk_scan& scan = launch.scans[Back ? blockIdx.y : 0];
  const bool returns = Back && scan.returns;
  const recurrence::tile_item item(blockIdx.x, launch.tiles, launch.call.heads);
  const int column = static_cast<int>(item.tile) * Shape::columns;
  if (column >= scan.values) return;
  const std::int64_t head = item.head;
  sequence all = sequence_of<device_code>(launch.call, item.sequence);
  all.reverse = all.reverse != returns;
  if (all.is_rest) {
    return recurrence::sm80::clear_rows(scan.out, all, head, column,
                                        min(scan.values - column, Shape::columns));
  }
  if (!all.has_states) return;

  const int own = column + static_cast<int>(threadIdx.x) / 32 * (Shape::tiles * 16);
  const auto columns_of = [&](const chunk_state& states) {
    return recurrence::sm80::state_columns{.channel = states.channel,
                                           .channels = scan.keys,
                                           .columns = max(scan.values - own, 0),
                                           .column = states.column};
  };
  const auto first_of = [&](const chunk_state& states) {
    return all.slot * states.sequence + head * states.head + own * states.column;
  };
  recurrence::sm80::warp_state<Shape::keys, Shape::tiles> state;
  state.load(scan.initial.data, dtype::f32, first_of(scan.initial), columns_of(scan.initial));
  // A state that no token touches goes through bit by bit.
  const bool has_units = returns && all.length > 0;
  if (has_units) state.multiply(scan.initial_scale);
  if (all.length > 0) {
    chunk_walk<Element, Shape, Decay, Back>(launch, scan, shared, all, head, column)
        .go_through(state);
  }
  if (has_units) state.multiply(scan.final_scale);
  state.store(scan.final.data, dtype::f32, first_of(scan.final), columns_of(scan.final));
}

}  // namespace tessera::kernels::chunked_scan::sm80
