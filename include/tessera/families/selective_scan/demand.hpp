// What a choice among rows of elementwise recurrences may depend on, read off a call once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/selective_scan/config.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct selective_scan_demand {
  scan_recurrence recurrence = scan_recurrence::state_space_v1;
  scan_pass pass = scan_pass::forward;
  dtype type = dtype::none;  ///< of the tokens
  bool packed = false;
  bool normalized = false;
  std::uint8_t unused = 0;
  std::uint16_t unused_too = 0;
  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of all sequences
  std::int64_t channels = 0;   ///< of a token, over all heads
  std::int64_t heads = 0;      ///< channels of one share their steps; 0: each has its own
  std::int64_t states = 0;     ///< of a channel
  friend constexpr bool operator==(const selective_scan_demand&,
                                   const selective_scan_demand&) = default;
};

constexpr selective_scan_demand demand_of(state_space_op op, const state_space_args& args,
                                          const state_space_options& options,
                                          bool /*unaligned*/) noexcept {
  const auto& x = args.x.extent;
  const bool heads = recurrence_of(op) == scan_recurrence::state_space_v2;
  const bool packed = args.cu_seqlens.present();
  const auto last_of_b = static_cast<std::size_t>(std::max<int>(args.B.rank - 1, 0));
  return {.recurrence = recurrence_of(op),
          .pass = pass_of(op),
          .type = args.x.type,
          .packed = packed,
          .normalized = options.norm,
          .sequences = packed ? std::max<std::int64_t>(args.cu_seqlens.extent[0] - 1, 0) : x[0],
          .tokens = x[0] * x[1],
          .channels = heads ? x[2] * x[3] : x[2],
          .heads = heads ? x[2] : 0,
          .states = args.B.extent[last_of_b]};
}

constexpr selective_scan_demand demand_of(rwkv4_op op, const rwkv4_args& args,
                                          const rwkv4_options& /*options*/,
                                          bool /*unaligned*/) noexcept {
  const auto& k = args.k.extent;
  const bool packed = args.cu_seqlens.present();
  return {.recurrence = scan_recurrence::rwkv4,
          .pass = pass_of(op),
          .type = args.k.type,
          .packed = packed,
          .sequences = packed ? std::max<std::int64_t>(args.cu_seqlens.extent[0] - 1, 0) : k[0],
          .tokens = k[0] * k[1],
          .channels = k[2],
          .states = 3};
}

/// One sequence of 512 tokens if packed: neither the others nor the lengths that depend on them
/// count.
constexpr selective_scan_demand without_batch(selective_scan_demand demand) noexcept {
  demand.tokens = tokens_of_one(demand.packed, demand.sequences, demand.tokens);
  demand.sequences = 1;
  return demand;
}

namespace selective_scan_fields {

inline constexpr std::array table{
    fields::exact<&selective_scan_demand::recurrence>("recurrence", scan_recurrence_names),
    fields::exact<&selective_scan_demand::pass>("pass"),
    fields::exact<&selective_scan_demand::type>("type"),
    fields::exact<&selective_scan_demand::packed>("packed"),
    fields::exact<&selective_scan_demand::normalized>("normalized"),
    fields::bucket<&selective_scan_demand::sequences>("sequences"),
    fields::length<&fields::value_of<&selective_scan_demand::sequences>,
                   &fields::value_of<&selective_scan_demand::tokens>>(),
    fields::bucket<&selective_scan_demand::channels>("channels"),
    fields::bucket_or_none<&selective_scan_demand::heads>("heads"),
    fields::bucket<&selective_scan_demand::states>("states"),
    fields::of_overlays<&selective_scan_demand::tokens>("tokens"),
};

}  // namespace selective_scan_fields
}  // namespace tessera
