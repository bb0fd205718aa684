// What a choice among delta rule rows may depend on, read off a call once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/problem.hpp>
#include <tessera/families/delta_rule/ragged_problem.hpp>
#include <tessera/families/delta_rule/rwkv7_problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// What a log decay is given for.
enum class delta_rule_decay : std::uint8_t { none, head, channel };

/// The sizes of a call.
struct delta_rule_sizes {
  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of all sequences
  std::int64_t heads = 0;      ///< of values
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  friend constexpr bool operator==(const delta_rule_sizes&, const delta_rule_sizes&) = default;
};

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct delta_rule_demand {
  dtype type = dtype::none;
  delta_rule_pass pass = delta_rule_pass::forward;
  delta_rule_decay decay = delta_rule_decay::none;
  bool packed = false;
  bool aligned = true;  ///< rows of operands are at multiples of 16 bytes, or on the CPU
  /// Tokens are written as they are: no segments, no activation, and no more of a state is taken
  /// away than there is (states that turn round cancel in the sums of a chunk).
  bool plain = true;
  bool low_rank = false;  ///< what some rows read of a state is written by others
  std::uint8_t unused = 0;
  delta_rule_sizes sizes{};
  friend constexpr bool operator==(const delta_rule_demand&, const delta_rule_demand&) = default;
};

/// The sizes of tokens as rows of keys [B,T,H,K] and of values [B,T,HV,V].
constexpr delta_rule_sizes delta_rule_sizes_of(const tensor_view& keys, const tensor_view& values,
                                               const tensor_view& offsets) noexcept {
  const bool packed = offsets.present();
  return {.sequences = packed ? std::max<std::int64_t>(offsets.extent[0] - 1, 0) : values.extent[0],
          .tokens = values.extent[0] * values.extent[1],
          .heads = values.extent[2],
          .key_dim = keys.extent[3],
          .value_dim = values.extent[3]};
}

constexpr delta_rule_demand demand_of(delta_rule_op op, const delta_rule_args& args,
                                      const delta_rule_options& options, bool unaligned) noexcept {
  return {.type = args.q.type,
          .pass = pass_of(op),
          .decay = args.gk.present()  ? delta_rule_decay::channel
                   : args.g.present() ? delta_rule_decay::head
                                      : delta_rule_decay::none,
          .packed = args.cu_seqlens.present(),
          .aligned = !unaligned,
          .plain = !args.seg_ids.present() && !options.allow_neg_eigval,
          .sizes = delta_rule_sizes_of(args.q, args.v, args.cu_seqlens)};
}

constexpr delta_rule_demand demand_of(rwkv7_op op, const rwkv7_args& args, const rwkv7_options&,
                                      bool unaligned) noexcept {
  return {.type = args.r.type,
          .pass = pass_of(op),
          .decay = delta_rule_decay::channel,
          .packed = args.cu_seqlens.present(),
          .aligned = !unaligned,
          .low_rank = true,
          .sizes = delta_rule_sizes_of(args.r, args.v, args.cu_seqlens)};
}

/// The sizes of sequences that have their states in a pool [P,HV,K,V].
constexpr delta_rule_sizes pooled_delta_rule_sizes(const tensor_view& tokens,
                                                   const tensor_view& pool,
                                                   const tensor_view& slots) noexcept {
  return {.sequences = slots.extent[0],
          .tokens = tokens.extent[0],
          .heads = pool.extent[1],
          .key_dim = pool.extent[2],
          .value_dim = pool.extent[3]};
}

constexpr delta_rule_demand demand_of(ragged_delta_rule_op op, const ragged_delta_rule_args& args,
                                      const delta_rule_options& options, bool unaligned) noexcept {
  return {.type = args.q.type,
          .pass = pass_of(op),
          .decay = args.g.present() ? delta_rule_decay::head : delta_rule_decay::none,
          .packed = true,
          .aligned = !unaligned,
          .plain = !options.allow_neg_eigval,
          .sizes = pooled_delta_rule_sizes(args.q, args.state_pool, args.state_indices)};
}

constexpr delta_rule_demand demand_of(ragged_delta_rule_v2_op op,
                                      const ragged_delta_rule_v2_args& args,
                                      const ragged_delta_rule_v2_options& options,
                                      bool unaligned) noexcept {
  // Heads lie side by side in a row.
  const bool whole = args.state_pool.extent[2] % 8 == 0 && args.state_pool.extent[3] % 8 == 0;
  return {.type = args.mixed_qkv.type,
          .pass = pass_of(op),
          .decay = delta_rule_decay::head,
          .packed = true,
          .aligned = !unaligned && whole,
          .plain = !options.apply_silu,
          .sizes = pooled_delta_rule_sizes(args.mixed_qkv, args.state_pool, args.state_indices)};
}

/// One sequence, of 512 tokens if packed: neither the others nor the lengths that depend on them
/// count.
constexpr delta_rule_demand without_batch(delta_rule_demand demand) noexcept {
  demand.sizes.tokens = tokens_of_one(demand.packed, demand.sizes.sequences, demand.sizes.tokens);
  demand.sizes.sequences = 1;
  return demand;
}

inline constexpr std::array<std::string_view, 3> delta_rule_decay_names{"none", "head", "channel"};

namespace delta_rule_fields {

inline constexpr std::array table{
    fields::exact<&delta_rule_demand::type>("type"),
    fields::exact<&delta_rule_demand::pass>("pass"),
    fields::exact<&delta_rule_demand::decay>("decay", delta_rule_decay_names),
    fields::exact<&delta_rule_demand::packed>("packed"),
    fields::exact_but<&delta_rule_demand::aligned>(1, "aligned"),
    fields::exact_but<&delta_rule_demand::plain>(1, "plain"),
    fields::exact_but<&delta_rule_demand::low_rank>(0, "low_rank"),
    fields::exact<&delta_rule_demand::sizes, &delta_rule_sizes::key_dim>("key_dim"),
    fields::exact<&delta_rule_demand::sizes, &delta_rule_sizes::value_dim>("value_dim"),
    fields::bucket<&delta_rule_demand::sizes, &delta_rule_sizes::sequences>("sequences"),
    fields::length<&fields::value_of<&delta_rule_demand::sizes, &delta_rule_sizes::sequences>,
                   &fields::value_of<&delta_rule_demand::sizes, &delta_rule_sizes::tokens>>(),
    fields::bucket<&delta_rule_demand::sizes, &delta_rule_sizes::heads>("heads"),
    fields::of_overlays<&delta_rule_demand::sizes, &delta_rule_sizes::tokens>("tokens"),
};

}  // namespace delta_rule_fields
}  // namespace tessera
