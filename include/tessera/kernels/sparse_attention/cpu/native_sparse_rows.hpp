// What the passes of native sparse attention share: sequences, lists of query rows, the keys of a
// branch and who sees them.
//
// A branch is a softmax of its own: over means of complete blocks, over the tokens of selected
// blocks, or over a window. All three are intervals of keys for each query, in tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/cpu/score_block.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::sparse_attention::cpu {

enum class sparse_branch : std::uint8_t { compressed, selected, window };
inline constexpr int sparse_branches = 3;

/// Tokens [begin, begin + length) of an entry; its blocks have numbers from `first_block` on.
struct token_sequence {
  std::int64_t entry = 0;
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t first_block = 0;
};

/// Keys [begin, end) of a sequence, or blocks.
struct key_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Query rows, each a token of the sequence and a head.
struct row_list {
  int count = 0;
  std::int64_t token[block_rows];
  std::int64_t head[block_rows];
  int times[block_rows];  ///< that a row counts

  void clear() { count = 0; }
  bool has_room(std::int64_t rows) const { return count + rows <= block_rows; }
  /// A token with heads [begin, end).
  void add(std::int64_t of_token, std::int64_t begin, std::int64_t end, int counted = 1) {
    for (std::int64_t each = begin; each < end; ++each) {
      token[count] = of_token;
      times[count] = counted;
      head[count++] = each;
    }
  }
};

/// Heads [begin, end) of a group, no more than a list has room for.
struct head_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t count() const { return end - begin; }
};

/// A launch and the means of its blocks.
template <class Isa>
class native_sparse_rows {
  using args_type = native_sparse_kernel_args;
  using vec = prim::simd<Isa>;

 public:
  native_sparse_rows(const args_type& args, prim::float_carver& memory)
      : args_(args),
        means_of_k_(means(args.head_dim, memory)),
        means_of_v_(means(args.v_head_dim, memory)) {}

  const args_type& args() const { return args_; }

  /// Rows of floats, one for each block and key/value head.
  sparse_rows means(std::int64_t width, prim::float_carver& memory) const {
    const std::int64_t stride = prim::padded<Isa>(width);
    return {.data = memory.take(args_.kv_heads * blocks_of_launch() * stride),
            .type = dtype::f32,
            .entry = 0,
            .head = blocks_of_launch() * stride,
            .token = stride};
  }

  token_sequence sequence(std::int64_t number) const {
    const sparse_sequences& of = args_.sequences;
    if (of.begin == nullptr) return {number, 0, of.tokens, number * blocks_in(of.tokens)};
    // Blocks of a sequence begin behind those of what is in front of it.
    const std::int64_t begin = of.begin[number];
    return {0, begin, of.begin[number + 1] - begin, begin / args_.block_size + number};
  }
  std::int64_t blocks_in(std::int64_t tokens) const {
    return (tokens + args_.block_size - 1) / args_.block_size;
  }
  /// Blocks of the longest sequence there could be.
  std::int64_t most_blocks() const { return blocks_in(args_.sequences.tokens); }
  /// Blocks of the longest sequence there is.
  std::int64_t longest_blocks() const {
    std::int64_t longest = 0;
    for (std::int64_t n = 0; n < args_.sequences.count; ++n) {
      longest = std::max(longest, blocks_in(sequence(n).length));
    }
    return longest;
  }
  /// Every sequence may end with a part of a block.
  std::int64_t blocks_of_launch() const {
    const sparse_sequences& of = args_.sequences;
    if (of.begin == nullptr) return of.count * blocks_in(of.tokens);
    return of.tokens / args_.block_size + of.count;
  }
  /// Tokens of all entries, and where one of a sequence is among them.
  std::int64_t all_tokens() const {
    const sparse_sequences& of = args_.sequences;
    return of.tokens * (of.begin == nullptr ? of.count : 1);
  }
  std::int64_t place(const token_sequence& tokens, std::int64_t token) const {
    return tokens.entry * args_.sequences.tokens + tokens.begin + token;
  }
  std::int64_t group() const { return args_.q_heads / args_.kv_heads; }
  /// Tokens whose heads of a group are rows of one list.
  std::int64_t tokens_of_list() const { return std::max<std::int64_t>(1, block_rows / group()); }

