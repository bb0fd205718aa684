// What tests of single tokens over pages by the header path begin with: a row, and bf16 values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <tessera/families/attention/config.hpp>

namespace tessera::device_test {

struct decode_row {
  static constexpr attention_config config{.target = backend::cuda_sm80,
                                           .type = dtype::bf16,
                                           .head_dim = 64,
                                           .phase = attention_phase::decode,
                                           .keys = key_storage::paged,
                                           .features = base_features,
                                           .block_q = 16,
                                           .block_kv = 64,
                                           .tiling = {.warps = 1, .blocks_per_sm = 6}};
};

/// The upper half of its bits.
inline std::uint16_t bf16_of(float x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
}
inline float float_of(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Normal values.
inline std::vector<std::uint16_t> bells(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> bell;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  for (std::uint16_t& value : values) value = bf16_of(bell(random));
  return values;
}

}  // namespace tessera::device_test
