// The CUDA part of the default table of flash attention, forward; see attention.hpp. Tiles were
// measured on an H200 (kernels/attention/sm80/NOTES.md has what was tried).
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/reflect.hpp>

#include "attention_blocks.hpp"

namespace tessera::generate {

/// 16-bit elements.
inline std::vector<dtype> halves() {
  return {dtype::f16, dtype::bf16};
}

/// Rows that together take every problem.
inline std::vector<attention_axes> cuda_any_axes() {
  using enum backend;
  const attention_features every_decode = every_feature_of(attention_phase::decode);
  return {
      {
          .about = "sm80: any problem, tokens at any address",
          .targets = {cuda_sm80},
          .types = halves(),
          .features = {every_feature},
          .tiles = {{64, 32, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80: any decode",
          .targets = {cuda_sm80},
          .types = halves(),
          .phases = {attention_phase::decode},
          .features = {every_decode},
          .tiles = {{16, 32, {.warps = 1, .blocks_per_sm = 3}}},
      },
      {
          .about = "sm80: any problem in f32, products by three tf32 products each",
          .targets = {cuda_sm80},
          .types = {dtype::f32},
          .features = {every_feature},
          .tiles = {{64, 16, {.warps = 4, .blocks_per_sm = 2}}},
      },
  };
}

/// f32 with common head dims.
inline std::vector<attention_axes> cuda_f32_axes() {
  using enum backend;
  return {
      {
          .about = "sm80: f32, head dim 64: three blocks fit",
          .targets = {cuda_sm80},
          .types = {dtype::f32},
          .dims = {{64}},
          .tiles = {{64, 32, {.warps = 4, .blocks_per_sm = 3}}},
      },
      {
          .about = "sm80: f32, head dim 128",
          .targets = {cuda_sm80},
          .types = {dtype::f32},
          .dims = {{128}},
          .tiles = {{64, 32, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80: f32, head dim 256: keys in tiles of 16, so that two blocks fit",
          .targets = {cuda_sm80},
          .types = {dtype::f32},
          .dims = {{256}},
          .tiles = {{64, 16, {.warps = 4, .blocks_per_sm = 2}}},
      },
  };
}

/// 16-bit prompts with common head dims.
inline std::vector<attention_axes> cuda_prefill_axes() {
  using enum backend;
  const attention_features base = base_features;
  const attention_features soft_cap = base | attention_feature::soft_cap;
  return {
      {
          .about = "sm80: head dim 64 (gpt-oss), Q read once",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{64}},
          .tiles = {{128, 64, {.warps = 4, .blocks_per_sm = 2, .q_in_registers = true}}},
      },
      {
          .about = "sm80: head dims of diffusion, SigLIP and Phi-2, of Phi-3, Llama and Qwen",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{40}, {72}, {80}, {96}, {128}},
          .tiles = {{128, 64, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about =
              "sm80: Gemma, with and without its soft cap; sums of 256 columns leave registers "
              "for 16 rows a warp",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{256}},
          .features = {base, soft_cap},
          .tiles = {{64, 32, {.warps = 4, .blocks_per_sm = 2, .q_in_registers = true}}},
      },
      {
          .about = "sm80: head dim 192",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{192}},
          .tiles = {{64, 48, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80: DeepSeek's prompts",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{192, 128}},
          .tiles = {{128, 64, {.warps = 8, .blocks_per_sm = 1}}},
      },
  };
}

/// 16-bit prompts with what not every model has. Tiles are those that need no local memory.
inline std::vector<attention_axes> cuda_feature_axes() {
  using enum backend;
  const attention_features base = base_features;
  const attention_features cap_segments =
      base | attention_feature::soft_cap | attention_feature::segments;
  const attention_features bias_mask = base | attention_feature::bias | attention_feature::mask;
  return {
      {
          .about = "sm80: head dim 64 with a soft cap, batches packed by segment, or both",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{64}},
          .features = {cap_segments},
          .tiles = {{128, 64, {.warps = 4, .blocks_per_sm = 2, .q_in_registers = true}}},
      },
      {
          .about = "sm80: the same with head dim 128",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{128}},
          .features = {cap_segments},
          .tiles = {{128, 64, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80: ALiBi, relative positions and masks with head dim 128",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{128}},
          .features = {bias_mask},
          .tiles = {{128, 48, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80: dropout and all other features, head dim 64",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{64}},
          .features = {every_feature},
          .tiles = {{128, 64, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80: the same with head dim 128",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{128}},
          .features = {every_feature},
          .tiles = {{128, 32, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80: the same with head dim 256",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{256}},
          .features = {every_feature},
          .tiles = {{64, 32, {.warps = 4, .blocks_per_sm = 2}}},
      },
  };
}

/// 16-bit decode with common head dims.
inline std::vector<attention_axes> cuda_decode_axes() {
  using enum backend;
  const attention_features base = base_features;
  const attention_features soft_cap = base | attention_feature::soft_cap;
  return {
      {
          .about = "sm80: decode; one warp a block, as many blocks as hide the memory's latency",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{64}},
          .phases = {attention_phase::decode},
          .tiles = {{16, 64, {.warps = 1, .blocks_per_sm = 6}}},
      },
      {
          .about = "sm80: decode with head dims 96 and 128",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{96}, {128}},
          .phases = {attention_phase::decode},
          .tiles = {{16, 64, {.warps = 1, .blocks_per_sm = 3}}},
      },
      {
          .about = "sm80: decode of Gemma, with and without its soft cap",
          .targets = {cuda_sm80},
          .types = halves(),
          .dims = {{256}},
          .phases = {attention_phase::decode},
          .features = {base, soft_cap},
          .tiles = {{16, 32, {.warps = 1, .blocks_per_sm = 3}}},
      },
  };
}

/// 16-bit prompts on Hopper; what these do not take, rows of sm80 do.
inline std::vector<attention_axes> cuda_sm90_axes() {
  using enum backend;
  const attention_features cap_segments =
      base_features | attention_feature::soft_cap | attention_feature::segments;
  const attention_features every_score =
      every_feature.without(attention_features{} | attention_feature::weights);
  return {
      {
          .about = "sm90: prompts with common head dims, tiles by default",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{64}, {96}, {128}, {192}, {192, 128}, {256}},
          .tiles = {{0, 0}},
      },
      {
          .about =
              "sm90: short prompts and diagonals: tiles of keys end where a warpgroup's rows do",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{128}},
          .tiles = {{192, 64, {.warps = 16, .blocks_per_sm = 1}}},
      },
      {
          .about = "sm90: the same of narrow heads, whose sums leave room for a fourth warpgroup",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{64}},
          .tiles = {{256, 64, {.warps = 20, .blocks_per_sm = 1}}},
      },
      {
          .about = "sm90: head dims that end inside a line of 64: the rest of it is zeros",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{40}, {112}},
          .tiles = {{0, 0}},
      },
      {
          .about = "sm90: the same of SigLIP and Phi-2, whose sums leave registers for more keys",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{72}, {80}},
          .tiles = {{192, 112, {.warps = 16, .blocks_per_sm = 1}}},
      },
      {
          .about = "sm90: tensors of 8 bits",
          .targets = {cuda_sm90},
          .types = {dtype::f8_e4m3},
          .dims = {{64}, {128}, {256}},
          .tiles = {{0, 0}},
      },
      {
          .about = "sm90: Gemma's prompts with their soft cap",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{256}},
          .features = {base_features | attention_feature::soft_cap},
          .tiles = {{0, 0}},
      },
      {
          .about = "sm90: soft caps alone, tiles of the plain rows",
          .targets = {cuda_sm90},
          .types = {dtype::bf16},
          .dims = {{64}, {128}},
          .features = {base_features | attention_feature::soft_cap},
          .tiles = {{0, 0}},
      },
      {
          .about = "sm90: head dim 64 with a soft cap, batches packed by segment, or both",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{64}},
          .features = {cap_segments},
          .tiles = {{192, 112, {.warps = 16, .blocks_per_sm = 1}}},
      },
      {
          .about = "sm90: the same with head dim 128",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{128}},
          .features = {cap_segments},
          .tiles = {{192, 64, {.warps = 16, .blocks_per_sm = 1}}},
      },
      {
          .about = "sm90: dropout alone, whose words leave registers to three warpgroups",
          .targets = {cuda_sm90},
          .types = {dtype::bf16},
          .dims = {{64}, {128}},
          .features = {base_features | attention_feature::dropout},
          .tiles = {{0, 0}},
      },
      {
          .about = "sm90: biases, masks, dropout and all else but weights, head dim 64",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{64}},
          .features = {every_score},
          .tiles = {{192, 64, {.warps = 16, .blocks_per_sm = 1}}},
      },
      {
          .about = "sm90: the same with head dim 128: two warpgroups, whose registers hold it",
          .targets = {cuda_sm90},
          .types = halves(),
          .dims = {{128}},
          .features = {every_score},
          .tiles = {{128, 64, {.warps = 12, .blocks_per_sm = 1}}},
      },
  };
}

inline std::vector<attention_axes> cuda_attention_axes() {
  std::vector<attention_axes> all;
  for (const auto part : {&cuda_any_axes, &cuda_f32_axes, &cuda_prefill_axes, &cuda_feature_axes,
                          &cuda_decode_axes, &cuda_sm90_axes}) {
    std::ranges::copy(part(), std::back_inserter(all));
  }
  return all;
}

}  // namespace tessera::generate
