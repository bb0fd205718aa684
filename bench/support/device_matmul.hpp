// Matrix products of cuBLAS, the most that a GPU's tensor cores are seen to do. The library is
// loaded at run time: a machine without it has no such figure and runs the benches all the same.
#pragma once

#include <tessera/spec/status.hpp>

#include "bench/support/device_ceilings.hpp"

namespace tessera::bench {

/// GFLOP/s of square bf16 products of random numbers, sums in f32: the best of a few. The refusal
/// says what is missing. Takes 400 MB of the device for as long as it runs.
result<double> measure_matmul(gpu_stopwatch& watch);

}  // namespace tessera::bench
