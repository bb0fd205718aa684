// Gradients of q, k, beta and log decays, a chunk and value head at a time, from what the scans of
// chunk_back_scans.hpp have left. With q' and k' the rows of q and k times their scales, S the
// state in front of the chunk and D the gradient of that behind it, e_t = exp(G_t), f_t = exp(G_end
// - G_t),
//
//   E_tj = (do_t . d_j) exp(G_t - G_j) for j <= t
//
//   B_tj = -beta_t (dr_t . d_j) exp(G_t - G_j) for j < t
//
//   d_q' = e S do + E k'
//
//   d_k' = -beta e S dr + f D d + E^T q' + B k' + B^T k'
//
//   d_beta_t = dr_t . v_t - e_t k'_t . S dr_t + sum over j of B_tj (k'_t . k'_j) / beta_t
//
//   d_log_decay_t = exp(G_end) <S, D>
//
//                   + sum over s >= t of e_s (q'_s . S do_s - beta_s k'_s . S dr_s)
//
//                   + sum over s < t of f_s k'_s . D d_s + sum over s >= t > j of W_sj
//
// where W_tj = E_tj (q'_t . k'_j) + B_tj (k'_t . k'_j) for j < t. The last is a sum of differences
// of rows and columns of W, which cancel: they are summed in f32, of one W. E, B and what operands
// of products were made of before are rounded to 16 bits. A warp has 16 channels of all tokens.
#pragma once

#include <cstdint>

#include <tessera/kernels/delta_rule/sm80/chunk_back_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_back_pieces.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gate_gradients.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_gradient_memory.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_kept_states.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_pairs.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/fetch.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::delta_rule::sm80 {

template <class Element, class Shape>
class delta_chunk_gradients {
  using memory = gradient_memory<Shape>;
  using words = prim::cuda::half_words<Element>;
  using key_rows = typename Shape::key_rows;
  using weight_rows = typename Shape::weight_rows;
  using answers_type = recurrence::sm80::chunk_answers<Element, Shape>;
  static constexpr int depths = Shape::keys / 16;
  static constexpr int together = 4;  ///< tiles of S and D that are under way

