// Tokens to outputs and final states. A work item is some heads of a sequence, or some blocks of
// value channels of one: the tile of the state that a block has stays in the first-level cache
// while a run of tokens passes, a few at a time, and the tiles of all in the second-level cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/group.hpp>
#include <tessera/kernels/chunked_scan/cpu/rows.hpp>
#include <tessera/kernels/chunked_scan/cpu/states.hpp>
#include <tessera/kernels/chunked_scan/cpu/step.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Blocks of value channels that a work item has: those of a head share what is made of its
/// queries, keys and decays, as far as their tiles stay in the second-level cache and every thread
/// has an item.
template <class Kernel>
std::int64_t blocks_together(const chunked_scan_kernel_args& args, int threads) noexcept {
  using shape = traits<Kernel>;
  constexpr std::int64_t most = 1 << 16;  // floats
  const std::int64_t blocks = rounded_up(args.values, shape::block) / shape::block;
  const std::int64_t tile = rounded_up(args.keys, shape::width) * shape::block;
  if (args.sequences * args.heads < threads) return 1;
  return std::clamp<std::int64_t>(most / std::max<std::int64_t>(tile, 1), 1,
                                  std::max<std::int64_t>(blocks, 1));
}

/// Heads that a work item has whole: rows of neighbours lie in the same pages, whose addresses cost
/// more to find than their numbers to read. Their tiles stay in the second-level cache, and every
/// thread has an item, where all tokens are alone a few.
template <class Kernel>
std::int64_t heads_together(const chunked_scan_kernel_args& args, std::int64_t blocks,
                            int threads) noexcept {
  using shape = traits<Kernel>;
  constexpr std::int64_t most = 1 << 17;  // floats
  const std::int64_t block_count = rounded_up(args.values, shape::block) / shape::block;
  if (blocks < block_count) return 1;
  const std::int64_t state = rounded_up(args.keys, shape::width) * block_count * shape::block;
  const bool are_alone = args.tokens <= (args.cu_seqlens != nullptr ? args.sequences : 1);
  const std::int64_t items = args.sequences * args.heads / (are_alone ? 4 * threads : threads);
  return std::clamp<std::int64_t>(std::min(most / std::max<std::int64_t>(state, 1), items), 1,
                                  std::max<std::int64_t>(args.heads, 1));
}

/// Memory of a thread: tiles of states, and the rows of a run of tokens. Null: it is only counted.
template <class Kernel>
struct forward_scratch {
  using shape = traits<Kernel>;
  static constexpr std::int64_t run = 16;  ///< tokens whose rows are converted at a time

  float *tiles = nullptr, *q = nullptr, *k = nullptr, *key_decay = nullptr, *v = nullptr,
        *value_decay = nullptr, *u = nullptr;
  std::int64_t padded_keys = 0;
  std::size_t bytes = 0;

  /// `blocks` of all heads of an item.
  forward_scratch(const chunked_scan_kernel_args& args, std::int64_t blocks, std::byte* memory)
      : padded_keys(rounded_up(args.keys, shape::width)) {
    prim::float_carver carver(memory);
    tiles = carver.take(blocks * tile_floats());
    q = carver.take(run * padded_keys);
    k = carver.take(run * padded_keys);
    key_decay = carver.take(run * padded_keys);
    v = carver.take(run * shape::block);
    value_decay = carver.take(run * shape::block);
    u = carver.take(padded_keys);
    bytes = carver.bytes();
  }
  std::int64_t tile_floats() const { return padded_keys * shape::block; }
};

template <class Kernel, chunked_scan_decay Decay, state_read Read>
class forward_launch {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using scratch = forward_scratch<Kernel>;
  static constexpr std::int64_t most_groups = scratch::run / group_tokens<Kernel>;

 public:
  /// `threads` are those that memory was made for.
  forward_launch(const chunked_scan_kernel_args& args, int threads, std::byte* memory)
      : args_(args),
        memory_(memory),
        blocks_(rounded_up(args.values, shape::block) / shape::block),
        together_(blocks_together<Kernel>(args, threads)),
        parts_((blocks_ + together_ - 1) / together_),
        heads_(heads_together<Kernel>(args, together_, threads)) {}

  std::size_t bytes_of_thread() const { return scratch(args_, together_ * heads_, nullptr).bytes; }

  void run(int threads) const {
    const auto of_thread = static_cast<std::int64_t>(bytes_of_thread());
    const std::int64_t head_parts = (args_.heads + heads_ - 1) / heads_;
    prim::parallel_items<isa_type>(
        args_.sequences * head_parts * parts_, threads, [&](std::int64_t item, int thread) {
          const scratch memory(args_, together_ * heads_, memory_ + thread * of_thread);
          const std::int64_t first = item / parts_ % head_parts * heads_;
          const sequence one = sequence_of<isa_type>(args_, item / parts_ / head_parts);
          if (!one.has_states) return;
          run_item(one, {first, std::min(args_.heads - first, heads_)}, item % parts_ * together_,
                   memory);
        });
    clear_unused<Kernel>(args_, args_.out, args_.heads, args_.values);
  }

