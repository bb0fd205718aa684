// What tests need to know of the fused losses.
#include "losses.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/families/losses/declaration.hpp>
#include <tessera/spec/check.hpp>

#include "../support/random.hpp"
#include "losses_divergence.hpp"
#include "losses_linear.hpp"
#include "operations.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

/// Adds an output that the call has and writes; `exponent` is the largest sum of |terms| of a logit
/// that is a sum.
void add_output(const bound_call& call, std::string_view name, sized_numbers from,
                expected_tensors& to, double exponent = 0) {
  const auto index =
      static_cast<std::size_t>(declared::index_of(call.form().tensors, name, &tensor_form::name));
  if (!call.has(index) || !call.form().tensors[index].is_output()) return;
  std::vector<double> exponents(from.sizes.size(), exponent);
  to.push_back({.tensor = index,
                .values = std::move(from.values),
                .sizes = std::move(from.sizes),
                .logits = std::move(exponents)});
}

/// Rows of a gradient have the error of their largest term.
void add_gradient(const bound_call& call, std::string_view name, sized_numbers from,
                  std::size_t width, expected_tensors& to, double exponent = 0) {
  std::vector<double> most;
  for (std::size_t begin = 0; begin < from.sizes.size(); begin += width) {
    const auto row = from.sizes.begin() + static_cast<std::ptrdiff_t>(begin);
    most.push_back(*std::max_element(row, row + static_cast<std::ptrdiff_t>(width)));
  }
  from.sizes = std::move(most);
  add_output(call, name, std::move(from), to, exponent);
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

expected_tensors kl_divergence(const bound_call& call) {
  const auto& given = *reinterpret_cast<const kl_divergence_args*>(call.tensors);
  const auto& wanted = call.options_as<kl_divergence_options>();
  const auto classes = static_cast<std::size_t>(
      given.student_logits.extent[static_cast<std::size_t>(given.student_logits.rank - 1)]);
  const token_weighting tokens =
      weighting_of(call, given.student_logits, static_cast<std::int64_t>(classes));
  sized_numbers losses, entropies, d_student, nothing;
  for (sized_numbers* each : {&losses, &entropies}) {
    each->resize(static_cast<std::size_t>(tokens.rows));
  }
  nothing.resize(classes);
  const upstream d_losses(call, wanted.reduction, tokens);
  for (std::int64_t row = 0; row < tokens.rows; ++row) {
    const double weight = tokens.weight(row);
    if (weight == 0) {
      append(nothing, d_student);
      continue;
    }
    const divergence_of_token token(row_of(given.student_logits, row),
                                    row_of(given.teacher_logits, row), wanted);
    const token_divergence found = token.evaluate(weight * d_losses.of(row));
    const auto at = static_cast<std::size_t>(row);
    losses.add(at, weight * found.loss, std::fabs(weight) * found.loss_size);
    entropies.add(at, weight * found.entropy, std::fabs(weight) * found.entropy_size);
    append(found.d_student, d_student);
  }
  expected_tensors all;
  add_output(call, "loss", reduced(wanted.reduction, tokens, losses), all);
  add_output(call, "teacher_entropy", reduced(wanted.reduction, tokens, entropies), all);
  add_weight_sum(call, tokens, all);
  add_gradient(call, "d_student_logits", std::move(d_student), classes, all);
  return all;
}

/// Whether rounding decides which of the logits is the first of the largest.
bool is_nearly_tied(std::span<const double> logits, std::int64_t target, double terms) {
  double others = -HUGE_VAL;
  for (std::size_t v = 0; v < logits.size(); ++v) {
    if (static_cast<std::int64_t>(v) != target) others = std::max(others, logits[v]);
  }
  return std::fabs(logits[static_cast<std::size_t>(target)] - others) < 1e-6 * (1 + terms);
}

/// The derivative of the cap, on gradients of capped logits.
void multiply_by_slope(const linear_head& head, std::span<const double> products,
                       sized_numbers& gradients) {
  for (std::size_t v = 0; v < products.size(); ++v) {
    gradients.values[v] *= head.slope(products[v]);
    gradients.sizes[v] *= head.slope(products[v]);
  }
}

expected_tensors linear_cross_entropy(const bound_call& call) {
  const auto& given = *reinterpret_cast<const linear_cross_entropy_args*>(call.tensors);
  const auto& wanted = call.options_as<linear_cross_entropy_options>();
  linear_head head(given, wanted.logits_soft_cap);
  token_weighting tokens =
      weighting_of(call, given.hidden, static_cast<std::int64_t>(head.classes()));
  tokens.ignore_index = wanted.ignore_index;
  const auto rows = static_cast<std::size_t>(tokens.rows);
  sized_numbers losses, z_parts, correct, sums;
  for (sized_numbers* each : {&losses, &z_parts, &correct}) each->resize(rows);
  sums.resize(2 * rows);
  linear_gradients gradients(rows, head);
  const upstream d_losses(call, wanted.reduction, tokens);
  for (std::int64_t row = 0; row < tokens.rows; ++row) {
    const double weight = tokens.weight(row);
    if (weight == 0) continue;
    const std::vector<double> hidden = row_of(given.hidden, row);
    const std::vector<double> products = head.products(hidden);
    const std::vector<double> logits = head.capped(products);
    const entropy_target target{.target = tokens.target(row),
                                .label_smoothing = wanted.label_smoothing,
                                .z_loss = wanted.z_loss};
    token_entropy found = entropy_of(logits, target, weight * d_losses.of(row));
    const auto at = static_cast<std::size_t>(row);
    const log_softmax softmax(logits);
    sums.add(2 * at, softmax.shift, 1 + std::fabs(softmax.shift));
    sums.add(2 * at + 1, std::exp(softmax.log_sum), std::exp(softmax.log_sum));
    losses.add(at, weight * found.loss, std::fabs(weight) * found.loss_size);
    z_parts.add(at, weight * found.z_part, std::fabs(weight) * found.z_size);
    if (found.correct) correct.add(at, weight, std::fabs(weight));
    if (is_nearly_tied(logits, target.target, head.largest_terms())) {
      correct.add(at, 0, 1e6 * std::fabs(weight));
    }
    multiply_by_slope(head, products, found.d_logits);
    gradients.add(at, hidden, found.d_logits, head);
  }
  const double exponent = head.largest_terms();
  expected_tensors all;
  add_output(call, "loss", reduced(wanted.reduction, tokens, losses), all, exponent);
  add_output(call, "z_loss", reduced(wanted.reduction, tokens, z_parts), all, exponent);
  add_output(call, "accuracy", reduced(loss_reduction::mean, tokens, correct), all);
  add_weight_sum(call, tokens, all);
  add_output(call, "logit_sums", std::move(sums), all, exponent);
  add_gradient(call, "d_hidden", std::move(gradients.d_hidden), head.columns(), all, exponent);
  add_gradient(call, "d_lm_head_weight", std::move(gradients.d_weight), head.classes(), all,
               exponent);
  add_gradient(call, "d_lm_head_bias", std::move(gradients.d_bias), head.classes(), all, exponent);
  return all;
}

/// Classes, now and then what is ignored and what is no class.
void fill_targets(const tensor_view& view, std::int64_t classes, support::random_source& random) {
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const auto odd = static_cast<double>(random.pick<std::int64_t>({-100, -1, classes, 1 << 30}));
    const auto drawn = static_cast<double>(random.below(classes));
    store(view, offset, random.chance(0.15) ? odd : drawn);
  });
}

