// multi_latent_ragged_page_attention, declared: a batch of prompts and single tokens, whose latents
// are written to pages and attended to there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/latent_attention/latent_decode_declaration.hpp>
#include <tessera/families/latent_attention/latent_ragged_args.hpp>

namespace tessera::latent_ragged_table {

using options = latent_ragged_options;
using kernel = latent_attention_kernel_args;
using attention_table::free_option;
using attention_table::scale_at;
using declared::everywhere;
using flash_mla_table::most_columns;
using flash_mla_table::most_heads;

/// Columns of a part of a latent in the cache.
constexpr std::int64_t padded(std::int64_t columns) noexcept {
  constexpr std::int64_t block = 128;
  return (columns + block - 1) / block * block;
}
inline constexpr std::array dims{
    paged_batch_table::tokens,
    paged_batch_table::sequences,
    dim{.symbol = "H", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "L", .label = "latent columns", .least = 1, .most = most_columns},
    dim{.symbol = "R", .label = "rope columns", .least = 1, .most = most_columns},
    paged_batch_table::pool_pages,
    dim{.symbol = "U", .label = "groups of slots", .least = 1, .most = 1 << 24},
    paged_batch_table::sequence_pages,
    dim{.symbol = "C",
        .label = "slots of a group",
        .source = dim_source::formula,
        .of = "L",
        .value =
            [](const bound_call& call) {
              return 4 / static_cast<std::int64_t>(size_of(call.tensors[0].type));
            }},
    dim{.symbol = "Wp",
        .label = "columns",
        .source = dim_source::formula,
        .of = "L",
        .value =
            [](const bound_call& call) { return padded(call.dims[3]) + padded(call.dims[4]); }},
    dim{.symbol = "T",
        .label = "page size",
        .source = dim_source::formula,
        .of = "U",
        .value = [](const bound_call& call) { return call.dims[6] * call.dims[8]; }},
};
static_assert(dims[3].symbol == "L" && dims[4].symbol == "R" && dims[6].symbol == "U" &&
              dims[8].symbol == "C");

constexpr tensor_text like_queries(std::string_view name, std::string_view shape) {
  return {.name = name,
          .shapes = everywhere(shape),
          .like = "q_nope",
          .contiguous_rows = true,
          .aligned_rows = true};
}
consteval std::array<tensor_text, 11> tensors_in_order() {
  tensor_text queries = like_queries("q_nope", "Tq H L");
  queries.like = {};
  queries.types = floating_types;
  tensor_text cache = like_queries("kv_cache", "P U C Wp");
  cache.use = tensor_use::input_and_output;
  tensor_text table = paged_batch_table::block_table("N M");
  table.name = "block_tables";
  table.used_by = "kv_lens";
  tensor_text lengths = latent_decode_table::numbers("kv_lens", "N");
  lengths.covers = "cu_seqlens_q";
  tensor_text count = paged_batch_table::count_of_sequences();
  count.name = "distribution";
  count.shapes = everywhere("3:length");
  tensor_text out = like_queries("out", "Tq H L");
  out.use = tensor_use::output;
  return {queries,
          like_queries("q_pe", "Tq H R"),
          like_queries("ckv", "Tq L"),
          like_queries("k_pe", "Tq R"),
          cache,
          table,
          lengths,
          paged_batch_table::row_offsets(),
          count,
          out,
          tensor_text{.name = "lse",
                      .shapes = everywhere("H Tq"),
                      .types = dtype::f32,
                      .use = tensor_use::output,
                      .free = true}};
}
inline constexpr auto tensor_texts = tensors_in_order();

inline constexpr std::array option_forms{
    latent_decode_table::scale_of_model(offsetof(options, softmax_scale)),
    free_option(attention_table::window_at("window_left", offsetof(options, window_left))),
    free_option(attention_table::soft_cap_at(offsetof(options, logits_soft_cap))),
    scale_at("q_scale", offsetof(options, q_scale)),
    scale_at("k_scale", offsetof(options, k_scale)),
    scale_at("v_scale", offsetof(options, v_scale)),
};

inline constexpr signature form =
    declared::signature_of<latent_ragged_problem, tensor_texts, dims, latent_decode_table::layouts>(
        {
            .options = option_forms,
        });

// Where a kernel finds them.

constexpr kernel kernel_defaults() noexcept {
  return {.causal = true};
}
inline constexpr std::size_t pages = offsetof(kernel, pages);
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"N", offsetof(kernel, entries)}, size_text{"Tq", offsetof(kernel, length)},
               size_text{"H", offsetof(kernel, heads)}, size_text{"L", offsetof(kernel, latent)},
               size_text{"L", offsetof(kernel, nope)}, size_text{"L", offsetof(kernel, value)},
               size_text{"R", offsetof(kernel, rope)},
               size_text{"P", pages + offsetof(latent_pages, page_count)},
               size_text{"M", pages + offsetof(latent_pages, most_pages)},
               size_text{"T", pages + offsetof(latent_pages, page_size)},
               size_text{"C", pages + offsetof(latent_pages, lanes)}},
    form);
consteval binding_text rows_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(latent_rows, data),
          {{{"P", at + offsetof(latent_rows, entry)},
            {"Tq|U", at + offsetof(latent_rows, token)},
            {"H|C", at + offsetof(latent_rows, head)}}},
          at + offsetof(latent_rows, type)};
}
inline constexpr auto bindings = declared::bindings_in(
    std::array{rows_at("q_nope", offsetof(kernel, q)), rows_at("q_pe", offsetof(kernel, q_pe)),
               rows_at("ckv", offsetof(kernel, ckv_new)),
               rows_at("k_pe", offsetof(kernel, k_pe_new)),
               rows_at("kv_cache", offsetof(kernel, ckv)), rows_at("out", offsetof(kernel, out)),
               flash_mla_table::statistics_at("lse", offsetof(kernel, lse), "", "H", "Tq"),
               binding_text{"block_tables",
                            pages + offsetof(latent_pages, numbers),
                            {{{"N", pages + offsetof(latent_pages, row)}}}},
               binding_text{"kv_lens", offsetof(kernel, seqlens_k)},
               binding_text{"cu_seqlens_q", offsetof(kernel, cu_seqlens_q)},
               binding_text{"distribution", offsetof(kernel, num_seqs)}},
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.k_pe = flash_mla_table::columns_behind(filled.ckv, padded(filled.latent));
  if (filled.num_seqs != nullptr) filled.num_seqs += 2;  // the last number
  const double factor = wanted.q_scale.value_or(1.0) * wanted.k_scale.value_or(1.0);
  filled.softmax_scale = static_cast<float>(wanted.softmax_scale.value_or(1.0) * factor);
  filled.out_factor = static_cast<float>(wanted.v_scale.value_or(1.0));
  filled.soft_cap = static_cast<float>(wanted.logits_soft_cap.value_or(0.0));
  filled.window_left = wanted.window_left.value_or(unbounded);
}

/// Rope parts lie behind latents in the cache, the count in use behind two others.
inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish, true);

inline constexpr std::array operations{
    declared::operation_of("multi_latent_ragged_page_attention", 0, form, lower,
                           "q_nope! q_pe! ckv! k_pe! kv_cache! distribution cu_seqlens_q! "
                           "block_tables! kv_lens! out! lse"),
};

}  // namespace tessera::latent_ragged_table
