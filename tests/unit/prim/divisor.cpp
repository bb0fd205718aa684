// Division by a product and a shift is division.
#include <cstdint>
#include <initializer_list>

#include <gtest/gtest.h>

#include <tessera/prim/common/divisor.hpp>

#include "../../support/random.hpp"

namespace {

using tessera::prim::divisor;

constexpr std::uint32_t most = INT32_MAX;

void expect_exact(std::uint32_t value, std::uint32_t number) {
  const int quotient = divisor::of(value).quotient(static_cast<int>(number));
  EXPECT_EQ(quotient, static_cast<int>(number / value)) << number << " / " << value;
}

TEST(divisor, divides_near_every_multiple) {
  for (const std::uint32_t value : {1u, 2u, 3u, 7u, 16u, 641u, 65535u, 65536u, 1u << 30, most}) {
    for (std::uint64_t times : {0u, 1u, 2u, 1000u, most / value}) {
      const std::uint64_t multiple = times * value;
      for (const std::uint64_t number : {multiple, multiple + 1, multiple + value - 1}) {
        if (number <= most) expect_exact(value, static_cast<std::uint32_t>(number));
      }
      if (multiple > 0 && multiple <= most) {
        expect_exact(value, static_cast<std::uint32_t>(multiple - 1));
      }
    }
  }
}

TEST(divisor, divides_random_numbers) {
  tessera::support::random_source random(7);
  for (int n = 0; n < 200'000; ++n) {
    const auto value = static_cast<std::uint32_t>(1 + (random.bits() % most >> random.below(31)));
    expect_exact(value, static_cast<std::uint32_t>(random.bits() % (std::uint64_t{most} + 1)));
  }
}

}  // namespace
