// Numbers of any floating type on the device, and their sum, under the names of the recurrences.
#pragma once

#include <tessera/prim/cuda/numbers.hpp>

namespace tessera::kernels::recurrence::sm80 {

using prim::cuda::number_at;
using prim::cuda::put_number;
using prim::cuda::sum_of_warp;
using prim::cuda::with_elements;

}  // namespace tessera::kernels::recurrence::sm80