/// Logits of which some are -inf: a student's never where its teacher's is not, but for class 0.
void fill_with_impossible(const bound_call& call, std::size_t tensor,
                          support::random_source& random) {
  const tensor_view &view = call.tensors[tensor], &student = call.tensors[0];
  const std::int64_t classes = view.extent[static_cast<std::size_t>(view.rank - 1)];
  const double share = random.chance(0.2) ? 0.1 : 0;
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    const std::int64_t token = flat / classes, v = flat % classes;
    const std::int64_t same = offset_of_row(student, token, student.rank - 1) +
                              v * student.stride[static_cast<std::size_t>(student.rank - 1)];
    const bool impossible =
        tensor == 0 ? v > 0 && random.chance(share) : read(student, same) == -HUGE_VAL;
    store(view, offset, impossible ? -HUGE_VAL : 2.0 * static_cast<double>(random.bell()));
  });
}

/// What the loss leaves of a token's logits.
std::array<double, 2> sums_of(linear_head& head, std::span<const double> hidden) {
  const log_softmax softmax(head.capped(head.products(hidden)));
  return {softmax.shift, std::exp(softmax.log_sum)};
}
void fill_logit_sums(const bound_call& call, const tensor_view& view) {
  const auto& given = *reinterpret_cast<const linear_cross_entropy_args*>(call.tensors);
  linear_head head(given, call.options_as<linear_cross_entropy_options>().logits_soft_cap);
  std::array<double, 2> sums{};
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    if (flat % 2 == 0) sums = sums_of(head, row_of(given.hidden, flat / 2));
    store(view, offset, sums[static_cast<std::size_t>(flat % 2)]);
  });
}

