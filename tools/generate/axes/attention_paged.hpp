// Rows whose keys lie in pages of a pool: one token of each sequence, and chunks; with or without a
// soft cap, which costs nothing where there is none. Rows for any head dim take biases of positions
// too.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include <tessera/families/attention/config.hpp>

#include "attention_blocks.hpp"

namespace tessera::generate {

/// One token of each sequence.
inline std::vector<attention_axes> paged_decode_axes() {
  using enum backend;
  const std::vector<attention_phase> decode{attention_phase::decode};
  const std::vector<key_storage> pages{key_storage::paged};
  const std::vector<attention_features> features{base_features | attention_feature::soft_cap};
  const std::vector<attention_features> every{features.front() | attention_feature::bias};
  const std::vector<dtype> halves{dtype::f16, dtype::bf16};
  return {
      {
          .about = "pages: any decode on CPUs",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512, cpu_avx512_bf16},
          .phases = decode,
          .keys = pages,
          .features = every,
          .tiles = {{16, 128}},
      },
      {
          .about = "pages: decode with common head dims on CPUs",
          .targets = {cpu_avx512, cpu_avx512_bf16},
          .dims = {{64}, {128}, {256}},
          .phases = decode,
          .keys = pages,
          .features = features,
          .tiles = {{16, 128}},
      },
      {
          .about = "pages: decode with common head dims on AMX",
          .targets = {cpu_amx_bf16},
          .dims = {{64}, {128}, {256}},
          .phases = decode,
          .keys = pages,
          .features = features,
          .tiles = {{64, 128}},
      },
      {
          .about = "pages: decode with the common head dim on AVX2",
          .targets = {cpu_avx2},
          .dims = {{128}},
          .phases = decode,
          .keys = pages,
          .features = features,
          .tiles = {{16, 128}},
      },
      {
          .about = "sm80, pages: any decode",
          .targets = {cuda_sm80},
          .types = halves,
          .phases = decode,
          .keys = pages,
          .features = every,
          .tiles = {{16, 32, {.warps = 1, .blocks_per_sm = 3}}},
      },
      {
          .about = "sm80, pages: any decode in f32",
          .targets = {cuda_sm80},
          .types = {dtype::f32},
          .phases = decode,
          .keys = pages,
          .features = every,
          .tiles = {{16, 16, {.warps = 1, .blocks_per_sm = 3}}},
      },
      {
          .about = "sm80, pages: decode with head dim 64",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{64}},
          .phases = decode,
          .keys = pages,
          .features = features,
          .tiles = {{16, 64, {.warps = 1, .blocks_per_sm = 6}}},
      },
      {
          .about = "sm80, pages: decode with head dim 128",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{128}},
          .phases = decode,
          .keys = pages,
          .features = features,
          .tiles = {{16, 32, {.warps = 1, .blocks_per_sm = 6}}},
      },
      {
          .about = "sm80, pages of 8 bits: decode with head dim 64",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{64}},
          .phases = decode,
          .keys = {key_storage::coded},
          .features = features,
          .tiles = {{16, 32, {.warps = 1, .blocks_per_sm = 10}}},
      },
      {
          .about = "sm80, pages of 8 bits: decode with head dim 128",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{128}},
          .phases = decode,
          .keys = {key_storage::coded},
          .features = features,
          .tiles = {{16, 32, {.warps = 1, .blocks_per_sm = 8}}},
      },
  };
}

/// Chunks of prompts.
inline std::vector<attention_axes> paged_prefill_axes() {
  using enum backend;
  const std::vector<key_storage> pages{key_storage::paged};
  const std::vector<attention_features> features{base_features | attention_feature::soft_cap};
  const std::vector<attention_features> every{features.front() | attention_feature::bias};
  const std::vector<dtype> halves{dtype::f16, dtype::bf16};
  return {
      {
          .about = "pages: any chunk, portable",
          .targets = {cpu_generic},
          .keys = pages,
          .features = every,
          .tiles = {{128, 64}},
      },
      {
          .about = "pages: any chunk on AVX2",
          .targets = {cpu_avx2},
          .keys = pages,
          .features = every,
          .tiles = {{384, 128}},
      },
      {
          .about = "pages: chunks with the common head dim on AVX2",
          .targets = {cpu_avx2},
          .dims = {{128}},
          .keys = pages,
          .features = features,
          .tiles = {{384, 128}},
      },
      {
          .about = "pages: any chunk on AVX-512 and AMX",
          .targets = {cpu_avx512, cpu_avx512_bf16, cpu_amx_bf16},
          .keys = pages,
          .features = every,
          .tiles = {{896, 256}},
      },
      {
          .about = "pages: chunks with the common head dim on AVX-512 and AMX",
          .targets = {cpu_avx512, cpu_avx512_bf16, cpu_amx_bf16},
          .dims = {{128}},
          .keys = pages,
          .features = features,
          .tiles = {{896, 256}},
      },
      {
          .about = "sm80, pages: any chunk",
          .targets = {cuda_sm80},
          .types = halves,
          .keys = pages,
          .features = every,
          .tiles = {{64, 32, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80, pages: any chunk in f32",
          .targets = {cuda_sm80},
          .types = {dtype::f32},
          .keys = pages,
          .features = every,
          .tiles = {{64, 16, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80, pages: chunks with head dim 64",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{64}},
          .keys = pages,
          .features = features,
          .tiles = {{128, 64, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80, pages: chunks with head dim 128; wider tiles have no registers for pages",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{128}},
          .keys = pages,
          .features = features,
          .tiles = {{128, 48, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80, pages: a few tokens of each sequence, head dim 128",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{128}},
          .keys = pages,
          .features = features,
          .tiles = {{64, 48, {.warps = 4, .blocks_per_sm = 3}}},
      },
      {
          .about = "sm90, pages of whole boxes of 16 tokens: chunks with head dim 64",
          .targets = {cuda_sm90},
          .types = halves,
          .dims = {{64}},
          .keys = pages,
          .tiles = {{0, 0}},
      },
      {
          .about = "sm90, likewise: head dim 128, a tile of rows for 16 tokens of 8 heads",
          .targets = {cuda_sm90},
          .types = halves,
          .dims = {{128}},
          .keys = pages,
          .tiles = {{128, 128, {.warps = 12, .blocks_per_sm = 1}}},
      },
      {
          .about = "sm80, pages of 8 bits: chunks with head dim 64",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{64}},
          .keys = {key_storage::coded},
          .features = features,
          .tiles = {{128, 48, {.warps = 4, .blocks_per_sm = 2}}},
      },
      {
          .about = "sm80, pages of 8 bits: chunks with head dim 128; no registers for wider tiles",
          .targets = {cuda_sm80},
          .types = halves,
          .dims = {{128}},
          .keys = {key_storage::coded},
          .features = features,
          .tiles = {{128, 32, {.warps = 4, .blocks_per_sm = 2}}},
      },
  };
}

inline std::vector<attention_axes> paged_attention_axes() {
  std::vector<attention_axes> all = paged_decode_axes();
  std::ranges::copy(paged_prefill_axes(), std::back_inserter(all));
  return all;
}

}  // namespace tessera::generate
