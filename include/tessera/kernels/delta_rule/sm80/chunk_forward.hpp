// The delta rule on the matrix unit, 64 tokens at a time, with a decay of each head. With S the
// state in front of a chunk and G_t the sum of log decays up to token t,
//
//   A_tj = beta_t (k_t . k_j) exp(G_t - G_j)  for j < t, else 0       M = (I + A)^-1
//   r_t = beta_t (v_t - exp(G_t) S^T k_t)                             d = M r
//   out_t = scale (exp(G_t) S^T q_t + sum over j <= t of (q_t . k_j) exp(G_t - G_j) d_j)
//   S <- exp(G_end) S + sum over t of exp(G_end - G_t) k_t d_t^T
//
// `for each chunk { A and P; M; r, out = q S; d = M r; out += P d; S += k d^T; store }`. A block
// has some columns of the state of a sequence and head, a warp 16 of them, in registers from the
// first token to the last; r and d stay in its registers too, transposed. M is computed in f32.
// Operands that are no inputs are rounded to 16 bits: M, P, r, d and the state that is read.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_columns.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/kernels/recurrence/sm80/warp_state.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

/// A of four warps and P of four others, or of the same; `put(row, tile, word)` takes two numbers
/// of P, of the lane's tokens of a tile of eight.
template <class Element, class Shape, class Memory, class Put>
__device__ __forceinline__ void make_weights(Memory& shared, int warp, const Put& put) {
  using words = prim::cuda::half_words<Element>;
  const int lane = static_cast<int>(threadIdx.x) % 32, block = warp % 4;
  for (int part = warp / 4; part < 2; part += Shape::warps / 4) {
    const bool reads = part == 1;
    prim::cuda::accumulator scores[8] = {};
    recurrence::sm80::multiply_rows<Element, Shape, 1>(
        scores, prim::cuda::shared_address(reads ? shared.q : shared.k),
        prim::cuda::shared_address(shared.k), block, 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = block * 16 + lane / 4 + half * 8;
      const float sum = shared.decays.sums[row];
      const float of_row = reads ? shared.scale_q[row] : shared.beta[row] * shared.scale_k[row];
#pragma unroll
      for (int tile = 0; tile < 8; ++tile) {
        if (tile / 2 > block) break;
        const int token = tile * 8 + lane % 4 * 2;
        float weight[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float decay = prim::cuda::exp2_fast(sum - shared.decays.sums[token + j]);
          const float x =
              scores[tile].at[2 * half + j] * (of_row * shared.scale_k[token + j]) * decay;
          weight[j] = token + j < row || (reads && token + j == row) ? x : 0.0f;
        }
        if (reads) {
          put(row, tile, words::pack(weight[0], weight[1]));
        } else {
          *reinterpret_cast<float2*>(&shared.solved[row][token]) =
              make_float2(weight[0], weight[1]);
        }
      }
    }
  }
}

/// One value head of a sequence, and the columns of a block.
template <class Element, class Shape>
class delta_chunk_walk {
  using memory = delta_chunk_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using value_rows = typename Shape::value_rows;
  using weight_rows = typename Shape::weight_rows;
  using state_type = recurrence::sm80::warp_state<Shape::keys, 1>;
  using answers_type = recurrence::sm80::chunk_answers<Element, Shape>;

