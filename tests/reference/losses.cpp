// What tests need to know of the fused losses.
#include "losses.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/families/losses/declaration.hpp>

#include "../support/random.hpp"
#include "operations.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

/// Adds an output that the call has.
void add_output(const bound_call& call, std::string_view name, sized_numbers from,
                expected_tensors& to) {
  const auto index =
      static_cast<std::size_t>(declared::index_of(call.form().tensors, name, &tensor_form::name));
  if (!call.has(index)) return;
  to.push_back({.tensor = index, .values = std::move(from.values), .sizes = std::move(from.sizes)});
}

/// Rows of a gradient have the error of their largest term.
void add_gradient(const bound_call& call, std::string_view name, sized_numbers from,
                  std::size_t width, expected_tensors& to) {
  std::vector<double> most;
  for (std::size_t begin = 0; begin < from.sizes.size(); begin += width) {
    const auto row = from.sizes.begin() + static_cast<std::ptrdiff_t>(begin);
    most.push_back(*std::max_element(row, row + static_cast<std::ptrdiff_t>(width)));
  }
  from.sizes = std::move(most);
  add_output(call, name, std::move(from), to);
}

/// Rows one below the other.
void append(const sized_numbers& row, sized_numbers& to) {
  to.values.insert(to.values.end(), row.values.begin(), row.values.end());
  to.sizes.insert(to.sizes.end(), row.sizes.begin(), row.sizes.end());
}

/// The gradients of the losses of tokens, before their weights.
class upstream {
 public:
  upstream(const bound_call& call, loss_reduction reduction, const token_weighting& tokens)
      : d_loss_(tensor_named(call, "d_loss")),
        axes_(reduction == loss_reduction::none ? tokens.axes : 0),
        divisor_(tokens.divisor(reduction)) {}

  double of(std::int64_t row) const {
    if (!d_loss_.present()) return 0;
    return (axes_ == 0 ? read(d_loss_, 0) : at_row(d_loss_, row, axes_)) / divisor_;
  }

 private:
  tensor_view d_loss_;
  int axes_;
  double divisor_;
};

void add_weight_sum(const bound_call& call, const token_weighting& tokens, expected_tensors& to) {
  add_output(call, "weight_sum", {{tokens.sum()}, {tokens.size_of_sum()}}, to);
}

token_weighting weighting_of(const bound_call& call, const tensor_view& rows,
                             std::int64_t classes) {
  std::int64_t count = 1;
  for (int axis = 0; axis + 1 < rows.rank; ++axis) {
    count *= rows.extent[static_cast<std::size_t>(axis)];
  }
  return {.targets = tensor_named(call, "targets"),
          .weights = tensor_named(call, "weights"),
          .mask = tensor_named(call, "mask"),
          .rows = count,
          .axes = rows.rank - 1,
          .classes = classes};
}

expected_tensors cross_entropy(const bound_call& call) {
  const auto& given = *reinterpret_cast<const cross_entropy_args*>(call.tensors);
  const auto& wanted = call.options_as<cross_entropy_options>();
  const auto width = static_cast<std::size_t>(given.logits.rank - 1);
  const std::int64_t classes = given.logits.extent[width];
  token_weighting tokens = weighting_of(call, given.logits, classes);
  tokens.ignore_index = wanted.ignore_index;
  const auto rows = static_cast<std::size_t>(tokens.rows);
  sized_numbers losses, z_parts, correct, d_logits, d_shares;
  for (sized_numbers* each : {&losses, &z_parts, &correct}) each->resize(rows);
  sized_numbers nothing;
  nothing.resize(static_cast<std::size_t>(classes));
  const upstream d_losses(call, wanted.reduction, tokens);
  for (std::int64_t row = 0; row < tokens.rows; ++row) {
    const double weight = tokens.weight(row);
    if (weight == 0) {
      append(nothing, d_logits);
      append(nothing, d_shares);
      continue;
    }
    std::vector<double> shares;
    if (given.soft_targets.present()) shares = row_of(given.soft_targets, row);
    const entropy_target target{.target = tokens.target(row),
                                .shares = shares,
                                .label_smoothing = wanted.label_smoothing,
                                .z_loss = wanted.z_loss};
    const token_entropy found =
        entropy_of(row_of(given.logits, row), target, weight * d_losses.of(row));
    const auto at = static_cast<std::size_t>(row);
    losses.add(at, weight * found.loss, std::fabs(weight) * found.loss_size);
    z_parts.add(at, weight * found.z_part, std::fabs(weight) * found.z_size);
    if (found.correct) correct.add(at, weight, std::fabs(weight));
    append(found.d_logits, d_logits);
    append(found.d_shares, d_shares);
  }
  expected_tensors all;
  add_output(call, "loss", reduced(wanted.reduction, tokens, losses), all);
  add_output(call, "z_loss", reduced(wanted.reduction, tokens, z_parts), all);
  add_output(call, "accuracy", reduced(loss_reduction::mean, tokens, correct), all);
  add_weight_sum(call, tokens, all);
  add_gradient(call, "d_logits", std::move(d_logits), static_cast<std::size_t>(classes), all);
  add_gradient(call, "d_soft_targets", std::move(d_shares), static_cast<std::size_t>(classes), all);
  return all;
}

