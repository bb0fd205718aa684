// How a launch of latent attention is cut on the CPU: kernels, workspace and cost ask here.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/spec/backend.hpp>

namespace tessera::latent_schedule {

/// Keys that are attended to together: their panels, of some 200 columns, stay in the second-level
/// cache while the rows of a block pass by.
inline constexpr int block_keys = 64;

/// Keys of a sequence over pages that are summed up together: whole tiles. Sums of such parts are
/// combined in their order, so that no bit depends on who adds them up.
inline constexpr std::int64_t part_keys = 32 * block_keys;
constexpr std::int64_t parts_of(std::int64_t keys) noexcept {
  return (keys + part_keys - 1) / part_keys;
}

/// Query rows (tokens times heads that share keys) of a work item, in whole register tiles.
constexpr int block_rows(backend target) noexcept {
  return 8 * register_rows(target);
}

/// Pairs of batch entry and key/value head whose keys and values are there at the same time: one
/// for each thread, and more of small ones, or threads would do little but wait for each other.
constexpr std::int64_t wave(std::int64_t pairs, std::size_t bytes_of_pair, int threads) noexcept {
  constexpr std::size_t bytes_of_thread = std::size_t{1} << 22;
  const auto each = static_cast<std::int64_t>(
      bytes_of_thread / (bytes_of_pair > 0 ? bytes_of_pair : bytes_of_thread));
  const std::int64_t most = threads * (each > 1 ? each : 1);
  return most < pairs ? most : pairs;
}

}  // namespace tessera::latent_schedule
