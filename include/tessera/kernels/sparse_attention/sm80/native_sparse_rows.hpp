// What the passes of native sparse attention share: sequences and how they are cut, query rows of
// a tile, the keys of a branch and who sees them.
//
// A branch is a softmax of its own: over means of complete blocks, over the tokens of selected
// blocks, or over a window. All three are intervals of keys for each query, in tiles.
#pragma once

#include <cstdint>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/sm80/float_tiles.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

enum class sparse_branch : std::uint8_t { compressed, window, selected };
inline constexpr int sparse_branches = 3;

/// Keys [begin, end) of a sequence, or blocks.
struct key_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Tokens [begin, begin + length) of an entry; its blocks have numbers from `first_block` on.
struct token_sequence {
  std::int64_t entry = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t first_block = 0;
};

/// A part of a sequence: tokens from `first` on, number `number` of the sequence.
struct sequence_part {
  token_sequence tokens{};
  std::int64_t number = 0;
  std::int64_t first = 0;
  bool is_empty = true;
};

/// A launch, and what lies in its workspace.
struct native_sparse_launch {
  native_sparse_kernel_args call{};
  sparse_rows means_k{}, means_v{};      ///< f32: [kv_heads][blocks of the launch][head dim]
  sparse_rows d_means_k{}, d_means_v{};  ///< likewise
  /// What tokens look at: `given`, or what was selected.
  sparse_slots looked_at{};
  std::int64_t looked_slots = 0;
  /// Where the other branches leave their outputs if selected blocks have a kernel of their own.
  sparse_rows others{};
  float* weights = nullptr;     ///< of a selection: [workers][tokens of a list][blocks]
  float* lse = nullptr;         ///< of each branch and row: [3][tokens][q_heads]
  float* correction = nullptr;  ///< D = gate <d_out, output of the branch>

  __host__ __device__ std::int64_t group() const { return call.q_heads / call.kv_heads; }
  __host__ __device__ bool packed() const { return call.sequences.begin != nullptr; }
  __host__ __device__ std::int64_t all_tokens() const {
    return call.sequences.tokens * (packed() ? 1 : call.sequences.count);
  }
  /// Parts of `step` tokens: places for those of all sequences, each of which may end with less.
  __host__ __device__ std::int64_t parts(std::int64_t step) const {
    const std::int64_t tokens = call.sequences.tokens, count = call.sequences.count;
    if (packed()) return count == 0 ? 0 : tokens / step + count;
    return count * ((tokens + step - 1) / step);
  }
  __host__ __device__ std::int64_t blocks_in(std::int64_t tokens) const {
    return (tokens + call.block_size - 1) / call.block_size;
  }
  /// Blocks of the longest sequence there could be.
  __host__ __device__ std::int64_t most_blocks() const { return blocks_in(call.sequences.tokens); }
  /// Tokens whose heads of a group are rows of one tile, and the heads of a tile.
  __host__ __device__ std::int64_t tokens_of_list() const {
    return group() < tile ? tile / group() : 1;
  }
  __host__ __device__ std::int64_t lists_of_group() const { return (group() + tile - 1) / tile; }
  __host__ __device__ bool selects() const { return call.given.data == nullptr; }

  /// Offset of a sequence in device memory, which nobody has looked at.
  __device__ __forceinline__ std::int64_t offset_of(std::int64_t sequence) const {
    const std::int64_t offset = call.sequences.begin[sequence];
    return offset < 0 ? 0 : offset > call.sequences.tokens ? call.sequences.tokens : offset;
  }
  __device__ __forceinline__ token_sequence sequence(std::int64_t number) const {
    if (!packed()) {
      return {number, 0, call.sequences.tokens, number * blocks_in(call.sequences.tokens)};
    }
    const std::int64_t begin = offset_of(number), end = offset_of(number + 1);
    return {0, begin, end > begin ? end - begin : 0, begin / call.block_size + number};
  }
  /// Part number `place` of `parts(step)`. Packed, the parts of sequence n begin behind those that
  /// the tokens in front of it could have.
  __device__ __forceinline__ sequence_part part(std::int64_t place, std::int64_t step) const {
    std::int64_t number = 0;
    std::int64_t before = 0;
    if (packed()) {
      std::int64_t end = call.sequences.count;  // the last sequence that begins up to `place`
      while (end - number > 1) {
        const std::int64_t middle = (number + end) / 2;
        (offset_of(middle) / step + middle <= place ? number : end) = middle;
      }
      before = offset_of(number) / step + number;
    } else {
      const std::int64_t each = (call.sequences.tokens + step - 1) / step;
      number = place / each;
      before = number * each;
    }
    sequence_part found{sequence(number), place - before, (place - before) * step};
    found.is_empty = found.number < 0 || found.first >= found.tokens.length;
    return found;
  }

