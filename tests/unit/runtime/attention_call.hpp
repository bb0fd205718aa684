// A legal attention call with its memory, to be bent by tests.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/families/attention/operations.hpp>

namespace tessera::testing {

inline constexpr std::int64_t batch = 2, q_len = 5, kv_len = 7, q_heads = 4, kv_heads = 2;
inline constexpr std::int64_t head_dim = 8;

/// q [2,5,4,8], k and v [2,7,2,8] in f32, and memory for every optional tensor.
struct attention_call {
  std::vector<float> q = std::vector<float>(2 * 5 * 4 * 8, 0.5f);
  std::vector<float> k = std::vector<float>(2 * 7 * 2 * 8, 0.25f);
  std::vector<float> v = std::vector<float>(2 * 7 * 2 * 8, 2.0f);
  std::vector<float> out = std::vector<float>(2 * 5 * 4 * 8, -1.0f);
  std::vector<float> floats = std::vector<float>(4096, 0.0f);      ///< biases, sinks
  std::vector<float> statistics = std::vector<float>(4096, 0.0f);  ///< lse, row_max, weights
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(4096, 1);
  std::vector<std::uint8_t> kept = std::vector<std::uint8_t>(4096, 9);
  std::vector<std::int32_t> integers = std::vector<std::int32_t>(4096, 0);
  std::vector<std::int32_t> offsets_q{0, 2, 5}, offsets_k{0, 3, 7};

  flash_op op = flash_op::flash_attention;
  flash_attention_options options{};
  flash_attention_args args = dense();

  flash_attention_args dense() {
    return {.q = view(q.data(), {batch, q_len, q_heads, head_dim}),
            .k = view(k.data(), {batch, kv_len, kv_heads, head_dim}),
            .v = view(v.data(), {batch, kv_len, kv_heads, head_dim}),
            .out = view(out.data(), {batch, q_len, q_heads, head_dim})};
  }

  /// Two sequences of 2 and 3 rows, 3 and 4 keys.
  flash_attention_args packed() {
    return {.q = view(q.data(), {q_len, q_heads, head_dim}),
            .k = view(k.data(), {kv_len, kv_heads, head_dim}),
            .v = view(v.data(), {kv_len, kv_heads, head_dim}),
            .cu_seqlens_q = view(offsets_q.data(), {3}),
            .cu_seqlens_k = view(offsets_k.data(), {3}),
            .out = view(out.data(), {q_len, q_heads, head_dim})};
  }

  status lower() {
    attention_kernel_args lowered;
    return tessera::lower(op, args, options, lowered);
  }
};

}  // namespace tessera::testing
