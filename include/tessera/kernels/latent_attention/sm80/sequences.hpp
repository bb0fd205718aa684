// The sequences of a launch, their blocks of query rows, and where their latents lie. Lengths,
// offsets and numbers of pages lie in device memory and are cut to what there is.
#pragma once

#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/prim/common/ceil_div.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/mask_mode.hpp>

namespace tessera::kernels::latent_attention::sm80 {

using prim::ceil_div;

__device__ __forceinline__ std::int64_t clipped(std::int64_t x, std::int64_t most) {
  return x < 0 ? 0 : x < most ? x : most;
}

/// Sequences that have rows.
__device__ __forceinline__ std::int64_t sequences_in_use(const latent_attention_kernel_args& args) {
  return args.num_seqs != nullptr ? clipped(*args.num_seqs, args.entries) : args.entries;
}
/// Packed: where the rows of sequence `n` begin.
__device__ __forceinline__ std::int64_t begin_of(const latent_attention_kernel_args& args,
                                                 std::int64_t n) {
  return clipped(args.cu_seqlens_q[n], args.length);
}
/// Tokens from here on belong to no sequence.
__device__ __forceinline__ std::int64_t end_of_tokens(const latent_attention_kernel_args& args) {
  if (args.cu_seqlens_q == nullptr) return args.length;
  const std::int64_t count = sequences_in_use(args);
  return count > 0 ? begin_of(args, count) : 0;
}

__device__ __forceinline__ prim::sequence sequence_of(const latent_attention_kernel_args& args,
                                                      std::int64_t n) {
  prim::sequence seq{.index = n, .q_len = args.length, .k_len = args.length};
  if (args.seqlens_k != nullptr) {
    const std::int64_t most = args.pages.page_count > 0 ? args.pages.most_pages : 0;
    seq.k_len = clipped(args.seqlens_k[n], most * args.pages.page_size);
  }
  if (args.cu_seqlens_q != nullptr) {
    seq.q_begin = begin_of(args, n);
    const std::int64_t end = begin_of(args, n + 1);
    seq.q_len = end > seq.q_begin ? end - seq.q_begin : 0;
  }
  return seq;
}

/// Element offset of the row of token `j` of a sequence in `rows`, of pages.
__device__ __forceinline__ std::int64_t slot_of(const latent_attention_kernel_args& args,
                                                const latent_rows& rows, std::int64_t sequence,
                                                std::int64_t j) {
  const latent_pages& pages = args.pages;
  const std::int64_t slot = j % pages.page_size;
  const std::int64_t page = pages.numbers[sequence * pages.row + j / pages.page_size];
  return rows.at(clipped(page, pages.page_count - 1), slot / pages.lanes, slot % pages.lanes);
}

/// Folded query rows of a sequence that a block works on: tokens times the heads that share keys.
/// Row r is head r % group of token r / group.
struct row_block {
  prim::sequence seq{};
  std::int64_t kv_head = 0;
  std::int64_t first_head = 0;  ///< that reads kv_head
  std::int64_t group = 1;
  std::int64_t first = 0;
  int count = 0;  ///< 0: the block has nothing to do

