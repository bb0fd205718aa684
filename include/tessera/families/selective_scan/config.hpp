// What a kernel of elementwise recurrences is, at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/kernel_pass.hpp>

namespace tessera {

/// The recurrence that a kernel runs.
enum class scan_recurrence : std::uint8_t {
  state_space_v1,  ///< a decay for each channel and state
  state_space_v2,  ///< a decay for each head
  rwkv4,           ///< a decay for each channel, constant in time; sums relative to a maximum
};
inline constexpr std::array<std::string_view, 3> scan_recurrence_names{"state_space_v1",
                                                                       "state_space_v2", "rwkv4"};
constexpr std::string_view name_of(scan_recurrence recurrence) noexcept {
  return scan_recurrence_names[static_cast<std::size_t>(recurrence)];
}

using scan_pass = kernel_pass;

/// One row of the table. Kernels take every element type and size.
struct selective_scan_config {
  backend target = backend::cpu_generic;
  scan_recurrence recurrence = scan_recurrence::state_space_v1;
  scan_pass pass = scan_pass::forward;
  friend constexpr bool operator==(const selective_scan_config&,
                                   const selective_scan_config&) = default;
};

/// The config with every default filled in.
constexpr selective_scan_config resolved(selective_scan_config config) noexcept {
  return config;
}

}  // namespace tessera
