// prim/cuda/element_cast.hpp: every code of 8 bits as a float, and floats as elements, with the
// bits that the host has. prim/cuda/code_words.hpp: every code as an element of 16 or 32 bits.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/prim/cuda/code_words.hpp>
#include <tessera/prim/cuda/element_cast.hpp>

#include "tests/cuda/device_values.hpp"

namespace {

using namespace tessera;
using device_test::device_values;

template <class Element>
__global__ void decode(const Element* codes, float* values, float* pairs) {
  for (int i = 2 * static_cast<int>(threadIdx.x); i < 256; i += 64) {
    values[i] = prim::cuda::float_of(codes[i]);
    values[i + 1] = prim::cuda::float_of(codes[i + 1]);
    const float2 both = prim::cuda::float_pair(codes + i);
    pairs[i] = both.x;
    pairs[i + 1] = both.y;
  }
}

template <class Element>
__global__ void encode(const float* values, Element* elements, int count) {
  const int i = 2 * static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i + 1 < count) prim::cuda::store_pair(elements + i, values[i], values[i + 1]);
}

/// Chunks of 16 bytes of elements, and the codes without what is not finite; a chunk a thread.
template <class Code, class Element>
__global__ void widen_all(const Code* codes, Element* wide, std::uint8_t* finite) {
  constexpr int count = 16 / static_cast<int>(sizeof(Element));
  const int first = static_cast<int>(threadIdx.x) * count;
  const auto* from = reinterpret_cast<const unsigned char*>(codes) + first;
  std::uint32_t words[4];
  const uint2 loaded = prim::cuda::load_codes<count>(from, count, threadIdx.x % 2 == 0);
  prim::cuda::widen<Code, Element>(words, loaded);
  for (int i = 0; i < 4; ++i) reinterpret_cast<std::uint32_t*>(wide + first)[i] = words[i];
  for (int i = 0; i < count / 4; ++i) {
    const std::uint32_t kept = prim::cuda::finite_codes<Code>(i == 0 ? loaded.x : loaded.y);
    reinterpret_cast<std::uint32_t*>(finite + first)[i] = kept;
  }
}

void expect_same(float ours, float host, std::size_t at) {
  if (std::isnan(host)) {
    ASSERT_TRUE(std::isnan(ours)) << at;
  } else {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(ours), std::bit_cast<std::uint32_t>(host)) << at;
  }
}

template <class Element>
void expect_codes() {
  std::vector<Element> codes(256);
  for (std::size_t i = 0; i < 256; ++i)
    codes[i] = std::bit_cast<Element>(static_cast<std::uint8_t>(i));
  device_values<Element> there(codes);
  device_values<float> values(std::vector<float>(256)), pairs(std::vector<float>(256));
  decode<<<1, 32>>>(there.data(), values.data(), pairs.data());
  const std::vector<float> single = values.fetch(), both = pairs.fetch();
  for (std::size_t i = 0; i < 256; ++i) {
    expect_same(single[i], prim::float_of(codes[i]), i);
    expect_same(both[i], prim::float_of(codes[i]), i);
  }
}

template <class Code, class Element>
void expect_widened() {
  std::vector<Code> codes(256);
  for (std::size_t i = 0; i < 256; ++i) {
    codes[i] = std::bit_cast<Code>(static_cast<std::uint8_t>(i));
  }
  device_values<Code> there(codes);
  device_values<Element> wide{std::vector<Element>(256)};
  device_values<std::uint8_t> finite{std::vector<std::uint8_t>(256)};
  widen_all<Code, Element>
      <<<1, 256 / (16 / sizeof(Element))>>>(there.data(), wide.data(), finite.data());
  const std::vector<Element> elements = wide.fetch();
  const std::vector<std::uint8_t> kept = finite.fetch();
  for (std::size_t i = 0; i < 256; ++i) {
    const float value = prim::float_of(codes[i]);
    expect_same(prim::float_of(elements[i]), value, i);
    ASSERT_EQ(kept[i], std::isfinite(value) ? i : 0u);
  }
}

template <class Element>
void expect_elements() {
  std::vector<float> values;
  for (std::uint64_t word = 0; word < (1ull << 32); word += 2003) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  }
  for (int half = -1000; half <= 1000; ++half) {
    for (const float unit : {0.5f, 16.0f, 0x1p-11f, 0x1p-18f, 4096.0f}) {
      const float at = static_cast<float>(half) * unit;
      for (const float value :
           {std::nextafter(at, -HUGE_VALF), at, std::nextafter(at, HUGE_VALF)}) {
        values.push_back(value);
      }
    }
  }
  if (values.size() % 2 != 0) values.pop_back();
  const int count = static_cast<int>(values.size());
  device_values<float> there(values);
  device_values<Element> elements{std::vector<Element>(values.size())};
  encode<<<static_cast<unsigned>(count / 512 + 1), 256>>>(there.data(), elements.data(), count);
  const std::vector<Element> ours = elements.fetch();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Element host = prim::nearest<Element>(values[i]);
    if (sizeof(Element) > 1 && std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(prim::float_of(ours[i]))) << i;
    } else {
      ASSERT_EQ(prim::float_of(ours[i]), prim::float_of(host)) << std::hexfloat << values[i];
    }
  }
}

template <class Element>
void expect_elements_of_8_bits() {
  std::vector<float> values;
  for (std::uint64_t word = 0; word < (1ull << 32); word += 1009) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  }
  for (int code = 0; code < 256; ++code) {
    const float at = prim::float_of(std::bit_cast<Element>(static_cast<std::uint8_t>(code)));
    const float next = prim::float_of(
        std::bit_cast<Element>(static_cast<std::uint8_t>(code == 255 ? 0 : code + 1)));
    for (const float center : {at, at + (next - at) / 2}) {
      for (const float value :
           {std::nextafter(center, -HUGE_VALF), center, std::nextafter(center, HUGE_VALF)}) {
        values.push_back(value);
      }
    }
  }
  if (values.size() % 2 != 0) values.pop_back();
  const int count = static_cast<int>(values.size());
  device_values<float> there(values);
  device_values<Element> elements{std::vector<Element>(values.size())};
  encode<<<static_cast<unsigned>(count / 512 + 1), 256>>>(there.data(), elements.data(), count);
  const std::vector<Element> ours = elements.fetch();
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint8_t>(ours[i]),
              std::bit_cast<std::uint8_t>(prim::nearest<Element>(values[i])))
        << std::hexfloat << values[i];
  }
}

TEST(element_cast, all_codes_have_the_values_that_the_host_gives_them) {
  expect_codes<f8_e4m3>();
  expect_codes<f8_e5m2>();
  expect_codes<std::int8_t>();
}

TEST(element_cast, codes_become_the_elements_that_have_their_values) {
  const auto expect = []<class Code>(Code) {
    expect_widened<Code, f16>();
    expect_widened<Code, bf16>();
    expect_widened<Code, float>();
  };
  expect(f8_e4m3{});
  expect(f8_e5m2{});
  expect(std::int8_t{});
}

TEST(element_cast, floats_become_the_elements_that_the_host_makes_of_them) {
  expect_elements<f16>();
  expect_elements<bf16>();
  expect_elements_of_8_bits<f8_e4m3>();
  expect_elements_of_8_bits<f8_e5m2>();
  expect_elements_of_8_bits<std::int8_t>();
}

}  // namespace
