// Forward on the matrix unit, 64 tokens at a time. With S the state in front of a chunk and G_t the
// sum of log decays up to token t,
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
// With decays by channel, the rows of q and k have the decays (chunk_channels.hpp).
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_channels.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_products.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::chunk_answers;

/// One head of a sequence, and the columns of a block.
template <class Element, class Shape, chunk_decay Decay>
class chunk_walk {
  using memory = chunk_memory<Shape, Decay>;
  using words = prim::cuda::half_words<Element>;
  static constexpr bool by_channel = Decay != chunk_decay::heads;

 public:
  __device__ __forceinline__ chunk_walk(const chunked_scan_kernel_args& args, memory& shared,
                                        const sequence& all, std::int64_t head, std::int64_t column)
      : args_(args),
        shared_(shared),
        all_(all),
        head_(head),
        column_(column),
        outputs_{static_cast<Element*>(args.out.data) + column,
                 static_cast<int>(args.values - column), args.scale},
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    if (args.g_gamma != nullptr) {
      gamma_ = args.g_gamma[all.number * args.gamma_sequence + head * args.gamma_head];
    }
    for (int i = static_cast<int>(threadIdx.x); i < Shape::columns; i += Shape::threads) {
      shared.first_not_finite[i] = Shape::tokens;
    }
    if (threadIdx.x == 0) {
      const std::int64_t kv_head = recurrence::shared_head(head, args.heads, args.kv_heads);
      shared.rows_q = ordered_rows::of(args.q, all, head);
      shared.rows_k = ordered_rows::of(args.k, all, kv_head);
      shared.rows_v = ordered_rows::of(args.v, all, kv_head);
      shared.rows_g = ordered_rows::of(args.g, all, head);
      shared.rows_gk = ordered_rows::of(args.gk, all, head);
      shared.rows_out = ordered_rows::of(args.out, all, head);
    }
    __syncthreads();
  }

  __device__ __forceinline__ int count_at(std::int64_t token) const {
    return static_cast<int>(min(all_.length - token, static_cast<std::int64_t>(Shape::tokens)));
  }
  __device__ __forceinline__ void copy_keys(std::int64_t token, int place) const {
    using rows = typename Shape::key_rows;
    const int count = count_at(token), keys = static_cast<int>(args_.keys);
    recurrence::sm80::copy_rows<Element, rows, Shape::threads>(
        prim::cuda::shared_address(shared_.q[place]), args_.q.data, shared_.rows_q, token, count,
        keys);
    recurrence::sm80::copy_rows<Element, rows, Shape::threads>(
        prim::cuda::shared_address(shared_.k[place]), args_.k.data, shared_.rows_k, token, count,
        keys);
  }
  __device__ __forceinline__ void copy_values(std::int64_t token, int place) const {
    const auto* const v = static_cast<const Element*>(args_.v.data) + column_;
    recurrence::sm80::copy_rows<Element, typename Shape::value_rows, Shape::threads>(
        prim::cuda::shared_address(shared_.v[place]), v, shared_.rows_v, token, count_at(token),
        static_cast<int>(args_.values - column_));
  }
  /// Log decays of the lane's two tokens of a chunk, whose tokens may be none.
  __device__ __forceinline__ float2 load_head_decays(std::int64_t token) const {
    float decay[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::int64_t at = token + 2 * lane_ + i;
      decay[i] = 0.0f;
      if (at >= all_.length) continue;
      float x = gamma_;
      if (args_.g.data != nullptr) {
        x += prim::cuda::number_at(args_.g.data, args_.g.type, shared_.rows_g.at(at));
      }
      decay[i] = log2_decay(x);
    }
    return make_float2(decay[0], decay[1]);
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
  template <class State>
  __device__ __forceinline__ void go_by_head(State& state) {
    copy_keys(0, 0);
    copy_values(0, 0);
    prim::cuda::commit_copies();
    if (warp_ == 0) sum_head_decays(shared_.of_heads[0], load_head_decays(0));
    int place = 0;
    for (std::int64_t token = 0; token < all_.length; token += Shape::tokens, place ^= 1) {
      prim::cuda::wait_copies<0>();
      __syncthreads();
      const std::int64_t next = token + Shape::tokens;
      float2 next_decays = make_float2(0.0f, 0.0f);
      if (next < all_.length) {
        copy_keys(next, place ^ 1);
        copy_values(next, place ^ 1);
        prim::cuda::commit_copies();
        if (warp_ == 0) next_decays = load_head_decays(next);
      }
      const head_decays& decays = shared_.of_heads[place];
      const std::uint32_t q = prim::cuda::shared_address(shared_.q[place]);
      const std::uint32_t k = prim::cuda::shared_address(shared_.k[place]);
      const float no_bonus[2] = {};
      make_weights<Element, Shape>(shared_, decays, q, k, no_bonus, warp_);
      chunk_answers<Element, Shape> answers = {};
      answers.read(state, q);
      answers.multiply_tokens(decays.front);
      state.multiply(decays.whole);
      __syncthreads();
      const bool finite = add_tokens(state, answers, k, place, {0, Shape::tokens}, decays.rest);
      if (warp_ == 0) sum_head_decays(shared_.of_heads[place ^ 1], next_decays);
      answers.store(shared_, outputs_, shared_.v[place], token, {0, count_at(token)}, finite, true);
    }
  }

  template <class State>
  __device__ __forceinline__ void go_by_channel(State& state) {
    channel_scaler<Element, Shape, Decay> scaler(shared_);
    scaler.begin();
    if (Decay == chunk_decay::bonus) load_bonus();
    copy_keys(0, 0);
    copy_values(0, 0);
    prim::cuda::commit_copies();
    int place = 0;
    for (std::int64_t token = 0; token < all_.length; token += Shape::tokens, place ^= 1) {
      const int count = count_at(token);
      scaler.load(args_, gamma_, token, count);
      prim::cuda::wait_copies<0>();
      __syncthreads();
      scaler.add_earlier();
      for (chunk_segment segment; segment.end < count;) {
        segment = scaler.segment_from(segment.end);
        scaler.scale(segment);
        float bonus[2] = {};
        if (Decay == chunk_decay::bonus) make_bonus<Element, Shape>(shared_, segment, warp_, bonus);
        __syncthreads();
        const bool last = segment.end >= count;
        if (last && token + Shape::tokens < all_.length) {
          copy_keys(token + Shape::tokens, 0);
          copy_values(token + Shape::tokens, place ^ 1);
          prim::cuda::commit_copies();
        }
        const std::uint32_t q = prim::cuda::shared_address(shared_.q[1]);
        const std::uint32_t k = prim::cuda::shared_address(shared_.k[1]);
        state.multiply_channels(shared_.of_channels.factors);
        make_weights<Element, Shape>(shared_, shared_.of_heads[0], q, k, bonus, warp_);
        chunk_answers<Element, Shape> answers = {};
        answers.read(state, q);
        __syncthreads();
        const bool finite = add_tokens(state, answers, k, place, segment, nullptr);
        answers.store(shared_, outputs_, shared_.v[place], token,
                      {segment.first, min(segment.end, count)}, finite, last);
      }
    }
    __syncthreads();
    scaler.finish();
    __syncthreads();
    state.multiply_channels(shared_.of_channels.factors);
  }

  __device__ __forceinline__ void load_bonus() const {
    for (int c = static_cast<int>(threadIdx.x); c < Shape::keys; c += Shape::threads) {
      shared_.of_channels.u[c] = c < args_.keys ? prim::cuda::number_at(args_.u.data, args_.u.type,
                                                                        head_ * args_.u.head + c)
                                                : 0.0f;
    }
  }

  /// What the tokens of a segment add to answers and state; whether all of their values are finite.
  template <class State>
  __device__ __forceinline__ bool add_tokens(State& state, chunk_answers<Element, Shape>& answers,
                                             std::uint32_t k, int place,
                                             const chunk_segment& segment,
                                             const float* rest) const {
    using value_rows = typename Shape::value_rows;
    using weight_rows = typename Shape::weight_rows;
    const auto lane = prim::cuda::thread_index() % 32;
    const std::uint32_t v =
        prim::cuda::shared_address(shared_.v[place]) + value_rows::lane_of_a(lane);
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
  const chunked_scan_kernel_args& args_;
  memory& shared_;
  const sequence& all_;
  std::int64_t head_, column_;
  recurrence::sm80::chunk_outputs outputs_;
  int warp_, lane_;
  float gamma_ = 0.0f;
};

template <class Element, class Shape, chunk_decay Decay>
__global__ void __launch_bounds__(Shape::threads, 256 / Shape::threads)
    chunk_through(__grid_constant__ const chunked_scan_kernel_args args, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<chunk_memory<Shape, Decay>*>(memory);
  const recurrence::tile_item item(blockIdx.x, tiles, args.heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  if (all.is_rest) {
    const auto width = min(args.values - column, std::int64_t{Shape::columns});
    return recurrence::sm80::clear_rows<Element>(args.out, all, head, column,
                                                 static_cast<int>(width));
  }
  if (!all.has_states) return;

  const std::int64_t own = column + static_cast<int>(threadIdx.x) / 32 * (Shape::tiles * 16);
  const auto columns_of = [&](const chunked_scan_states& states) {
    return recurrence::sm80::state_columns{
        .channel = states.key,
        .channels = static_cast<int>(args.keys),
        .columns = static_cast<int>(max(args.values - own, std::int64_t{0}))};
  };
  const auto first_of = [&](const chunked_scan_states& states) {
    return all.slot * states.sequence + head * states.head + own;
  };
  recurrence::sm80::warp_state<Shape::keys, Shape::tiles> state;
  state.load(args.initial_state.data, dtype::f32, first_of(args.initial_state),
             columns_of(args.initial_state));
  if (all.length > 0) {
    chunk_walk<Element, Shape, Decay>(args, shared, all, head, column).go_through(state);
  }
  state.store(args.final_state.data, dtype::f32, first_of(args.final_state),
              columns_of(args.final_state));
}

}  // namespace tessera::kernels::chunked_scan::sm80