 private:
  struct head_range {
    std::int64_t first = 0, count = 0;
  };

  /// Calls body(place, tile) for each tile of a head; `first` is the first block of the item.
  template <class Body>
  void for_each_tile(const sequence& one, const head_range& heads, std::int64_t head,
                     std::int64_t first, const scratch& memory, const Body& body) const {
    float* tile = memory.tiles + (head - heads.first) * together_ * memory.tile_floats();
    const std::int64_t end = std::min(first + together_, blocks_);
    for (std::int64_t block = first; block < end; ++block, tile += memory.tile_floats()) {
      const std::int64_t value = block * shape::block;
      body(state_place{one.slot, head, value,
                       std::min<std::int64_t>(args_.values - value, shape::block)},
           tile);
    }
  }

  void run_item(const sequence& one, const head_range& heads, std::int64_t first,
                const scratch& memory) const {
    if (is_in_place(one)) return step_in_place(one, heads, first, memory);
    const auto for_each_state = [&](const auto& body) {
      for (std::int64_t head = heads.first; head < heads.first + heads.count; ++head) {
        for_each_tile(one, heads, head, first, memory, body);
      }
    };
    for_each_state([&](const state_place& place, float* tile) {
      load_state<Kernel>(args_.initial_state, place, args_.keys, memory.padded_keys, tile);
    });
    for (std::int64_t begin = 0; begin < one.length; begin += scratch::run) {
      const token_run tokens{begin, std::min(one.length - begin, scratch::run)};
      for (std::int64_t head = heads.first; head < heads.first + heads.count; ++head) {
        if constexpr (Read == state_read::before) load_bonus(head, memory);
        load_keys(one, tokens, head, memory);
        group_shares<Kernel> shares[most_groups];
        token_rows rest[group_tokens<Kernel>];
        relate_groups(tokens.count, memory, shares, rest);
        bool is_first = true;
        for_each_tile(one, heads, head, first, memory, [&](const state_place& place, float* tile) {
          load_values(one, tokens, place, shape::block, memory);
          take_run(one, tokens, place, memory, shares, rest, is_first, tile);
          is_first = false;
        });
      }
    }
    for_each_state([&](const state_place& place, float* tile) {
      store_state<Kernel>(args_.final_state, place, args_.keys, tile);
    });
  }

  /// Whether a lone token may step from the memory of one state to that of the other.
  bool is_in_place(const sequence& one) const {
    return one.length == 1 && args_.initial_state.data != nullptr &&
           args_.final_state.data != nullptr && args_.values % shape::width == 0;
  }

  /// A lone token through states where they lie, some columns at a time.
  void step_in_place(const sequence& one, const head_range& heads, std::int64_t first,
                     const scratch& memory) const {
    constexpr std::int64_t columns = scratch::run * shape::block;
    alignas(64) float out[columns];
    const std::int64_t end = std::min((first + together_) * shape::block, args_.values);
    for (std::int64_t head = heads.first; head < heads.first + heads.count; ++head) {
      if constexpr (Read == state_read::before) load_bonus(head, memory);
      load_keys(one, {0, 1}, head, memory);
      const token_rows token = token_at(memory, 0);
      for (std::int64_t value = first * shape::block; value < end; value += columns) {
        const state_place place{one.slot, head, value, std::min(end - value, columns)};
        load_values(one, {0, 1}, place, place.values, memory);
        take_rows<Kernel, Decay, Read>(
            token, args_.keys, place.values,
            args_.initial_state.data + place.of_key(args_.initial_state, 0),
            args_.initial_state.key, args_.final_state.data + place.of_key(args_.final_state, 0),
            args_.final_state.key, out);
        store_part<Kernel>(args_.out, place_of(args_.out, one, 0, head) + value, place.values, out);
      }
    }
  }

  /// Steps [begin, begin + count) of a sequence.
  struct token_run {
    std::int64_t begin = 0, count = 0;
  };

  /// Whole groups are related, tokens behind them go one by one: `rest`, without their values.
  void relate_groups(std::int64_t count, const scratch& memory, group_shares<Kernel>* shares,
                     token_rows* rest) const {
    const std::int64_t groups = count / group_tokens<Kernel>;
    for (std::int64_t n = 0; n < groups; ++n) {
      float bonus[group_tokens<Kernel>];
      const group_rows rows = group_at(memory, n * group_tokens<Kernel>, bonus);
      shares[n] = relate<Kernel, Decay, Read>(rows, args_.keys);
    }
    for (std::int64_t at = groups * group_tokens<Kernel>; at < count; ++at) {
      *rest++ = token_at(memory, at);
    }
  }

