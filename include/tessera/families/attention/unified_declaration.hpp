// unified_attention and chunked_prefill_paged_decode, declared: batches of prompts and single
// tokens over keys in pages of two pools.
#pragma once

#include <array>
#include <cstddef>

#include <tessera/families/attention/page_declaration.hpp>
#include <tessera/families/attention/paged_batch.hpp>
#include <tessera/families/attention/unified_args.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::unified_table {

using options = unified_attention_options;
using namespace paged_batch_table;  // NOLINT: what batches over pages share

inline constexpr std::array dims{
    tokens,
    sequences,
    pool_pages,
    paged_table::page_size_or_option(offsetof(options, page_size)),
    sequence_pages,
    query_heads,
    key_heads,
    head_dim_of_qk,
    head_dim_of_v,
    sink_logits,
    dim{.symbol = "E", .label = "length", .most = most},
    prefix_groups,
};
consteval std::array<tensor_text, 20> tensors_for(pool_use use) {
  return {first_operand("q", everywhere("Tq Hq D")),
          paged_table::pool_of_keys(use),
          paged_table::pool_of_values(use),
          block_table(),
          key_lengths("N", use),
          row_offsets(),
          count_of_sequences(),
          new_tokens_of("k_new", "Tq Hkv D"),
          new_values_of("v_new", "Tq Hkv Dv"),
          sinks(),
          tensor_text{.name = "alibi_slopes",
                      .shapes = everywhere("Hq"),
                      .types = dtype::f32,
                      .contiguous_rows = true},
          tensor_text{.name = "qq_bias",
                      .shapes = everywhere("E E"),
                      .types = dtype::f32,
                      .contiguous_rows = true},
          scales_of_heads("k_scales"),
          scales_of_heads("v_scales"),
          result_of("out", everywhere("Tq Hq Dv")),
          statistic("lse", everywhere("Hq Tq")),
          groups_of_sequences(),
          pages_of_groups("cu_seqlens_q"),
          scales_of_tokens("k_token_scales", use),
          scales_of_tokens("v_token_scales", use)};
}
inline constexpr auto read_texts = tensors_for(pool_use::read);
inline constexpr auto written_texts = tensors_for(pool_use::written);
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(read_texts, name);
}
inline constexpr std::array rules{
    of_coded_pool<tensor("k_pages")>(tensor("k_scales")),
    of_coded_pool<tensor("k_pages")>(tensor("v_scales")),
    of_tokens_in_codes<tensor("k_pages")>(tensor("k_token_scales")),
    of_tokens_in_codes<tensor("k_pages")>(tensor("v_token_scales")),
    goes_with<tensor("prefix_pages")>(tensor("cu_prefix_seqs"), needs_prefix_pages),
    goes_with<tensor("cu_prefix_seqs")>(tensor("prefix_pages"), needs_groups)};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

inline bool hook(const bound_call& call, status& failure) {
  return paged_table::has_two_pools<options>(call, failure) &&
         new_tokens_fit(call, tensor("k_new"), tensor("k_pages"), failure);
}

template <const auto& Texts>
consteval signature form_of() {
  return declared::signature_of<unified_problem, Texts, dims, page_layout_names, read_texts>({
      .options = paged_table::option_forms<options>,
      .rules = rules,
      .multiples = multiples,
      .layout_of = &declared::layout_named<&options::pool_layout>,
      .hook = &hook,
  });
}
inline constexpr signature form = form_of<read_texts>();
inline constexpr signature written_form = form_of<written_texts>();

// Where a kernel finds them.

inline constexpr std::size_t positions = offsetof(kernel, positions);
inline constexpr auto sizes = declared::sizes_in(
    declared::with(batch_sizes, size_text{"Dv", offsetof(kernel, v_head_dim), sizeof(int)},
                   size_text{"E", positions + offsetof(position_bias, extent)}),
    form);
inline constexpr auto bindings = declared::bindings_in(
    declared::with(
        batch_bindings,
        pages_of("k_pages", offsetof(kernel, k), offsetof(kernel, k_strides), "Hkv"),
        rows_of("v_pages", offsetof(kernel, v), offsetof(kernel, v_strides), "P", "T", "Hkv"),
        binding_text{"alibi_slopes", positions + offsetof(position_bias, slopes)},
        binding_text{"qq_bias", positions + offsetof(position_bias, bias)}),
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.kv_len = room_for_keys(filled, call.dims[declared::dim_named(dims, "M")]);
  set_scaled_scores(wanted, filled);
  if (wanted.pool_layout == page_layout::PT_HD) paged_table::make_pages_of_slots(filled);
  const tensor_view& bias = call.tensors[tensor("qq_bias")];
  if (bias.present()) filled.positions.row = stride_of(bias, 0);
}

inline constexpr lowering lower = declared::lowering_of<batch_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of(
        "unified_attention", 0, form, lower,
        "q! k_pages! v_pages! num_seqs cu_seqlens_q! block_table! seqlens_k! "
        "sinks alibi_slopes qq_bias k_scales v_scales cu_prefix_seqs prefix_pages k_token_scales "
        "v_token_scales out! lse"),
    declared::operation_of("chunked_prefill_paged_decode", 1, written_form, lower,
                           "q! k_pages! v_pages! num_seqs cu_seqlens_q! block_table! seqlens_k! "
                           "k_new! v_new! sinks alibi_slopes qq_bias k_scales v_scales "
                           "cu_prefix_seqs prefix_pages k_token_scales v_token_scales out! lse"),
};

}  // namespace tessera::unified_table
