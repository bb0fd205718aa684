// The verdict on a generated call: the truth, the tolerance that belongs to it, and what is wrong.
#pragma once

#include <algorithm>
#include <cstdint>
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
        peer_(reference::flash_attention<reference::as_stored>(args, options, hooks)) {}

  const reference::flash_result& truth() const noexcept { return truth_; }

  /// How one output compares, by name; the view must have the shape the expectation was made for.
  comparison judge(std::string_view name, const tensor_view& view) const {
    const std::vector<double>& want = named(truth_, name);
    const std::int64_t width = view.rank > 0 ? view.extent[static_cast<std::size_t>(view.rank - 1)]
                                             : 1;
    const error_scale scale = scale_of(name);
    const comparison peer = compare(named(peer_, name), want, width, scale);
    return judged(compare(reference::to_doubles(view), want, width, scale), peer.error,
                  floor_of(name, args_.q.type));
  }

  /// One sentence for each output that is wrong; empty if all are right.
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
  static const std::vector<double>& named(const reference::flash_result& result,
                                          std::string_view name) {
    if (name == "lse") return result.lse;
    if (name == "row_max") return result.row_max;
    return name == "weights" ? result.weights : result.out;
  }

  bool same_bits(const tensor_view& view) const {
    const std::vector<double> bits = reference::to_doubles(view);
    return std::equal(bits.begin(), bits.end(), truth_.dropout_mask.begin(),
                      truth_.dropout_mask.end(),
                      [](double ours, std::uint8_t want) { return ours == static_cast<double>(want); });
  }

  flash_attention_args args_;
  reference::flash_result truth_;
  reference::flash_result peer_;
};

}  // namespace tessera::support
