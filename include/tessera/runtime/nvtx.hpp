// NVTX ranges named after rows, as Nsight shows them. Header only; for programs that compile with
// the CUDA toolkit's headers, without them it declares nothing.
//
//   tessera::set_profiler(&tessera::nvtx_profiler());
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)

#include <array>
#include <string_view>

#include <nvtx3/nvToolsExt.h>

#include <tessera/runtime/events.hpp>

namespace tessera {

namespace impl {

inline void begin_nvtx_range(void*, std::string_view name) noexcept {
  std::array<char, 256> text{};  // ends with a zero
  name.copy(text.data(), text.size() - 1);
  nvtxRangePushA(text.data());
}

inline void end_nvtx_range(void*) noexcept {
  nvtxRangePop();
}

}  // namespace impl

/// A profiler whose ranges are NVTX ranges of the calling thread.
inline const profiler& nvtx_profiler() noexcept {
  static constexpr profiler ranges{&impl::begin_nvtx_range, &impl::end_nvtx_range, nullptr,
                                   range_names::row};
  return ranges;
}

}  // namespace tessera

#endif