  /// Complete blocks in front of the next token.
  __device__ __forceinline__ std::int64_t complete_blocks(std::int64_t token) const {
    return (token + 1) / call.block_size;
  }
  /// Keys of a branch that a query sees; of selected blocks, those up to itself.
  __device__ __forceinline__ key_range seen(sparse_branch branch, std::int64_t token) const {
    if (branch == sparse_branch::compressed) return {0, complete_blocks(token)};
    const bool bounded = branch == sparse_branch::window && token > call.window_left;
    return {bounded ? token - call.window_left : 0, token + 1};
  }
  __device__ __forceinline__ const sparse_rows& gate(sparse_branch branch) const {
    return branch == sparse_branch::compressed ? call.g_cmp
           : branch == sparse_branch::selected ? call.g_slc
                                               : call.g_swa;
  }
  /// Selected blocks count fully without a gate; the other branches are not there.
  __device__ __forceinline__ bool has(sparse_branch branch) const {
    return branch == sparse_branch::selected || gate(branch).data != nullptr;
  }
  __device__ __forceinline__ float gate_of(sparse_branch branch, const token_sequence& tokens,
                                           std::int64_t token, std::int64_t head) const {
    const sparse_rows& of = gate(branch);
    if (of.data == nullptr) return 1.0f;
    return prim::cuda::number_at(of.data, of.type, offset(of, tokens, token, head));
  }
  static __device__ __forceinline__ std::int64_t offset(const sparse_rows& rows,
                                                        const token_sequence& tokens,
                                                        std::int64_t token, std::int64_t head) {
    return tokens.entry * rows.entry + (tokens.begin + token) * rows.token + head * rows.head;
  }
  /// Element of a row of means.
  static __device__ __forceinline__ std::int64_t mean_offset(const sparse_rows& means,
                                                             const token_sequence& tokens,
                                                             std::int64_t block,
                                                             std::int64_t kv_head) {
    return kv_head * means.head + (tokens.first_block + block) * means.token;
  }

  /// Tokens of a selected block, as far as a query sees them; none for a number that is no block's.
  __device__ __forceinline__ key_range tokens_of_block(std::int64_t block,
                                                       std::int64_t token) const {
    if (block < 0 || block * call.block_size > token) return {};
    const std::int64_t begin = block * call.block_size, end = begin + call.block_size;
    return {begin, end < token + 1 ? end : token + 1};
  }
  /// How many blocks a token looks at, and the number of one of them.
  __device__ __forceinline__ std::int64_t blocks_of(const token_sequence& tokens,
                                                    std::int64_t token,
                                                    std::int64_t kv_head) const {
    if (selects() || call.block_counts.data == nullptr) return looked_slots;
    const std::int64_t counted =
        call.block_counts.data[slot(call.block_counts, tokens, token, kv_head)];
    return counted < looked_slots ? counted : looked_slots;
  }
  __device__ __forceinline__ std::int64_t block(const token_sequence& tokens, std::int64_t token,
                                                std::int64_t kv_head, std::int64_t number) const {
    return looked_at.data[slot(looked_at, tokens, token, kv_head) + number * looked_at.slot];
  }
  static __device__ __forceinline__ std::int64_t slot(const sparse_slots& of,
                                                      const token_sequence& tokens,
                                                      std::int64_t token, std::int64_t kv_head) {
    return tokens.entry * of.entry + (tokens.begin + token) * of.token + kv_head * of.head;
  }
  /// Where the statistics of a row of a branch lie.
  __device__ __forceinline__ std::int64_t statistic(sparse_branch branch,
                                                    const token_sequence& tokens,
                                                    std::int64_t token, std::int64_t head) const {
    const std::int64_t row = tokens.entry * call.sequences.tokens + tokens.begin + token;
    return (static_cast<std::int64_t>(branch) * all_tokens() + row) * call.q_heads + head;
  }

  /// A tile of up to 16 keys of a branch from `first` on.
  __device__ __forceinline__ void load_keys(const float_tile& k, const float_tile& v,
                                            sparse_branch branch, const token_sequence& tokens,
                                            std::int64_t kv_head, std::int64_t first,
                                            int count) const {
    const bool compressed = branch == sparse_branch::compressed;
    const auto load = [&](const float_tile& to, const sparse_rows& rows, const sparse_rows& means) {
      if (compressed) {
        to.load(means, count, mean_offset(means, tokens, first, kv_head), means.token);
      } else {
        to.load(rows, count, offset(rows, tokens, first, kv_head), rows.token);
      }
    };
    load(k, call.k, means_k);
    load(v, call.v, means_v);
  }
};

/// The rows of a tile: tokens from `token` on, each with heads [head, head + heads).
struct row_list {
  token_sequence tokens{};
  std::int64_t token = 0, last_token = 0;
  std::int64_t kv_head = 0, head = 0;
  int heads = 0, rows = 0;

