// The default table of flash attention, forward: which rows of the CPU exist and why; CUDA rows are
// in attention_cuda.hpp. Each block is a product of its lists; combinations that break a rule
// (`broken_table_rule`) are dropped and counted, and no row may come from two blocks. After an
// edit: `tessera-generate --dry-run`, then `tessera-generate`.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/reflect.hpp>

#include "attention_blocks.hpp"

namespace tessera::generate {

/// Rows that together take every problem on every CPU.
inline std::vector<attention_axes> portable_axes() {
  using enum backend;
  return {
      {
          .about = "portable rows that together take every problem",
          .targets = {cpu_generic},
          .features = {every_feature},
          .tiles = {{128, 64}},
      },
      {
          .about = "portable rows of 8 bits",
          .targets = {cpu_generic},
          .types = {dtype::f8_e4m3},
          .tiles = {{128, 64}},
      },
      {
          .about = "portable decode",
          .targets = {cpu_generic},
          .phases = {attention_phase::decode},
          .features = {every_feature_of(attention_phase::decode)},
          .tiles = {{16, 128}},
      },
  };
}

/// Rows of AVX2.
inline std::vector<attention_axes> avx2_axes() {
  using enum backend;
  return {
      {
          .about = "avx2: any problem",
          .targets = {cpu_avx2},
          .features = {every_feature},
          .tiles = {{384, 128}},
      },
      {
          .about = "avx2: common head dims",
          .targets = {cpu_avx2},
          .dims = {{64}, {128}, {256}},
          .tiles = {{384, 128}},
      },
      {
          .about = "avx2: any decode",
          .targets = {cpu_avx2},
          .phases = {attention_phase::decode},
          .features = {every_feature_of(attention_phase::decode)},
          .tiles = {{16, 128}},
      },
      {
          .about = "avx2: decode with the common head dim",
          .targets = {cpu_avx2},
          .dims = {{128}},
          .phases = {attention_phase::decode},
          .tiles = {{16, 128}},
      },
  };
}

/// Prompts on AVX-512, with and without bf16 dot products.
inline std::vector<attention_axes> avx512_prefill_axes() {
  using enum backend;
  const attention_features base = base_features;
  const attention_features soft_cap = base | attention_feature::soft_cap;
  const attention_features segments = base_features | attention_feature::segments;
  return {
      {
          .about = "avx512: any problem",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .features = {every_feature},
          .tiles = {{896, 256}},
      },
      {
          .about = "avx512: encoders with small heads (all-MiniLM)",
          .targets = {cpu_avx512},
          .types = {dtype::f32},
          .dims = {{32}},
          .tiles = {{896, 256}},
      },
      {
          .about = "avx512: common head dims (64 gpt-oss, 96 Phi, 128 Llama and Qwen)",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{64}, {96}, {128}},
          .tiles = {{896, 256}},
      },
      {
          .about = "avx512: Gemma, with and without its soft cap",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{256}},
          .features = {base, soft_cap},
          .tiles = {{896, 128}},
      },
      {
          .about = "avx512: batches packed by segment",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{128}},
          .features = {segments},
          .tiles = {{896, 256}},
      },
  };
}

/// Prompts and few query rows of bf16 on AMX.
inline std::vector<attention_axes> amx_axes() {
  using enum backend;
  return {
      {
          .about = "amx: any problem",
          .targets = {cpu_amx_bf16},
          .features = {every_feature},
          .tiles = {{896, 256}},
      },
      {
          .about = "amx: common head dims",
          .targets = {cpu_amx_bf16},
          .dims = {{64}, {128}, {256}},
          .tiles = {{1024, 512}},
      },
      {
          .about = "amx: decode with common head dims",
          .targets = {cpu_amx_bf16},
          .dims = {{64}, {128}, {256}},
          .phases = {attention_phase::decode},
          .tiles = {{64, 128}},
      },
  };
}

/// Decode on the same.
inline std::vector<attention_axes> avx512_decode_axes() {
  using enum backend;
  const attention_features soft_cap = base_features | attention_feature::soft_cap;
  return {
      {
          .about = "avx512: any decode",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .phases = {attention_phase::decode},
          .features = {every_feature_of(attention_phase::decode)},
          .tiles = {{16, 128}},
      },
      {
          .about = "avx512: decode with common head dims",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{64}, {128}, {256}},
          .phases = {attention_phase::decode},
          .tiles = {{16, 128}},
      },
      {
          .about = "avx512: decode of Gemma with its soft cap",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{256}},
          .phases = {attention_phase::decode},
          .features = {soft_cap},
          .tiles = {{16, 128}},
      },
  };
}

/// Tiles that a tuning of a machine measures beside those of the table, in register tiles of rows:
/// panels of 128 to 512 keys, which fit caches of 0.5 to 2 MB.
inline std::vector<tile> prefill_candidates(backend target) {
  std::vector<tile> all;
  for (const int register_tiles : {16, 32, 64}) {
    for (const int block_kv : {128, 256, 512}) {
      all.push_back({register_tiles * prefill_rows(target), block_kv});
    }
  }
  return all;
}
inline std::vector<tile> decode_candidates(backend target) {
  const int rows = most_decode_rows(target);
  return {{rows, 64}, {rows, 128}, {rows, 256}};
}

inline std::vector<attention_axes> cpu_attention_axes() {
  std::vector<attention_axes> all;
  for (const auto part :
       {&portable_axes, &avx2_axes, &avx512_prefill_axes, &avx512_decode_axes, &amx_axes}) {
    std::ranges::copy(part(), std::back_inserter(all));
  }
  return all;
}

}  // namespace tessera::generate
