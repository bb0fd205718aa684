#include "call_judge.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

namespace tessera::support {

namespace {

/// Errors below this never count.
double vanishing(dtype type) {
  return type == dtype::f16 ? 0x1p-24 : 0x1p-110;
}

/// What the error of each row of elements is relative to.
std::vector<double> units(const reference::expected_tensor& truth, const tensor_view& view,
                          double floor) {
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

/// What was computed, with the truth where both are beyond what the type holds.
std::vector<double> without_overflow(std::span<const double> computed,
                                     std::span<const double> truth, dtype type) {
  std::vector<double> values(computed.begin(), computed.end());
  if (type != dtype::f16 || computed.size() != truth.size()) return values;
  constexpr double nearly_most = 65400;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool same_sign = std::signbit(values[i]) == std::signbit(truth[i]);
    const bool beyond = std::fabs(truth[i]) > nearly_most && std::fabs(values[i]) > nearly_most;
    if (same_sign && beyond) values[i] = truth[i];
  }
  return values;
}

/// `peer` may be null; `view` has the type and the last axis of the output.
comparison compared(std::span<const double> given, const reference::expected_tensor& truth,
                    const reference::expected_tensor* peer, const tensor_view& view, double floor) {
  const std::vector<double> computed = without_overflow(given, truth.values, view.type);
  const bool whole = truth.copied || !reference::is_floating(view.type);
  const std::vector<double> sizes = whole ? std::vector<double>(1, 0.0) : units(truth, view, floor);
  const std::size_t width =
      std::max<std::size_t>(truth.values.size() / std::max<std::size_t>(sizes.size(), 1), 1);
  const auto unit = [&](std::size_t index) { return sizes[index / width]; };
  const double peer_error =
      peer == nullptr ? 0.0
                      : compare_in_units(without_overflow(peer->values, truth.values, view.type),
                                         truth.values, unit)
                            .error;
  return judged(compare_in_units(computed, truth.values, unit), peer_error, whole ? 0.0 : floor);
}

/// The type whose precision sets the floor.
dtype operands_of(const bound_call& call) {
  return reference::operand_type(*call.op, {call.tensors, call.form().tensors.size()});
}

/// Whether all of a call is evaluated in no time: about so many multiply-adds, the largest product
/// of the dims of two of its tensors.
bool is_small(const bound_call& call) {
  constexpr double most = 0x1p21;
  const signature& form = call.form();
  std::vector<std::uint32_t> dims;
  for (std::size_t i = 0; i < form.tensors.size(); ++i) {
    if ((call.op->required >> i & 1u) == 0) continue;
    std::uint32_t& bits = dims.emplace_back();
    for (const axis_form& axis : form.shape(i, call.layout).axes) {
      if (axis.dim >= 0) bits |= 1u << axis.dim;
    }
  }
  for (const std::uint32_t first : dims) {
    for (const std::uint32_t second : dims) {
      double work = 1;
      for (std::size_t dim = 0; dim < form.dims.size(); ++dim) {
        if (((first | second) >> dim & 1u) != 0) work *= static_cast<double>(call.dims[dim]);
      }
      if (work > most) return false;
    }
  }
  return true;
}

/// A share of a call along its independent dims: a call of its own.
class call_share {
 public:
  /// Two shares of the dims together, where they have so many.
  call_share(const bound_call& call, std::span<const std::string_view> independent)
      : whole_(call), call_(call) {
    std::int64_t shares = 0;
    for (const std::string_view symbol : independent) {
      const std::size_t dim = number_of(symbol);
      // What all shares have in common is one.
      if (call.dims[dim] <= 1) continue;
      dims_ |= 1u << dim;
      shares = std::gcd(shares, call.dims[dim]);
    }
    shares_ = shares % 2 == 0 && shares > 2 ? shares / 2 : std::max<std::int64_t>(shares, 1);
    for (std::size_t dim = 0; dim < call_.dims.size(); ++dim) {
      if ((dims_ >> dim & 1u) != 0) call_.dims[dim] /= shares_;
    }
    inputs_ = of_tensors(call.tensors, true);
    call_.tensors = inputs_.data();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].present()) call_.present &= ~(1u << i);
    }
  }

  const bound_call& call() const noexcept { return call_; }

  /// The share's part of the call's tensors (`as_inputs`: with those that it reads and writes), or
  /// of outputs that lie elsewhere.
  std::vector<tensor_view> of_tensors(const tensor_view* tensors, bool as_inputs = false) const {
    std::vector<tensor_view> parts(tensors, tensors + whole_.form().tensors.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!parts[i].present()) continue;
      const bool cut = cut_down(parts[i], whole_.form().shape(i, whole_.layout));
      const tensor_form& form = whole_.form().tensors[i];
      const bool is_read = as_inputs && form.use == tensor_use::input_and_output;
      // A sum over all shares is not the share's, nor is what others write too.
      if (!cut && shares_ > 1 && form.is_output() && !is_read) parts[i] = {};
    }
    return parts;
  }

 private:
  std::size_t number_of(std::string_view symbol) const {
    const auto dims = whole_.form().dims;
    return static_cast<std::size_t>(std::ranges::find(dims, symbol, &dim::symbol) - dims.begin());
  }

  bool cut_down(tensor_view& view, const shape_form& form) const {
    bool cut = false;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(std::max<int>(view.rank, 0));
         ++axis) {
      const std::int8_t dim = form.axes[axis].dim;
      if (dim < 0 || (dims_ >> dim & 1u) == 0 || view.extent[axis] <= 1) continue;
      view.extent[axis] /= shares_;
      // In the middle: neither end is special.
      const std::int64_t first = shares_ / 2 * view.extent[axis];
      view.data = static_cast<std::byte*>(view.data) +
                  first * view.stride[axis] * static_cast<std::int64_t>(size_of(view.type));
      cut = true;
    }
    return cut;
  }

  const bound_call& whole_;
  bound_call call_;
  std::uint32_t dims_ = 0;
  std::int64_t shares_ = 1;
  std::vector<tensor_view> inputs_;
};