  __device__ __forceinline__ std::int64_t token(int r) const { return (first + r) / group; }
  __device__ __forceinline__ std::int64_t head(int r) const {
    return first_head + (first + r) % group;
  }
  __device__ __forceinline__ std::int64_t at(const latent_rows& rows, int r) const {
    return rows.at(seq.index, seq.q_begin + token(r), head(r));
  }
  /// The number of a row among all of the launch.
  __device__ __forceinline__ std::int64_t number(const latent_attention_kernel_args& args,
                                                 int r) const {
    const std::int64_t of_token =
        (args.cu_seqlens_q != nullptr ? 0 : seq.index * args.length) + seq.q_begin + token(r);
    return of_token * args.heads + head(r);
  }
  /// Keys that lengths, diagonal and window leave visible.
  __device__ __forceinline__ prim::row_visibility<mask_mode::window> seen(
      const latent_attention_kernel_args& args) const {
    return {seq.k_len, {args.causal, args.window_left, args.window_right, seq.k_len - seq.q_len}};
  }
  __device__ __forceinline__ prim::key_interval keys_of_some(
      const latent_attention_kernel_args& args) const {
    if (count == 0) return {};
    return seen(args).keys_of(token(0), token(count - 1)).some;
  }
};

/// Most blocks of `rows` rows that a launch may have.
inline std::int64_t most_row_blocks(const latent_attention_kernel_args& args, int rows) {
  const std::int64_t group = args.heads / args.kv_heads;
  const std::int64_t of_sequence = ceil_div(args.length * group, rows);
  if (args.cu_seqlens_q != nullptr) return of_sequence + args.entries;
  return args.entries * args.kv_heads * of_sequence;
}

/// Block number `block` of the launch. Packed, `starts` are the numbers of each sequence's first.
__device__ __forceinline__ row_block row_block_of(const latent_attention_kernel_args& args,
                                                  const std::int64_t* starts, std::int64_t block,
                                                  int rows) {
  row_block at{.group = args.heads / args.kv_heads};
  std::int64_t within = block, n = 0;
  if (args.cu_seqlens_q != nullptr) {
    const std::int64_t count = sequences_in_use(args);
    if (block >= starts[count]) return at;
    std::int64_t end = count;
    while (end - n > 1) {
      const std::int64_t middle = n + (end - n) / 2;
      if (starts[middle] <= block) {
        n = middle;
      } else {
        end = middle;
      }
    }
    within = block - starts[n];
  } else {
    // The last rows of a causal call see most keys. Blocks that read the same ones run together.
    const std::int64_t of_sequence = ceil_div(args.length * at.group, rows);
    const std::int64_t pair = block / of_sequence;
    within = of_sequence - 1 - block % of_sequence;
    n = pair / args.kv_heads;
    at.kv_head = pair % args.kv_heads;
    at.first_head = at.kv_head * at.group;
  }
  at.seq = sequence_of(args, n);
  at.first = within * rows;
  const std::int64_t left = at.seq.q_len * at.group - at.first;
  at.count = static_cast<int>(clipped(left, rows));
  return at;
}

/// Packed: writes the number of each sequence's first block of `rows` rows, and of all blocks. One
/// warp.
template <int Lanes>
__global__ void place_row_blocks(const __grid_constant__ latent_attention_kernel_args args,
                                 std::int64_t* starts, const int rows) {
  static_assert(Lanes == prim::cuda::warp_size);
  const int lane = static_cast<int>(threadIdx.x);
  const std::int64_t count = sequences_in_use(args);
  std::int64_t before = 0;
  for (std::int64_t first = 0; first < count; first += Lanes) {
    const std::int64_t n = first + lane;
    const std::int64_t blocks =
        n < count ? ceil_div(sequence_of(args, n).q_len * args.heads, rows) : 0;
    std::int64_t up_to = blocks;
    for (int step = 1; step < Lanes; step *= 2) {
      const std::int64_t other =
          __shfl_up_sync(prim::cuda::all_lanes, up_to, static_cast<unsigned>(step));
      if (lane >= step) up_to += other;
    }
    if (n < count) starts[n] = before + up_to - blocks;
    before += __shfl_sync(prim::cuda::all_lanes, up_to, Lanes - 1);
  }
  if (lane == 0) starts[count] = before;
}

/// Copies new latents and their rope parts to their slots, bit for bit. A block for each token.
template <int Threads>
__global__ void write_latents(const __grid_constant__ latent_attention_kernel_args args) {
  const std::int64_t token = blockIdx.x, count = sequences_in_use(args);
  if (token >= end_of_tokens(args)) return;
  std::int64_t n = 0, end = count;  // the last sequence that begins at the token or before it
  while (end - n > 1) {
    const std::int64_t middle = n + (end - n) / 2;
    if (begin_of(args, middle) <= token) {
      n = middle;
    } else {
      end = middle;
    }
  }
  const prim::sequence seq = sequence_of(args, n);
  const std::int64_t i = token - seq.q_begin, j = seq.k_len - seq.q_len + i;
  if (i < 0 || i >= seq.q_len || j < 0 || j >= seq.k_len) return;
  const std::int64_t page = args.pages.numbers[n * args.pages.row + j / args.pages.page_size];
  if (page < 0 || page >= args.pages.page_count) return;
  const auto copy = [&](const latent_rows& from, const latent_rows& to, std::int64_t columns) {
    const std::int64_t source = from.at(0, token), target = slot_of(args, to, n, j);
    prim::cuda::with_elements(to.data, to.type, [&](auto* elements) {
      const auto* const fresh = static_cast<decltype(elements)>(from.data);
      for (std::int64_t c = threadIdx.x; c < columns; c += Threads) {
        elements[target + c] = fresh[source + c];
      }
    });
  };
  copy(args.ckv_new, args.ckv, args.latent);
  copy(args.k_pe_new, args.k_pe, args.rope);
}

}  // namespace tessera::kernels::latent_attention::sm80
