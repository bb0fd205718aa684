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
// thousands.
#pragma once

#include <string>
#include <vector>

#include <tessera/spec/declaration.hpp>

#include "../reference/operations.hpp"
#include "compare.hpp"

namespace tessera::support {

/// Truth and same-precision peer of one call. Made once, before the call writes in place; used for
/// every row that runs it.
class call_expectation {
 public:
  /// The operation has a reference.
  explicit call_expectation(const bound_call& call);

  /// One sentence for each output that is wrong; empty if all are right. `tensors` may lie in other
  /// memory than those of the call.
  std::string complaints(const tensor_view* tensors) const;

  const reference::expected_tensors& truth() const noexcept { return truth_; }

 private:
  std::vector<double> units(const reference::expected_tensor& truth, const tensor_view& view,
                            double floor) const;

  const signature& form_;
  dtype operands_ = dtype::none;  ///< whose precision sets the floor
  reference::expected_tensors truth_, peer_;
};

}  // namespace tessera::support
