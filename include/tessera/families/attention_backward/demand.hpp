// What a choice among rows of the gradients of attention may depend on, read off a call once: what
// the forward call asks, and which gradients are wanted.
#pragma once

#include <array>
#include <cstdint>

#include <tessera/families/attention/demand.hpp>
#include <tessera/families/attention_backward/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. `scores.features` has `weights` where their
/// gradient comes in.
struct attention_backward_demand {
  attention_demand scores{};
  bool bias_gradients = false;
  std::array<std::uint8_t, 7> unused{};

  constexpr dtype type() const noexcept { return scores.type; }
  friend constexpr bool operator==(const attention_backward_demand&,
                                   const attention_backward_demand&) = default;
};

constexpr attention_backward_demand demand_of(attention_backward_op,
                                              const attention_backward_args& args,
                                              const flash_attention_options& options,
                                              bool unaligned) noexcept {
  return {.scores = demand_of(flash_op::flash_attention, forward_of(args), options, unaligned),
          .bias_gradients = args.d_bias_pre.present() || args.d_bias_post.present()};
}

constexpr attention_backward_demand without_batch(attention_backward_demand demand) noexcept {
  demand.scores = without_batch(demand.scores);
  return demand;
}

namespace attention_backward_fields {

/// Fields of the forward call, which it begins with.
template <std::size_t At>
std::int64_t forward_value(const demand& from) noexcept {
  return attention_fields::table[At].value(demand(from.as<attention_backward_demand>().scores));
}

template <std::size_t... At>
constexpr auto with_forward(std::index_sequence<At...>) noexcept {
  const auto of_forward = [](demand_field field, std::int64_t (*value)(const demand&)) {
    field.value = value;
    return field;
  };
  return std::array{
      of_forward(attention_fields::table[At], &forward_value<At>)...,
      demand_field{"bias_gradients", key_part::identity,
                   [](const demand& from) {
                     return std::int64_t{from.as<attention_backward_demand>().bias_gradients};
                   },
                   words_of_flags}};
}

inline constexpr auto table =
    with_forward(std::make_index_sequence<attention_fields::table.size()>());

}  // namespace attention_backward_fields
}  // namespace tessera
