// The verdict on a call of any operation that has a reference: the truth, the tolerance that
// belongs to it, and what is wrong.
//
// Generated problems may be ill-conditioned where golden files are not, and tiny, so that the error
// of one peer is a matter of luck. Their scales therefore follow from the sums that make a result
// (`expected_tensor::sizes`: the largest of the row, at least 1 % of the tensor's), times
// max(1, 4 u L / floor) where results have exponents: u = 2^-24 is their rounding unit and L the
// largest sum of |terms| that makes one (`logits`). An error e in an exponent is a relative error e
// of its power, whatever the kernel does. Errors below 2^-110 never count, nor in f16 below its
// smallest number: what is below the smallest normal number may vanish, and so may sums of
// thousands. The floor of 16-bit types holds two roundings, of one number on the way and of the
// result; rows that round n on the way have n + 1 of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <tessera/spec/declaration.hpp>

#include "../reference/operations.hpp"
#include "compare.hpp"

namespace tessera::support {

/// An output and how it compares with the definition.
struct judged_output {
  std::string name{};
  tensor_shape shape{};
  comparison found{.passed = true};

  /// What is wrong; empty: nothing.
  std::string complaint() const { return found.passed ? "" : sentence_of(found, name, shape); }
};

/// Truth and same-precision peer of one call. Made once, before the call writes in place; used for
/// every row that runs it.
class call_expectation {
 public:
  /// The operation has a reference.
  explicit call_expectation(const bound_call& call);

  /// The outputs among `tensors`, which may lie in other memory than those of the call.
  /// `rounded_numbers`: of the row that computed them (`operation_reference::rounded_numbers`).
  std::vector<judged_output> outputs(const tensor_view* tensors, int rounded_numbers = 1) const;
  /// One sentence for each of them that is wrong; empty if all are right.
  std::string complaints(const tensor_view* tensors, int rounded_numbers = 1) const;

  const reference::expected_tensors& truth() const noexcept { return truth_; }

 private:
  const signature& form_;
  dtype operands_ = dtype::none;  ///< whose precision sets the floor
  bool scales_rows_ = false;      ///< rows times scales of their tokens are rounded once more
  reference::expected_tensors truth_, peer_;
};

/// The output of a call of any size that is furthest out of bound: in small calls of all of their
/// elements, in others of a sample, or of a share of the heads. An operation that has neither
/// (`operation_reference::sample`, `independent`) is judged as a whole if `thorough`, else not at
/// all.
judged_output worst_output(const bound_call& call, const tensor_view* computed,
                           const reference::sample_plan& plan = {}, bool thorough = true);

}  // namespace tessera::support
