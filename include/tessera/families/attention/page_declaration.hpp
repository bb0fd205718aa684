// Attention over keys in pages of a pool, declared: one token of each sequence (page_attention,
// decode_attention), and a chunk of one (prefill_page_attention). Kernels see sequences with
// lengths, whose keys lie in pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/page_args.hpp>
#include <tessera/families/attention/paged_batch.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::paged_table {

using options = page_attention_options;
using namespace paged_batch_table;  // NOLINT: what operations over pages share

inline constexpr std::string_view no_pools =
    "is given, PTCD and PTCLD are layouts of one pool, kv_pages; two have PHTD, HPTD, PTHD or "
    "(PT)HD";

/// The dim of tokens in a page, which an option says where pages and tokens are one axis.
consteval dim page_size_or_option(std::size_t offset) {
  dim tokens_of_page = page_extent;
  tokens_of_page.option = "page_size";
  tokens_of_page.option_offset = static_cast<std::uint16_t>(offset);
  return tokens_of_page;
}
consteval option_form page_size_at(std::size_t offset) {
  return {.name = "page_size",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::integer,
          .limit = option_limit::at_least};
}
inline constexpr std::array dims{
    sequences,      dim{.symbol = "C", .label = "length", .most = most},
    pool_pages,     page_size_or_option(offsetof(options, page_size)),
    sequence_pages, query_heads,
    key_heads,      head_dim_of_qk,
    head_dim_of_v,  prefix_groups,
};
constexpr tensor_text pool_of_keys(pool_use use) {
  return pool("k_pages", {"P Hkv T D", "Hkv P T D", "P T Hkv D", "P*T:slots Hkv D", "-", "-"}, use,
              no_pools);
}
constexpr tensor_text pool_of_values(pool_use use) {
  tensor_text text =
      pool("v_pages", {"P Hkv T Dv", "Hkv P T Dv", "P T Hkv Dv", "P*T:slots Hkv Dv", "-", "-"}, use,
           no_pools);
  text.types = {};
  text.like = "k_pages";
  text.shape_of = "k_pages";
  return text;
}

/// By the shapes of those that differ.
consteval std::array<tensor_text, 13> tensors_for(std::string_view q, std::string_view table,
                                                  std::string_view lengths, std::string_view out,
                                                  std::string_view lse) {
  return {first_operand("q", everywhere(q)),
          pool_of_keys(pool_use::read),
          pool_of_values(pool_use::read),
          block_table(table),
          key_lengths(lengths, pool_use::read),
          scales_of_heads("k_scales"),
          scales_of_heads("v_scales"),
          result_of("out", everywhere(out)),
          statistic("lse", everywhere(lse)),
          groups_of_sequences(),
          pages_of_groups({}),
          scales_of_tokens("k_token_scales", pool_use::read),
          scales_of_tokens("v_token_scales", pool_use::read)};
}
inline constexpr auto of_tokens = tensors_for("N Hq D", "N M", "N", "N Hq Dv", "N Hq");
inline constexpr auto of_chunks =
    tensors_for("C Hq D", "1:sequences M", "1:sequences", "C Hq Dv", "Hq C");
