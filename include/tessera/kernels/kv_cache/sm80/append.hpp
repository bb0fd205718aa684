// New keys and values into pages of a pool. Queued by the rows of kv_cache_append, and by
// operations that attend to what they write first, on the same stream.
//
// A thread block has a few tokens. First a thread each finds where one goes; then all threads move
// pieces of their rows: 16 bytes of the narrower side at a time where every row allows it, else
// element by element. Where tokens have scales of their own, a warp has a row at a time, which it
// looks at before it moves it. No value of lengths, offsets or page numbers is trusted: what has no
// place is written nowhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/prim/common/code_scale.hpp>
#include <tessera/prim/cuda/element_cast.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera::kernels::kv_cache::sm80 {

inline constexpr int append_threads = 256;
/// Tokens of a block, at most, and pieces of rows that it moves, about.
inline constexpr int most_block_tokens = 32;
inline constexpr int block_pieces = 4 * append_threads;

/// Keys or values of all tokens.
struct token_half {
  const void* from = nullptr;
  new_token_strides from_strides{};
  void* to = nullptr;
  pool_strides to_strides{};
  std::int64_t columns = 0;
  float scale = 1.0f;
  const float* scales = nullptr;
  token_scales token_scale{};
  std::uint32_t pieces = 0;  ///< of a row of the pool
};

/// What the kernel receives.
struct append_launch {
  token_half halves[2];
  dtype new_type = dtype::none, pool_type = dtype::none;
  std::uint32_t heads = 0, pool_heads = 0, heads_per_group = 1;
  std::uint32_t token_pieces = 0;  ///< of both halves
  std::uint32_t block_tokens = 1;
  kv_append_args call{};
};

/// Where a token goes: page and slot; page -1: nowhere.
struct token_place {
  std::int32_t page = -1;
  std::int32_t slot = 0;
};

__device__ __forceinline__ token_place place_of(const kv_append_args& args, std::int64_t token) {
  std::int64_t sequences = args.sequences;
  if (args.num_seqs != nullptr) {
    const std::int64_t used = *args.num_seqs;
    sequences = used < 0 ? 0 : used < sequences ? used : sequences;
  }
  std::int64_t n = token, behind = 1;
  if (args.cu_seqlens_q != nullptr) {
    // The last offset that is not above the token, where offsets never decrease.
    std::int64_t low = 0, high = sequences;
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      if (args.cu_seqlens_q[middle] <= token) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    n = low;
    if (n >= sequences || args.cu_seqlens_q[n] > token) return {};
    behind = args.cu_seqlens_q[n + 1] - token;
    if (behind <= 0) return {};
  }
  if (n >= sequences) return {};
  const std::int64_t key = args.seqlens_k[n] - behind;
  if (key < 0 || key >= args.table_pages * args.page_size) return {};
  const std::int32_t page = args.table[n * args.table_row + key / args.page_size];
  if (page < 0 || page >= args.page_count) return {};
  return {page, static_cast<std::int32_t>(key % args.page_size)};
}

/// One piece of a row as it is stored: `Count` elements divided by the scale.
template <int Count, class From, class To>
__device__ __forceinline__ void move_piece(const From* from, To* to, float scale) {
  using source = prim::cuda::element_vector<From, Count>;
  using target = prim::cuda::element_vector<To, Count>;
  const source read = *reinterpret_cast<const source*>(from);
  target written;
  if constexpr (std::is_same_v<From, To>) {
    if (scale == 1.0f) {
      *reinterpret_cast<target*>(to) = read;
      return;
    }
  }
  float x[Count];
#pragma unroll
  for (int i = 0; i < Count; ++i) x[i] = prim::cuda::float_of(read.x[i]);
  if (scale != 1.0f) {
#pragma unroll
    for (int i = 0; i < Count; ++i) x[i] = x[i] / scale;
  }
#pragma unroll
  for (int i = 0; i < Count; i += 2) {
    if constexpr (Count > 1) {
      prim::cuda::store_pair(written.x + i, x[i], x[i + 1]);
    } else {
      To pair[2];
      prim::cuda::store_pair(pair, x[i], x[i]);
      written.x[i] = pair[0];
    }
  }
  *reinterpret_cast<target*>(to) = written;
}

/// The places of a block's tokens, which a thread each finds.
__device__ __forceinline__ void find_places(const append_launch& launch, std::int64_t first,
                                            token_place (&places)[most_block_tokens]) {
  if (threadIdx.x < launch.block_tokens) {
    const std::int64_t token = first + threadIdx.x;
    places[threadIdx.x] = token < launch.call.tokens ? place_of(launch.call, token) : token_place{};
  }
  __syncthreads();
}

/// The row of a head at a place of the pool.
template <class To>
__device__ __forceinline__ To* row_of(const append_launch& launch, const token_half& half,
                                      token_place at, std::uint32_t head) {
  return static_cast<To*>(half.to) + at.page * half.to_strides.page +
         at.slot * half.to_strides.token + head / launch.heads_per_group * half.to_strides.group +
         head % launch.heads_per_group * half.to_strides.head;
}

