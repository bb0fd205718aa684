// The verdict on an output by the answers that a golden file has (tests/golden/README.md).
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <tessera/interop/safetensors.hpp>
#include <tessera/spec/dtype.hpp>

#include "../reference/elements.hpp"
#include "compare.hpp"

namespace tessera::support {

struct file_verdict {
  comparison ours;
  std::optional<double> source_error;  ///< none: the file has no answer of its source
};

/// `ours` are the values of output `name`, of that type; the file has `ref.<name>`. `operands` is
/// the type whose precision sets the floor.
inline file_verdict judge_by_file(const safetensors_file& file, const std::string& name,
                                  const std::vector<double>& ours, dtype type, dtype operands) {
  const tensor_view& reference = *file.tensor("ref." + name);
  const std::vector<double> want = reference::to_doubles(reference);
  const std::int64_t width =
      reference.rank > 0 ? reference.extent[static_cast<std::size_t>(reference.rank - 1)] : 1;
  const bool whole = reference.type != dtype::f64;
  // No result is nearer than operands and its own type let it be.
  double floor = whole ? 0.0 : std::max(floor_of(name, operands), floor_of(name, type));
  // An lse in f32 is as far from the truth as this, and so are weights that are computed from it.
  const tensor_view* const lse = name.starts_with("d_") ? file.tensor("ref.lse") : nullptr;
  if (lse != nullptr) floor = std::max(floor, 0x1p-23 * largest(reference::to_doubles(*lse)));
  const error_scale scale = whole ? error_scale::equal : scale_of(name);
  // A gradient that vanishes is as exact as what cancels in it.
  const tensor_view* const d_out = file.tensor("in.d_out");
  const double cancelling = scale == error_scale::tensor && d_out != nullptr
                                ? largest(reference::to_doubles(*d_out))
                                : 0.0;
  file_verdict verdict;
  if (const tensor_view* source = file.tensor("out." + name)) {
    verdict.source_error =
        compare(reference::to_doubles(*source), want, width, scale, cancelling).error;
  }
  verdict.ours = judged(compare(ours, want, width, scale, cancelling),
                        whole ? 0.0 : verdict.source_error.value_or(0.0), floor);
  return verdict;
}

}  // namespace tessera::support
