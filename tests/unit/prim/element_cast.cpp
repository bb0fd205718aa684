// Floats as elements of storage types, in loops as kernels have them: what the compiler makes of
// them with this program's instructions has the same bits.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/common/element_cast.hpp>

namespace {

using tessera::prim::float_of;
using tessera::prim::nearest;
using tessera::prim::nearest_i8;

std::vector<float> probes() {
  std::vector<float> values;
  for (std::uint64_t word = 0; word < (1ull << 32); word += 40013) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  }
  for (int half = -260; half <= 260; ++half) {
    const float at = static_cast<float>(half) / 2;
    for (const float value : {std::nextafter(at, -HUGE_VALF), at, std::nextafter(at, HUGE_VALF)}) {
      values.push_back(value);
    }
  }
  return values;
}

TEST(element_cast, whole_numbers_are_the_nearest_even_ones_and_saturate) {
  for (const float value : probes()) {
    double want = 0;
    if (!std::isnan(value)) {
      want = std::nearbyint(std::fmin(std::fmax(static_cast<double>(value), -128.0), 127.0));
    }
    ASSERT_EQ(static_cast<double>(nearest_i8(value)), want) << std::hexfloat << value;
  }
}

template <class Element>
void expect_same_in_a_loop() {
  const std::vector<float> values = probes();
  std::vector<Element> elements(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) elements[i] = nearest<Element>(values[i]);
  std::vector<float> back(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) back[i] = float_of(elements[i]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    volatile float value = values[i];
    const auto element = nearest<Element>(value);
    ASSERT_EQ(std::bit_cast<std::uint8_t>(element), std::bit_cast<std::uint8_t>(elements[i]));
    const float alone = float_of(element);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(alone), std::bit_cast<std::uint32_t>(back[i]));
  }
}

TEST(element_cast, loops_have_the_bits_of_single_elements) {
  expect_same_in_a_loop<tessera::f8_e4m3>();
  expect_same_in_a_loop<tessera::f8_e5m2>();
  expect_same_in_a_loop<std::int8_t>();
}

}  // namespace
