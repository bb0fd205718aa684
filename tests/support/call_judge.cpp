#include "call_judge.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::support {

namespace {

bool is_whole(dtype type) {
  return !is_floating_16_or_32(type) && type != dtype::f64;
}

/// Errors below this never count.
double vanishing(dtype type) {
  return type == dtype::f16 ? 0x1p-24 : 0x1p-110;
}

}  // namespace

call_expectation::call_expectation(const bound_call& call) : form_(call.form()) {
  const reference::operation_reference& known = *reference::reference_of(call.op->name);
  truth_ = known.exact(call);
  if (known.as_stored != nullptr) peer_ = known.as_stored(call);
  for (int i = 0; i < call.op->tensor_count && operands_ == dtype::none; ++i) {
    const tensor_view& view = call.tensors[call.op->order[static_cast<std::size_t>(i)]];
    if (is_floating_16_or_32(view.type)) operands_ = view.type;
  }
}

std::vector<double> call_expectation::units(const reference::expected_tensor& truth,
                                            const tensor_view& view, double floor) const {
  std::vector<double> sizes = truth.sizes;
  if (sizes.empty()) {
    const auto last = static_cast<std::size_t>(view.rank - 1);
    const auto width = static_cast<std::size_t>(std::max<std::int64_t>(view.extent[last], 1));
    const std::span<const double> values(truth.values);
    for (std::size_t at = 0; at < values.size(); at += width) {
      sizes.push_back(largest(values.subspan(at, width)));
    }
  }
  const double least = truth.least_share * largest(sizes);
  for (std::size_t row = 0; row < sizes.size(); ++row) {
    sizes[row] = std::max(sizes[row], least);
    if (!truth.logits.empty()) {
      sizes[row] *= std::max(1.0, 4.0 * 0x1p-24 * truth.logits[row] / floor);
    }
    sizes[row] = std::max(sizes[row], vanishing(view.type) / floor);
  }
  return sizes;
}

std::string call_expectation::complaints(const tensor_view* tensors) const {
  std::string text;
  for (std::size_t n = 0; n < truth_.size(); ++n) {
    const reference::expected_tensor& truth = truth_[n];
    const tensor_view& view = tensors[truth.tensor];
    if (!view.present()) continue;
    const std::string_view name = form_.tensors[truth.tensor].name;
    const bool whole = is_whole(view.type);
    const double floor = whole ? 0.0 : floor_of(name, operands_);
    const std::vector<double> sizes =
        whole ? std::vector<double>(1, 0.0) : units(truth, view, floor);
    const std::size_t width =
        std::max<std::size_t>(truth.values.size() / std::max<std::size_t>(sizes.size(), 1), 1);
    const auto unit = [&](std::size_t index) { return sizes[index / width]; };
    const double peer_error =
        peer_.empty() ? 0.0 : compare_in_units(peer_[n].values, truth.values, unit).error;
    const comparison found = judged(
        compare_in_units(reference::to_doubles(view), truth.values, unit), peer_error, floor);
    if (!found.passed) text += sentence_of(found, name, view.shape()) + "\n";
  }
  return text;
}

}  // namespace tessera::support