  /// Calls body(heads) for the heads of a group, as many at a time as a list has room for.
  template <class Body>
  void for_each_heads(std::int64_t kv_head, const Body& body) const {
    const std::int64_t first = kv_head * group(), end = first + group();
    for (std::int64_t head = first; head < end; head += block_rows) {
      body(head_range{head, std::min<std::int64_t>(head + block_rows, end)});
    }
  }

  /// Means of the keys of all blocks, and of their values where these are attended to.
  void make_means(int threads) const {
    const std::int64_t items = args_.sequences.count * args_.kv_heads * most_blocks();
    prim::parallel_items<Isa>(items, threads, [&](std::int64_t item, int) {
      const std::int64_t block = item % most_blocks(), head = item / most_blocks() % args_.kv_heads;
      const token_sequence tokens = sequence(item / (most_blocks() * args_.kv_heads));
      if (block >= blocks_in(tokens.length)) return;
      make_mean(args_.k, means_of_k_, args_.head_dim, tokens, head, block);
      if (!has(sparse_branch::compressed)) return;
      make_mean(args_.v, means_of_v_, args_.v_head_dim, tokens, head, block);
    });
  }

  /// Complete blocks in front of the next token.
  std::int64_t complete_blocks(std::int64_t token) const { return (token + 1) / args_.block_size; }
  /// Keys of a branch that a query sees; of selected blocks, those up to itself.
  key_range seen(sparse_branch branch, std::int64_t token) const {
    if (branch == sparse_branch::compressed) return {0, complete_blocks(token)};
    const bool bounded = branch == sparse_branch::window && token > args_.window_left;
    return {bounded ? token - args_.window_left : 0, token + 1};
  }
  /// What tokens [first, last] see of a branch that is no list.
  key_range seen_by(sparse_branch branch, std::int64_t first, std::int64_t last) const {
    return {seen(branch, first).begin, seen(branch, last).end};
  }
  const sparse_rows& gate(sparse_branch branch) const {
    return branch == sparse_branch::compressed ? args_.g_cmp
           : branch == sparse_branch::selected ? args_.g_slc
                                               : args_.g_swa;
  }
  /// Selected blocks count fully without a gate; the other branches are not there.
  bool has(sparse_branch branch) const {
    return branch == sparse_branch::selected || gate(branch).data != nullptr;
  }
  float gate_of(sparse_branch branch, const token_sequence& tokens, std::int64_t token,
                std::int64_t head) const {
    const sparse_rows& of = gate(branch);
    if (of.data == nullptr) return 1.0f;
    return prim::element_at<Isa>(of, offset(of, tokens, token, head));
  }

  static std::int64_t offset(const sparse_rows& rows, const token_sequence& tokens,
                             std::int64_t token, std::int64_t head) {
    return tokens.entry * rows.entry + (tokens.begin + token) * rows.token + head * rows.head;
  }
  /// Where the rows of a list lie.
  static auto offsets(const sparse_rows& rows, const token_sequence& tokens, const row_list& list) {
    return [&rows, &tokens, &list](int r) {
      return offset(rows, tokens, list.token[r], list.head[r]);
    };
  }

  /// Keys and values [first, first + count) of a branch.
  template <class Block>
  void load_tile(sparse_branch branch, const token_sequence& tokens, std::int64_t kv_head,
                 std::int64_t first, std::int64_t count, Block& block) const {
    const bool compressed = branch == sparse_branch::compressed;
    const auto from = [&](const sparse_rows& rows) {
      return compressed ? mean_offsets(rows, tokens, kv_head, first)
                        : offsets_from(offset(rows, tokens, first, kv_head), rows);
    };
    const sparse_rows& k = compressed ? means_of_k_ : args_.k;
    const sparse_rows& v = compressed ? means_of_v_ : args_.v;
    block.load_keys(k, static_cast<int>(count), from(k));
    block.load_values(v, from(v));
  }
  /// Calls body(first) with the scores of the rows of a list, whose queries are loaded, with the
  /// means of complete blocks from `first` on: all tiles that one of the rows sees something of.
  template <class Block, class Body>
  void for_each_tile_of_means(const token_sequence& tokens, std::int64_t kv_head,
                              const row_list& list, Block& block, const Body& body) const {
    constexpr auto branch = sparse_branch::compressed;
    const std::int64_t end = seen(branch, list.token[list.count - 1]).end;
    for (std::int64_t first = 0; first < end; first += block_keys) {
      block.load_keys(means_of_k_,
                      static_cast<int>(std::min<std::int64_t>(block_keys, end - first)),
                      mean_offsets(means_of_k_, tokens, kv_head, first));
      block.compute_scores({args_.softmax_scale});
      hide(branch, list, first, block);
      body(first);
    }
  }
  /// Hides what rows of a list do not see of the tile from `first` on that is loaded.
  template <class Block>
  void hide(sparse_branch branch, const row_list& list, std::int64_t first,
            const Block& block) const {
    for (int r = 0; r < list.count; ++r) {
      const key_range keys = seen(branch, list.token[r]);
      block.hide_outside(r, keys.begin - first, std::min(keys.end, first + block.keys) - first);
    }
  }

