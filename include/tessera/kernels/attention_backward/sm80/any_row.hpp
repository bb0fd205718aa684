// Rows for every element type, head dim and address: products by plain multiplications on tiles of
// 16 queries and 16 keys as floats in shared memory, a thread for each pair. The fallback of the
// rows for the matrix unit, and what they leave to it: gradients of biases, incoming gradients of
// weights.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/kernels/attention_backward/sm80/block.hpp>
#include <tessera/prim/cuda/element_cast.hpp>

namespace tessera::kernels::attention_backward::sm80 {

inline constexpr int any_tile = 16;
static_assert(any_tile * any_tile == threads);

/// Rows of two tensors, K and V or q and d_out, of a tile in shared memory: tokens as floats, or
/// sums. An odd number of words apart.
template <class Number>
struct any_rows {
  Number* first = nullptr;   ///< [16][first_stride]: of k or q
  Number* second = nullptr;  ///< [16][second_stride]: of v or d_out
  int first_stride = 0, second_stride = 0;

  static constexpr __host__ __device__ int stride_of(int columns) { return columns | 1; }
  static constexpr __host__ __device__ int count(int head_dim, int v_head_dim) {
    return any_tile * (stride_of(head_dim) + stride_of(v_head_dim));
  }
  static __device__ any_rows at(void* memory, const attention_kernel_args& args) {
    const int stride = stride_of(args.head_dim);
    auto* const numbers = static_cast<Number*>(memory);
    return {numbers, numbers + any_tile * stride, stride, stride_of(args.v_head_dim)};
  }
};

/// What tiles add up to: sums over all tiles of f32 are as exact as their terms.
template <class Element>
using any_sum = std::conditional_t<std::is_same_v<Element, float>, double, float>;

/// Numbers of a tile's rows and pairs.
struct any_memory {
  float shift[any_tile], correction[any_tile];
  key_taint taint[any_tile];
  float weight[any_tile][any_tile + 4];   ///< [query][key]
  float d_score[any_tile][any_tile + 4];  ///< before the cap
};

/// Shared memory of a launch: sums, two tiles of tokens.
template <class Element>
constexpr int any_shared_bytes(int head_dim, int v_head_dim) {
  return any_rows<float>::count(head_dim, v_head_dim) *
         static_cast<int>(2 * sizeof(float) + sizeof(any_sum<Element>));
}

/// The same for kernels: sums, keys, queries.
template <class Element>
struct any_layout {
  any_rows<any_sum<Element>> sums;
  any_rows<float> keys, queries;
  __device__ any_layout(unsigned char* memory, const attention_kernel_args& args) {
    const int count = any_rows<float>::count(args.head_dim, args.v_head_dim);
    sums = any_rows<any_sum<Element>>::at(memory, args);
    auto* const tokens = reinterpret_cast<float*>(memory + count * sizeof(any_sum<Element>));
    keys = any_rows<float>::at(tokens, args);
    queries = any_rows<float>::at(tokens + count, args);
  }
  __device__ void clear_sums(const attention_kernel_args& args) const {
    const int count = any_rows<float>::count(args.head_dim, args.v_head_dim);
    for (int at = static_cast<int>(threadIdx.x); at < count; at += threads) sums.first[at] = 0;
  }
};

/// Row r of `to` is token `first + r` of `data`, or zeros.
template <class Element>
__device__ __forceinline__ void load_any(float* to, int stride, int columns, const void* data,
                                         const row_strides& strides, const prim::sequence& seq,
                                         std::int64_t token, int head, bool wanted) {
  const int r = static_cast<int>(threadIdx.x) / any_tile;
  const Element* const from = row_of<Element>(data, strides, seq, token + r, head);
  for (int d = static_cast<int>(threadIdx.x) % any_tile; d < columns; d += any_tile) {
    to[r * stride + d] = wanted ? prim::cuda::float_of(from[d]) : 0.0f;
  }
}

/// A head of a sequence, with tiles of which a thread has one pair: query threadIdx.x / 16, key
/// threadIdx.x % 16.
template <class Element, class Hooks>
struct any_pairs {
  const hooked_args<Hooks>& args;
  const block_sequence& block;
  any_memory& memory;
  const any_rows<float>& queries;
  const any_rows<float>& keys;

