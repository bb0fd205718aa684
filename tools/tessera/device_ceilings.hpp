// What a GPU can do at most, measured: multiply-adds with nothing but independent chains, reading
// and copying its memory.
#pragma once

#include <cstddef>

#include <boost/json/object.hpp>

#include <tessera/spec/dtype.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::tool {

/// Measured limits. A multiply-add counts as two operations; a copy counts the bytes read and the
/// bytes written.
struct device_ceilings {
  double fma_f32_gflops = 0;
  double mma_bf16_gflops = 0;  ///< mma.sync, which rows of cuda_sm80 are made of
  double mma_tf32_gflops = 0;
  double read_gbytes = 0;
  double copy_gbytes = 0;
  std::size_t buffer_bytes = 0;  ///< what the bandwidths were measured over

  /// The most that products of that type can reach: f32 takes three products of tf32, or the
  /// vector lanes.
  double peak_gflops(dtype type) const noexcept {
    if (type != dtype::f32) return mma_bf16_gflops;
    return mma_tf32_gflops / 3 > fma_f32_gflops ? mma_tf32_gflops / 3 : fma_f32_gflops;
  }
};

/// Takes about a tenth of a second and 512 MiB of the device.
result<device_ceilings> measure_ceilings_of(device_id gpu);

boost::json::object to_json(const device_ceilings& limits);

}  // namespace tessera::tool
