// Gradients of log decays, a chunk and head at a time. With G_t the sum of a channel's log decays
// up to token t of the chunk, S the state in front of it, D the gradient of the state behind it
// times the decay of the token there, W_sj = q_s k_j exp(G_s - G_j) (v_j . d_out_s), and everything
// of one channel, where <S, D> sums over the values,
//
//   d_log_a_t = exp(G_end) <S, D> + sum over s >= t of exp(G_s) q_s (S d_out_s)
//             + sum over j < t of exp(G_end - G_j) k_j (D v_j) + sum over s >= t > j of W_sj
//
// With a bonus u queries read the state in front of their token: exp(G_{s-1}) instead of exp(G_s)
// everywhere, sums over s begin behind t, and D is the gradient as it is. What s adds is then that
// of the token before it. The gradient of u is the sum of (v_t . d_out_t) scale q_t k_t.
//
// The last is a sum of differences, sum over s >= t of (sum over j < s of W_sj - sum over j > s of
// W_js), whose W cancel: those of a pair have the same bits in both, as products of rounded rows
// (chunk_decay_products.hpp), or in f32 where decays leave the range of their factors
// (chunk_decay_pairs.hpp). Sums of rounded d_q and d_k instead would be off by a fourth.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_decay_products.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/chunked_scan/sm80/kept_states.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_answers.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// `Before`: queries read the state in front of their token.
template <class Element, class Shape, bool Before>
class decay_chunk : decay_products<Element, Shape, Before> {
  using base = decay_products<Element, Shape, Before>;
  using memory = decay_memory<Shape>;
  using base::add_pairs;
  using base::batch;
  using base::call_;
  using base::channel_;
  using base::count_;
  using base::decay;
  using base::first_;
  using base::first_channel_;
  using base::is_second_;
  using base::key;
  using base::own_channel;
  using base::query;
  using base::shared_;
  using typename base::answers_of;

 public:
  __device__ __forceinline__ decay_chunk(const decay_gradients& args, memory& shared,
                                         const sequence& all, std::int64_t head)
      : base(args.call, shared, all, head),
        args_(args),
        all_(all),
        head_(head),
        warp_(static_cast<int>(threadIdx.x) / 32) {
    if (threadIdx.x == 0) {
      const std::int64_t kv_head = recurrence::shared_head(head, call_.heads, call_.kv_heads);
      shared.rows_q = ordered_rows::of(call_.q, all, head);
      shared.rows_k = ordered_rows::of(call_.k, all, kv_head);
      shared.rows_v = ordered_rows::of(call_.v, all, kv_head);
      shared.rows_d_out = ordered_rows::of(call_.d_out, all, head);
      shared.rows_g = ordered_rows::of(call_.g, all, head);
      shared.rows_gk = ordered_rows::of(call_.gk, all, head);
      shared.rows_d_g = ordered_rows::of(call_.d_g, all, head);
      shared.rows_d_gk = ordered_rows::of(call_.d_gk, all, head);
    }
    __syncthreads();
  }

  /// The channels of the keys from `tile` times those of a block on; `last`: the head has no more.
  __device__ __forceinline__ void run(std::int64_t chunk, int tile, bool last) {
    first_ = chunk * Shape::tokens;
    first_channel_ = tile * Shape::columns;
    count_ = static_cast<int>(min(all_.length - first_, std::int64_t{Shape::tokens}));
    chunk_ = first_chunk_of(args_.states, all_) + chunk;
    const bool has_channel = own_channel() < call_.keys;
    const bool multiplies = multiply(has_channel);
    if (has_channel && multiplies) {
      if (!is_second_) take_products();
    } else if (has_channel) {
      if (is_second_) {
        take_keys();
      } else {
        read_queries();
      }
      // One code for all: blocks that are not in step share what multiprocessors hold of it.
      auto& own = is_second_ ? shared_.sums.of_keys : shared_.sums.of_queries;
#pragma unroll 1
      for (int i = 0; i < 2; ++i) add_pairs(own, Shape::pairs * (is_second_ ? 1 + i : 3 * i));
    }
    if (!multiplies) __syncthreads();
    if (!is_second_) {
      if (has_channel) {
        sum_up();
      } else {
        for (int t = 0; t < count_; ++t) of_queries(t) = 0.0f;
      }
    }
    __syncthreads();
    if (has_channel && call_.d_gk.data != nullptr) store_gradients();
    if (call_.d_g.data != nullptr) add_channels(tile == 0, last);
    __syncthreads();
  }

