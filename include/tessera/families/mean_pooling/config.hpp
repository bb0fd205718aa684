// What a mean pooling kernel is, at compile time.
#pragma once

#include <cstdint>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>

namespace tessera {

using pooling_pass = kernel_pass;

/// How a backward kernel writes.
enum class pooling_stores : std::uint8_t {
  cached,     ///< ordinary stores: what is written stays in the caches
  streaming,  ///< stores past the caches, which do not read the memory they overwrite
};

/// Most streams of tokens that a forward kernel reads at once; of a CUDA row, that a thread does.
inline constexpr int max_pooling_streams = 16;
inline constexpr int max_cuda_pooling_streams = 8;

/// One row of the table.
struct mean_pooling_config {
  backend target = backend::cpu_generic;
  dtype type = dtype::f32;  ///< of x and out, of d_out and d_x
  pooling_pass pass = pooling_pass::forward;
  /// Forward: runs of tokens that are read side by side, on CUDA the tokens that a thread has in
  /// flight; 0: 4. Backward: 0.
  int streams = 0;
  pooling_stores stores = pooling_stores::cached;  ///< forward: cached
  friend constexpr bool operator==(const mean_pooling_config&,
                                   const mean_pooling_config&) = default;
};

/// The config with every default filled in.
constexpr mean_pooling_config resolved(mean_pooling_config config) noexcept {
  if (config.pass == pooling_pass::forward && config.streams == 0) config.streams = 4;
  return config;
}

}  // namespace tessera
