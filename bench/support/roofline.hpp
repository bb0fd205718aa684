// Where a call lies under the roofs of the machine: arithmetic intensity against what multiply-adds
// and reading allow at that intensity.
//
// S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009.
#pragma once

#include <algorithm>

#include <tessera/spec/backend.hpp>

#include "bench/support/ceilings.hpp"

namespace tessera::bench {

/// The two limits that a call is held to.
struct roofs {
  double peak_gflops = 0;
  double read_gbytes = 0;
};

/// Position of one call.
struct placement {
  double gflops = 0;
  double gbytes = 0;
  double intensity = 0;   ///< floating point operations per byte
  double attainable = 0;  ///< GFLOP/s: min(peak, intensity x read)
  double of_peak = 0;
  double of_read = 0;
  double of_ceiling = 0;  ///< gflops / attainable: of the roof that binds
};

/// The chains that bound rows of a backend: its own instructions, not the machine's widest.
inline chains::chain_loop chain_of(backend target) {
  if (target == backend::cpu_amx_bf16) return chains::amx_bf16();
  if (target == backend::cpu_avx512_bf16) return chains::bf16_dot();
  if (target == backend::cpu_avx512_vnni) return chains::byte_dot();
  return target == backend::cpu_avx2 ? chains::fma_avx2() : chains::fma();
}

/// The same out of measured ceilings.
inline roofs roofs_of(backend target, const ceilings& limits) {
  const double peak = target == backend::cpu_amx_bf16      ? limits.amx_bf16_gflops
                      : target == backend::cpu_avx512_bf16 ? limits.bf16_dot_gflops
                      : target == backend::cpu_avx512_vnni ? limits.byte_dot_gops
                      : target == backend::cpu_avx2        ? limits.fma_avx2_gflops
                                                           : limits.fma_f32_gflops;
  return {peak, limits.read_gbytes};
}

/// True if reading, not computing, is the lower roof.
inline bool bound_by_reading(double flops, double bytes, const roofs& above) {
  return bytes / above.read_gbytes > flops / above.peak_gflops;
}

inline placement place(double flops, double bytes, double seconds, const roofs& above) {
  placement found;
  found.gflops = flops / seconds * 1e-9;
  found.gbytes = bytes / seconds * 1e-9;
  found.intensity = bytes > 0 ? flops / bytes : 0;
  found.of_peak = found.gflops / above.peak_gflops;
  found.of_read = found.gbytes / above.read_gbytes;
  found.attainable = bytes > 0 ? std::min(above.peak_gflops, found.intensity * above.read_gbytes)
                               : above.peak_gflops;
  found.of_ceiling = std::max(found.of_peak, found.of_read);
  return found;
}

}  // namespace tessera::bench