 private:
  /// Products on the matrix unit: what states have for d_out and v, and what pairs of tokens have,
  /// which is true, if the decays of the chunk allow it; else scores.
  __device__ __forceinline__ bool multiply(bool has_channel) {
    copy<typename Shape::key_rows>(shared_.rows.d_out, call_.d_out, shared_.rows_d_out, 0,
                                   call_.values);
    copy<typename Shape::key_rows>(shared_.rows.v, call_.v, shared_.rows_v, 0, call_.values);
    copy<typename Shape::value_rows>(shared_.q, call_.q, shared_.rows_q, first_channel_,
                                     call_.keys);
    copy<typename Shape::value_rows>(shared_.k, call_.k, shared_.rows_k, first_channel_,
                                     call_.keys);
    prim::cuda::commit_copies();
    base::fetch_decays();
    const int tile = first_channel_ / 16 + warp_;
    const kept_columns of_s(args_.states.of_s, chunk_, call_, head_, tile);
    const kept_columns of_d(args_.states.of_d, chunk_, call_, head_, tile);
    const bool beyond = has_channel && base::put_decays();
    const float left = has_channel && is_second_ ? behind() : 0.0f;
    prim::cuda::wait_copies<0>();
    const bool multiplies = __syncthreads_or(beyond ? 1 : 0) == 0;
    const std::uint32_t d_out = prim::cuda::shared_address(shared_.rows.d_out);
    const std::uint32_t v = prim::cuda::shared_address(shared_.rows.v);
    prim::cuda::accumulator scores[8] = {};
    recurrence::sm80::multiply_rows<Element, Shape, 1>(scores, d_out, v, warp_, 0);
    if (multiplies) {
      base::put_weights(scores, warp_);
      if (Before) __syncthreads();
      if (has_channel) base::scale_rows(left);
    } else {
      put_scores(scores, warp_);
      if (has_channel) base::raise_decays();
    }
    make_products(of_s, of_d);
    answers_of queries = {}, keys = {};
    queries.read(of_s, d_out);
    keys.read(of_d, v);
    __syncthreads();
    if (multiplies) {
      base::multiply_pairs(queries, keys, warp_);
      base::put_sums(queries, keys, warp_);
    } else {
      put(shared_.sums.of_queries, queries);
      put(shared_.sums.of_keys, keys);
    }
    __syncthreads();
    return multiplies;
  }
  /// Rows of `columns` from column `first` on.
  template <class Tile>
  __device__ __forceinline__ void copy(unsigned char* to, const chunked_scan_rows& from,
                                       const ordered_rows& rows, int first,
                                       std::int64_t columns) const {
    recurrence::sm80::copy_rows<Element, Tile, Shape::threads>(
        prim::cuda::shared_address(to), static_cast<const Element*>(from.data) + first, rows,
        first_, count_, static_cast<int>(columns) - first);
  }
  /// The tile of a warp, as `chunk_answers::read` takes it, all of it asked for at once. One behind
  /// the last is another: its threads have no channel.
  struct kept_columns {
    __device__ __forceinline__ kept_columns(uint4* states, std::int64_t chunk,
                                            const chunked_scan_kernel_args& call, std::int64_t head,
                                            int number) {
      const auto tile = kept_tile<Shape::keys>::of(
          states, chunk, call, head, min(number, (static_cast<int>(call.keys) - 1) / 16));
#pragma unroll
      for (int depth = 0; depth < Shape::keys / 16; ++depth) {
        words[depth] = tile.template operand<Element>(depth);
      }
    }
    template <class>
    __device__ __forceinline__ prim::cuda::fragment_b2 operand(int, int depth, float = 1.0f) const {
      return words[depth];
    }
    prim::cuda::fragment_b2 words[Shape::keys / 16];
  };