 public:
  __device__ __forceinline__ delta_chunk_gradients(const chunk_back_args& args,
                                                   const delta_rule_output& d_q,
                                                   const delta_rule_output& d_k, memory& shared,
                                                   const sequence& all, std::int64_t head)
      : args_(args),
        call_(args.call),
        d_q_(d_q),
        d_k_(d_k),
        shared_(shared),
        all_(all),
        head_(head),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    if (threadIdx.x == 0) {
      const bool shares = has_shares(d_q);
      const std::int64_t key_head =
          recurrence::shared_head(head, call_.value_heads, call_.key_heads);
      shared.rows_q = ordered_rows::of(call_.q, all, key_head);
      shared.rows_k = ordered_rows::of(call_.k, all, key_head);
      shared.rows_v = ordered_rows::of(call_.v, all, head);
      shared.rows_d_out = ordered_rows::of(call_.d_out, all, head);
      shared.rows_d_q = ordered_rows::of(d_q, all, shares ? head : key_head);
      shared.rows_d_k = ordered_rows::of(d_k, all, shares ? head : key_head);
    }
    __syncthreads();
  }

  __device__ __forceinline__ void run(std::int64_t chunk) {
    first_ = chunk * Shape::tokens;
    count_ = static_cast<int>(min(all_.length - first_, std::int64_t{Shape::tokens}));
    place_ = args_.place_of(all_, chunk, head_);
    copy();
    prim::cuda::wait_copies<0>();
    __syncthreads();
    for (int part = warp_ / 4; part < 2; part += Shape::warps / 4) {
      make_pairs<Element, Shape>(shared_, part, warp_ % 4);
    }
    multiply_values<Element, Shape>(shared_, call_, first_, count_);
    const float* const front = shared_.gates.decays.front;

    answers_type of_rows = {};
    read_front(of_rows, shared_.d_out);
    of_rows.multiply_tokens(front);
    of_rows.multiply_tokens(shared_.gates.scale_q);
    put_dots(of_rows, shared_.q, 0);
    __syncthreads();
    scale_written();
    add_below(of_rows, shared_.of_reads, shared_.k);
    if (call_.normalizes) remove_along_q(of_rows);
    store(of_rows, d_q_, shared_.rows_d_q, shared_.d_out);

    of_rows = {};
    read_front(of_rows, shared_.d_missing);
    of_rows.multiply_tokens(front);
    of_rows.multiply_tokens(shared_.gates.scale_k);
    put_dots(of_rows, shared_.k, 1);
    of_rows.multiply_tokens(shared_.gates.beta, -1.0f);
    __syncthreads();
    read_behind(of_rows);
    put_dots(of_rows, shared_.k, 2);
    add_above(of_rows, shared_.of_reads, shared_.q);
    add_below(of_rows, shared_.of_pairs, shared_.k);
    add_above(of_rows, shared_.of_pairs, shared_.k);
    __syncthreads();
    if (warp_ == 0) {
      chunk_gate_gradients<Shape>(args_, shared_, all_, head_, {first_, place_, count_}).store();
    }
    __syncthreads();
    if (call_.normalizes) remove_along(of_rows, shared_.k, shared_.along_k);
    store(of_rows, d_k_, shared_.rows_d_k, shared_.d_missing);
    __syncthreads();
  }

  /// Zeros for tokens that belong to no sequence.
  static __device__ void clear(const chunk_back_args& args, const delta_rule_output& d_q,
                               const delta_rule_output& d_k, const sequence& all,
                               std::int64_t head) {
    const delta_rule_kernel_args& call = args.call;
    const bool shares = has_shares(d_q);
    const std::int64_t of_keys =
        shares ? head : recurrence::shared_head(head, call.value_heads, call.key_heads);
    const int keys = static_cast<int>(call.key_dim);
    recurrence::sm80::clear_rows(d_q, all, of_keys, 0, keys);
    recurrence::sm80::clear_rows(d_k, all, of_keys, 0, keys);
    recurrence::sm80::clear_rows(call.d_beta, all, head, 0, 1);
    if (call.d_decay.data != nullptr) recurrence::sm80::clear_rows(call.d_decay, all, head, 0, 1);
  }

 private:
  /// A row of f32 for each value head; those of the call are of elements.
  static __device__ __forceinline__ bool has_shares(const delta_rule_output& rows) {
    return rows.type == dtype::f32;
  }
  __device__ __forceinline__ void copy() const {
    const auto put = [&](unsigned char* to, const void* from, const ordered_rows& rows,
                         std::int64_t first, std::int64_t columns) {
      recurrence::sm80::copy_rows<Element, key_rows, Shape::threads>(
          prim::cuda::shared_address(to), from, rows, first, count_, static_cast<int>(columns));
    };
    put(shared_.q, call_.q.data, shared_.rows_q, first_, call_.key_dim);
    put(shared_.k, call_.k.data, shared_.rows_k, first_, call_.key_dim);
    put(shared_.d_out, call_.d_out.data, shared_.rows_d_out, first_, call_.value_dim);
    const ordered_rows of_chunk{args_.row_of_chunk(place_), args_.values()};
    put(shared_.d_missing, args_.d_missing, of_chunk, 0, args_.values());
    put(shared_.written, args_.written, of_chunk, 0, args_.values());
    copy_piece<sizeof(chunk_gates), Shape::threads>(&shared_.gates, args_.gates + place_);
    prim::cuda::commit_copies();
    // Values and states go from memory to registers, once pairs of tokens are done.
    for (int i = static_cast<int>(threadIdx.x); i < Shape::keys; i += Shape::threads) {
      const int row = i / (Shape::keys / 64), column = i % (Shape::keys / 64) * 64;
      if (row >= count_ || column >= call_.value_dim) continue;
      prim::cuda::fetch_line(static_cast<const Element*>(call_.v.data) +
                             shared_.rows_v.at(first_ + row) + column);
    }
    kept(args_.of_s).prefetch();
    kept(args_.of_d).prefetch();
  }
  __device__ __forceinline__ kept_channels kept(const uint4* states) const {
    return {args_, states, place_, depths, warp_};
  }

  /// Two channels of a row, of the warp's 16: those of tile 0 or 1.
  __device__ __forceinline__ std::uint32_t pair_at(const unsigned char* rows, int row,
                                                   int tile) const {
    return prim::cuda::load_shared_4(
        prim::cuda::shared_address(rows) +
        key_rows::offset(static_cast<std::uint32_t>(row),
                         static_cast<std::uint32_t>(warp_ * 2 + tile)) +
        static_cast<std::uint32_t>(lane_ % 4 * 4));
  }
  /// What rows of the warp's channels have in common with `rows`, of each token.
  __device__ __forceinline__ void put_dots(const answers_type& answers, const unsigned char* rows,
                                           int number) {
    const int lane = static_cast<int>(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int block = i / 2, half = i % 2, row = block * 16 + half * 8 + lane / 4;
      float sum = 0.0f;
#pragma unroll
      for (int tile = 0; tile < 2; ++tile) {
        const std::uint32_t pair = pair_at(rows, row, tile);
        const float* const x = answers.at[block][tile].at + 2 * half;
        sum = fmaf(x[0], words::unpack(static_cast<std::uint16_t>(pair)), sum);
        sum = fmaf(x[1], words::unpack(static_cast<std::uint16_t>(pair >> 16)), sum);
      }
      sum = prim::cuda::sum_of_quad(sum);
      if (lane % 4 == 0) shared_.dots[number][warp_][row] = sum;
    }
  }
  __device__ __forceinline__ void read_front(answers_type& answers,
                                             const unsigned char* values) const {
    multiply_kept(answers, kept(args_.of_s).template load<depths>(0), 0, values);
  }
  /// += D d; <S, D> to shared memory.
  __device__ __forceinline__ void read_behind(answers_type& answers) {
    float sum = 0.0f;
#pragma unroll
    for (int begin = 0; begin < depths; begin += together) {
      const auto of_d = kept(args_.of_d).template load<together>(begin);
      const auto of_s = kept(args_.of_s).template load<together>(begin);
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const uint4 &s = of_s.at[i], &d = of_d.at[i];
        sum += product_of<Element>(s.x, d.x) + product_of<Element>(s.y, d.y) +
               product_of<Element>(s.z, d.z) + product_of<Element>(s.w, d.w);
      }
      multiply_kept(answers, of_d, begin, shared_.written);
    }
    sum = prim::cuda::sum_of_warp(sum);
    if (lane_ == 0) shared_.state_dots[warp_] = sum;
  }

  /// As the state behind the chunk has it of each token.
  __device__ __forceinline__ void scale_written() const {
    const std::uint32_t written = prim::cuda::shared_address(shared_.written);
    for (int i = static_cast<int>(threadIdx.x); i < Shape::tokens * key_rows::chunks;
         i += Shape::threads) {
      const int row = i / key_rows::chunks;
      const float factor = shared_.gates.decays.rest[row] * shared_.gates.scale_k[row];
      const std::uint32_t at =
          written + key_rows::offset(static_cast<std::uint32_t>(row),
                                     static_cast<std::uint32_t>(i % key_rows::chunks));
      std::uint32_t x[4];
      prim::cuda::load_shared_16(x, at);
#pragma unroll
      for (std::uint32_t& word : x) {
        word = words::pack(factor * words::unpack(static_cast<std::uint16_t>(word)),
                           factor * words::unpack(static_cast<std::uint16_t>(word >> 16)));
      }
      prim::cuda::store_shared_16(at, x);
    }
  }

  /// += L rows, L a lower triangle of weights.
  __device__ __forceinline__ void add_below(answers_type& answers, const unsigned char* triangle,
                                            const unsigned char* rows) const {
    const auto lane = prim::cuda::thread_index() % 32;
    const std::uint32_t weights =
        prim::cuda::shared_address(triangle) + weight_rows::lane_of_a(lane);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_b2 of_step[1] = {rows_of(rows, step)};
      answers.add(weights, step, of_step);
    }
  }
  /// += L^T rows.
  __device__ __forceinline__ void add_above(answers_type& answers, const unsigned char* triangle,
                                            const unsigned char* rows) const {
    const std::uint32_t weights = prim::cuda::shared_address(triangle) +
                                  weight_rows::lane_of_b(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const prim::cuda::fragment_b2 of_step = rows_of(rows, step);
#pragma unroll
      for (int block = 0; block <= step; ++block) {
        // Of the rows as for an operand B, each tile transposed: the operand A of L^T.
        prim::cuda::fragment_a of_block;
        prim::cuda::load_matrices_transposed(of_block.reg, weight_rows::step(weights, step, block));
        words::template multiply_add<0>(answers.at[block][0], of_block, of_step);
        words::template multiply_add<1>(answers.at[block][1], of_block, of_step);
      }
    }
  }
  /// Tokens 16 step on of the warp's channels, as operand B [tokens, channels].
  __device__ __forceinline__ prim::cuda::fragment_b2 rows_of(const unsigned char* rows,
                                                             int step) const {
    prim::cuda::fragment_b2 of_step;
    prim::cuda::load_matrices_transposed(
        of_step.reg, key_rows::step(prim::cuda::shared_address(rows) +
                                        key_rows::lane_of_a(prim::cuda::thread_index() % 32),
                                    step, warp_));
    return of_step;
  }

  /// Through the length of q: its gradient has nothing along it.
  __device__ __forceinline__ void remove_along_q(answers_type& answers) {
    const int row = static_cast<int>(threadIdx.x);
    if (row < Shape::tokens) {
      const float inverse = shared_.gates.inverse_q[row];
      shared_.along_q[row] =
          inverse * inverse *
          (shared_.dot_of(0, row) + shared_.row_sums[0][row] + shared_.diagonal[row]);
    }
    __syncthreads();
    remove_along(answers, shared_.q, shared_.along_q);
  }
  __device__ __forceinline__ void remove_along(answers_type& answers, const unsigned char* rows,
                                               const float* along) const {
    const int lane = static_cast<int>(prim::cuda::thread_index() % 32);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int block = i / 4, half = i / 2 % 2, tile = i % 2;
      const int row = block * 16 + half * 8 + lane / 4;
      const std::uint32_t pair = pair_at(rows, row, tile);
      float* const x = answers.at[block][tile].at + 2 * half;
      x[0] = fmaf(-along[row], words::unpack(static_cast<std::uint16_t>(pair)), x[0]);
      x[1] = fmaf(-along[row], words::unpack(static_cast<std::uint16_t>(pair >> 16)), x[1]);
    }
  }
  __device__ __forceinline__ void store(const answers_type& answers, const delta_rule_output& to,
                                        const ordered_rows& rows, unsigned char* staged) {
    struct {
      int* first_not_finite;
      ordered_rows rows_out;
    } place{shared_.first_not_finite, rows};
    recurrence::sm80::chunk_outputs outputs{to.data, static_cast<int>(call_.key_dim)};
    if (has_shares(to)) return answers.store_singles(place, outputs, first_, {0, count_}, true);
    answers.store(place, outputs, staged, first_, {0, count_}, true, true);
  }

  const chunk_back_args& args_;
  const delta_rule_kernel_args& call_;
  const delta_rule_output &d_q_, &d_k_;
  memory& shared_;
  const sequence& all_;
  std::int64_t head_, first_ = 0, place_ = 0;
  int count_ = 0, warp_, lane_;
};

template <class Element, class Shape>
__global__ void __launch_bounds__(Shape::threads, 2)
    make_chunk_gradients(__grid_constant__ const chunk_back_args args,
                         __grid_constant__ const delta_rule_output d_q,
                         __grid_constant__ const delta_rule_output d_k) {
  using gradients = delta_chunk_gradients<Element, Shape>;
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<gradient_memory<Shape>*>(memory);
  walk_chunks<gradients, Shape>(shared, args, d_q, d_k);
}

}  // namespace tessera::kernels::delta_rule::sm80
