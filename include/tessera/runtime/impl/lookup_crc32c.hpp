// CRC-32C (Castagnoli), eight bytes a step: about 1 GB/s without special instructions, so that a
// table of 100,000 lines is checked in some 50 ms.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

namespace crc32c_tables {

constexpr auto make() {
  std::array<std::array<std::uint32_t, 256>, 8> all{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0x82f63b78u : 0u);
    all[0][byte] = value;
  }
  for (std::size_t step = 1; step < all.size(); ++step) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = all[step - 1][byte];
      all[step][byte] = (before >> 8) ^ all[0][before & 0xff];
    }
  }
  return all;
}

inline constexpr auto values = make();

}  // namespace crc32c_tables

constexpr std::uint32_t crc32c(std::string_view text) noexcept {
  const auto& table = crc32c_tables::values;
  std::uint32_t crc = 0xffffffffu;
  std::size_t at = 0;
  const auto byte = [&](std::size_t offset) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[at + offset]));
  };
  for (; at + 8 <= text.size(); at += 8) {
    crc ^= byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
    crc = table[7][crc & 0xff] ^ table[6][(crc >> 8) & 0xff] ^ table[5][(crc >> 16) & 0xff] ^
          table[4][crc >> 24] ^ table[3][byte(4)] ^ table[2][byte(5)] ^ table[1][byte(6)] ^
          table[0][byte(7)];
  }
  for (; at < text.size(); ++at) crc = (crc >> 8) ^ table[0][(crc ^ byte(0)) & 0xff];
  return ~crc;
}

static_assert(crc32c("123456789") == 0xe3069283u, "the check value of CRC-32C");

}  // namespace tessera
