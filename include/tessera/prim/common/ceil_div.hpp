// How many parts of a size cover so many elements.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

TESSERA_HD constexpr std::int64_t ceil_div(std::int64_t count, std::int64_t each) noexcept {
  return (count + each - 1) / each;
}

}  // namespace tessera::prim
