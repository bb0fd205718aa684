// The verdict on a generated call: the truth, the tolerance that belongs to it, and what is wrong.
//
// Generated problems may be ill-conditioned where golden files are not, and tiny, so that the error
// of one peer is a matter of luck. Their scales therefore follow from the sums that make a result:
//
// | tensor | scale of an element's error |
// |---|---|
// | out | largest over the row of sum_j w[j] |v[j]|, at least 1 % of the tensor's |
// | weights | the row's largest weight, at least 1 % of the tensor's |
// | lse, row_max | max(1, |reference|) |
//
// each times max(1, 4 u L / floor): u = 2^-24 is the rounding unit of the logits and L the largest
// sum of |terms| that makes one of the row's logits. An error e in a logit is a relative error e of
// its weight, whatever the kernel does. Errors below 2^-110 never count: weights below the smallest
// normal float, 2^-126, may vanish, and so may sums of thousands of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../reference/flash_attention.hpp"
#include "compare.hpp"
#include "flash_data.hpp"

namespace tessera::support {

/// Truth and same-precision peer of one call. Made once, used for every row that runs the call.
class flash_expectation {
 public:
  template <class Hooks = reference::no_hooks>
  explicit flash_expectation(const flash_attention_args& args,
                             const flash_attention_options& options, Hooks hooks = {})
      : args_(args),
        truth_(reference::flash_attention<reference::exact>(args, options, hooks)),
        peer_(reference::flash_attention<reference::as_stored>(args, options, hooks)),
        largest_out_(largest(truth_.out_size)),
        largest_weight_(largest(truth_.weights)) {
    if (truth_.weights.empty()) return;
    const std::span<const double> weights(truth_.weights);
    const std::size_t width = width_of(args_.weights);
    for (std::size_t begin = 0; begin < weights.size(); begin += width) {
      row_weight_.push_back(largest(weights.subspan(begin, width)));
    }
  }

  const reference::flash_result& truth() const noexcept { return truth_; }

  /// How one output compares, by name; the view must have the shape the expectation was made for.
  comparison judge(std::string_view name, const tensor_view& view) const {
    const std::vector<double>& want = named(truth_, name);
    const double floor = floor_of(name, args_.q.type);
    const auto unit = [&](std::size_t index) { return unit_of(name, index, want[index], floor); };
    const comparison peer = compare_in_units(named(peer_, name), want, unit);
    return judged(compare_in_units(reference::to_doubles(view), want, unit), peer.error, floor);
  }

  /// One sentence for each output that is wrong; empty if all are right. `ran` may hold other
  /// memory than the call the expectation was made for, of the same shapes.
  std::string complaints() const { return complaints(args_); }
  std::string complaints(const flash_attention_args& ran) const {
    std::string text;
    const auto check = [&](std::string_view name, const tensor_view& view) {
      if (!view.present()) return;
      const comparison found = judge(name, view);
      if (!found.passed) text += sentence_of(found, name, view.shape()) + "\n";
    };
    check("out", ran.out);
    check("lse", ran.lse);
    check("row_max", ran.row_max);
    check("weights", ran.weights);
    if (ran.dropout_mask.present() && !same_bits(ran.dropout_mask)) {
      text += "dropout_mask: bits differ from the definition\n";
    }
    return text;
  }

 private:
  static constexpr double vanishing = 0x1p-110;

  static const std::vector<double>& named(const reference::flash_result& result,
                                          std::string_view name) {
    if (name == "lse") return result.lse;
    if (name == "row_max") return result.row_max;
    return name == "weights" ? result.weights : result.out;
  }

  double unit_of(std::string_view name, std::size_t index, double want, double floor) const {
    const auto conditioned = [&](double scale, double logit_size) {
      return std::max(scale * std::max(1.0, 4.0 * 0x1p-24 * logit_size / floor), vanishing / floor);
    };
    if (name == "out") {
      const std::size_t row = index / width_of(args_.v);
      return conditioned(std::max(truth_.out_size[row], 0.01 * largest_out_),
                         truth_.out_logit_size[row]);
    }
    if (name == "weights") {
      const std::size_t row = index / width_of(args_.weights);
      return conditioned(std::max(row_weight_[row], 0.01 * largest_weight_),
                         truth_.lse_logit_size[row]);
    }
    return conditioned(std::max(1.0, std::fabs(want)), truth_.lse_logit_size[index]);
  }

  static std::size_t width_of(const tensor_view& view) {
    return static_cast<std::size_t>(view.extent[static_cast<std::size_t>(view.rank - 1)]);
  }

  bool same_bits(const tensor_view& view) const {
    const std::vector<double> bits = reference::to_doubles(view);
    return std::equal(
        bits.begin(), bits.end(), truth_.dropout_mask.begin(), truth_.dropout_mask.end(),
        [](double ours, std::uint8_t want) { return ours == static_cast<double>(want); });
  }

  flash_attention_args args_;
  reference::flash_result truth_;
  reference::flash_result peer_;
  double largest_out_;
  double largest_weight_;
  std::vector<double> row_weight_;  // largest weight of each row
};

}  // namespace tessera::support
