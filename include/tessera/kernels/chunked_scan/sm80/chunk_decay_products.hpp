// Gradients of decays of a chunk as products on the matrix unit. With h half of the sum of a
// channel's log decays over the chunk, P_sj = v_j . d_out_s for j < s,
//
//   Q_s = q_s exp(G_s - h)      K_j = k_j exp(h - G_j)      W_sj = Q_s P_sj K_j
//   sum over j of W_sj = Q_s (P K)_s      sum over s of W_sj = K_j (P^T Q)_j
//
// Q, K and P are rounded, but both sums have the same W of them, so that these cancel to the
// rounding of f32. With a bonus Q_s has the decays up to the token before s.
//
// Rows of all products are channels, and columns are tokens: lane l of a warp has channels l / 4
// and l / 4 + 8 of its 16, and of each 8 tokens l % 4 * 2 and the next. Decays, q, k, Q and K as
// operands, sums and gradients all lie so, and stay in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_block.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// `Before`: queries read the state in front of their token.
template <class Element, class Shape, bool Before>
class decay_products {
  using value_rows = typename Shape::value_rows;
  using weight_rows = typename Shape::weight_rows;
  using words = prim::cuda::half_words<Element>;
  static constexpr int groups = Shape::tokens / 8;

 public:
  __device__ __forceinline__ explicit decay_products(const decay_block<Element, Shape>& block)
      : block_(block),
        shared_(block.shared),
        channel_(block.first_channel + block.warp * 16 + block.lane / 4),
        token_(block.lane % 4 * 2) {}