/// Targets, what may be -inf; shares and weights, some of them 0.
bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  const std::string_view name = call.form().tensors[tensor].name;
  const tensor_view& view = call.tensors[tensor];
  if (name == "targets") {
    const std::int8_t classes = declared::dim_named(call.form().dims, "V");
    fill_targets(view, call.dims[static_cast<std::size_t>(classes)], random);
    return true;
  }
  if (name == "student_logits" || name == "teacher_logits") {
    fill_with_impossible(call, tensor, random);
    return true;
  }
  if (name == "logit_sums") return fill_logit_sums(call, view), true;
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

/// Those whose first axes are tokens: the first tensor, and what is as long as it.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const tensor_view& first = call.tensors[0];
  const std::int8_t classes = declared::dim_named(call.form().dims, "V");
  token_weighting tokens = weighting_of(call, first, call.dims[static_cast<std::size_t>(classes)]);
  if (call.form().options[1].name == "ignore_index") {
    tokens.ignore_index = checks::value_of(call.form().options[1], call.options).integer;
  }
  for (const std::string_view name :
       {"logits", "soft_targets", "student_logits", "teacher_logits", "hidden", "logit_sums"}) {
    for (std::size_t i = 0; i < call.form().tensors.size(); ++i) {
      if (call.form().tensors[i].name == name) mark_rows_in_use(call, tokens, i, seen);
    }
  }
}

double ordinary_sum(const bound_call& call, std::int64_t at, std::int64_t classes) {
  const auto& given = *reinterpret_cast<const linear_cross_entropy_args*>(call.tensors);
  if (given.hidden.elements() * classes > 1 << 21) {
    return at % 2 == 0 ? 0 : static_cast<double>(classes);
  }
  linear_head head(given, call.options_as<linear_cross_entropy_options>().logits_soft_cap);
  return sums_of(head, row_of(given.hidden, at / 2))[static_cast<std::size_t>(at % 2)];
}

/// Ordinary tokens have a class, weight 1, and shares that sum to about 1. Sums are those of equal
/// logits but in calls that are small.
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t at,
                support::random_source& random) {
  const std::string_view name = call.form().tensors[tensor].name;
  const std::int64_t classes =
      call.dims[static_cast<std::size_t>(declared::dim_named(call.form().dims, "V"))];
  if (name == "targets") return static_cast<double>(random.below(classes));
  if (name == "weights" || name == "mask") return 1;
  if (name == "soft_targets") return 2 * random.uniform() / static_cast<double>(classes);
  if (name == "logit_sums") return ordinary_sum(call, at, classes);
  return static_cast<double>(random.bell());
}

/// Products of hidden rows and the weight; for gradients also with what is made of logits.
void count_products(const bound_call& call, call_work& work) {
  const auto& given = *reinterpret_cast<const linear_cross_entropy_args*>(call.tensors);
  const auto weight = static_cast<double>(given.lm_head_weight.elements());
  const auto last = static_cast<std::size_t>(given.hidden.rank - 1);
  const double tokens =
      static_cast<double>(given.hidden.elements()) / static_cast<double>(given.hidden.extent[last]);
  work.flops = (given.d_loss.present() ? 6.0 : 2.0) * tokens * weight;
}

using definition = expected_tensors (*)(const bound_call&);
using flops = void (*)(const bound_call&, call_work&);
constexpr std::array<std::string_view, 1> residuals{"logit_sums"};
constexpr operation_reference loss_named(std::string_view op, definition exact,
                                         flops count = nullptr) {
  return {.op = op,
          .exact = exact,
          .fill = &fill,
          .residuals = residuals,
          .mark_seen = &mark_seen,
          .ordinary = &ordinary,
          .count = count};
}
constexpr std::array table{
    loss_named("fused_cross_entropy", &cross_entropy),
    loss_named("fused_cross_entropy_backward", &cross_entropy),
    loss_named("fused_kl_divergence", &kl_divergence),
    loss_named("fused_kl_divergence_backward", &kl_divergence),
    loss_named("fused_linear_cross_entropy", &linear_cross_entropy, &count_products),
    loss_named("fused_linear_cross_entropy_backward", &linear_cross_entropy, &count_products)};

}  // namespace

std::span<const operation_reference> losses_references() noexcept {
  return table;
}

}  // namespace tessera::reference
