// Tokens to outputs and final states. A work item is a block of value channels of a sequence and
// head: its tile of the state stays in the first-level cache while the tokens pass, a few at a
// time.
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
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Memory of a thread: the tile of a state, and the rows of a run of tokens.
template <class Kernel>
struct forward_scratch {
  using shape = traits<Kernel>;
  static constexpr std::int64_t run = 16;  ///< tokens whose rows are converted at a time

  float *state = nullptr, *q = nullptr, *k = nullptr, *key_decay = nullptr, *v = nullptr,
        *value_decay = nullptr, *u = nullptr;
  std::int64_t padded_keys = 0;

  static std::int64_t floats(const chunked_scan_kernel_args& args) noexcept {
    const std::int64_t padded = rounded_up(args.keys, shape::width);
    return padded * (shape::block + 1) + run * (3 * padded + 2 * shape::block);
  }
  forward_scratch(const chunked_scan_kernel_args& args, float* memory)
      : padded_keys(rounded_up(args.keys, shape::width)) {
    const auto take = [&](std::int64_t count) {
      float* const part = memory;
      memory += count;
      return part;
    };
    state = take(padded_keys * shape::block);
    q = take(run * padded_keys);
    k = take(run * padded_keys);
    key_decay = take(run * padded_keys);
    v = take(run * shape::block);
    value_decay = take(run * shape::block);
    u = take(padded_keys);
  }
};

template <class Kernel, chunked_scan_decay Decay, state_read Read>
class forward_launch {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using scratch = forward_scratch<Kernel>;

 public:
  forward_launch(const chunked_scan_kernel_args& args, float* memory)
      : args_(args),
        memory_(memory),
        blocks_(rounded_up(args.values, shape::block) / shape::block) {}

  void run(int threads) const {
    const std::int64_t floats = rounded_up(scratch::floats(args_), 16);
    prim::parallel_items<isa_type>(args_.sequences * args_.heads * blocks_, threads,
                                   [&](std::int64_t item, int thread) {
                                     run_item(item, scratch(args_, memory_ + thread * floats));
                                   });
    clear_unused<Kernel>(args_, args_.out, args_.heads, args_.values);
  }

 private:
  void run_item(std::int64_t item, const scratch& memory) const {
    const std::int64_t block = item % blocks_, head = item / blocks_ % args_.heads;
    const sequence one = sequence_of<isa_type>(args_, item / blocks_ / args_.heads);
    const std::int64_t value = block * shape::block;
    if (!one.has_states) return;
    const state_place place{one.slot, head, value,
                            std::min<std::int64_t>(args_.values - value, shape::block)};
    load_state<Kernel>(args_.initial_state, place, args_.keys, memory.padded_keys, memory.state);
    if constexpr (Read == state_read::before) {
      load_part<Kernel>(args_.u, head * args_.u.head, args_.keys, 1.0f, memory.padded_keys,
                        memory.u);
    }
    for (std::int64_t begin = 0; begin < one.length; begin += scratch::run) {
      const std::int64_t count = std::min(one.length - begin, scratch::run);
      load_run(one, begin, count, place, memory);
      alignas(64) float out[scratch::run * shape::block];
      std::int64_t at = 0;
      for (; at + group_tokens<Kernel> <= count; at += group_tokens<Kernel>) {
        float bonus[group_tokens<Kernel>];
        take_group<Kernel, Decay, Read>(group_at(memory, at, bonus), args_.keys, memory.state,
                                        out + at * shape::block);
      }
      for (; at < count; ++at) {
        take<Kernel, Decay, Read>(token_at(memory, at), args_.keys, memory.state, memory.state,
                                  out + at * shape::block);
      }
      for (at = 0; at < count; ++at) {
        store_part<Kernel>(args_.out, place_of(args_.out, one, begin + at, head) + value,
                           place.values, out + at * shape::block);
      }
    }
    store_state<Kernel>(args_.final_state, place, args_.keys, memory.state);
  }

  /// Rows of tokens [begin, begin + count) as floats.
  void load_run(const sequence& one, std::int64_t begin, std::int64_t count,
                const state_place& place, const scratch& to) const {
    const std::int64_t kv_head = place.head / (args_.heads / args_.kv_heads);
    const std::int64_t padded = to.padded_keys;
    for (std::int64_t at = 0; at < count; ++at) {
      const std::int64_t step = begin + at;
      load_part<Kernel>(args_.q, place_of(args_.q, one, step, place.head), args_.keys, args_.scale,
                        padded, to.q + at * padded);
      load_part<Kernel>(args_.k, place_of(args_.k, one, step, kv_head), args_.keys, 1.0f, padded,
                        to.k + at * padded);
      load_part<Kernel>(args_.v, place_of(args_.v, one, step, kv_head) + place.value, place.values,
                        1.0f, shape::block, to.v + at * shape::block);
      if constexpr (Decay != chunked_scan_decay::none) {
        load_key_decays<Kernel>(args_, one, step, place.head, padded, to.key_decay + at * padded);
      }
      if constexpr (Decay == chunked_scan_decay::keys_and_values) {
        load_value_decays<Kernel>(args_, one, step, place.head, place.value, place.values,
                                  shape::block, to.value_decay + at * shape::block);
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

  /// `bonus` is memory for as many numbers as there are tokens.
  static group_rows group_at(const scratch& memory, std::int64_t at, float* bonus) {
    if constexpr (Read == state_read::before) {
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
  float* memory_;
  std::int64_t blocks_;
};

}  // namespace tessera::kernels::chunked_scan::cpu