/// Options of operations on two pools, whose structs have members of the same names.
template <class Options>
inline constexpr std::array option_forms{
    softmax_scale_at(offsetof(Options, softmax_scale)),
    window_at("window_left", offsetof(Options, window_left)),
    soft_cap_at(offsetof(Options, logits_soft_cap)),
    pool_layout_at(offsetof(Options, pool_layout), page_layout_names),
    page_size_at(offsetof(Options, page_size)),
    scale_at("k_scale", offsetof(Options, k_scale)),
    scale_at("v_scale", offsetof(Options, v_scale)),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(of_tokens, name);
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

/// Keys and values have pools of their own, and one with an axis of tokens says the page size.
template <class Options>
bool has_two_pools(const bound_call& call, status& failure) {
  const auto& wanted = call.options_as<Options>();
  const std::string_view layout = name_in(page_layout_names, wanted.pool_layout);
  if (wanted.pool_layout > page_layout::PT_HD) {
    return checks::refuse(failure, "pool_layout: is ", layout, ", ", call.op->name,
                          " takes two pools, PHTD, HPTD, PTHD or (PT)HD");
  }
  return wanted.pool_layout == page_layout::PT_HD || wanted.page_size == 0 ||
         checks::refuse(failure, "page_size: is ", wanted.page_size, ", must be 0: ", layout,
                        " pools have an axis of tokens");
}

template <const auto& Texts>
consteval signature form_of() {
  return declared::signature_of<page_problem, Texts, dims, page_layout_names>({
      .options = option_forms<options>,
      .rules = rules,
      .multiples = multiples,
      .layout_of = &declared::layout_named<&options::pool_layout>,
      .hook = &has_two_pools<options>,
  });
}
inline constexpr signature form = form_of<of_tokens>();
inline constexpr signature chunk_form = form_of<of_chunks>();

// Where a kernel finds them.

constexpr kernel token_defaults() noexcept {
  return {.sink_stride = 0, .batch = 1, .q_len = 1};
}

/// `rows`: where the number of rows of q goes.
consteval auto sizes_for(const signature& of, const size_text& rows) {
  return declared::sizes_in(
      declared::with(head_sizes, size_text{"T", pages + offsetof(page_table, page_size)},
                     size_text{"P", pages + offsetof(page_table, page_count)}, prefix_count, rows),
      of);
}
/// `entries`, `length`: the axis of q and out.
consteval auto bindings_for(const signature& of, std::string_view entries,
                            std::string_view length) {
  return declared::bindings_in(
      std::array{
          rows_of("q", offsetof(kernel, q), offsetof(kernel, q_strides), entries, length, "Hq"),
          pages_of("k_pages", offsetof(kernel, k), offsetof(kernel, k_strides), "Hkv"),
          rows_of("v_pages", offsetof(kernel, v), offsetof(kernel, v_strides), "P", "T", "Hkv"),
          rows_of("out", offsetof(kernel, out), offsetof(kernel, out_strides), entries, length,
                  "Hq"),
          statistics_of("lse", offsetof(kernel, lse), entries, length),
          binding_text{"block_table",
                       pages + offsetof(page_table, numbers),
                       {{{"N", pages + offsetof(page_table, row)}}}},
          binding_text{"seqlens_k", offsetof(kernel, seqlens_k)},
          prefix_sequences,
          prefix_pages,
          binding_text{"k_scales", offsetof(kernel, k_scales)},
          binding_text{"v_scales", offsetof(kernel, v_scales)},
          token_scale_bindings[0],
          token_scale_bindings[1],
      },
      of);
}
inline constexpr auto sizes = sizes_for(form, {"N", offsetof(kernel, batch)});
inline constexpr auto bindings = bindings_for(form, "N", "");
inline constexpr auto chunk_sizes = sizes_for(chunk_form, {"C", offsetof(kernel, q_len)});
inline constexpr auto chunk_bindings = bindings_for(chunk_form, "", "C");

/// Slots become tokens of pages.
inline void make_pages_of_slots(kernel& filled) noexcept {
  for (row_strides* strides : {&filled.k_strides, &filled.v_strides, &filled.k_token_scales.strides,
                               &filled.v_token_scales.strides}) {
    strides->row = strides->batch;
    strides->batch *= filled.pages.page_size;
  }
}

/// The row of a token stands at its sequence's last key, so that of single tokens a mask is needed
/// for windows only.
inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.kv_len = room_for_keys(filled, call.dims[declared::dim_named(dims, "M")]);
  filled.causal = wanted.window_left.has_value() || &call.form() == &chunk_form;
  set_scaled_scores(wanted, filled);
  if (wanted.pool_layout == page_layout::PT_HD) make_pages_of_slots(filled);
}

inline constexpr lowering lower = declared::lowering_of<token_defaults>(sizes, bindings, &finish);
inline constexpr lowering lower_chunk =
    declared::lowering_of<token_defaults>(chunk_sizes, chunk_bindings, &finish);

inline constexpr std::string_view tensors_of_batches =
    "q! k_pages! v_pages! block_table! seqlens_k! k_scales v_scales cu_prefix_seqs prefix_pages "
    "k_token_scales v_token_scales out! lse";
inline constexpr std::array operations{
    declared::operation_of("page_attention", 0, form, lower, tensors_of_batches),
    declared::operation_of("decode_attention", 1, form, lower, tensors_of_batches),
    declared::operation_of("prefill_page_attention", 2, chunk_form, lower_chunk,
                           "q! k_pages! v_pages! block_table! seqlens_k! k_scales v_scales "
                           "k_token_scales v_token_scales out! lse"),
};

}  // namespace tessera::paged_table
