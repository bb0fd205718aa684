// What a choice among rows of latent attention may depend on, read off a call once.
#pragma once

#include <array>
#include <cstdint>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Everything that the choice of a row may depend on. Eligibility and cost see nothing else.
struct latent_attention_demand {
  latent_form form = latent_form::expanded;
  latent_pass pass = latent_pass::forward;
  dtype type = dtype::none;  ///< of the latents
  bool packed = false;
  bool causal = false;
  bool biased = false;         ///< bias, mask or dropout: each pair has something of its own
  bool rope = false;           ///< keys, in pages latents, have a part of their own, or scales
  bool aligned16 = true;       ///< rows start at multiples of 16 bytes, or are on the CPU
  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< queries of all sequences, of a head
  std::int64_t keys = 0;       ///< most of a sequence
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t latent = 0;  ///< columns
  std::int64_t width = 0;   ///< columns of a key, rope included
  std::int64_t value = 0;   ///< columns of a value
  std::int64_t index = 0;   ///< columns of all heads of an indexer
  friend constexpr bool operator==(const latent_attention_demand&,
                                   const latent_attention_demand&) = default;
};

/// What flash_mla and deepseek_attn have in common, whose latents become keys and values of heads;
/// their args and options have members of the same names.
template <class Args, class Options>
constexpr latent_attention_demand demand_of_expanded(const Args& args, const Options& options,
                                                     latent_pass pass) noexcept {
  const auto& q = args.q.extent;
  const std::int64_t shared = args.q_pe.present() ? args.q_pe.extent[2] : 0;
  return {.pass = pass,
          .type = args.ckv.type,
          .causal = options.causal,
          .biased =
              args.bias_post.present() || args.mask.present() || options.dropout_probability > 0.0,
          .rope = args.k_pe.present(),
          .sequences = q[0],
          .tokens = q[0] * q[1],
          .keys = q[1],
          .heads = q[2],
          .kv_heads = args.w_kc.extent[1],
          .latent = args.ckv.extent[2],
          .width = q[3] + shared,
          .value = args.w_vc.extent[2]};
}

constexpr latent_attention_demand demand_of(flash_mla_op op, const flash_mla_args& args,
                                            const flash_mla_options& options,
                                            bool /*unaligned*/) noexcept {
  const bool forward = op == flash_mla_op::flash_mla;
  return demand_of_expanded(args, options, forward ? latent_pass::forward : latent_pass::backward);
}

constexpr latent_attention_demand demand_of(flash_mla_decode_op /*op*/,
                                            const flash_mla_decode_args& args,
                                            const flash_mla_decode_options& options,
                                            bool unaligned) noexcept {
  const auto& q = args.q.extent;
  return {.form = latent_form::absorbed,
          .type = args.kv_cache.type,
          .causal = options.causal,
          .rope = args.kv_scale.present() || args.pe_cache.present(),
          .aligned16 = !unaligned,
          .sequences = q[0],
          .tokens = q[0] * q[1],
          .keys = args.block_table.extent[1] * args.kv_cache.extent[1],
          .heads = q[2],
          .kv_heads = 1,
          .latent = options.v_dim.value_or(q[3]),
          .width = q[3],
          .value = options.v_dim.value_or(q[3])};
}

constexpr latent_attention_demand demand_of(latent_ragged_op /*op*/, const latent_ragged_args& args,
                                            const latent_ragged_options& /*options*/,
                                            bool unaligned) noexcept {
  const auto& q = args.q_nope.extent;
  const auto& cache = args.kv_cache.extent;
  return {.form = latent_form::absorbed,
          .type = args.q_nope.type,
          .packed = true,
          .causal = true,
          .aligned16 = !unaligned,
          .sequences = args.kv_lens.extent[0],
          .tokens = q[0],
          .keys = args.block_tables.extent[1] * cache[1] * cache[2],
          .heads = q[1],
          .kv_heads = 1,
          .latent = q[2],
          .width = q[2] + args.q_pe.extent[2],
          .value = q[2]};
}

constexpr latent_attention_demand demand_of(deepseek_attn_op op, const deepseek_attn_args& args,
                                            const deepseek_attn_options& options,
                                            bool /*unaligned*/) noexcept {
  const bool forward = op == deepseek_attn_op::deepseek_attn;
  latent_attention_demand demand =
      demand_of_expanded(args, options, forward ? latent_pass::forward : latent_pass::backward);
  demand.form = latent_form::selected;
  demand.index = args.q_index.present() ? args.q_index.extent[2] * args.q_index.extent[3] : 0;
  return demand;
}

/// One sequence of 512 queries if packed: neither the others nor the lengths that depend on them
/// count.
constexpr latent_attention_demand without_batch(latent_attention_demand demand) noexcept {
  demand.tokens = tokens_of_one(demand.packed, demand.sequences, demand.tokens);
  demand.sequences = 1;
  return demand;
}

namespace latent_attention_fields {

inline constexpr std::array table{
    fields::exact<&latent_attention_demand::form>("form", latent_form_names),
    fields::exact<&latent_attention_demand::pass>("pass"),
    fields::exact<&latent_attention_demand::type>("type"),
    fields::exact<&latent_attention_demand::packed>("packed"),
    fields::exact<&latent_attention_demand::causal>("causal"),
    fields::exact<&latent_attention_demand::biased>("biased"),
    fields::exact<&latent_attention_demand::rope>("rope"),
    fields::exact<&latent_attention_demand::aligned16>("aligned16"),
    fields::bucket<&latent_attention_demand::sequences>("sequences"),
    fields::length<&fields::value_of<&latent_attention_demand::sequences>,
                   &fields::value_of<&latent_attention_demand::tokens>>(),
    fields::bucket<&latent_attention_demand::keys>("keys"),
    fields::bucket<&latent_attention_demand::heads>("heads"),
    fields::bucket<&latent_attention_demand::kv_heads>("kv_heads"),
    fields::bucket<&latent_attention_demand::latent>("latent"),
    fields::bucket<&latent_attention_demand::width>("width"),
    fields::bucket<&latent_attention_demand::value>("value"),
    fields::bucket<&latent_attention_demand::index>("index"),
    fields::of_overlays<&latent_attention_demand::tokens>("tokens"),
};

}  // namespace latent_attention_fields
}  // namespace tessera