  /// A run of tokens through a tile, and to memory what they read.
  void take_run(const sequence& one, const token_run& tokens, const state_place& place,
                const scratch& memory, const group_shares<Kernel>* shares, const token_rows* rest,
                bool is_first, float* tile) const {
    alignas(64) float out[scratch::run * shape::block];
    std::int64_t at = 0;
    for (; at + group_tokens<Kernel> <= tokens.count; at += group_tokens<Kernel>) {
      ask_for_rows(one, tokens.begin + at + scratch::run, place, is_first);
      take_group<Kernel, Decay>(group_at(memory, at, nullptr), *shares++, args_.keys, tile,
                                out + at * shape::block);
    }
    for (; at < tokens.count; ++at) {
      take<Kernel, Decay, Read>(*rest++, args_.keys, tile, tile, out + at * shape::block);
    }
    for (at = 0; at < tokens.count; ++at) {
      store_part<Kernel>(args_.out,
                         place_of(args_.out, one, tokens.begin + at, place.head) + place.value,
                         place.values, out + at * shape::block);
    }
  }

  /// Rows of a group of the next run are asked for while this one's go through the tile, those that
  /// tiles share with the first: each token's lie in another page, where nothing else would ask in
  /// time. Answers that wait for memory would keep stores to the tile waiting.
  TESSERA_INLINE void ask_for_rows(const sequence& one, std::int64_t begin,
                                   const state_place& place, bool with_keys) const {
    const std::int64_t end = std::min<std::int64_t>(begin + group_tokens<Kernel>, one.length);
    const std::int64_t kv_head = place.head / (args_.heads / args_.kv_heads);
    for (std::int64_t step = begin; step < end; ++step) {
      ask_for(args_.v, place_of(args_.v, one, step, kv_head) + place.value, place.values);
      ask_for(args_.out, place_of(args_.out, one, step, place.head) + place.value, place.values);
      if (!with_keys) continue;
      ask_for(args_.q, place_of(args_.q, one, step, place.head), args_.keys);
      ask_for(args_.k, place_of(args_.k, one, step, kv_head), args_.keys);
      if (args_.gk.data == nullptr) continue;
      ask_for(args_.gk, place_of(args_.gk, one, step, place.head), args_.keys);
    }
  }

  void load_bonus(std::int64_t head, const scratch& to) const {
    load_part<Kernel>(args_.u, head * args_.u.head, args_.keys, 1.0f, to.padded_keys, to.u);
  }

  /// Rows of a run's queries, keys and decays as floats.
  void load_keys(const sequence& one, const token_run& tokens, std::int64_t head,
                 const scratch& to) const {
    const std::int64_t kv_head = head / (args_.heads / args_.kv_heads), padded = to.padded_keys;
    for (std::int64_t at = 0; at < tokens.count; ++at) {
      const std::int64_t step = tokens.begin + at;
      load_part<Kernel>(args_.q, place_of(args_.q, one, step, head), args_.keys, args_.scale,
                        padded, to.q + at * padded);
      load_part<Kernel>(args_.k, place_of(args_.k, one, step, kv_head), args_.keys, 1.0f, padded,
                        to.k + at * padded);
      if constexpr (Decay != chunked_scan_decay::none) {
        load_key_decays<Kernel>(args_, one, step, head, padded, to.key_decay + at * padded);
      }
    }
  }
  /// Those of its values, `padded` apart.
  void load_values(const sequence& one, const token_run& tokens, const state_place& place,
                   std::int64_t padded, const scratch& to) const {
    const std::int64_t kv_head = place.head / (args_.heads / args_.kv_heads);
    for (std::int64_t at = 0; at < tokens.count; ++at) {
      const std::int64_t step = tokens.begin + at;
      load_part<Kernel>(args_.v, place_of(args_.v, one, step, kv_head) + place.value, place.values,
                        1.0f, padded, to.v + at * padded);
      if constexpr (Decay == chunked_scan_decay::keys_and_values) {
        load_value_decays<Kernel>(args_, one, step, place.head, place.value, place.values, padded,
                                  to.value_decay + at * padded);
      }
    }
  }

  static token_rows token_at(const scratch& memory, std::int64_t at) {
    const std::int64_t keys = at * memory.padded_keys, values = at * shape::block;
    token_rows token{memory.q + keys, memory.k + keys, memory.key_decay + keys, memory.v + values,
                     memory.value_decay + values};
    if constexpr (Read == state_read::before) {
      token.bonus = bonus_of<Kernel>(token.q, memory.u, token.k, memory.padded_keys);
    }
    return token;
  }

  /// `bonus` is memory for as many numbers as there are tokens; null: they are not wanted.
  static group_rows group_at(const scratch& memory, std::int64_t at, float* bonus) {
    if (Read == state_read::before && bonus != nullptr) {
      for (std::int64_t n = 0; n < group_tokens<Kernel>; ++n) {
        bonus[n] = token_at(memory, at + n).bonus;
      }
    }
    const std::int64_t keys = at * memory.padded_keys, values = at * shape::block;
    return {memory.q + keys,
            memory.k + keys,
            memory.key_decay + keys,
            memory.v + values,
            memory.value_decay + values,
            memory.padded_keys,
            bonus};
  }

  const chunked_scan_kernel_args& args_;
  std::byte* memory_;
  std::int64_t blocks_, together_, parts_, heads_;
};

}  // namespace tessera::kernels::chunked_scan::cpu
