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
  bool aligned = true;           ///< rows of operands are at multiples of 16 bytes, or on the CPU
  bool channels = false;         ///< of keys decay by themselves
  bool bonus = false;            ///< a token reads itself through a bonus
  bool decay_gradients = false;  ///< wanted, of keys or of the bonus
  std::int64_t sequences = 0;    ///< entries, or sequences when packed
  std::int64_t tokens = 0;       ///< of all sequences
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
  chunked_scan_demand demand = scan_demand_of(pass_of(op), decay_of(keys, args.gv.present()),
                                              args.q, args.v, args.cu_seqlens, unaligned);
  demand.channels = args.gk.present();
  demand.decay_gradients = args.d_g.present() || args.d_gk.present();
  return demand;
}

constexpr chunked_scan_demand demand_of(rwkv6_op op, const rwkv6_args& args, const rwkv6_options&,
                                        bool unaligned) noexcept {
  chunked_scan_demand demand = scan_demand_of(pass_of(op), chunked_scan_decay::keys, args.r, args.v,
                                              args.cu_seqlens, unaligned);
  demand.channels = demand.bonus = true;
  demand.decay_gradients = args.d_w.present() || args.d_u.present();
  return demand;
}

/// One sequence of 512 tokens if packed: neither the others nor the lengths that depend on them
/// count.
constexpr chunked_scan_demand without_batch(chunked_scan_demand demand) noexcept {
  demand.tokens = tokens_of_one(demand.packed, demand.sequences, demand.tokens);
  demand.sequences = 1;
  return demand;
}

namespace chunked_scan_fields {

inline constexpr std::array table{
    fields::exact<&chunked_scan_demand::type>("type"),
    fields::exact<&chunked_scan_demand::pass>("pass"),
    fields::exact<&chunked_scan_demand::decay>("decay", chunked_scan_decay_names),
    fields::exact<&chunked_scan_demand::packed>("packed"),
    fields::exact_but<&chunked_scan_demand::aligned>(1, "aligned"),
    fields::exact_but<&chunked_scan_demand::channels>(0, "channels"),
    fields::exact_but<&chunked_scan_demand::bonus>(0, "bonus"),
    fields::exact_but<&chunked_scan_demand::decay_gradients>(0, "decay_gradients"),
    fields::bucket<&chunked_scan_demand::sequences>("sequences"),
    fields::length<&fields::value_of<&chunked_scan_demand::sequences>,
                   &fields::value_of<&chunked_scan_demand::tokens>>(),
    fields::bucket<&chunked_scan_demand::heads>("heads"),
    fields::bucket<&chunked_scan_demand::keys>("keys"),
    fields::bucket<&chunked_scan_demand::values>("values"),
    fields::of_overlays<&chunked_scan_demand::tokens>("tokens"),
};

}  // namespace chunked_scan_fields
}  // namespace tessera