  __device__ const attention_kernel_args& of() const { return args.call.forward; }
  __device__ const prim::sequence& seq() const { return block.seq; }

  /// Rows that are not `alive` become zeros.
  __device__ void load_queries(std::int64_t first, int head) const {
    const int r = static_cast<int>(threadIdx.x) / any_tile;
    const std::int64_t place = head * args.rows + block.row(of(), first + r);
    const bool used = first + r < seq().q_len;
    const float shift = used ? args.shift[place] : infinite();
    const bool alive = shift < infinite();
    load_any<Element>(queries.first, queries.first_stride, of().head_dim, of().q, of().q_strides,
                      seq(), seq().q_begin + first, head, alive);
    load_any<Element>(queries.second, queries.second_stride, of().v_head_dim, args.call.d_out,
                      args.call.d_out_strides, seq(), seq().q_begin + first, head, alive);
    if (threadIdx.x % any_tile == 0) {
      memory.shift[r] = shift;
      memory.correction[r] = used ? args.correction[place] : 0.0f;
    }
  }
  /// Elements that are not finite taint the products of their key instead.
  __device__ void load_keys(std::int64_t first, int head) const {
    const int r = static_cast<int>(threadIdx.x) / any_tile;
    key_taint taint{};
    const bool used = first + r < seq().k_len;
    if (used) taint = args.taint[head * args.keys + block.key(of(), first + r)];
    load_any<Element>(keys.first, keys.first_stride, of().head_dim, of().k, of().k_strides, seq(),
                      seq().k_begin + first, head, used && taint.k == 0.0f);
    load_any<Element>(keys.second, keys.second_stride, of().v_head_dim, of().v, of().v_strides,
                      seq(), seq().k_begin + first, head, used && taint.v == 0.0f);
    if (threadIdx.x % any_tile == 0) memory.taint[r] = taint;
  }