/// Elements of a piece: 16 bytes of the narrower side.
template <class From, class To>
constexpr int wide_piece = 16 /
                           static_cast<int>(sizeof(From) < sizeof(To) ? sizeof(From) : sizeof(To));

template <int Count, class From, class To>
__global__ void __launch_bounds__(append_threads)
    append_tokens(const __grid_constant__ append_launch launch) {
  __shared__ token_place places[most_block_tokens];
  const std::int64_t first = std::int64_t{blockIdx.x} * launch.block_tokens;
  find_places(launch, first, places);
  const std::uint32_t pieces = launch.block_tokens * launch.token_pieces;
  const std::uint32_t of_keys = launch.pool_heads * launch.halves[0].pieces;
  for (std::uint32_t i = threadIdx.x; i < pieces; i += append_threads) {
    const std::uint32_t token = i / launch.token_pieces;
    const token_place at = places[token];
    if (at.page < 0) continue;
    std::uint32_t inside = i - token * launch.token_pieces;
    const bool values = inside >= of_keys;
    if (values) inside -= of_keys;
    const token_half& half = launch.halves[values ? 1 : 0];
    const std::uint32_t head = inside / half.pieces;
    const std::int64_t column = std::int64_t{inside - head * half.pieces} * Count;
    To* const to = row_of<To>(launch, half, at, head) + column;
    if (head >= launch.heads || column >= half.columns) {
      *reinterpret_cast<prim::cuda::element_vector<To, Count>*>(to) = {};
      continue;
    }
    const From* const from = static_cast<const From*>(half.from) +
                             (first + token) * half.from_strides.token +
                             head * half.from_strides.head + column;
    const float scale = half.scales != nullptr ? half.scale * half.scales[head] : half.scale;
    move_piece<Count>(from, to, scale);
  }
}

/// The scale of a row, which a warp looks at, beside `factor`.
template <int Count, class To, class From>
__device__ __forceinline__ float scale_of_row(const From* from, std::int64_t columns,
                                              float factor) {
  using source = prim::cuda::element_vector<From, Count>;
  float largest = 0.0f;
  for (std::int64_t at = threadIdx.x % 32 * Count; at < columns; at += 32 * Count) {
    const source read = *reinterpret_cast<const source*>(from + at);
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      largest = prim::largest_finite(largest, prim::cuda::float_of(read.x[i]));
    }
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(prim::cuda::all_lanes, largest, lanes));
  }
  return prim::code_scale<To>(largest, factor);
}

/// The same as append_tokens, where the keys or values of tokens have scales of their own.
template <int Count, class From, class To>
__global__ void __launch_bounds__(append_threads)
    append_scaled(const __grid_constant__ append_launch launch) {
  __shared__ token_place places[most_block_tokens];
  const std::int64_t first = std::int64_t{blockIdx.x} * launch.block_tokens;
  find_places(launch, first, places);
  const std::uint32_t rows = launch.block_tokens * 2 * launch.pool_heads;
  for (std::uint32_t i = threadIdx.x / 32; i < rows; i += append_threads / 32) {
    const std::uint32_t token = i / (2 * launch.pool_heads);
    const token_place at = places[token];
    if (at.page < 0) continue;
    const std::uint32_t head = i / 2 % launch.pool_heads;
    const token_half& half = launch.halves[i % 2];
    To* const to = row_of<To>(launch, half, at, head);
    const From* const from = static_cast<const From*>(half.from) +
                             (first + token) * half.from_strides.token +
                             head * half.from_strides.head;
    const bool present = head < launch.heads;
    float scale = half.scales != nullptr && present ? half.scale * half.scales[head] : half.scale;
    if (half.token_scale.data != nullptr && present) {
      const token_scales& out = half.token_scale;
      const float own = scale_of_row<Count, To>(from, half.columns, scale);
      if (threadIdx.x % 32 == 0) {
        out.data[at.page * out.page + at.slot * out.slot + head * out.head] = own;
      }
      scale *= own;
    }
    for (std::uint32_t piece = threadIdx.x % 32; piece < half.pieces; piece += 32) {
      const std::int64_t column = std::int64_t{piece} * Count;
      if (!present || column >= half.columns) {
        *reinterpret_cast<prim::cuda::element_vector<To, Count>*>(to + column) = {};
      } else {
        move_piece<Count>(from + column, to + column, scale);
      }
    }
  }
}

/// Rows at `data` with these strides and columns start and end at multiples of `Count` elements
/// and 16 bytes, or of their `Count` elements where those are fewer bytes.
inline bool are_wide(const void* data, std::int64_t strides, std::int64_t columns, int count,
                     std::int64_t element_bytes) {
  const std::int64_t unit = std::min<std::int64_t>(count * element_bytes, 16);
  return columns % count == 0 && strides * element_bytes % unit == 0 &&
         reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(unit) == 0;
}

