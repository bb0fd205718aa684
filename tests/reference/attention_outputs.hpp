// What the references of the attention operations share: the outputs that all of them have.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "flash_attention.hpp"
#include "operations.hpp"

namespace tessera::reference {

/// `out` as tensor number `tensor` of a signature.
inline expected_tensor expected_out(const flash_result& result, std::size_t tensor) {
  return {.tensor = tensor,
          .values = result.out,
          .sizes = result.out_size,
          .logits = result.out_logit_size};
}

/// lse or row_max, whose errors are relative to their values, but to no less than 1.
inline expected_tensor expected_statistic(const flash_result& result, std::vector<double> values,
                                          std::size_t tensor) {
  std::vector<double> sizes;
  for (const double value : values) sizes.push_back(std::max(1.0, std::fabs(value)));
  return {tensor, std::move(values), std::move(sizes), result.lse_logit_size, 0};
}

/// The same result with `out` multiplied.
inline flash_result multiplied(flash_result result, double factor) {
  for (double& element : result.out) element *= factor;
  for (double& size : result.out_size) size *= factor;
  return result;
}
inline output_sample multiplied(output_sample rows, double factor) {
  for (expected_tensor* const values : {&rows.exact, &rows.as_stored}) {
    for (double& element : values->values) element *= factor;
  }
  return rows;
}

/// The same result of codes in pages. Rows may round products of codes and scales of tokens to 16
/// bits before they multiply them: half of the floor more, which is of weights and of what is
/// stored.
inline flash_result with_rounded_values(flash_result result, const tensor_view& token_scales,
                                        dtype queries) {
  if (!token_scales.present() || size_of(queries) != 2) return result;
  for (double& size : result.out_size) size *= 1.5;
  return result;
}

/// out and, where the call has it, lse.
inline expected_tensors expected_out_and_lse(const flash_result& result, const bound_call& call,
                                             std::size_t out, std::size_t lse) {
  expected_tensors all{expected_out(result, out)};
  if (call.has(lse)) all.push_back(expected_statistic(result, result.lse, lse));
  return all;
}

}  // namespace tessera::reference