  struct pair {
    score_gradients gradients;
    float incoming = 0.0f;  ///< of d_weights
  };
  /// The thread's pair of the tiles that are loaded. `Learns`: functors' parameters, too.
  template <bool Learns = false, class Visible>
  __device__ pair compute(std::int64_t query0, std::int64_t key0, int head,
                          const Visible& visible) const {
    const int i = static_cast<int>(threadIdx.x) / any_tile;
    const int j = static_cast<int>(threadIdx.x) % any_tile;
    const score_place at{seq().index, head, query0 + i, key0 + j, visible.mask.offset};
    pair result;
    if (at.query >= seq().q_len || !visible.keys_of(at.query).contains({at.key, at.key + 1})) {
      return result;
    }
    float product = memory.taint[j].k, gradient = memory.taint[j].v;
    for (int d = 0; d < of().head_dim; ++d) {
      product = fmaf(queries.first[i * queries.first_stride + d],
                     keys.first[j * keys.first_stride + d], product);
    }
    for (int d = 0; d < of().v_head_dim; ++d) {
      gradient = fmaf(queries.second[i * queries.second_stride + d],
                      keys.second[j * keys.second_stride + d], gradient);
    }
    if (of().weights != nullptr) {
      const std::int64_t offset = at.entry * of().weights_batch + head * of().weights_head +
                                  at.query * of().weights_row + at.key;
      result.incoming =
          of().weights_type == dtype::f32
              ? static_cast<const float*>(of().weights)[offset]
              : prim::cuda::float_of(static_cast<const Element*>(of().weights)[offset]);
      gradient += result.incoming;
    }
    const weight_parts parts = logit_of_all(args, at, product);
    result.gradients =
        gradients_of(parts, expf(parts.logit - memory.shift[i]), gradient, memory.correction[i]);
    if constexpr (Learns) add_parameters(args, at, parts, result.gradients);
    return result;
  }
};

/// sums[r][column] += sum over n of factor(n, r) rows[n][column], four rows of sums a thread.
template <class Sum, class Factor>
__device__ __forceinline__ void add_products(Sum* sums, int stride, int columns, const float* rows,
                                             const Factor& factor) {
  for (int at = static_cast<int>(threadIdx.x); at < columns * (any_tile / 4); at += threads) {
    const int column = at % columns, r = at / columns * 4;
    float sum[4] = {};
    for (int n = 0; n < any_tile; ++n) {
      const float x = rows[n * stride + column];
      for (int i = 0; i < 4; ++i) sum[i] = fmaf(factor(n, r + i), x, sum[i]);
    }
    for (int i = 0; i < 4; ++i) sums[(r + i) * stride + column] += static_cast<Sum>(sum[i]);
  }
}

/// Writes those of 16 rows of sums that lie before `all`, times `factor`.
template <class Element, class Sum>
__device__ __forceinline__ void store_any(const Sum* sums, int stride, int columns, void* data,
                                          const row_strides& strides, const prim::sequence& seq,
                                          std::int64_t begin, std::int64_t first, std::int64_t all,
                                          int head, float factor) {
  const int r = static_cast<int>(threadIdx.x) / any_tile;
  if (first + r >= all) return;
  Element* const to = row_of<Element>(data, strides, seq, begin + first + r, head);
  for (int d = static_cast<int>(threadIdx.x) % any_tile; d < columns; d += any_tile) {
    to[d] = Element(static_cast<float>(sums[r * stride + d]) * factor);
  }
}

/// d_k and d_v: a block owns 16 keys.
template <class Element, class Hooks>
__global__ void __launch_bounds__(threads)
    any_key_gradients(const __grid_constant__ hooked_args<Hooks> args) {
  extern __shared__ __align__(16) unsigned char any_bytes[];
  __shared__ any_memory memory;
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t item = blockIdx.x;
  const int kv_head = static_cast<int>(item % of.kv_heads);
  const std::int64_t key0 = item / of.kv_heads % args.tiles * any_tile;
  const block_sequence block = block_sequence::of(of, item / of.kv_heads / args.tiles);
  const prim::sequence& seq = block.seq;
  if (key0 >= block.all_k) return;
  const any_layout<Element> tiles(any_bytes, of);
  const any_pairs<Element, Hooks> pairs{args, block, memory, tiles.queries, tiles.keys};
  const auto visible = kernels::attention::visibility_of<mask_mode::window>(of, seq);
  const prim::key_interval own{key0, key0 + any_tile < seq.k_len ? key0 + any_tile : seq.k_len};
  tiles.clear_sums(of);
  if (!own.empty()) pairs.load_keys(key0, kv_head);
  const int group = kernels::attention::group_of(of);
  for (int head = kv_head * group; head < (kv_head + 1) * group && !own.empty(); ++head) {
    for (std::int64_t query0 = 0; query0 < seq.q_len; query0 += any_tile) {
      const std::int64_t last = query0 + any_tile < seq.q_len ? query0 + any_tile : seq.q_len;
      if (prim::intersection(visible.keys_of(query0, last - 1).some, own).empty()) continue;
      __syncthreads();
      pairs.load_queries(query0, head);
      __syncthreads();
      const auto pair = pairs.template compute<true>(query0, key0, head, visible);
      const int i = static_cast<int>(threadIdx.x) / any_tile;
      const int j = static_cast<int>(threadIdx.x) % any_tile;
      memory.weight[i][j] = pair.gradients.weight;
      memory.d_score[i][j] = pair.gradients.before_cap;
      __syncthreads();
      add_products(tiles.sums.first, tiles.sums.first_stride, of.head_dim, tiles.queries.first,
                   [&](int n, int r) { return memory.d_score[n][r]; });
      add_products(tiles.sums.second, tiles.sums.second_stride, of.v_head_dim, tiles.queries.second,
                   [&](int n, int r) { return memory.weight[n][r]; });
    }
  }
  __syncthreads();
  store_any<Element>(tiles.sums.first, tiles.sums.first_stride, of.head_dim, args.call.d_k,
                     args.call.d_k_strides, seq, seq.k_begin, key0, block.all_k, kv_head,
                     of.softmax_scale);
  store_any<Element>(tiles.sums.second, tiles.sums.second_stride, of.v_head_dim, args.call.d_v,
                     args.call.d_v_strides, seq, seq.k_begin, key0, block.all_k, kv_head, 1.0f);
}

/// What a walk through the keys of 16 queries gives.
enum class query_part {
  corrections,  ///< the sum over keys of weight and its incoming gradient, added to `correction`
  gradients,    ///< d_q
};

template <class Element, query_part Part, class Hooks>
__global__ void __launch_bounds__(threads)
    any_query_gradients(const __grid_constant__ hooked_args<Hooks> args) {
  extern __shared__ __align__(16) unsigned char any_bytes[];
  __shared__ any_memory memory;
  const attention_kernel_args& of = args.call.forward;
  const std::int64_t item = blockIdx.x;
  const int head = static_cast<int>(item % of.q_heads);
  const std::int64_t query0 = item / of.q_heads % args.tiles * any_tile;
  const block_sequence block = block_sequence::of(of, item / of.q_heads / args.tiles);
  const prim::sequence& seq = block.seq;
  if (query0 >= block.all_q) return;
  const any_layout<Element> tiles(any_bytes, of);
  const any_pairs<Element, Hooks> pairs{args, block, memory, tiles.queries, tiles.keys};
  const auto visible = kernels::attention::visibility_of<mask_mode::window>(of, seq);
  const std::int64_t end = query0 + any_tile < seq.q_len ? query0 + any_tile : seq.q_len;
  prim::key_interval seen{};
  if (query0 < end) seen = visible.keys_of(query0, end - 1).some;
  tiles.clear_sums(of);
  if (!seen.empty()) pairs.load_queries(query0, head);
  const int i = static_cast<int>(threadIdx.x) / any_tile;
  const int j = static_cast<int>(threadIdx.x) % any_tile;
  float correction = 0.0f;
  for (std::int64_t key0 = seen.begin / any_tile * any_tile; key0 < seen.end; key0 += any_tile) {
    __syncthreads();
    pairs.load_keys(key0, head / kernels::attention::group_of(of));
    __syncthreads();
    const auto pair = pairs.compute(query0, key0, head, visible);
    if constexpr (Part == query_part::corrections) {
      if (pair.gradients.weight != 0.0f) correction += pair.gradients.weight * pair.incoming;
    } else {
      memory.d_score[i][j] = pair.gradients.before_cap;
      __syncthreads();
      add_products(tiles.sums.first, tiles.sums.first_stride, of.head_dim, tiles.keys.first,
                   [&](int n, int r) { return memory.d_score[r][n]; });
    }
  }
  if constexpr (Part == query_part::corrections) {
    for (int step = any_tile / 2; step > 0; step /= 2) {
      correction += __shfl_xor_sync(prim::cuda::all_lanes, correction, step);
    }
    if (j == 0 && query0 + i < seq.q_len) {
      args.correction[head * args.rows + block.row(of, query0 + i)] += correction;
    }
  } else {
    __syncthreads();
    store_any<Element>(tiles.sums.first, tiles.sums.first_stride, of.head_dim, args.call.d_q,
                       args.call.d_q_strides, seq, seq.q_begin, query0, block.all_q, head,
                       of.softmax_scale);
  }
}

}  // namespace tessera::kernels::attention_backward::sm80