  /// List number `of_group` of a group and a part of a sequence.
  static __device__ __forceinline__ row_list of(const native_sparse_launch& launch,
                                                const sequence_part& part, std::int64_t kv_head,
                                                std::int64_t of_group) {
    row_list list{part.tokens, part.first};
    const std::int64_t left = part.tokens.length - part.first;
    const std::int64_t tokens = left < launch.tokens_of_list() ? left : launch.tokens_of_list();
    const std::int64_t heads = launch.group() - of_group * tile;
    list.last_token = part.first + tokens - 1;
    list.kv_head = kv_head;
    list.head = kv_head * launch.group() + of_group * tile;
    list.heads = static_cast<int>(heads < tile ? heads : tile);
    list.rows = static_cast<int>(tokens) * list.heads;
    return list;
  }
  __device__ __forceinline__ std::int64_t token_of(int r) const { return token + r / heads; }
  __device__ __forceinline__ std::int64_t head_of(int r) const { return head + r % heads; }

  __device__ __forceinline__ void load(const float_tile& to, const sparse_rows& from) const {
    to.load(
        from, [this](int r) { return r < rows; },
        [this, &from](int r) {
          return native_sparse_launch::offset(from, tokens, token_of(r), head_of(r));
        });
  }

  /// Calls body(first key, number of keys, whether they are the thread's row's) for the tiles of a
  /// branch that rows of the list look at: selected blocks are those of one token. All threads of
  /// the block.
  template <class Body>
  __device__ __forceinline__ void for_each_tile(const native_sparse_launch& launch,
                                                sparse_branch branch, const Body& body) const {
    const int r = line_of_thread();
    const bool selected = branch == sparse_branch::selected;
    // Each token by itself where each has blocks of its own, else all together.
    for (std::int64_t each = selected ? token : last_token; each <= last_token; ++each) {
      const bool is_for_row = r < rows && (!selected || token_of(r) == each);
      const std::int64_t ranges = selected ? launch.blocks_of(tokens, each, kv_head) : 1;
      for (std::int64_t s = 0; s < ranges; ++s) {
        const key_range keys =
            selected
                ? launch.tokens_of_block(launch.block(tokens, each, kv_head, s), each)
                : key_range{launch.seen(branch, token).begin, launch.seen(branch, last_token).end};
        for (std::int64_t first = keys.begin; first < keys.end; first += tile) {
          const std::int64_t left = keys.end - first;
          body(first, left < tile ? static_cast<int>(left) : tile, is_for_row);
        }
      }
    }
  }
};

/// Means of the keys of all blocks, and of their values where these are attended to: a block of
/// threads for each block and head.
template <class Kernel>
__global__ void __launch_bounds__(threads)
    native_sparse_means(const __grid_constant__ native_sparse_launch launch, std::int64_t items) {
  const native_sparse_kernel_args& call = launch.call;
  for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
    const std::int64_t kv_head = item % call.kv_heads;
    const sequence_part part = launch.part(item / call.kv_heads, call.block_size);
    if (part.is_empty) continue;
    const std::int64_t left = part.tokens.length - part.first;
    const std::int64_t count = left < call.block_size ? left : call.block_size;
    const auto average = [&](const sparse_rows& from, const sparse_rows& to, std::int64_t width) {
      for (std::int64_t d = threadIdx.x; d < width; d += threads) {
        const std::int64_t first =
            native_sparse_launch::offset(from, part.tokens, part.first, kv_head) + d;
        const float sum = prim::cuda::with_elements(from.data, from.type, [&](const auto* x) {
          float total = 0.0f;
          for (std::int64_t i = 0; i < count; ++i) {
            total += prim::cuda::float_of(x[first + i * from.token]);
          }
          return total;
        });
        static_cast<float*>(
            to.data)[native_sparse_launch::mean_offset(to, part.tokens, part.number, kv_head) + d] =
            sum * (1.0f / static_cast<float>(count));
      }
    };
    average(call.k, launch.means_k, call.head_dim);
    if (call.g_cmp.data != nullptr) average(call.v, launch.means_v, call.v_head_dim);
  }
}

/// Rows of tokens behind the last sequence become 0: `columns` of each of the heads.
template <class Kernel>
__global__ void __launch_bounds__(threads)
    clear_unused_rows(const sparse_sequences sequences, const sparse_rows rows, std::int64_t heads,
                      std::int64_t columns) {
  const std::int64_t width = heads * columns, count = sequences.tokens * width;
  const std::int64_t end = sequences.begin[sequences.count];
  const std::int64_t used = end < 0 ? 0 : end;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * threads;
  for (std::int64_t at = used * width + std::int64_t{blockIdx.x} * threads + threadIdx.x;
       at < count; at += step) {
    prim::cuda::put_number(
        rows.data, rows.type,
        at / width * rows.token + at % width / columns * rows.head + at % columns, 0.0f);
  }
}

}  // namespace tessera::kernels::sparse_attention::sm80
