// The direction of a kernel, which most families have two of.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/spec/names.hpp>

namespace tessera {

enum class kernel_pass : std::uint8_t {
  forward,   ///< results from operands
  backward,  ///< gradients of the operands
};

inline constexpr std::array<std::string_view, 2> kernel_pass_names{"forward", "backward"};
constexpr std::string_view name_of(kernel_pass pass) noexcept {
  return name_in(kernel_pass_names, pass);
}

}  // namespace tessera
