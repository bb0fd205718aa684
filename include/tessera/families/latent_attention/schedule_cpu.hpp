// How a launch of latent attention is cut on the CPU: kernels, workspace and cost ask here.
#pragma once

#include <cstdint>

#include <tessera/families/attention/config.hpp>
#include <tessera/spec/backend.hpp>

namespace tessera::latent_schedule {

/// Keys that are attended to together: their panels, of some 200 columns, stay in the second-level
/// cache while the rows of a block pass by.
inline constexpr int block_keys = 64;

/// Query rows (tokens times heads that share keys) of a work item, in whole register tiles.
constexpr int block_rows(backend target) noexcept {
  return 8 * register_rows(target);
}

}  // namespace tessera::latent_schedule
