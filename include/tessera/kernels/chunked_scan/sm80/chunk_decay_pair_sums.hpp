// Gradients of decays of a chunk whose pairs of tokens go one by one, in f32: decays leave the
// range of what rows can have as factors. Two threads have a channel, half of its tokens or one of
// its two sums each.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_pairs.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// `Before`: queries read the state in front of their token.
template <class Element, class Shape, bool Before>
class decay_pair_sums : decay_pairs<Element, Shape, Before> {
  using base = decay_pairs<Element, Shape, Before>;
  using answers_of = recurrence::sm80::chunk_answers<Element, Shape>;
  using base::batch;
  using base::block_;
  using base::call_;
  using base::channel_;
  using base::count_;
  using base::decay;
  using base::is_second_;
  using base::key;
  using base::own_channel;
  using base::query;
  using base::shared_;

 public:
  __device__ __forceinline__ explicit decay_pair_sums(const decay_block<Element, Shape>& block)
      : base(block), has_channel_(own_channel() < call_.keys) {}

  /// The gradients, of rows that lie in shared memory.
  __device__ __forceinline__ void make_gradients() {
    multiply();
    if (has_channel_) {
      if (is_second_) {
        take_keys();
      } else {
        read_queries();
      }
      // One code for all: blocks that are not in step share what multiprocessors hold of it.
      auto& own = is_second_ ? shared_.sums.of_keys : shared_.sums.of_queries;
#pragma unroll 1
      for (int i = 0; i < 2; ++i) base::add_pairs(own, Shape::pairs * (is_second_ ? 1 + i : 3 * i));
    }
    __syncthreads();
    if (!is_second_) {
      if (has_channel_) {
        sum_up();
      } else {
        for (int t = 0; t < count_; ++t) of_queries(t) = 0.0f;
      }
    }
    __syncthreads();
    if (has_channel_ && call_.d_gk.data != nullptr) store_gradients();
    if (call_.d_g.data != nullptr) add_channels();
  }