 public:
  __device__ __forceinline__ delta_chunk_walk(const delta_rule_kernel_args& args, memory& shared,
                                              const sequence& all, std::int64_t head,
                                              std::int64_t column)
      : args_(args),
        shared_(shared),
        all_(all),
        head_(head),
        column_(column),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    for (int i = static_cast<int>(threadIdx.x); i < Shape::columns; i += Shape::threads) {
      shared.first_not_finite[i] = Shape::tokens;
    }
    if (threadIdx.x == 0) {
      const std::int64_t key_head = recurrence::shared_head(head, args.value_heads, args.key_heads);
      shared.rows_q = ordered_rows::of(args.q, all, key_head);
      shared.rows_k = ordered_rows::of(args.k, all, key_head);
      shared.rows_v = ordered_rows::of(args.v, all, head);
      shared.rows_g = ordered_rows::of(args.decay, all, head);
      shared.rows_beta = ordered_rows::of(args.beta, all, head);
      shared.rows_out = ordered_rows::of(args.out, all, head);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void go_through(state_type& state) {
    const recurrence::sm80::chunk_outputs outputs{static_cast<Element*>(args_.out.data) + column_,
                                                  static_cast<int>(args_.value_dim - column_),
                                                  args_.scale};
    copy_chunk(0);
    for (std::int64_t token = 0; token < all_.length; token += Shape::tokens) {
      const int count = count_at(token);
      load_gates(args_, shared_, all_, head_, token);
      prim::cuda::wait_copies<0>();
      __syncthreads();
      measure_rows<Element, Shape>(shared_, args_.normalizes);
      __syncthreads();
      make_weights<Element, Shape>(shared_, warp_, [&](int row, int tile, std::uint32_t word) {
        prim::cuda::store_shared_4(
            prim::cuda::shared_address(shared_.weights) + weight_offset<Shape>(row, tile), word);
      });
      const auto put = [&](int row, int tile, const prim::cuda::accumulator& sums, float sign) {
        put_rounded<Element, Shape>(
            row, tile, sums, sign, [&](std::uint32_t offset, std::uint32_t word) {
              prim::cuda::store_shared_4(prim::cuda::shared_address(shared_.inverse) + offset,
                                         word);
            });
      };
      if (warp_ < 4) invert_diagonal(shared_.solved, warp_, put);
      __syncthreads();
      if (warp_ < 4) invert_below(shared_.solved, warp_, put);
      chunk_columns columns;
      const bool finite = subtract_held(state, columns);
      answers_type answers = {};
      read_state(state, answers);
      state.multiply(shared_.decays.whole);
      __syncthreads();
      columns.template multiply<Element, Shape>(shared_.inverse);
      add_tokens(state, columns, answers, finite);
      answers.store(shared_, outputs, shared_.v, token, {0, count}, finite, true);
      __syncthreads();
      if (token + Shape::tokens < all_.length) copy_chunk(token + Shape::tokens);
    }
  }

 private:
  __device__ __forceinline__ int count_at(std::int64_t token) const {
    return static_cast<int>(min(all_.length - token, static_cast<std::int64_t>(Shape::tokens)));
  }
  __device__ __forceinline__ void copy_chunk(std::int64_t token) const {
    const int count = count_at(token), keys = static_cast<int>(args_.key_dim);
    recurrence::sm80::copy_rows<Element, key_rows, Shape::threads>(
        prim::cuda::shared_address(shared_.q), args_.q.data, shared_.rows_q, token, count, keys);
    recurrence::sm80::copy_rows<Element, key_rows, Shape::threads>(
        prim::cuda::shared_address(shared_.k), args_.k.data, shared_.rows_k, token, count, keys);
    recurrence::sm80::copy_rows<Element, value_rows, Shape::threads>(
        prim::cuda::shared_address(shared_.v), static_cast<const Element*>(args_.v.data) + column_,
        shared_.rows_v, token, count, static_cast<int>(args_.value_dim - column_));
    prim::cuda::commit_copies();
  }

  /// r; whether all values are finite.
  __device__ __forceinline__ bool subtract_held(const state_type& state, chunk_columns& columns) {
    columns = {};
    columns.template read<Element, Shape>(state, shared_.k);
    columns.multiply_tokens(shared_.scale_k);
    columns.multiply_tokens(shared_.decays.front);
    columns.template subtract_from<Element, Shape>(shared_.v, warp_);
    columns.multiply_tokens(shared_.beta);
    return remove_not_finite(columns);
  }
  /// What is not finite becomes 0, which earlier tokens alone may see; the first such token of a
  /// column is noted.
  __device__ __forceinline__ bool remove_not_finite(chunk_columns& columns) {
    bool any = false;
#pragma unroll
    for (auto& tile : columns.at) {
#pragma unroll
      for (const float x : tile.at)
        any = any || prim::cuda::any_not_finite<float>(__float_as_uint(x));
    }
    if (!prim::cuda::any_of_warp(any)) return true;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& x = columns.at[n].at[i];
        if (!prim::cuda::any_not_finite<float>(__float_as_uint(x))) continue;
        atomicMin(&shared_.first_not_finite[warp_ * 16 + i / 2 * 8 + lane_ / 4],
                  n * 8 + lane_ % 4 * 2 + i % 2);
        x = 0.0f;
      }
    }
    __syncwarp();
    return false;
  }

  __device__ __forceinline__ void read_state(const state_type& state, answers_type& answers) const {
    answers.read(state, prim::cuda::shared_address(shared_.q));
    answers.multiply_tokens(shared_.scale_q);
    answers.multiply_tokens(shared_.decays.front);
  }

  /// What the tokens add to answers and state.
  __device__ __forceinline__ void add_tokens(state_type& state, chunk_columns& columns,
                                             answers_type& answers, bool finite) const {
    const auto lane = prim::cuda::thread_index() % 32;
    const std::uint32_t weights =
        prim::cuda::shared_address(shared_.weights) + weight_rows::lane_of_a(lane);
    const std::uint32_t k = prim::cuda::shared_address(shared_.k) + key_rows::lane_of_a(lane);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_b2 written[1] = {columns.template operand<Element>(step)};
      answers.add(weights, step, written);
    }
    columns.multiply_tokens(shared_.scale_k);
    columns.multiply_tokens(shared_.decays.rest);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_a added[1] = {
          recurrence::sm80::transposed(columns.template operand<Element>(step))};
      state.template add_tokens<Element, key_rows>(added, k, step);
    }
    if (!finite) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (shared_.first_not_finite[warp_ * 16 + i * 8 + lane_ / 4] >= Shape::tokens) continue;
#pragma unroll
        for (auto& tile : state.at[0])
          tile.at[2 * i] = tile.at[2 * i + 1] = __int_as_float(0x7fc00000);
      }
    }
  }

  const delta_rule_kernel_args& args_;
  memory& shared_;
  const sequence& all_;
  std::int64_t head_, column_;
  int warp_, lane_;
};

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 256 / Shape::threads)
    chunk_through(__grid_constant__ const delta_rule_kernel_args args, int tiles) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<delta_chunk_memory<Shape>*>(memory);
  const recurrence::tile_item item(blockIdx.x, tiles, args.value_heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  if (all.is_rest) {
    const auto width = min(args.value_dim - column, std::int64_t{Shape::columns});
    return recurrence::sm80::clear_rows(args.out, all, head, column, static_cast<int>(width));
  }
  if (!all.has_states) return;

  const warp_columns columns(args, all, head, column);
  recurrence::sm80::warp_state<Shape::keys, 1> state;
  columns.load(state, initial_states<device_code>(args, all));
  if (all.length > 0) {
    delta_chunk_walk<Element, Shape>(args, shared, all, head, column).go_through(state);
  }
  columns.store(state, args.last);
}

}  // namespace tessera::kernels::delta_rule::sm80
