// flash_mla_decode, declared: rows of a batch over latents in pages, which are keys of all heads
// and, their first columns, values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/attention/paged_batch.hpp>
#include <tessera/families/latent_attention/flash_mla_declaration.hpp>
#include <tessera/families/latent_attention/latent_decode_args.hpp>
#include <tessera/spec/check.hpp>

namespace tessera::latent_decode_table {

using options = flash_mla_decode_options;
using kernel = latent_attention_kernel_args;
using declared::everywhere;
using flash_mla_table::most_columns;
using flash_mla_table::most_heads;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch", .most = paged_batch_table::most},
    dim{.symbol = "Sq", .label = "length", .most = paged_batch_table::most},
    dim{.symbol = "H", .label = "heads", .least = 1, .most = most_heads},
    dim{.symbol = "W", .label = "columns", .least = 1, .most = most_columns},
    paged_batch_table::pool_pages,
    paged_batch_table::page_extent,
    paged_batch_table::sequence_pages,
    dim{.symbol = "n", .label = "number of sinks", .most = most_heads},
    dim{.symbol = "R",
        .label = "columns",
        .source = dim_source::formula,
        .of = "W",
        .value =
            [](const bound_call& call) {
              return call.options_as<options>().v_dim.value_or(call.dims[3]);
            }},
    dim{.symbol = "dr",
        .label = "rope columns",
        .source = dim_source::formula,
        .of = "W",
        .value = [](const bound_call& call) { return call.dims[3] - call.dims[8]; }},
    dim{.symbol = "G", .label = "number of scales", .least = 1, .most = most_columns},
};
static_assert(dims[3].symbol == "W" && dims[8].symbol == "R" && dims[10].symbol == "G");

/// Lists of numbers whose last axis has stride 1.
constexpr tensor_text numbers(std::string_view name, std::string_view shape) {
  return {.name = name, .shapes = everywhere(shape), .types = dtype::i32, .contiguous_rows = true};
}
inline constexpr std::array tensor_texts{
    tensor_text{.name = "q",
                .shapes = everywhere("B Sq H W"),
                .types = floating_types,
                .contiguous_rows = true,
                .aligned_rows = true},
    tensor_text{.name = "kv_cache",
                .shapes = {"P T 1:heads W", "P T 1:heads R"},
                .types = dtype::f8_e4m3 | dtype::f8_e5m2,
                .like = "q",
                .contiguous_rows = true,
                .aligned_rows = true},
    tensor_text{.name = "kv_scale",
                .shapes = everywhere("P T G"),
                .types = dtype::f32,
                .contiguous_rows = true},
    tensor_text{.name = "pe_cache",
                .shapes = {"-", "P T 1:heads dr"},
                .like = "q",
                .contiguous_rows = true,
                .aligned_rows = true},
    paged_batch_table::block_table("B M"),
    numbers("seqlens_k", "B"),
    flash_mla_table::sinks_named("sinks", "H? n"),
    tensor_text{.name = "out",
                .shapes = everywhere("B Sq H R"),
                .like = "q",
                .use = tensor_use::output,
                .contiguous_rows = true},
    tensor_text{.name = "lse",
                .shapes = everywhere("B H Sq"),
                .types = dtype::f32,
                .use = tensor_use::output,
                .free = true},
};
/// "paged": rope parts behind latents; "apart": in a tensor of their own.
inline constexpr std::array<std::string_view, 2> layouts{"paged", "apart"};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}
inline int layout_of(const bound_call& call) {
  return call.has(tensor("pe_cache")) ? 1 : 0;
}

/// A scale that the model has, whatever the widths of latents are.
consteval option_form scale_of_model(std::size_t offset) {
  option_form form = attention_table::softmax_scale_at(offset);
  form.required = true;
  return form;
}
inline constexpr std::array option_forms{
    scale_of_model(offsetof(options, softmax_scale)),
    option_form{.name = "causal", .offset = offsetof(options, causal)},
    option_form{.name = "v_dim",
                .offset = offsetof(options, v_dim),
                .type = option_type::optional_integer,
                .limit = option_limit::at_least,
                .least = 1,
                .unset = "all columns"},
};

/// Values are columns of latents, and scales belong to as many of them each.
inline bool hook(const bound_call& call, status& failure) {
  const std::int64_t columns = call.dims[3];
  const std::int64_t value = call.options_as<options>().v_dim.value_or(columns);
  if (value > columns) {
    return checks::refuse(failure, "v_dim: is ", value, ", latents of kv_cache have ", columns,
                          " columns");
  }
  return !call.has(tensor("kv_scale")) || value % call.dims[10] == 0 ||
         checks::refuse(failure, "kv_scale: number of scales is ", call.dims[10], ", ", value,
                        " columns of values are no multiple of it");
}

inline constexpr signature form =
    declared::signature_of<flash_mla_decode_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;
inline constexpr std::size_t pages = offsetof(kernel, pages);
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"B", offsetof(kernel, entries)}, size_text{"Sq", offsetof(kernel, length)},
               size_text{"H", offsetof(kernel, heads)}, size_text{"R", offsetof(kernel, latent)},
               size_text{"R", offsetof(kernel, nope)}, size_text{"R", offsetof(kernel, value)},
               size_text{"n", offsetof(kernel, sink_count)},
               size_text{"P", pages + offsetof(latent_pages, page_count)},
               size_text{"M", pages + offsetof(latent_pages, most_pages)},
               size_text{"T", pages + offsetof(latent_pages, page_size)}},
    form);
consteval binding_text rows_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(latent_rows, data),
          {{{"B|P", at + offsetof(latent_rows, entry)},
            {"Sq|T", at + offsetof(latent_rows, token)},
            {"H", at + offsetof(latent_rows, head)}}},
          at + offsetof(latent_rows, type)};
}
inline constexpr auto bindings = declared::bindings_in(
    std::array{rows_at("q", offsetof(kernel, q)), rows_at("kv_cache", offsetof(kernel, ckv)),
               rows_at("kv_scale", offsetof(kernel, ckv_scale)),
               rows_at("pe_cache", offsetof(kernel, k_pe)), rows_at("out", offsetof(kernel, out)),
               flash_mla_table::statistics_at("lse", offsetof(kernel, lse), "B", "H", "Sq"),
               flash_mla_table::sinks_at("H"),
               binding_text{"block_table",
                            pages + offsetof(latent_pages, numbers),
                            {{{"B", pages + offsetof(latent_pages, row)}}}},
               binding_text{"seqlens_k", offsetof(kernel, seqlens_k)}},
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.rope = call.dims[3] - filled.latent;
  filled.q_pe = flash_mla_table::columns_behind(filled.q, filled.latent);
  if (!call.has(tensor("pe_cache"))) {
    filled.k_pe = flash_mla_table::columns_behind(filled.ckv, filled.latent);
  }
  if (call.has(tensor("kv_scale"))) filled.scale_width = filled.latent / call.dims[10];
  filled.softmax_scale = static_cast<float>(wanted.softmax_scale.value_or(1.0));
  filled.causal = wanted.causal;
}

/// Rope parts lie behind the others.
inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish, true);

inline constexpr std::array operations{
    declared::also_called(
        declared::operation_of(
            "flash_mla_decode", 0, form, lower,
            "q! kv_cache! kv_scale pe_cache block_table! seqlens_k! sinks out! lse"),
        "multi_head_latent_attention_decode"),
};

}  // namespace tessera::latent_decode_table