  /// Calls body(token) for the tokens behind the last sequence.
  template <class Body>
  void for_each_unused(int threads, const Body& body) const {
    if (args_.sequences.begin == nullptr) return;
    const std::int64_t first = args_.sequences.begin[args_.sequences.count];
    prim::parallel_items<Isa>(args_.sequences.tokens - first, threads, [&](std::int64_t item, int) {
      body(token_sequence{0, first + item, 1, 0});
    });
  }
  /// Zeros in rows of a token that is nobody's, if there is such a tensor.
  static void clear(const sparse_rows& of, const token_sequence& token, std::int64_t heads,
                    std::int64_t width) {
    if (of.data == nullptr) return;
    prim::with_elements<Isa>(of, [&](auto* elements) {
      using element = std::remove_pointer_t<decltype(elements)>;
      for (std::int64_t head = 0; head < heads; ++head) {
        auto* const row = elements + offset(of, token, 0, head);
        std::fill(row, row + width, element(0.0f));
      }
    });
  }

  /// Tokens of a selected block, as far as a query sees them; none for a number that is no block's.
  key_range tokens_of_block(std::int64_t block, std::int64_t token) const {
    if (block < 0 || block > token / args_.block_size) return {};
    const std::int64_t begin = block * args_.block_size;
    return {begin, std::min(begin + args_.block_size, token + 1)};
  }
  /// Calls body(number) for the entries of block_indices of a token that count.
  template <class Body>
  void for_each_given(const token_sequence& tokens, std::int64_t token, std::int64_t kv_head,
                      const Body& body) const {
    const auto at = [&](const sparse_slots& of) {
      return tokens.entry * of.entry + (tokens.begin + token) * of.token + kv_head * of.head;
    };
    std::int64_t used = args_.slots;
    if (args_.block_counts.data != nullptr) {
      used = std::min<std::int64_t>(used, args_.block_counts.data[at(args_.block_counts)]);
    }
    const std::int32_t* const numbers = args_.given.data + at(args_.given);
    for (std::int64_t s = 0; s < used; ++s) body(std::int64_t{numbers[s * args_.given.slot]});
  }

 private:
  /// Of rows that follow each other.
  static auto offsets_from(std::int64_t begin, const sparse_rows& rows) {
    return [begin, stride = rows.token](int i) { return begin + i * stride; };
  }
  static auto mean_offsets(const sparse_rows& means, const token_sequence& tokens,
                           std::int64_t kv_head, std::int64_t first) {
    return offsets_from(kv_head * means.head + (tokens.first_block + first) * means.token, means);
  }

  void make_mean(const sparse_rows& from, const sparse_rows& to, std::int64_t width,
                 const token_sequence& tokens, std::int64_t kv_head, std::int64_t block) const {
    float* const mean =
        static_cast<float*>(to.data) + kv_head * to.head + (tokens.first_block + block) * to.token;
    const std::int64_t begin = block * args_.block_size;
    const std::int64_t end = std::min(begin + args_.block_size, tokens.length);
    std::fill(mean, mean + to.token, 0.0f);
    prim::with_elements<Isa>(from, [&](const auto* elements) {
      for (std::int64_t token = begin; token < end; ++token) {
        const auto* const row = elements + offset(from, tokens, token, kv_head);
        for (std::int64_t d = 0; d < width; d += vec::width) {
          const int left = static_cast<int>(std::min<std::int64_t>(vec::width, width - d));
          vec::store(mean + d, vec::add(vec::load(mean + d), vec::load_as_n(row + d, left)));
        }
      }
    });
    const auto share = vec::broadcast(1.0f / static_cast<float>(end - begin));
    for (std::int64_t d = 0; d < to.token; d += vec::width) {
      vec::store(mean + d, vec::mul(vec::load(mean + d), share));
    }
  }

  const args_type& args_;
  sparse_rows means_of_k_, means_of_v_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