/// Classes, now and then what is ignored and what is no class; shares and weights, some of them 0.
bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  const std::string_view name = call.form().tensors[tensor].name;
  const tensor_view& view = call.tensors[tensor];
  if (name == "targets") {
    const std::int64_t classes =
        call.dims[static_cast<std::size_t>(declared::dim_named(call.form().dims, "V"))];
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      const auto odd = static_cast<double>(random.pick<std::int64_t>({-100, -1, classes, 1 << 30}));
      const auto drawn = static_cast<double>(random.below(classes));
      store(view, offset, random.chance(0.15) ? odd : drawn);
    });
    return true;
  }
  if (name != "soft_targets" && name != "weights") return false;
  const bool all_positive = random.chance(0.5);
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const auto drawn = static_cast<double>(random.bell());
    store(view, offset, random.chance(0.2) ? 0 : all_positive ? std::fabs(drawn) : drawn);
  });
  return true;
}

/// Nobody looks at the logits of tokens of weight 0.
void mark_rows_in_use(const bound_call& call, const token_weighting& tokens, std::size_t tensor,
                      seen_tensors seen) {
  const tensor_view& view = call.tensors[tensor];
  if (!view.present()) return;
  seen[tensor] = seen_elements(view);
  const std::int64_t width = view.extent[static_cast<std::size_t>(view.rank - 1)];
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    if (tokens.weight(flat / width) != 0) seen[tensor].mark(offset);
  });
}

void mark_seen(const bound_call& call, seen_tensors seen) {
  const auto& given = *reinterpret_cast<const cross_entropy_args*>(call.tensors);
  token_weighting tokens = weighting_of(
      call, given.logits, given.logits.extent[static_cast<std::size_t>(given.logits.rank - 1)]);
  tokens.ignore_index = call.options_as<cross_entropy_options>().ignore_index;
  mark_rows_in_use(call, tokens, 0, seen);
  mark_rows_in_use(call, tokens, 2, seen);
}

/// Ordinary tokens have a class, weight 1, and shares that sum to about 1.
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t,
                support::random_source& random) {
  const std::string_view name = call.form().tensors[tensor].name;
  const std::int64_t classes =
      call.dims[static_cast<std::size_t>(declared::dim_named(call.form().dims, "V"))];
  if (name == "targets") return static_cast<double>(random.below(classes));
  if (name == "weights" || name == "mask") return 1;
  if (name == "soft_targets") return 2 * random.uniform() / static_cast<double>(classes);
  return static_cast<double>(random.bell());
}

constexpr operation_reference cross_entropy_named(std::string_view op) {
  return {.op = op,
          .exact = &cross_entropy,
          .fill = &fill,
          .mark_seen = &mark_seen,
          .ordinary = &ordinary};
}
constexpr std::array table{cross_entropy_named("fused_cross_entropy"),
                           cross_entropy_named("fused_cross_entropy_backward")};

}  // namespace

std::span<const operation_reference> losses_references() noexcept {
  return table;
}

}  // namespace tessera::reference
