// What a kernel of linear attention with decay is, at compile time.
#pragma once

#include <array>
#include <cstdint>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>

namespace tessera {

using chunked_scan_pass = kernel_pass;

/// How a kernel goes through time.
enum class chunked_scan_form : std::uint8_t {
  step,   ///< token by token, the state stays in the first-level cache
  chunk,  ///< 64 tokens at a time, as matrix products of 16-bit operands
};

/// What decays in a call: kernels are compiled for each, a step is three instructions.
enum class chunked_scan_decay : std::uint8_t {
  none,
  keys,             ///< rows of a state, by one factor or one for each
  keys_and_values,  ///< its columns as well
};

inline constexpr std::array<std::string_view, 3> chunked_scan_decay_names{"none", "keys",
                                                                          "keys_and_values"};

constexpr chunked_scan_decay decay_of(bool keys, bool values) noexcept {
  if (values) return chunked_scan_decay::keys_and_values;
  return keys ? chunked_scan_decay::keys : chunked_scan_decay::none;
}

/// Tokens between two states that a backward kernel keeps of its way forward.
inline constexpr std::int64_t chunked_scan_chunk = 64;

/// One row of the table. CPU kernels take every head dim, and all of them every decay.
struct chunked_scan_config {
  backend target = backend::cpu_generic;
  dtype type = dtype::f32;  ///< of q, k, v and out
  chunked_scan_pass pass = chunked_scan_pass::forward;
  chunked_scan_form form = chunked_scan_form::step;
  /// CUDA rows: the most channels of a key that a block's registers hold, 64, 128, 256 or 1024; it
  /// decides how values are cut. CPU rows: 0, any.
  int key_dim = 0;
  friend constexpr bool operator==(const chunked_scan_config&,
                                   const chunked_scan_config&) = default;
};

/// Tokens are products of the matrix unit.
constexpr bool goes_by_chunks(const chunked_scan_config& config) noexcept {
  return config.form == chunked_scan_form::chunk;
}

/// The config with every default filled in.
constexpr chunked_scan_config resolved(chunked_scan_config config) noexcept {
  if (is_cuda(config.target) && config.key_dim == 0) config.key_dim = 128;
  return config;
}

/// Bytes of shared memory that the largest block of a row of chunks has, which not every device
/// has; 0 for rows that go token by token, for which every device has enough. Launchers hold their
/// kernels to it.
constexpr int chunk_shared_bytes(chunked_scan_config config) noexcept {
  config = resolved(config);
  if (!goes_by_chunks(config)) return 0;
  const bool wide = config.key_dim > 64;
  constexpr int kilobyte = 1024;
  const bool forward = config.pass == chunked_scan_pass::forward;
  if (config.target == backend::cuda_sm90) return (wide ? 217 : forward ? 150 : 176) * kilobyte;
  if (forward) return (wide ? 111 : 78) * kilobyte;
  // Chunks of f16 have decays of heads alone; of bf16 the largest are those of transposed states
  // and of gradients of decays.
  if (config.type == dtype::f16) return (wide ? 94 : 62) * kilobyte;
  return (wide ? 150 : 112) * kilobyte;
}

}  // namespace tessera
