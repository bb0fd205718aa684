// What a delta rule kernel is, at compile time.
#pragma once

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>

namespace tessera {

using delta_rule_pass = kernel_pass;

/// One row of the table. A zero extent means the backend's default (see `resolved`).
struct delta_rule_config {
  backend target = backend::cpu_generic;
  dtype type = dtype::f32;  ///< of q, k, v and out
  delta_rule_pass pass = delta_rule_pass::forward;
  /// Forward: tokens that meet a state together, which is 1, step by step. Backward: tokens between
  /// two states that are kept, whole chunks of 16; those between them are computed again.
  /// CUDA rows: 0, token by token, or 64, tokens that are products of the matrix unit; those of
  /// cuda_sm90 are forward rows of the latter.
  int chunk = 0;
  /// Of the values that a state is cut into: a tile has so many for each channel. CUDA rows: 0.
  int columns = 0;
  /// CUDA rows: the most channels of a key that a block's registers hold, 64, 128, 256 or 1024; it
  /// decides how values are cut. CPU rows: 0, any.
  int key_dim = 0;
  friend constexpr bool operator==(const delta_rule_config&, const delta_rule_config&) = default;
};

/// Of a CUDA row: tokens are products of the matrix unit.
constexpr bool goes_by_chunks(const delta_rule_config& config) noexcept {
  return is_cuda(config.target) && config.chunk != 0;
}

/// Registers side by side that hold the columns of a tile, at most.
inline constexpr int most_delta_rule_registers = 4;

/// The config with every default filled in.
constexpr delta_rule_config resolved(delta_rule_config config) noexcept {
  if (is_cuda(config.target)) {
    if (config.key_dim == 0) config.key_dim = 128;
    return config;
  }
  const bool forward = config.pass == delta_rule_pass::forward;
  if (config.chunk == 0) config.chunk = forward ? 1 : 64;
  if (config.columns == 0) {
    // Products of chunks are as wide as the accumulators allow.
    const int width = vector_floats(config.target);
    config.columns = (forward || width >= 16 ? most_delta_rule_registers : 2) * width;
  }
  return config;
}

/// Bytes of shared memory that the largest block of a row of chunks has, which not every device
/// has; 0 for rows for which every device has enough. Launchers hold their kernels to it.
constexpr int chunk_shared_bytes(delta_rule_config config) noexcept {
  config = resolved(config);
  if (!goes_by_chunks(config) || config.pass == delta_rule_pass::forward) return 0;
  constexpr int kilobyte = 1024;
  return (config.key_dim > 64 ? 161 : 92) * kilobyte;
}

}  // namespace tessera
