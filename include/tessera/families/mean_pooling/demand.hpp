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

/// The sizes of a call.
struct mean_pooling_sizes {
  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of all sequences
  std::int64_t columns = 0;    ///< of a token, over all heads
  std::int64_t chunk = 0;      ///< 0: whole sequences
  friend constexpr bool operator==(const mean_pooling_sizes&, const mean_pooling_sizes&) = default;
};

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct mean_pooling_demand {
  dtype type = dtype::none;
  pooling_pass pass = pooling_pass::forward;
  bool packed = false;
  bool weighted = false;
  std::uint32_t unused = 0;
  mean_pooling_sizes sizes{};
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
  const bool packed = args.cu_seqlens.present();
  mean_pooling_sizes sizes;
  if (has_chunks(op)) {
    sizes = {x[0], x[0] * x[1], x[2] * x[3], options.chunk_size};
  } else if (packed) {
    sizes = {0, x[0], x[1], 0};
  } else {
    sizes = {x[0], x[0] * x[1], x[2], 0};
  }
  if (packed) sizes.sequences = std::max<std::int64_t>(args.cu_seqlens.extent[0] - 1, 0);
  return {.type = tokens.type,
          .pass = pass_of(op),
          .packed = packed,
          .weighted = args.mask.present(),
          .sizes = sizes};
}

/// One sequence of 512 tokens if packed: neither the others nor the lengths that depend on them
/// count.
constexpr mean_pooling_demand without_batch(mean_pooling_demand demand) noexcept {
  demand.sizes.tokens = tokens_of_one(demand.packed, demand.sizes.sequences, demand.sizes.tokens);
  demand.sizes.sequences = 1;
  return demand;
}

inline constexpr std::array<std::string_view, 2> pooling_pass_names{"forward", "backward"};
constexpr std::string_view name_of(pooling_pass pass) noexcept {
  return pooling_pass_names[static_cast<std::size_t>(pass)];
}

namespace mean_pooling_fields {

inline constexpr std::array table{
    fields::exact<&mean_pooling_demand::type>("type"),
    fields::exact<&mean_pooling_demand::pass>("pass", pooling_pass_names),
    demand_field{"chunks", key_part::identity,
                 [](const demand& from) {
                   return std::int64_t{from.as<mean_pooling_demand>().sizes.chunk > 0};
                 },
                 words_of_flags},
    fields::exact<&mean_pooling_demand::packed>("packed"),
    fields::exact<&mean_pooling_demand::weighted>("weighted"),
    fields::bucket<&mean_pooling_demand::sizes, &mean_pooling_sizes::sequences>("sequences"),
    fields::length<&fields::value_of<&mean_pooling_demand::sizes, &mean_pooling_sizes::sequences>,
                   &fields::value_of<&mean_pooling_demand::sizes, &mean_pooling_sizes::tokens>>(),
    fields::bucket<&mean_pooling_demand::sizes, &mean_pooling_sizes::columns>("columns"),
    fields::bucket_or_none<&mean_pooling_demand::sizes, &mean_pooling_sizes::chunk>("chunk"),
    fields::of_overlays<&mean_pooling_demand::sizes, &mean_pooling_sizes::tokens>("tokens"),
};

}  // namespace mean_pooling_fields
}  // namespace tessera