/// How far out of bound an output is.
double excess_of(const comparison& found) {
  if (!found.specials_agree) return HUGE_VAL;
  return found.bound > 0 ? found.error / found.bound : found.error > 0 ? HUGE_VAL : 0;
}

judged_output worst_of(const std::vector<judged_output>& outputs) {
  judged_output worst;
  for (const judged_output& output : outputs) {
    if (worst.name.empty() || excess_of(output.found) > excess_of(worst.found)) worst = output;
  }
  return worst;
}

}  // namespace

call_expectation::call_expectation(const bound_call& call) : form_(call.form()) {
  const reference::operation_reference& known = *reference::reference_of(call.op->name);
  truth_ = known.exact(call);
  if (known.as_stored != nullptr) peer_ = known.as_stored(call);
  operands_ = operands_of(call);
  for (std::size_t i = 0; i < form_.tensors.size(); ++i) {
    const std::string_view name = form_.tensors[i].name;
    scales_rows_ = scales_rows_ || (call.has(i) && name.ends_with("_token_scales"));
  }
}

std::vector<judged_output> call_expectation::outputs(const tensor_view* tensors,
                                                     int rounded_numbers) const {
  std::vector<judged_output> all;
  for (std::size_t n = 0; n < truth_.size(); ++n) {
    const reference::expected_tensor& truth = truth_[n];
    const tensor_view& view = tensors[truth.tensor];
    if (!view.present()) continue;
    const std::string_view name = form_.tensors[truth.tensor].name;
    const int rounded = rounded_numbers + (scales_rows_ ? 1 : 0);
    const double floor = floor_of(name, operands_) * (rounded + 1) / 2;
    all.push_back({std::string(name), view.shape(),
                   compared(reference::to_doubles(view), truth, peer_.empty() ? nullptr : &peer_[n],
                            view, floor)});
  }
  return all;
}

std::string call_expectation::complaints(const tensor_view* tensors, int rounded_numbers) const {
  std::string text;
  for (const judged_output& output : outputs(tensors, rounded_numbers)) {
    if (!output.found.passed) text += output.complaint() + "\n";
  }
  return text;
}

judged_output worst_output(const bound_call& call, const tensor_view* computed,
                           const reference::sample_plan& plan, bool thorough) {
  const reference::operation_reference& known = *reference::reference_of(call.op->name);
  if (known.sample != nullptr && !is_small(call)) {
    const reference::output_sample sample = known.sample(call, computed, plan);
    const tensor_view& view = computed[sample.exact.tensor];
    const std::string_view name = call.form().tensors[sample.exact.tensor].name;
    const tensor_shape shape{view.type, 1, {static_cast<std::int64_t>(sample.exact.values.size())}};
    return {"sampled rows of " + std::string(name), shape,
            compared(sample.computed, sample.exact, &sample.as_stored, view,
                     floor_of(name, operands_of(call)))};
  }
  if (known.independent != nullptr && !is_small(call)) {
    const call_share share(call, known.independent(call));
    return worst_of(call_expectation(share.call()).outputs(share.of_tensors(computed).data()));
  }
  if (!thorough && !is_small(call)) return {};
  return worst_of(call_expectation(call).outputs(computed));
}

}  // namespace tessera::support
