// How many channels of a key the rows of recurrences on GPUs hold in the registers of a block.
#pragma once

#include <array>
#include <cstdint>

#include <tessera/spec/row_rule.hpp>

namespace tessera {

inline constexpr std::array<int, 4> recurrent_key_dims{64, 128, 256, 1024};

/// The fewest that are enough for a key; 0: none are.
constexpr int recurrent_key_dim_for(std::int64_t channels) noexcept {
  for (const int most : recurrent_key_dims) {
    if (channels <= most) return most;
  }
  return 0;
}
constexpr bool is_recurrent_key_dim(int channels) noexcept {
  return channels > 0 && recurrent_key_dim_for(channels) == channels;
}

/// Rules of rows of recurrences.
namespace recurrent_key_rules {

inline constexpr row_rule cuda_key_dim_is_known{"key_dim of a CUDA row is 64, 128, 256 or 1024"};
inline constexpr row_rule cpu_rows_take_any_key_dim{"key_dim of a CPU row is 0"};

}  // namespace recurrent_key_rules

}  // namespace tessera
