// What a choice among rows of linear attention with decay may depend on, read off a call once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/problem.hpp>
#include <tessera/families/chunked_scan/rwkv6_args.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct chunked_scan_demand {
  dtype type = dtype::none;
  chunked_scan_pass pass = chunked_scan_pass::forward;
  chunked_scan_decay decay = chunked_scan_decay::none;
  bool packed = false;
  bool aligned = true;  ///< rows of operands are at multiples of 16 bytes, or on the CPU
  std::uint8_t unused = 0;
  std::uint16_t unused_too = 0;
  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of all sequences
  std::int64_t heads = 0;
  std::int64_t keys = 0;    ///< channels of a key
  std::int64_t values = 0;  ///< channels of a value
  friend constexpr bool operator==(const chunked_scan_demand&,
                                   const chunked_scan_demand&) = default;
};

/// The demand of operands q [B,T,H,K] and v [B,T,*,V].
constexpr chunked_scan_demand scan_demand_of(chunked_scan_pass pass, chunked_scan_decay decay,
                                             const tensor_view& q, const tensor_view& v,
                                             const tensor_view& cu_seqlens,
                                             bool unaligned) noexcept {
  const bool packed = cu_seqlens.present();
  return {.type = q.type,
          .pass = pass,
          .decay = decay,
          .packed = packed,
          .aligned = !unaligned,
          .sequences = packed ? std::max<std::int64_t>(cu_seqlens.extent[0] - 1, 0) : q.extent[0],
          .tokens = q.extent[0] * q.extent[1],
          .heads = q.extent[2],
          .keys = q.extent[3],
          .values = v.extent[3]};
}
constexpr chunked_scan_demand demand_of(recurrent_op op, const recurrent_args& args,
                                        const recurrent_options&, bool unaligned) noexcept {
  const bool keys = args.g.present() || args.gk.present() || args.g_gamma.present();
  return scan_demand_of(pass_of(op), decay_of(keys, args.gv.present()), args.q, args.v,
                        args.cu_seqlens, unaligned);
}

constexpr chunked_scan_demand demand_of(rwkv6_op op, const rwkv6_args& args, const rwkv6_options&,
                                        bool unaligned) noexcept {
  return scan_demand_of(pass_of(op), chunked_scan_decay::keys, args.r, args.v, args.cu_seqlens,
                        unaligned);
}

/// One sequence of 512 tokens if packed: neither the others nor the lengths that depend on them
/// count.
constexpr chunked_scan_demand without_batch(chunked_scan_demand demand) noexcept {
  const std::int64_t of_one = demand.sequences > 0 ? demand.tokens / demand.sequences : 0;
  demand.tokens = demand.packed ? 512 : of_one;
  demand.sequences = 1;
  return demand;
}

namespace chunked_scan_fields {

template <auto Member>
std::int64_t value(const demand& from) noexcept {
  return static_cast<std::int64_t>(from.as<chunked_scan_demand>().*Member);
}

inline constexpr std::array table{
    demand_field{"type", key_part::identity, &value<&chunked_scan_demand::type>, dtype_names},
    demand_field{"pass", key_part::identity, &value<&chunked_scan_demand::pass>,
                 chunked_scan_pass_names},
    demand_field{"decay", key_part::identity, &value<&chunked_scan_demand::decay>,
                 chunked_scan_decay_names},
    demand_field{"packed", key_part::identity, &value<&chunked_scan_demand::packed>,
                 words_of_flags},
    demand_field{.name = "aligned",
                 .part = key_part::identity,
                 .value = &value<&chunked_scan_demand::aligned>,
                 .words = words_of_flags,
                 .usual = 1},
    demand_field{"sequences", key_part::size, &value<&chunked_scan_demand::sequences>},
    demand_field{"length", key_part::size,
                 [](const demand& from) {
                   const auto& wanted = from.as<chunked_scan_demand>();
                   const std::int64_t divisor = std::max<std::int64_t>(wanted.sequences, 1);
                   return (wanted.tokens + divisor - 1) / divisor;
                 }},
    demand_field{"heads", key_part::size, &value<&chunked_scan_demand::heads>},
    demand_field{"keys", key_part::size, &value<&chunked_scan_demand::keys>},
    demand_field{"values", key_part::size, &value<&chunked_scan_demand::values>},
    demand_field{"tokens", key_part::none, &value<&chunked_scan_demand::tokens>},
};

}  // namespace chunked_scan_fields
}  // namespace tessera