  __device__ __forceinline__ void put_scores(const prim::cuda::accumulator (&scores)[8],
                                             int block) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i / 4 > block) break;
      const int row = block * 16 + i % 2 * 8 + lane / 4, token = i / 2 * 8 + lane % 4 * 2;
      const float* const x = scores[i / 2].at + i % 2 * 2;
      *reinterpret_cast<float2*>(shared_.scores.at(row, token)) =
          make_float2(token <= row ? x[0] : 0.0f, token < row ? x[1] : 0.0f);
    }
  }
  __device__ __forceinline__ void make_products(const kept_columns& of_s,
                                                const kept_columns& of_d) {
    using words = prim::cuda::half_words<bf16>;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float sum[2] = {};
#pragma unroll
    for (int depth = 0; depth < Shape::keys / 16; ++depth) {
      const auto s = of_s.template operand<Element>(0, depth);
      const auto d = of_d.template operand<Element>(0, depth);
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
      if (lane % 4 == 0) shared_.products[warp_ * 16 + j * 8 + lane / 4] = whole;
    }
  }
  __device__ __forceinline__ void put(
      channel_sums<Shape>& to,
      const recurrence::sm80::chunk_answers<Element, Shape>& answers) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int tile = i % 2, half = i / 2 % 2, block = i / 4;
      const float* const x = answers.at[block][tile].at + 2 * half;
      *reinterpret_cast<float2*>(
          to.at(block * 16 + half * 8 + lane / 4, warp_ * 16 + tile * 8 + lane % 4 * 2)) =
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
  /// The decay behind the chunk, with which D is kept in the units of its scan; with a bonus it has
  /// decayed.
  __device__ __forceinline__ float behind() const {
    if (Before) return args_.scale_of_d;
    const std::int64_t next = first_ + count_;
    float decays[batch];
    base::load_decays(next, min(next + 1, all_.length), decays);
    return args_.scale_of_d * prim::cuda::exp2_fast(decays[0]);
  }

  /// Products have done everything but exp(G_end) <S, D>, and what tokens have for the bonus.
  __device__ __forceinline__ void take_products() {
    const auto& of = shared_.of_products;
    whole_ = of.front[channel_] * of.behind[channel_] * shared_.products[channel_];
    if (Before && args_.of_u != nullptr) {
      put_bonus(of.bonus[0][channel_] + of.bonus[1][channel_]);
    }
  }
  __device__ __forceinline__ void put_bonus(float own) const {
    args_.of_u[(chunk_ * call_.heads + head_) * call_.keys + own_channel()] = own;
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
    float left = decay(0);
    float own = *shared_.scores.at(0, 0) * query(0) * key(0);
#pragma unroll 8
    for (int t = 1; t < Shape::tokens; ++t) {
      const float read = query(t);
      of_queries(t - 1) = of_queries(t) * left * read;
      left *= decay(t);
      own = fmaf(*shared_.scores.at(t, t) * read, key(t), own);
    }
    of_queries(Shape::tokens - 1) = 0.0f;
    whole_ = left * behind() * shared_.products[channel_];
    if (args_.of_u != nullptr) put_bonus(own);
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
  /// Whether the decay of a token that is read in front of its own is of no initial state, or leads
  /// to a final state that nobody reads: of its gradient, 0, the sums leave what they round.
  __device__ __forceinline__ bool acts_on_nothing(int t) const {
    if constexpr (!Before) return false;
    return (call_.initial_state.data == nullptr && first_ + t == 0) ||
           (call_.d_final_state.data == nullptr && first_ + t == all_.length - 1);
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
        of_queries(end - 1 - i) = acts_on_nothing(end - 1 - i) ? 0.0f : sum + others;
      }
    }
  }
  /// From there to memory, by both threads of a channel.
  __device__ __forceinline__ void store_gradients() {
    const ordered_rows rows = shared_.rows_d_gk;
    prim::cuda::with_elements(call_.d_gk.data, call_.d_gk.type, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      element* next = elements + rows.at(first_ + (is_second_ ? 1 : 0)) + own_channel();
#pragma unroll 4
      for (int t = is_second_ ? 1 : 0; t < count_; t += 2, next += 2 * rows.step) {
        const float gradient = of_queries(t);
        *next = prim::nearest<element>(call_.raw_decay ? gradient * base::slope(t) : gradient);
      }
    });
  }
  /// Of a head, over its channels, those of the first block first: a warp for each token.
  __device__ __forceinline__ void add_channels(bool first, bool last) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    for (int t = warp_; t < count_; t += Shape::warps) {
      float sum = 0.0f;
#pragma unroll
      for (int c = lane; c < Shape::columns; c += 32) sum += *shared_.sums.of_queries.at(t, c);
      sum = prim::cuda::sum_of_warp(sum);
      if (lane != 0) continue;
      if (!first) sum += shared_.of_head[t];
      shared_.of_head[t] = sum;
      if (!last) continue;
      prim::cuda::put_number(call_.d_g.data, call_.d_g.type, shared_.rows_d_g.at(first_ + t), sum);
    }
  }

  const decay_gradients& args_;
  const sequence& all_;
  std::int64_t head_, chunk_ = 0;  ///< of all sequences
  int warp_;
  float whole_ = 0.0f;
};

/// blockIdx.x is a sequence, head and tile of its channels, or all of them; blocks of blockIdx.y
/// take chunks in turn.
template <class Element, class Shape, bool Before>
__global__ void __launch_bounds__(Shape::threads, Shape::blocks)
    make_decay_gradients(__grid_constant__ const decay_gradients args) {
  extern __shared__ __align__(1024) unsigned char memory[];
  auto& shared = *reinterpret_cast<decay_memory<Shape>*>(memory);
  const recurrence::tile_item item(blockIdx.x, args.tiles, args.call.heads);
  const sequence all = sequence_of<device_code>(args.call, item.sequence);
  if (all.is_rest) {
    if (blockIdx.y != 0 || item.tile != 0) return;
    const auto clear = [&](const chunked_scan_rows& rows, std::int64_t width) {
      if (rows.data == nullptr) return;
      recurrence::sm80::clear_rows(rows, all, item.head, 0, static_cast<int>(width));
    };
    clear(args.call.d_gk, args.call.keys);
    clear(args.call.d_g, 1);
    return;
  }
  if (!all.has_states || all.length <= 0) return;
  decay_chunk<Element, Shape, Before> of_head(args, shared, all, item.head);
  const std::int64_t chunks = (all.length + Shape::tokens - 1) / Shape::tokens;
  const int tiles = static_cast<int>((args.call.keys + Shape::columns - 1) / Shape::columns);
  const int first = static_cast<int>(item.tile), end = args.tiles == tiles ? first + 1 : tiles;
  for (std::int64_t chunk = blockIdx.y; chunk < chunks; chunk += gridDim.y) {
    for (int tile = first; tile < end; ++tile) of_head.run(chunk, tile, tile + 1 == tiles);
  }
}

}  // namespace tessera::kernels::chunked_scan::sm80
