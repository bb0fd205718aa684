// The default table of flash attention, forward: which rows of the CPU exist and why; CUDA rows are
// in flash_fwd_cuda.hpp. Each block is a product of its lists; combinations that break a rule
// (`broken_table_rule`) are dropped and counted, and no row may come from two blocks. After an
// edit: `tessera-generate --dry-run`, then `tessera-generate`.
#pragma once

#include <cstdint>
#include <vector>

#include <tessera/spec/flash_attention/config.hpp>

#include "flash_fwd_blocks.hpp"

namespace tessera::generate {

inline std::vector<flash_axes> flash_fwd_axes() {
  using enum backend;
  using enum dtype;
  using enum flash_phase;
  const flash_features every = every_feature;
  const flash_features every_decode =
      every_feature.without({std::uint16_t(flash_feature::weights)});
  const flash_features base = base_features;
  const flash_features soft_cap = base | flash_feature::soft_cap;
  const flash_features segments = base | flash_feature::segments;

  return {
      {
          .about = "portable rows that together take every problem",
          .targets = {cpu_generic},
          .features = {every},
          .tiles = {{128, 64}},
      },
      {
          .about = "portable decode",
          .targets = {cpu_generic},
          .phases = {decode},
          .features = {every_decode},
          .tiles = {{16, 64}},
      },

      {
          .about = "avx2: any problem",
          .targets = {cpu_avx2},
          .features = {every},
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
          .phases = {decode},
          .features = {every_decode},
          .tiles = {{16, 64}},
      },
      {
          .about = "avx2: decode with the common head dim",
          .targets = {cpu_avx2},
          .dims = {{128}},
          .phases = {decode},
          .tiles = {{16, 64}},
      },

      {
          .about = "avx512: any problem",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .features = {every},
          .tiles = {{896, 256}},
      },
      {
          .about = "avx512: encoders with small heads (all-MiniLM)",
          .targets = {cpu_avx512},
          .types = {f32},
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
      {
          .about = "avx512: any decode",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .phases = {decode},
          .features = {every_decode},
          .tiles = {{16, 64}},
      },
      {
          .about = "avx512: decode with common head dims",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{64}, {128}, {256}},
          .phases = {decode},
          .tiles = {{16, 64}},
      },
      {
          .about = "avx512: decode of Gemma with its soft cap",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{256}},
          .phases = {decode},
          .features = {soft_cap},
          .tiles = {{16, 64}},
      },
  };
}

}  // namespace tessera::generate