  /// Reads the decays; whether factors by those from the middle of the chunk on leave the range of
  /// products.
  __device__ __forceinline__ bool sum_decays() {
    load_decays();
    constexpr float most = 80.0f;  // no factor of decays leaves [2^-80, 2^80]
    float largest = 0.0f, sums = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        float(&x)[2] = sums_[i][n];
        const float both = x[0] + x[1], last = before(both) + both;
        if (Before) firsts_[i][n] = sum + last - both;
        x[1] = sum + last;
        x[0] = sum + (last - both + x[0]);
        sum += __shfl_sync(prim::cuda::all_lanes, last, 3, 4);
      }
      whole_[i] = sum;
      sums += fabsf(sum);
      const float middle = 0.5f * sum;
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        const float(&x)[2] = sums_[i][n];
        largest = fmaxf(largest, fmaxf(fabsf(x[0] - middle), fabsf(x[1] - middle)));
        if (Before) largest = fmaxf(largest, fabsf(firsts_[i][n] - middle));
      }
    }
    // Of what is no number sums know alone.
    return !(largest <= most) || !(sums <= 4.0f * most);
  }
  /// Q and K of rows that lie in shared memory.
  __device__ __forceinline__ void scale_rows() {
#pragma unroll
    for (int b = 0; b < groups / 2; ++b) {
      const prim::cuda::fragment_a q = tokens_of(shared_.q, b), k = tokens_of(shared_.k, b);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int i = r % 2, n = 2 * b + r / 2;
        const float middle = 0.5f * whole_[i];
        const float first = Before ? firsts_[i][n] : sums_[i][n][0];
        const float second = sums_[i][n][Before ? 0 : 1];
        q_[b].reg[r] = words::pack(
            block_.call.scale * low(q.reg[r]) * prim::cuda::exp2_fast(first - middle),
            block_.call.scale * high(q.reg[r]) * prim::cuda::exp2_fast(second - middle));
        k_[b].reg[r] = words::pack(low(k.reg[r]) * prim::cuda::exp2_fast(middle - sums_[i][n][0]),
                                   high(k.reg[r]) * prim::cuda::exp2_fast(middle - sums_[i][n][1]));
      }
    }
  }
  /// The gradients, of rows of d_out and v that lie in shared memory, too.
  __device__ __forceinline__ void make_gradients() {
    put_weights();
    sums_of of_queries = {}, of_keys = {};
    float others[2] = {};
    multiply_states(of_queries, of_keys, others);
    __syncthreads();
    if (Before && block_.args.of_u != nullptr) put_bonus();
    multiply_pairs(of_queries, of_keys);
    sum_up(of_queries, of_keys, others);
    if (block_.call.d_g.data != nullptr) add_channels(of_queries);
    if (block_.call.d_gk.data == nullptr) return;
    if (block_.call.raw_decay) multiply_slopes(of_queries);
    store(of_queries);
  }

 private:
  using sums_of = prim::cuda::accumulator[groups];

  __device__ __forceinline__ int channel(int i) const {
    return channel_ + 8 * i;
  }
  static __device__ __forceinline__ float low(std::uint32_t word) {
    return words::unpack(static_cast<std::uint16_t>(word));
  }
  static __device__ __forceinline__ float high(std::uint32_t word) {
    return words::unpack(static_cast<std::uint16_t>(word >> 16));
  }
  /// Of four lanes, the sum of those before it; of those behind it.
  __device__ __forceinline__ float before(float x) const {
    float sum = x;
#pragma unroll
    for (unsigned step = 1; step < 4; step *= 2) {
      const float more = __shfl_up_sync(prim::cuda::all_lanes, sum, step, 4);
      if (token_ >= static_cast<int>(2 * step)) sum += more;
    }
    return sum - x;
  }
  __device__ __forceinline__ float behind(float x, float& all) const {
    float sum = x;
#pragma unroll
    for (unsigned step = 1; step < 4; step *= 2) {
      const float more = __shfl_down_sync(prim::cuda::all_lanes, sum, step, 4);
      if (token_ < static_cast<int>(8 - 2 * step)) sum += more;
    }
    all = __shfl_sync(prim::cuda::all_lanes, sum, 0, 4);
    return sum - x;
  }
  /// 16 tokens of the lane's channels, from 16 b on, as operand A.
  __device__ __forceinline__ prim::cuda::fragment_a tokens_of(const unsigned char* rows,
                                                              int b) const {
    prim::cuda::fragment_a tokens;
    prim::cuda::load_matrices_transposed(
        tokens.reg,
        value_rows::step(prim::cuda::shared_address(rows) +
                             value_rows::lane_of_b(static_cast<std::uint32_t>(block_.lane)),
                         b, block_.warp));
    return tokens;
  }

  /// Calls body(i, t, x) for the decay of channel 8 i of the lane's and token t.
  template <class Body>
  __device__ __forceinline__ void for_each_decay(const Body& body) {
#pragma unroll
    for (int i = 0; i < 4 * groups; ++i) {
      const int n = i / 2 % groups;
      body(i / groups / 2, n * 8 + token_ + i % 2, sums_[i / groups / 2][n][i % 2]);
    }
  }
  /// Log decays to base 2, those of no token 0; channels behind the keys multiply zeros.
  __device__ __forceinline__ void load_decays() {
    const chunked_scan_kernel_args& call = block_.call;
    for_each_decay([&](int, int, float& x) { x = block_.gamma; });
    const auto add = [&](const chunked_scan_rows& rows, const ordered_rows& order, int column,
                         int width, bool raw) {
      if (rows.data == nullptr) return;
      prim::cuda::with_elements(rows.data, rows.type, [&](const auto* elements) {
        const auto* next = elements + order.at(block_.first + token_) + column;
#pragma unroll
        for (int n = 0; n < groups; ++n, next += 8 * order.step) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const bool is_token = n * 8 + token_ + j < block_.count;
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int at = width > 1 ? 8 * i : 0;
              const float x = prim::cuda::float_of(
                  ask_for(next + j * order.step + at, is_token && column + at < width));
              sums_[i][n][j] += raw ? log_decay_of_raw(x) : x;
            }
          }
        }
      });
    };
    add(call.g, shared_.rows_g, 0, 1, false);
    add(call.gk, shared_.rows_gk, channel_, static_cast<int>(call.keys), call.raw_decay);
    if (call.raw_decay || call.g_gamma != nullptr) {
      for_each_decay([&](int i, int t, float& x) {
        if (t >= block_.count || channel(i) >= call.keys) x = 0.0f;
      });
    }
    for_each_decay([](int, int, float& x) { x = log2_decay(x); });
  }
  /// P, and scores of tokens with themselves.
  __device__ __forceinline__ void put_weights() const {
    prim::cuda::accumulator scores[8] = {};
    block_.multiply_rows(scores);
    const std::uint32_t weights = prim::cuda::shared_address(shared_.of_products.weights);
    block_.for_each_score(scores, [&](int s, int j, float x, float next) {
      if (Before && j == s) shared_.of_products.own[s] = x;
      if (Before && j + 1 == s) shared_.of_products.own[s] = next;
      prim::cuda::store_shared_4(weights +
                                     weight_rows::offset(static_cast<std::uint32_t>(s),
                                                         static_cast<std::uint32_t>(j / 8)) +
                                     static_cast<std::uint32_t>(j % 8 * 2),
                                 words::pack(j < s ? x : 0.0f, j + 1 < s ? next : 0.0f));
    });
  }
  /// S d_out and D v with their decays; `others` becomes exp(G_end) <S, D> and what all tokens of
  /// the chunk have of D.
  __device__ __forceinline__ void multiply_states(sums_of& of_queries, sums_of& of_keys,
                                                  float (&others)[2]) const {
    using key_rows = typename Shape::key_rows;
    const auto lane_of_b = key_rows::lane_of_b(static_cast<std::uint32_t>(block_.lane));
    const std::uint32_t d_out = prim::cuda::shared_address(shared_.rows.d_out) + lane_of_b;
    const std::uint32_t v = prim::cuda::shared_address(shared_.rows.v) + lane_of_b;
    const auto of_s = block_.tile_of(block_.args.states.of_s);
    const auto of_d = block_.tile_of(block_.args.states.of_d);
    prim::cuda::accumulator products[2] = {};  // <S, D> are on the diagonal
    constexpr int ahead = 2, steps = Shape::keys / 16;
    prim::cuda::fragment_a states[ahead + 1][2];
#pragma unroll
    for (int depth = 0; depth < ahead; ++depth) {
      states[depth][0] = of_s.rows(depth);
      states[depth][1] = of_d.rows(depth);
    }
#pragma unroll
    for (int depth = 0; depth < steps; ++depth) {
      if (depth + ahead < steps) {
        states[(depth + ahead) % (ahead + 1)][0] = of_s.rows(depth + ahead);
        states[(depth + ahead) % (ahead + 1)][1] = of_d.rows(depth + ahead);
      }
      const auto& [s, d] = states[depth % (ahead + 1)];
      const prim::cuda::fragment_b2 columns = {{d.reg[0], d.reg[2], d.reg[1], d.reg[3]}};
      words::template multiply_add<0>(products[0], s, columns);
      words::template multiply_add<1>(products[1], s, columns);
#pragma unroll
      for (int b = 0; b < groups / 2; ++b) {
        prim::cuda::fragment_b2 tokens;
        prim::cuda::load_matrices(tokens.reg, key_rows::step(d_out, b, depth));
        words::template multiply_add<0>(of_queries[2 * b], s, tokens);
        words::template multiply_add<1>(of_queries[2 * b + 1], s, tokens);
        prim::cuda::load_matrices(tokens.reg, key_rows::step(v, b, depth));
        words::template multiply_add<0>(of_keys[2 * b], d, tokens);
        words::template multiply_add<1>(of_keys[2 * b + 1], d, tokens);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float half = prim::cuda::exp2_fast(0.5f * whole_[i]),
                  of_d = half * block_.template scale_of_d<Before>(channel(i));
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < groups; ++n) {
        float* const of_q = of_queries[n].at + 2 * i;
        float* const of_k = of_keys[n].at + 2 * i;
        const std::uint32_t k = k_[n / 2].reg[n % 2 * 2 + i];
        of_q[0] *= half;
        of_q[1] *= half;
        of_k[0] *= of_d;
        of_k[1] *= of_d;
        sum = fmaf(low(k), of_k[0], sum);
        sum = fmaf(high(k), of_k[1], sum);
      }
      others[i] =
          fmaf(half * of_d, on_diagonal(products[i].at + 2 * i), prim::cuda::sum_of_quad(sum));
    }
  }
  /// Of a tile of 8 columns, of which a lane has two, the one whose number the row has.
  __device__ __forceinline__ float on_diagonal(const float* two) const {
    const int row = block_.lane / 4;
    return __shfl_sync(prim::cuda::all_lanes, row % 2 == 0 ? two[0] : two[1], row / 2, 4);
  }
  __device__ __forceinline__ void multiply_pairs(sums_of& of_queries, sums_of& of_keys) const {
    const auto lane = static_cast<std::uint32_t>(block_.lane);
    const std::uint32_t weights = prim::cuda::shared_address(shared_.of_products.weights);
#pragma unroll
    for (int j = 0; j < groups / 2; ++j) {
#pragma unroll
      for (int s = j; s < groups / 2; ++s) {
        prim::cuda::fragment_b2 of_j, of_s;
        prim::cuda::load_matrices(of_s.reg,
                                  weight_rows::step(weights + weight_rows::lane_of_b(lane), s, j));
        words::template multiply_add<0>(of_queries[2 * s], k_[j], of_s);
        words::template multiply_add<1>(of_queries[2 * s + 1], k_[j], of_s);
        prim::cuda::load_matrices_transposed(
            of_j.reg, weight_rows::step(weights + weight_rows::lane_of_a(lane), s, j));
        words::template multiply_add<0>(of_keys[2 * j], q_[s], of_j);
        words::template multiply_add<1>(of_keys[2 * j + 1], q_[s], of_j);
      }
    }
  }
  /// Q times what queries have, which counts in front of the token where they read the state there,
  /// without K times what keys have, from each token on, and `sums`: the gradients, to
  /// `of_queries`.
  __device__ __forceinline__ void sum_up(sums_of& of_queries, const sums_of& of_keys,
                                         float (&sums)[2]) const {
#pragma unroll
    for (int n = groups - 1; n >= 0; --n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t q = q_[n / 2].reg[n % 2 * 2 + i], k = k_[n / 2].reg[n % 2 * 2 + i];
        float* const x = of_queries[n].at + 2 * i;
        const float* const y = of_keys[n].at + 2 * i;
        const float of_q[2] = {low(q) * x[0], high(q) * x[1]};
        const float of_k[2] = {low(k) * y[0], high(k) * y[1]};
        const float second = Before ? -of_k[1] : of_q[1] - of_k[1];
        const float first = second + (of_q[Before ? 1 : 0] - of_k[0]);
        float all = 0.0f;
        const float later = sums[i] + behind(Before ? first + of_q[0] : first, all);
        x[0] = later + first;
        x[1] = later + second;
        if (Before) {
          if (block_.acts_on_nothing(n * 8 + token_)) x[0] = 0.0f;
          if (block_.acts_on_nothing(n * 8 + token_ + 1)) x[1] = 0.0f;
        }
        sums[i] += all;
      }
    }
  }
  /// Those of a head, over the channels of the warp, where nobody reads rows any more.
  __device__ __forceinline__ void add_channels(const sums_of& gradients) const {
    float* const of_warp = shared_.of_warps[block_.warp] + token_;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2 * groups; ++i) {
      const float* const x = gradients[i / 2].at + i % 2;
      float sum = (channel(0) < block_.call.keys ? x[0] : 0.0f) +
                  (channel(1) < block_.call.keys ? x[2] : 0.0f);
#pragma unroll
      for (int across = 4; across < 32; across *= 2) {
        sum += __shfl_xor_sync(prim::cuda::all_lanes, sum, across);
      }
      if (block_.lane < 4) of_warp[i / 2 * 8 + i % 2] = sum;
    }
  }
  __device__ __forceinline__ void multiply_slopes(sums_of& gradients) const {
#pragma unroll
    for (int i = 0; i < 4 * groups; ++i) {
      const int t = i / 4 * 8 + token_ + i % 2, of = i / 2 % 2;
      if (t < block_.count && channel(of) < block_.call.keys) {
        gradients[i / 4].at[i % 4] *= block_.slope(t, channel(of));
      }
    }
  }
  __device__ __forceinline__ void store(const sums_of& gradients) const {
    const chunked_scan_rows& to = block_.call.d_gk;
    const ordered_rows rows = shared_.rows_d_gk;
    prim::cuda::with_elements(to.data, to.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      element* next = elements + rows.at(block_.first + token_) + channel_;
#pragma unroll
      for (int n = 0; n < groups; ++n, next += 8 * rows.step) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (n * 8 + token_ + i % 2 < block_.count && channel(i / 2) < block_.call.keys) {
            next[i % 2 * rows.step + i / 2 * 8] = prim::nearest<element>(gradients[n].at[i]);
          }
        }
      }
    });
  }
  /// The sum of (v_t . d_out_t) scale q_t k_t.
  __device__ __forceinline__ void put_bonus() const {
    float sum[2] = {};
#pragma unroll
    for (int b = 0; b < groups / 2; ++b) {
      const prim::cuda::fragment_a q = tokens_of(shared_.q, b), k = tokens_of(shared_.k, b);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float* const own = shared_.of_products.own + b * 16 + r / 2 * 8 + token_;
        sum[r % 2] = fmaf(own[0] * low(q.reg[r]), low(k.reg[r]), sum[r % 2]);
        sum[r % 2] = fmaf(own[1] * high(q.reg[r]), high(k.reg[r]), sum[r % 2]);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float all = block_.call.scale * prim::cuda::sum_of_quad(sum[i]);
      if (token_ == 0 && channel(i) < block_.call.keys) block_.put_bonus(channel(i), all);
    }
  }

  const decay_block<Element, Shape>& block_;
  decay_memory<Shape>& shared_;
  int channel_;  ///< the first of the lane's
  int token_;    ///< the first of the lane's of each 8
  float sums_[2][groups][2];
  float firsts_[2][groups];  ///< in front of both
  float whole_[2];
  prim::cuda::fragment_a q_[groups / 2], k_[groups / 2];
};

}  // namespace tessera::kernels::chunked_scan::sm80
