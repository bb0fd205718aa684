// Ranges for profilers: each launch between two calls of the application, named after the row.
// Without a profiler a launch pays one relaxed atomic load.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

/// What a range is called.
enum class range_names : std::uint8_t {
  row,   ///< the row's name
  full,  ///< the row's name, a blank, and the problem text; the text is made for every launch
};

/// Called on the thread of the launch; must not call back into the library. The name is valid
/// during `begin` only.
struct profiler {
  void (*begin)(void* state, std::string_view name) noexcept = nullptr;
  void (*end)(void* state) noexcept = nullptr;
  void* state = nullptr;
  range_names names = range_names::row;
};

/// Installs the profiler of the process, null for none, and returns the one before. It must outlive
/// every launch that may use it.
const profiler* set_profiler(const profiler* one) noexcept;

/// The profiler of the process, or null.
const profiler* installed_profiler() noexcept;

}  // namespace tessera