 private:
  /// What states have for d_out and v, and scores.
  __device__ __forceinline__ void multiply() {
    if (has_channel_) base::put_decays();
    prim::cuda::accumulator scores[8] = {};
    block_.multiply_rows(scores);
    block_.for_each_score(scores, [&](int s, int j, float x, float next) {
      *reinterpret_cast<float2*>(shared_.of_pairs.scores.at(s, j)) =
          make_float2(j <= s ? x : 0.0f, j < s ? next : 0.0f);
    });
    const auto of_s = block_.tile_of(block_.args.states.of_s);
    const auto of_d = block_.tile_of(block_.args.states.of_d);
    make_products(of_s, of_d);
    answers_of queries = {}, keys = {};
    queries.read(columns_of{of_s}, prim::cuda::shared_address(shared_.rows.d_out));
    keys.read(columns_of{of_d}, prim::cuda::shared_address(shared_.rows.v));
    __syncthreads();
    put(shared_.sums.of_queries, queries);
    put(shared_.sums.of_keys, keys);
    __syncthreads();
  }
  /// A tile as `chunk_answers::read` takes it.
  struct columns_of {
    template <class>
    __device__ __forceinline__ prim::cuda::fragment_b2 operand(int, int depth, float) const {
      return tile.template operand<Element>(depth);
    }
    kept_tile<Shape::keys> tile;
  };
  __device__ __forceinline__ void make_products(const kept_tile<Shape::keys>& of_s,
                                                const kept_tile<Shape::keys>& of_d) const {
    using words = prim::cuda::half_words<bf16>;
    float sum[2] = {};
#pragma unroll
    for (int depth = 0; depth < Shape::keys / 16; ++depth) {
      const auto s = of_s.template operand<Element>(depth);
      const auto d = of_d.template operand<Element>(depth);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        float& to = sum[j / 2];
        to = fmaf(words::unpack(static_cast<std::uint16_t>(s.reg[j])),
                  words::unpack(static_cast<std::uint16_t>(d.reg[j])), to);
        to = fmaf(words::unpack(static_cast<std::uint16_t>(s.reg[j] >> 16)),
                  words::unpack(static_cast<std::uint16_t>(d.reg[j] >> 16)), to);
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float whole = prim::cuda::sum_of_quad(sum[j]);
      if (block_.lane % 4 == 0) {
        shared_.products[block_.warp * 16 + j * 8 + block_.lane / 4] = whole;
      }
    }
  }
  __device__ __forceinline__ void put(channel_sums<Shape>& to, const answers_of& answers) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int tile = i % 2, half = i / 2 % 2, block = i / 4;
      const float* const x = answers.at[block][tile].at + 2 * half;
      *reinterpret_cast<float2*>(to.at(block * 16 + half * 8 + block_.lane / 4,
                                       block_.warp * 16 + tile * 8 + block_.lane % 4 * 2)) =
          make_float2(x[0], x[1]);
    }
  }

  // From here on a thread has its channel.

  __device__ __forceinline__ float& of_queries(int t) {
    return *shared_.sums.of_queries.at(t, channel_);
  }
  __device__ __forceinline__ float& of_keys(int t) {
    return *shared_.sums.of_keys.at(t, channel_);
  }
  __device__ __forceinline__ float behind() const {
    return block_.template scale_of_d<Before>(own_channel());
  }

  /// exp(G_s) q_s (S d_out_s), which the first token has for none where queries read in front of
  /// theirs; `whole_` becomes exp(G_end) <S, D>.
  __device__ __forceinline__ void read_queries() {
    if constexpr (Before) return read_queries_before();
    float left = 1.0f;
#pragma unroll 8
    for (int t = 0; t < Shape::tokens; ++t) {
      left *= decay(t);
      of_queries(t) *= left * query(t);
    }
    whole_ = left * behind() * shared_.products[channel_];
  }
  /// And what tokens have for the bonus.
  __device__ __forceinline__ void read_queries_before() {
    auto& of = shared_.of_pairs;
    float left = decay(0);
    float own = *of.scores.at(0, 0) * query(0) * key(0);
#pragma unroll 8
    for (int t = 1; t < Shape::tokens; ++t) {
      const float read = query(t);
      of_queries(t - 1) = of_queries(t) * left * read;
      left *= decay(t);
      own = fmaf(*of.scores.at(t, t) * read, key(t), own);
    }
    of_queries(Shape::tokens - 1) = 0.0f;
    whole_ = left * behind() * shared_.products[channel_];
    if (block_.args.of_u != nullptr) block_.put_bonus(own_channel(), own);
  }
  /// exp(G_end - G_j) k_j (D v_j), of which those of j < t are all but those of j >= t.
  __device__ __forceinline__ void take_keys() {
    float left = behind(), all = 0.0f;
#pragma unroll 8
    for (int t = Shape::tokens - 1; t >= 0; --t) {
      const float own = of_keys(t) * left * key(t);
      of_keys(t) = -own;
      all += own;
      left *= decay(t);
    }
    shared_.all_keys[channel_] = all;
  }
  /// The gradients to `of_queries`, `batch` tokens at a time: what the last of them waits for is
  /// one sum.
  __device__ __forceinline__ void sum_up() {
    const float others = whole_ + shared_.all_keys[channel_];
    float sum = 0.0f;
#pragma unroll 1
    for (int end = Shape::tokens; end > 0; end -= batch) {
      float gradients[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int t = end - 1 - i;
        gradients[i] = t < count_ ? of_queries(t) + of_keys(t) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        sum += gradients[i];
        of_queries(end - 1 - i) =
            Before && block_.acts_on_nothing(end - 1 - i) ? 0.0f : sum + others;
      }
    }
  }
  /// From there to memory, by both threads of a channel.
  __device__ __forceinline__ void store_gradients() {
    const ordered_rows rows = shared_.rows_d_gk;
    prim::cuda::with_elements(call_.d_gk.data, call_.d_gk.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      element* next = elements + rows.at(block_.first + (is_second_ ? 1 : 0)) + own_channel();
#pragma unroll 4
      for (int t = is_second_ ? 1 : 0; t < count_; t += 2, next += 2 * rows.step) {
        const float gradient = of_queries(t);
        *next = prim::nearest<element>(call_.raw_decay ? gradient * block_.slope(t, own_channel())
                                                       : gradient);
      }
    });
  }
  /// Of a head, over the channels of the block, where nobody reads sums any more: a warp has every
  /// fourth token, and the others nothing.
  __device__ __forceinline__ void add_channels() {
    float sums[Shape::tokens / Shape::warps];
#pragma unroll
    for (int i = 0; i < Shape::tokens / Shape::warps; ++i) {
      const int t = i * Shape::warps + block_.warp;
      float sum = 0.0f;
#pragma unroll
      for (int c = block_.lane; c < Shape::columns; c += 32) {
        if (t < count_) sum += *shared_.sums.of_queries.at(t, c);
      }
      sums[i] = prim::cuda::sum_of_warp(sum);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Shape::tokens / Shape::warps; ++i) {
#pragma unroll
      for (int of = 0; of < Shape::warps; ++of) {
        if (block_.lane == of) {
          shared_.of_warps[of][i * Shape::warps + block_.warp] = of == block_.warp ? sums[i] : 0.0f;
        }
      }
    }
  }

  bool has_channel_;
  float whole_ = 0.0f;
};

}  // namespace tessera::kernels::chunked_scan::sm80
