// What tests need to know of the mean pooling operations.
#include "mean_pooling.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <tessera/families/mean_pooling/declaration.hpp>

#include "../support/random.hpp"
#include "operations.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

using args = mean_pooling_args;
using options = mean_pooling_options;

const args& args_of(const bound_call& call) {
  return *reinterpret_cast<const args*>(call.tensors);
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const auto op = static_cast<mean_pooling_op>(call.op->place);
  pooling_result result = mean_pooling<Precision>(op, args_of(call), call.options_as<options>());
  const std::size_t tensor = is_backward(op) ? 5 : 3;
  const tensor_view& output = call.tensors[tensor];
  // The error of an element is relative to the largest of its row's sums.
  const auto width =
      static_cast<std::size_t>(output.extent[static_cast<std::size_t>(output.rank - 1)]);
  expected_tensor to{.tensor = tensor, .values = std::move(result.values)};
  for (std::size_t begin = 0; begin < result.sizes.size(); begin += width) {
    double most = 0;
    for (std::size_t at = begin; at < begin + width; ++at) most = std::max(most, result.sizes[at]);
    to.sizes.push_back(most);
  }
  return {std::move(to)};
}

/// Weights whose sum is far from 0, so that what is divided by is well determined; sometimes none
/// of the first entry.
bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  if (call.form().tensors[tensor].name != "mask") return false;
  const tensor_view& mask = call.tensors[tensor];
  const std::int64_t tokens = mask.extent[1];
  const bool without_first = random.chance(0.4), is_signed = mask.type != dtype::u8;
  const auto kind = random.below(4);
  for_each_element(mask, [&](std::int64_t flat, std::int64_t offset) {
    const std::int64_t entry = flat / tokens, token = flat % tokens;
    double weight = 1;
    if (kind == 0) weight = random.chance(0.5) ? 1 : 0;
    if (kind == 1) weight = token < tokens / (entry + 1) ? 1 : 0;
    if (kind == 2) weight = static_cast<double>(random.below(4)) + (token == 0 ? 1 : 0);
    if (kind == 3) weight = is_signed && random.chance(0.2) ? -1 : 2;
    store(mask, offset, without_first && entry == 0 ? 0 : weight);
  });
  return true;
}

/// Tokens of weight 0 are not read.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const args& given = args_of(call);
  if (!given.mask.present() || is_backward(static_cast<mean_pooling_op>(call.op->place))) return;
  seen[0] = seen_elements(given.x);
  const std::int64_t tokens = given.x.extent[1], columns = given.x.extent[2];
  for_each_element(given.x, [&](std::int64_t flat, std::int64_t offset) {
    const std::int64_t token = flat / columns;
    if (at(given.mask, token / tokens, token % tokens) != 0.0) seen[0].mark(offset);
  });
}

/// The mean of ordinary values is not 0, or means would say nothing about a kernel; masks of bytes
/// keep nine tokens of ten.
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t,
                support::random_source& random) {
  if (call.tensors[tensor].type == dtype::u8) return random.chance(0.9) ? 1 : 0;
  return 0.5 + static_cast<double>(random.bell());
}

/// The first columns of the last head, of every token and every mean: each column is pooled by
/// itself.
output_sample sample(const bound_call& call, const tensor_view* computed, const sample_plan&) {
  constexpr std::int64_t most = 4;
  const auto op = static_cast<mean_pooling_op>(call.op->place);
  args part = args_of(call);
  const std::size_t output = is_backward(op) ? 5 : 3;
  tensors_of(part)[output] = computed[output];
  for (tensor_view* view : {&part.x, &part.out, &part.d_out, &part.d_x}) {
    if (!view->present()) continue;
    const auto last = static_cast<std::size_t>(view->rank - 1);
    view->extent[last] = std::min(view->extent[last], most);
    if (!has_chunks(op) || view->elements() == 0) continue;
    const std::int64_t skipped = (view->extent[2] - 1) * view->stride[2];
    view->data = static_cast<std::byte*>(view->data) +
                 skipped * static_cast<std::int64_t>(size_of(view->type));
    view->extent[2] = 1;
  }
  const auto& wanted = call.options_as<options>();
  pooling_result truth = mean_pooling<pooling_exact>(op, part, wanted);
  pooling_result peer = mean_pooling<pooling_as_stored>(op, part, wanted);
  const double scale = truth.sizes.empty() ? 0 : *std::ranges::max_element(truth.sizes);
  return {.exact = {.tensor = output, .values = std::move(truth.values), .sizes = {scale}},
          .as_stored = {.tensor = output, .values = std::move(peer.values)},
          .computed = to_doubles(tensors_of(part)[output])};
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &evaluated<pooling_exact>,
          .as_stored = &evaluated<pooling_as_stored>,
          .fill = &fill,
          .mark_seen = &mark_seen,
          .ordinary = &ordinary,
          .sample = &sample};
}
constexpr std::array table{reference_named("mean_pooling"), reference_named("mean_pooling_chunks"),
                           reference_named("mean_pooling_backward"),
                           reference_named("mean_pooling_chunks_backward")};

}  // namespace

std::span<const operation_reference> mean_pooling_references() noexcept {
  return table;
}

}  // namespace tessera::reference
