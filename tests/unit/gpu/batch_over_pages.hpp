// Sizes of attention calls as schedules of GPUs count them.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>

namespace tessera::testing {

/// A batch of single tokens over pages, 64 query heads to 8.
constexpr schedule_sm80::call_sizes batch_over_pages(std::int64_t sequences, std::int64_t keys) {
  return {.packed = true,
          .batch = sequences,
          .q_tokens = sequences,
          .q_len = 1,
          .kv_len = keys,
          .q_heads = 64,
          .kv_heads = 8,
          .head_dim = 128,
          .v_head_dim = 128,
          .bytes_of_key = 512};
}

}  // namespace tessera::testing
