// Which tokens selected a block: the lists of native sparse attention the other way round, so that
// a block of keys is loaded once for all of its tokens.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// A token that selected a block.
struct selecting_token {
  std::int32_t token;
  std::int32_t times;  ///< that the block is in its list
  std::int32_t turn;   ///< blocks in front of this one that the token selected
};

/// Those of a block, in their order.
struct selecting_tokens {
  const selecting_token* begin_ = nullptr;
  const selecting_token* end_ = nullptr;
  const selecting_token* begin() const { return begin_; }
  const selecting_token* end() const { return end_; }
};

/// Of a launch.
template <class Isa>
class selected_tokens {
 public:
  selected_tokens(const native_sparse_rows<Isa>& rows, prim::float_carver& memory)
      : rows_(rows),
        most_(std::min(rows.args().slots, rows.most_blocks())),
        tokens_(memory.take<selecting_token>(rows.args().kv_heads * rows.all_tokens() * most_)),
        ends_(memory.take<std::int64_t>(rows.args().kv_heads * rows.blocks_of_launch())),
        distinct_(memory.take<selecting_token>(rows.args().sequences.count * rows.args().kv_heads *
                                               rows.args().slots)) {}

  /// A work item is a sequence and head.
  void make(int threads) const {
    const std::int64_t heads = rows_.args().kv_heads;
    prim::parallel_items<Isa>(rows_.args().sequences.count * heads, threads,
                              [&](std::int64_t item, int) {
                                make_lists(rows_.sequence(item / heads), item % heads,
                                           distinct_ + item * rows_.args().slots);
                              });
  }

  selecting_tokens of(const token_sequence& tokens, std::int64_t kv_head,
                      std::int64_t block) const {
    const selecting_token* const first = first_of(tokens, kv_head);
    const std::int64_t* const ends = ends_of(tokens, kv_head);
    return {first + (block == 0 ? 0 : ends[block - 1]), first + ends[block]};
  }

 private:
  selecting_token* first_of(const token_sequence& tokens, std::int64_t kv_head) const {
    return tokens_ + (kv_head * rows_.all_tokens() + rows_.place(tokens, 0)) * most_;
  }
  std::int64_t* ends_of(const token_sequence& tokens, std::int64_t kv_head) const {
    return ends_ + kv_head * rows_.blocks_of_launch() + tokens.first_block;
  }

  /// Calls body(block, times, turn) for the blocks that a token sees, each once, the first first.
  template <class Body>
  void for_each_block(const token_sequence& tokens, std::int64_t token, std::int64_t kv_head,
                      selecting_token* room, const Body& body) const {
    // `token` is the number of the block here.
    int count = 0;
    rows_.for_each_given(tokens, token, kv_head, [&](std::int64_t number) {
      const key_range keys = rows_.tokens_of_block(number, token);
      if (keys.begin >= keys.end) return;
      const auto block = static_cast<std::int32_t>(number);
      int at = count;
      while (at > 0 && room[at - 1].token > block) --at;
      if (at > 0 && room[at - 1].token == block) {
        ++room[at - 1].times;
        return;
      }
      std::copy_backward(room + at, room + count, room + count + 1);
      room[at] = {block, 1, 0};
      ++count;
    });
    for (int turn = 0; turn < count; ++turn) body(room[turn].token, room[turn].times, turn);
  }

  void make_lists(const token_sequence& tokens, std::int64_t kv_head, selecting_token* room) const {
    std::int64_t* const ends = ends_of(tokens, kv_head);
    const std::int64_t blocks = rows_.blocks_in(tokens.length);
    std::fill(ends, ends + blocks, std::int64_t{0});
    for (std::int64_t token = 0; token < tokens.length; ++token) {
      for_each_block(tokens, token, kv_head, room,
                     [&](std::int32_t block, std::int32_t, int) { ++ends[block]; });
    }
    std::int64_t before = 0;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t count = ends[block];
      ends[block] = before;
      before += count;
    }
    selecting_token* const first = first_of(tokens, kv_head);
    for (std::int64_t token = 0; token < tokens.length; ++token) {
      for_each_block(tokens, token, kv_head, room,
                     [&](std::int32_t block, std::int32_t times, int turn) {
                       first[ends[block]++] = {static_cast<std::int32_t>(token), times, turn};
                     });
    }
  }

  const native_sparse_rows<Isa>& rows_;
  std::int64_t most_;  ///< blocks of a token
  selecting_token* tokens_;
  std::int64_t* ends_;         ///< of the lists of a sequence's blocks
  selecting_token* distinct_;  ///< room for the blocks of a token
};

}  // namespace tessera::kernels::sparse_attention::cpu
