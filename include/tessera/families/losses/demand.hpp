// What a choice among rows of fused losses may depend on, read off a call once.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct losses_demand {
  loss_kind loss = loss_kind::cross_entropy;
  loss_pass pass = loss_pass::forward;
  dtype type = dtype::none;  ///< of the logits; of hidden and weight, f32 where these differ
  bool soft = false;         ///< targets are distributions
  bool aligned = true;       ///< rows of a weight are at multiples of 16 bytes, or on the CPU
  bool has_sums = false;     ///< gradients are given the sums that the loss has left
  std::array<std::uint8_t, 2> unused{};
  std::int64_t rows = 0;  ///< tokens of all entries
  std::int64_t classes = 0;
  std::int64_t columns = 0;  ///< of hidden rows; 0: logits lie in memory
  friend constexpr bool operator==(const losses_demand&, const losses_demand&) = default;
};

/// Product of all extents but the last.
constexpr std::int64_t rows_of(const tensor_view& view) noexcept {
  std::int64_t rows = 1;
  for (int axis = 0; axis + 1 < view.rank; ++axis) {
    rows *= view.extent[static_cast<std::size_t>(axis)];
  }
  return rows;
}
constexpr std::int64_t last_extent(const tensor_view& view) noexcept {
  return view.extent[static_cast<std::size_t>(std::max<int>(view.rank - 1, 0))];
}

constexpr losses_demand demand_of(cross_entropy_op op, const cross_entropy_args& args,
                                  const cross_entropy_options& /*options*/,
                                  bool /*unaligned*/) noexcept {
  return {.loss = loss_kind::cross_entropy,
          .pass = pass_of(op),
          .type = args.logits.type,
          .soft = args.soft_targets.present(),
          .rows = rows_of(args.logits),
          .classes = last_extent(args.logits)};
}

constexpr losses_demand demand_of(kl_divergence_op op, const kl_divergence_args& args,
                                  const kl_divergence_options& /*options*/,
                                  bool /*unaligned*/) noexcept {
  return {.loss = loss_kind::kl_divergence,
          .pass = pass_of(op),
          .type = args.student_logits.type,
          .rows = rows_of(args.student_logits),
          .classes = last_extent(args.student_logits)};
}

constexpr losses_demand demand_of(linear_cross_entropy_op op, const linear_cross_entropy_args& args,
                                  const linear_cross_entropy_options& /*options*/,
                                  bool unaligned) noexcept {
  return {.loss = loss_kind::linear_cross_entropy,
          .pass = pass_of(op),
          .type = args.hidden.type == args.lm_head_weight.type ? args.hidden.type : dtype::f32,
          .aligned = !unaligned,
          .has_sums = pass_of(op) == loss_pass::backward && args.logit_sums.present(),
          .rows = rows_of(args.hidden),
          .classes = last_extent(args.lm_head_weight),
          .columns = last_extent(args.hidden)};
}

/// One token: no other one counts.
constexpr losses_demand without_batch(losses_demand demand) noexcept {
  demand.rows = 1;
  return demand;
}

namespace losses_fields {

inline constexpr std::array table{
    fields::exact<&losses_demand::loss>("loss", loss_kind_names),
    fields::exact<&losses_demand::pass>("pass"),
    fields::exact<&losses_demand::type>("type"),
    fields::exact<&losses_demand::soft>("soft"),
    fields::exact_but<&losses_demand::aligned>(1, "aligned"),
    fields::exact_but<&losses_demand::has_sums>(0, "has_sums"),
    fields::bucket<&losses_demand::rows>("rows"),
    fields::bucket<&losses_demand::classes>("classes"),
    fields::bucket_or_none<&losses_demand::columns>("columns"),
};

}  // namespace losses_fields
}  // namespace tessera
