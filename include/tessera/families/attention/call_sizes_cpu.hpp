// What a CPU launch is cut by (schedule_cpu.hpp): its sizes, and the distances between rows of
// scratch memory. Units with wider instructions compile these functions too: they are inlined
// always.
#pragma once

#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::schedule_cpu {

[[gnu::always_inline]] constexpr std::int64_t ceil_div(std::int64_t size,
                                                       std::int64_t step) noexcept {
  return (size + step - 1) / step;
}
[[gnu::always_inline]] constexpr int round_up(int value, int step) noexcept {
  return (value + step - 1) / step * step;
}

/// Sizes that a launch is cut by.
struct call_sizes {
  std::int64_t entries = 0;     ///< batch entries or sequences
  std::int64_t q_len = 0;       ///< query positions of an entry; packed: the mean, rounded up
  std::int64_t most_q_len = 0;  ///< that an entry may have; packed: all there are
  std::int64_t most_kv_len = 0;
  std::int64_t kv_heads = 0;
  std::int64_t group = 0;  ///< query heads of a key/value head: rows of the same item
  int head_dim = 0;
  int v_head_dim = 0;
  bool packed = false;
  bool causal = false;  ///< later rows see more keys
};

/// Of a problem whose sequences, if packed, are all as long as the mean.
[[gnu::always_inline]] constexpr call_sizes sizes_of(const attention_sizes& sizes,
                                                     bool packed) noexcept {
  return {.entries = sizes.batch,
          .q_len = sizes.q_len,
          .most_q_len = sizes.q_len,
          .most_kv_len = sizes.kv_len,
          .kv_heads = sizes.kv_heads,
          .group = sizes.kv_heads > 0 ? sizes.q_heads / sizes.kv_heads : 0,
          .head_dim = sizes.head_dim,
          .v_head_dim = sizes.v_head_dim,
          .packed = packed};
}

[[gnu::always_inline]] constexpr call_sizes sizes_of(const attention_kernel_args& args) noexcept {
  const bool packed = args.cu_seqlens_q != nullptr;
  call_sizes sizes = sizes_of({args.batch, args.q_len, args.kv_len, args.q_heads, args.kv_heads,
                               args.head_dim, args.v_head_dim},
                              packed);
  sizes.causal = args.causal;
  if (packed) sizes.q_len = ceil_div(args.q_len, args.batch > 0 ? args.batch : 1);
  // Groups that share keys have rows of several sequences.
  if (!packed && reads_prefixes_once(args)) sizes.most_q_len = args.batch * args.q_len;
  return sizes;
}

/// Elements of the summed axis in a word of the products: bf16 go in pairs where they have an
/// instruction.
[[gnu::always_inline]] constexpr int k_pack(backend target) noexcept {
  return has_bf16_products(target) ? 2 : 1;
}

/// Floats or words from one row of a buffer to the next. One cache line more than the data keeps
/// the rows of a register tile in different cache sets.
struct strides {
  static constexpr int padding = 16;

  [[gnu::always_inline]] static constexpr int q(const attention_config& config) noexcept {
    const int head_dim = config.head_dim != 0 ? config.head_dim : max_head_dim;
    const int words = static_cast<int>(ceil_div(head_dim, k_pack(config.target)));
    return round_up(words, vector_floats(config.target)) + padding;
  }
  [[gnu::always_inline]] static constexpr int scores(const attention_config& config) noexcept {
    return config.block_kv + padding;
  }
  /// Of the accumulators of prefill.
  [[gnu::always_inline]] static constexpr int out(const attention_config& config,
                                                  int v_head_dim) noexcept {
    return round_up(v_head_dim, vector_floats(config.target)) + padding;
  }
  /// Of the accumulators of decode and of partial results.
  [[gnu::always_inline]] static constexpr int sums(const attention_config& config,
                                                   int v_head_dim) noexcept {
    return round_up(v_head_dim, k_pack(config.target) * vector_floats(config.target));
  }
};

}  // namespace tessera::schedule_cpu
