// Legality of configs: what breaks one rule and nothing else (that each rule has such a config is
// the business of build/rules), and the defaults that `resolved` fills in are legal on every
// backend.
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/rules.hpp>

namespace {

using tessera::attention_config;
using tessera::attention_feature;
using tessera::attention_features;
using tessera::attention_phase;
using tessera::backend;
using tessera::broken_rule;
using tessera::broken_table_rule;
using tessera::dtype;
using tessera::mask_mode;
using tessera::row_rule;

struct violation {
  const row_rule* rule;
  attention_config config;
};

std::string_view sentence_of(const row_rule* rule) {
  return rule != nullptr ? rule->sentence : "the row is legal";
}

std::vector<violation> violations() {
  using namespace tessera::attention_rules;
  const auto decode = attention_phase::decode;
  const auto cuda = backend::cuda_sm80;
  return {
      {&type_is_floating, {.type = dtype::i32}},
      {&type_is_floating, {.type = dtype::f64}},
      {&type_is_floating, {.type = dtype::none}},
      {&head_dim_in_range, {.head_dim = -1}},
      {&head_dim_in_range, {.head_dim = 257}},
      {&head_dim_in_range, {.head_dim = 64, .v_head_dim = 257}},
      {&any_head_dim_goes_with_any_v_head_dim, {.head_dim = 0, .v_head_dim = 64}},
      {&block_q_is_whole_register_tiles, {.target = backend::cpu_avx512, .block_q = 15}},
      {&block_q_is_whole_register_tiles, {.target = backend::cpu_avx2, .block_q = -6}},
      {&block_kv_is_whole_register_tiles, {.target = backend::cpu_avx512, .block_kv = 48}},
      {&block_kv_is_whole_register_tiles, {.block_kv = -8}},
      {&tile_fits_in_cache, {.block_q = 1024, .block_kv = 4096}},
      {&tile_fits_in_cache, {.block_q = 4, .block_kv = 16384}},
      {&decode_rows_fit, {.phase = decode, .block_q = 17}},
      {&decode_rows_fit, {.phase = decode, .block_q = -1}},
      {&bf16_instructions_take_bf16, {.target = backend::cpu_avx512_bf16, .type = dtype::f32}},
      {&bf16_instructions_take_bf16, {.target = backend::cpu_avx512_bf16, .type = dtype::f16}},
      {&bf16_instructions_take_bf16, {.target = backend::cpu_amx_bf16, .type = dtype::f32}},
      {&block_q_is_whole_register_tiles,
       {.target = backend::cpu_amx_bf16, .type = dtype::bf16, .block_q = 14}},
      {&amx_decode_has_whole_tiles,
       {.target = backend::cpu_amx_bf16, .type = dtype::bf16, .phase = decode}},
      {&amx_decode_has_whole_tiles,
       {.target = backend::cpu_amx_bf16, .type = dtype::bf16, .head_dim = 80, .phase = decode}},
      {&decode_rows_fit,
       {.target = backend::cpu_amx_bf16,
        .type = dtype::bf16,
        .head_dim = 64,
        .phase = decode,
        .block_q = 65}},
      {&has_base_features, {.features = {}}},
      {&has_base_features,
       {.features =
            tessera::every_feature.without(attention_features{} | attention_feature::sinks)}},
      {&decode_has_no_weights,
       {.phase = decode, .features = tessera::base_features | attention_feature::weights}},
      {&paged_keys_have_no_weights,
       {.keys = tessera::key_storage::paged,
        .features = tessera::base_features | attention_feature::weights}},
      {&cpu_has_no_tiling, {.tiling = {.warps = 4}}},
      {&cpu_has_no_tiling, {.phase = decode, .tiling = {.q_in_registers = true}}},
      {&cuda_warps_in_range, {.target = cuda, .tiling = {.warps = 17}}},
      {&cuda_warps_in_range, {.target = cuda, .tiling = {.warps = -1}}},
      {&cuda_blocks_per_sm_in_range, {.target = cuda, .tiling = {.warps = 4, .blocks_per_sm = 17}}},
      {&cuda_blocks_per_sm_in_range, {.target = cuda, .tiling = {.blocks_per_sm = -1}}},
      {&cuda_block_q_is_whole_warp_tiles, {.target = cuda, .block_q = 32, .tiling = {.warps = 4}}},
      {&cuda_block_q_is_whole_warp_tiles, {.target = cuda, .block_q = -64}},
      {&cuda_block_kv_is_whole_key_groups, {.target = cuda, .block_kv = 8}},
      {&cuda_head_dims_are_whole_chunks, {.target = cuda, .type = dtype::bf16, .head_dim = 60}},
      {&cuda_head_dims_are_whole_chunks,
       {.target = cuda, .type = dtype::f16, .head_dim = 64, .v_head_dim = 36}},
      {&cuda_tile_fits_in_shared_memory,
       {.target = cuda, .type = dtype::bf16, .head_dim = 256, .block_q = 128, .block_kv = 64}},
      {&cuda_tile_fits_in_shared_memory, {.target = cuda, .block_kv = 1 << 24}},
      {&has_base_features, {.target = cuda, .features = {}}},
      {&coded_keys_are_read_in_lines, {.head_dim = 64, .keys = tessera::key_storage::coded}},
      {&coded_keys_are_read_in_lines,
       {.target = cuda, .type = dtype::bf16, .head_dim = 80, .keys = tessera::key_storage::coded}},
  };
}

TEST(flash_rules, each_violation_names_its_rule) {
  for (const violation& violation : violations()) {
    EXPECT_EQ(broken_rule(violation.config), violation.rule)
        << violation.rule->sentence << " / " << sentence_of(broken_rule(violation.config));
  }
}

TEST(flash_rules, defaults_are_legal_on_every_backend) {
  for (const backend target : tessera::all_backends) {
    for (const attention_phase phase : {attention_phase::prefill, attention_phase::decode}) {
      const bool hopper = target == backend::cuda_sm90;  // prompts of 16 bits with tuned head dims
      const bool prompts_only = hopper || has_tile_products(target);
      if (prompts_only && phase == attention_phase::decode) continue;
      const bool half = hopper || has_bf16_products(target);
      const attention_config config{.target = target,
                                    .type = half ? dtype::bf16 : dtype::f32,
                                    .head_dim = hopper ? 64 : 0,
                                    .phase = phase};
      EXPECT_EQ(broken_rule(config), nullptr)
          << name_of(target) << ": " << sentence_of(broken_rule(config));
      EXPECT_EQ(broken_table_rule(config),
                target == backend::cpu_avx512_vnni
                    ? &tessera::attention_rules::byte_products_add_nothing
                    : nullptr)
          << name_of(target);
    }
  }
}

TEST(flash_rules, only_the_table_insists_on_window_masks) {
  const attention_config decode{
      .target = backend::cuda_sm80, .mask = mask_mode::causal, .phase = attention_phase::decode};
  EXPECT_EQ(broken_rule(decode), nullptr);
  EXPECT_EQ(broken_table_rule(decode), &tessera::attention_rules::table_rows_take_every_mask);
  for (const mask_mode mask : {mask_mode::full, mask_mode::causal}) {
    const attention_config config{.mask = mask};
    EXPECT_EQ(broken_rule(config), nullptr);
    EXPECT_EQ(broken_table_rule(config), &tessera::attention_rules::table_rows_take_every_mask);
  }
}

TEST(attention_config, resolved_fills_defaults_and_keeps_choices) {
  for (const backend target : tessera::all_backends) {
    const attention_config filled = resolved(attention_config{.target = target, .head_dim = 96});
    EXPECT_EQ(filled.v_head_dim, 96);
    EXPECT_GT(filled.block_q, 0);
    EXPECT_EQ(filled.block_q % tessera::prefill_rows(target), 0);
    EXPECT_GT(filled.block_kv, 0);
    EXPECT_EQ(filled.block_kv % tessera::register_columns(target), 0);
    EXPECT_EQ(resolved(filled), filled);
  }
  const attention_config chosen{.head_dim = 64, .v_head_dim = 32, .block_q = 12, .block_kv = 24};
  EXPECT_EQ(resolved(chosen), chosen);
}

TEST(attention_config, features_behave_as_sets) {
  const attention_features two = attention_feature::bias | attention_feature::mask;
  EXPECT_TRUE(two.has(attention_feature::bias));
  EXPECT_FALSE(two.has(attention_feature::sinks));
  EXPECT_TRUE(two.contains(attention_features{} | attention_feature::mask));
  EXPECT_FALSE((attention_features{} | attention_feature::mask).contains(two));
  EXPECT_EQ(two.without(attention_features{} | attention_feature::bias),
            attention_features{} | attention_feature::mask);
  EXPECT_TRUE(attention_features{}.empty());
  attention_features all{};
  for (const attention_feature feature : tessera::all_attention_features) {
    EXPECT_FALSE(all.has(feature));
    all = all | feature;
  }
  EXPECT_EQ(all, tessera::every_feature);
}

}  // namespace
