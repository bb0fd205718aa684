// What a choice among mean pooling rows may depend on, read off a call once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct mean_pooling_demand {
  dtype type = dtype::none;
  pooling_pass pass = pooling_pass::forward;
  bool packed = false;
  bool weighted = false;
  std::uint32_t unused = 0;
  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of all sequences
  std::int64_t columns = 0;    ///< of a token, over all heads
  std::int64_t chunk = 0;      ///< 0: whole sequences
  friend constexpr bool operator==(const mean_pooling_demand&,
                                   const mean_pooling_demand&) = default;
};

/// The tensor of tokens: d_x in the backward operations, whose shape x may give.
constexpr const tensor_view& tokens_of(mean_pooling_op op, const mean_pooling_args& args) noexcept {
  return is_backward(op) && args.d_x.present() ? args.d_x : args.x;
}

constexpr mean_pooling_demand demand_of(mean_pooling_op op, const mean_pooling_args& args,
                                        const mean_pooling_options& options,
                                        bool /*unaligned*/) noexcept {
  const tensor_view& tokens = tokens_of(op, args);
  const auto& x = tokens.extent;
  const bool packed = args.cu_seqlens.present(), chunks = has_chunks(op);
  // Packed tokens are a single list, of chunks with a batch of one before it.
  const bool batched = chunks || !packed;
  return {.type = tokens.type,
          .pass = pass_of(op),
          .packed = packed,
          .weighted = args.mask.present(),
          .sequences = packed ? std::max<std::int64_t>(args.cu_seqlens.extent[0] - 1, 0) : x[0],
          .tokens = batched ? x[0] * x[1] : x[0],
          .columns = chunks ? x[2] * x[3] : x[packed ? 1 : 2],
          .chunk = chunks ? options.chunk_size : 0};
}

/// One sequence of 512 tokens if packed: neither the others nor the lengths that depend on them
/// count.
constexpr mean_pooling_demand without_batch(mean_pooling_demand demand) noexcept {
  demand.tokens = tokens_of_one(demand.packed, demand.sequences, demand.tokens);
  demand.sequences = 1;
  return demand;
}

namespace mean_pooling_fields {

inline constexpr std::array table{
    fields::exact<&mean_pooling_demand::type>("type"),
    fields::exact<&mean_pooling_demand::pass>("pass"),
    demand_field{
        "chunks", key_part::identity,
        [](const demand& from) { return std::int64_t{from.as<mean_pooling_demand>().chunk > 0}; },
        words_of_flags},
    fields::exact<&mean_pooling_demand::packed>("packed"),
    fields::exact<&mean_pooling_demand::weighted>("weighted"),
    fields::bucket<&mean_pooling_demand::sequences>("sequences"),
    fields::length<&fields::value_of<&mean_pooling_demand::sequences>,
                   &fields::value_of<&mean_pooling_demand::tokens>>(),
    fields::bucket<&mean_pooling_demand::columns>("columns"),
    fields::bucket_or_none<&mean_pooling_demand::chunk>("chunk"),
    fields::of_overlays<&mean_pooling_demand::tokens>("tokens"),
};

}  // namespace mean_pooling_fields
}  // namespace tessera
