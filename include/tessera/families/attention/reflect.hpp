// Reflection over the flash attention family, and the names of its rows.
#pragma once

#include <string_view>

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/spec/reflect.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(mask_mode, full, causal, window)
BOOST_DESCRIBE_ENUM(attention_phase, prefill, decode)
BOOST_DESCRIBE_ENUM(key_storage, contiguous, paged)
BOOST_DESCRIBE_ENUM(attention_feature, varlen, lengths, sinks, unnormalized, soft_cap, bias, mask,
                    segments, dropout, weights)
BOOST_DESCRIBE_ENUM(attention_rule, none, type_is_floating, head_dim_in_range,
                    any_head_dim_goes_with_any_v_head_dim, block_q_is_whole_register_tiles,
                    block_kv_is_whole_register_tiles, tile_fits_in_cache, decode_rows_fit,
                    bf16_dot_takes_bf16, has_base_features, table_rows_take_every_mask,
                    decode_has_no_weights, paged_keys_have_no_weights, cpu_has_no_tiling,
                    cuda_warps_in_range, cuda_blocks_per_sm_in_range,
                    cuda_block_q_is_whole_warp_tiles, cuda_block_kv_is_whole_key_groups,
                    cuda_head_dims_are_whole_chunks, cuda_tile_fits_in_shared_memory)
BOOST_DESCRIBE_ENUM(alignment, bottom_right, top_left)
BOOST_DESCRIBE_ENUM(flash_op, flash_attention, attention, scaled_dot_product_attention)

BOOST_DESCRIBE_STRUCT(attention_features, (), (bits))
BOOST_DESCRIBE_STRUCT(cuda_tiling, (), (warps, blocks_per_sm, q_in_registers))
BOOST_DESCRIBE_STRUCT(attention_config, (),
                      (target, type, head_dim, v_head_dim, mask, phase, keys, features, block_q,
                       block_kv, tiling))
BOOST_DESCRIBE_STRUCT(flash_attention_options, (),
                      (softmax_scale, causal, causal_alignment, window_left, window_right,
                       logits_soft_cap, dropout_probability, dropout_seed, normalize))
BOOST_DESCRIBE_STRUCT(flash_attention_args, (),
                      (q, k, v, bias_pre, bias_post, mask, q_segment_ids, kv_segment_ids, sinks,
                       cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k, out, lse, row_max, weights,
                       dropout_mask))

/// Room for the name of any row, legal or not: ten digits in each of the six numbers fit.
using flash_row_name = fixed_text<128>;

/// Every feature that a row of the phase may have: what `every` means in its name.
constexpr attention_features every_feature_of(attention_phase phase) noexcept {
  if (phase == attention_phase::prefill) return every_feature;
  return every_feature.without({static_cast<std::uint16_t>(attention_feature::weights)});
}

/// The features beyond `base_features`, joined by '+'; `every` for all of the phase; empty for
/// none.
constexpr flash_row_name name_of(attention_features features, attention_phase phase) {
  flash_row_name name;
  if (features == every_feature_of(phase)) {
    name += "every";
    return name;
  }
  const attention_features extra = features.without(base_features);
  for (const attention_feature one : all_attention_features) {
    if (!extra.has(one)) continue;
    if (!name.view().empty()) name += '+';
    name += enumerator_name(one);
  }
  return name;
}

/// The stable name of a row:
/// `attention.<backend>.<dtype>.d<D>[v<Dv>][.decode][.paged][.<features>].<block_q>x<block_kv>`,
/// and for CUDA `.w<warps>b<blocks_per_sm>[r]` behind it, r: Q in registers. `dany` stands for head
/// dims known at run time. The mask is not part of it: rows of the table take every mask. Two legal
/// table rows have the same name only if they are the same row.
constexpr flash_row_name name_of(attention_config config) {
  config = resolved(config);
  flash_row_name name;
  name += "attention.";
  name += enumerator_name(config.target);
  name += '.';
  name += enumerator_name(config.type);
  name += ".d";
  if (config.head_dim == 0) {
    name += "any";
  } else {
    name += config.head_dim;
  }
  if (config.v_head_dim != config.head_dim) {
    name += 'v';
    name += config.v_head_dim;
  }
  if (config.phase == attention_phase::decode) name += ".decode";
  if (config.keys == key_storage::paged) name += ".paged";
  if (const auto features = name_of(config.features, config.phase); !features.view().empty()) {
    name += '.';
    name += features;
  }
  name += '.';
  name += config.block_q;
  name += 'x';
  name += config.block_kv;
  if (is_cuda(config.target)) {
    name += ".w";
    name += config.tiling.warps;
    name += 'b';
    name += config.tiling.blocks_per_sm;
    if (config.tiling.q_in_registers) name += 'r';
  }
  return name;
}

}  // namespace tessera