inline bool is_wide(const token_half& half, std::int64_t width, int count, std::int64_t from_bytes,
                    std::int64_t to_bytes) {
  const new_token_strides& from = half.from_strides;
  const pool_strides& to = half.to_strides;
  // A multiple of a power of two: no bit below it in any of the strides.
  return are_wide(half.from, from.token | from.head, half.columns, count, from_bytes) &&
         are_wide(half.to, to.page | to.token | to.group | to.head, width, count, to_bytes);
}

template <class From, class To>
cudaError_t append_as(append_launch& launch, cudaStream_t stream) {
  const kv_append_args& args = launch.call;
  constexpr int wide = wide_piece<From, To>;
  const bool is_wide_call =
      is_wide(launch.halves[0], args.k_width, wide, sizeof(From), sizeof(To)) &&
      is_wide(launch.halves[1], args.v_width, wide, sizeof(From), sizeof(To));
  const int count = is_wide_call ? wide : 1;
  launch.halves[0].pieces = static_cast<std::uint32_t>(args.k_width / count);
  launch.halves[1].pieces = static_cast<std::uint32_t>(args.v_width / count);
  const std::int64_t token_pieces = args.pool_heads * ((args.k_width + args.v_width) / count);
  if (token_pieces > INT32_MAX / most_block_tokens) return cudaErrorInvalidValue;  // 64 M elements
  launch.token_pieces = static_cast<std::uint32_t>(token_pieces);
  launch.block_tokens = std::clamp(static_cast<std::uint32_t>(block_pieces) / launch.token_pieces,
                                   1u, static_cast<std::uint32_t>(most_block_tokens));
  const std::int64_t blocks = (args.tokens + launch.block_tokens - 1) / launch.block_tokens;
  auto* kernel = is_wide_call ? &append_tokens<wide, From, To> : &append_tokens<1, From, To>;
  if constexpr (sizeof(To) == 1 && sizeof(From) > 1) {
    if (args.k_token_scales.data != nullptr || args.v_token_scales.data != nullptr) {
      kernel = is_wide_call ? &append_scaled<wide, From, To> : &append_scaled<1, From, To>;
    }
  }
  return prim::cuda::launch_kernel(kernel, dim3(static_cast<unsigned>(blocks)), append_threads, 0,
                                   stream, false, launch);
}

/// True if there is a token, and a place where it may go.
inline bool has_tokens(const kv_append_args& args) {
  return args.tokens > 0 && args.sequences > 0 && args.table_pages > 0 && args.page_count > 0 &&
         args.pool_heads * (args.k_width + args.v_width) > 0;
}

inline append_launch launch_of(const kv_append_args& args) {
  append_launch launch;
  launch.call = args;
  const auto pool_bytes = static_cast<std::int64_t>(size_of(args.pool_type));
  void* const v =
      args.v != nullptr ? args.v : static_cast<char*>(args.k) + args.v_offset * pool_bytes;
  launch.halves[0] = {args.k_new,     args.k_new_strides, args.k,        args.k_strides,
                      args.k_columns, args.k_scale,       args.k_scales, args.k_token_scales};
  launch.halves[1] = {args.v_new,     args.v_new_strides, v,
                      args.v_strides, args.v_columns,     args.v_scale,
                      args.v_scales,  args.v_token_scales};
  launch.heads = static_cast<std::uint32_t>(args.heads);
  launch.pool_heads = static_cast<std::uint32_t>(args.pool_heads);
  launch.heads_per_group = static_cast<std::uint32_t>(args.heads_per_group);
  return launch;
}

/// Queues the writes of new tokens of the pool's type, `Element`, and no scale.
template <class Element>
cudaError_t append_unchanged(const kv_append_args& args, cudaStream_t stream) {
  if (!has_tokens(args)) return cudaSuccess;
  append_launch launch = launch_of(args);
  return append_as<Element, Element>(launch, stream);
}

/// Queues the writes of new tokens of type `Element` to a pool of that type or of 8 bits, whose
/// tokens may have scales, and of tokens of 8 bits to a pool that has their type. No other scale.
template <class Element>
cudaError_t append_to_any_pool(const kv_append_args& args, cudaStream_t stream) {
  if (!has_tokens(args)) return cudaSuccess;
  append_launch launch = launch_of(args);
  if (args.new_type == args.pool_type && size_of(args.pool_type) == 1) {
    return append_as<std::int8_t, std::int8_t>(launch, stream);
  }
  switch (args.pool_type) {
    case dtype::f8_e4m3:
      return append_as<Element, f8_e4m3>(launch, stream);
    case dtype::f8_e5m2:
      return append_as<Element, f8_e5m2>(launch, stream);
    case dtype::i8:
      return append_as<Element, std::int8_t>(launch, stream);
    default:
      return append_as<Element, Element>(launch, stream);
  }
}

}  // namespace tessera::kernels::kv_cache::sm80
