// kv_cache_append, declared: pools in every layout and type, new tokens and where they go.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include <tessera/families/kv_cache/args.hpp>
#include <tessera/families/kv_cache/demand.hpp>
#include <tessera/families/kv_cache/kernel_args.hpp>
#include <tessera/families/kv_cache/options.hpp>
#include <tessera/families/kv_cache/problem.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera::kv_cache_table {

using declared::everywhere;
using options = kv_cache_options;
using kernel = kv_cache_kernel_args;
using texts = std::array<std::string_view, max_layouts>;

inline constexpr dtype_set pool_types =
    floating_types | dtype::f8_e4m3 | dtype::f8_e5m2 | dtype::i8;
inline constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t most_columns = 65536;

inline constexpr dim pages{.symbol = "P", .label = "pages", .most = most};
inline constexpr dim page_size{.symbol = "T",
                               .label = "page size",
                               .least = 1,
                               .most = most,
                               .option = "page_size",
                               .option_offset = offsetof(options, page_size)};
inline constexpr dim head_dim{.symbol = "D", .label = "head dim", .least = 1, .most = most_columns};
inline constexpr dim value_dim{
    .symbol = "Dv", .label = "head dim", .least = 1, .most = most_columns};

// Appending.

inline constexpr std::size_t k_pages = 2, kv_pages = 4;  ///< their numbers among the tensors

/// Lanes of a group of channels: four bytes of elements.
inline std::int64_t lanes_of(const bound_call& call) {
  const std::size_t bytes = size_of(call.tensors[kv_pages].type);
  return bytes > 0 ? static_cast<std::int64_t>(4 / bytes) : 1;
}

inline constexpr std::array dims{
    dim{.symbol = "R", .label = "new tokens", .most = most},
    dim{.symbol = "N", .label = "sequences", .most = most},
    pages,
    page_size,
    dim{.symbol = "M", .label = "pages of a sequence", .most = most},
    dim{.symbol = "Hkv", .label = "key/value heads", .least = 1, .most = most_columns},
    head_dim,
    value_dim,
    dim{.symbol = "L",
        .label = "lanes",
        .source = dim_source::formula,
        .of = "Hkv",
        .value = &lanes_of},
    dim{.symbol = "G",
        .label = "groups of channels",
        .source = dim_source::formula,
        .of = "Hkv",
        .value =
            [](const bound_call& call) {
              const std::int64_t lanes = lanes_of(call);
              return (2 * call.dims[5] + lanes - 1) / lanes;
            }},
    dim{.symbol = "W",
        .label = "columns of a channel",
        .source = dim_source::formula,
        .of = "D",
        .value = [](const bound_call& call) { return (call.dims[6] + 127) / 128 * 128; }},
};
constexpr std::size_t dim_of(std::string_view symbol) {
  return static_cast<std::size_t>(declared::dim_named(dims, symbol));
}
static_assert(dim_of("Hkv") == 5 && dim_of("D") == 6);

inline constexpr std::string_view separate =
    "is given, pools of keys and values together have kv_pages";
inline constexpr std::string_view together =
    "is given, pools of keys and of values are k_pages and v_pages";

/// Beside a pool of 8 bits, however that lies.
constexpr tensor_text scales_of_tokens(std::string_view name) {
  return {.name = name,
          .shapes = {"P T Hkv", "P T Hkv", "P T Hkv", "P*T:slots Hkv", "P T Hkv", "P T Hkv"},
          .types = dtype::f32,
          .use = tensor_use::input_and_output,
          .free = true};
}

inline constexpr std::array tensor_texts{
    tensor_text{.name = "k_new",
                .shapes = everywhere("R Hkv D"),
                .types = floating_types,
                .contiguous_rows = true},
    tensor_text{.name = "v_new",
                .shapes = {"R Hkv Dv", "R Hkv Dv", "R Hkv Dv", "R Hkv Dv", "R Hkv D", "R Hkv D"},
                .like = "k_new",
                .contiguous_rows = true},
    tensor_text{.name = "k_pages",
                .shapes = {"P Hkv T D", "Hkv P T D", "P T Hkv D", "P*T:slots Hkv D", "-", "-"},
                .types = pool_types,
                .use = tensor_use::input_and_output,
                .contiguous_rows = true,
                .elsewhere = separate},
    tensor_text{.name = "v_pages",
                .shapes = {"P Hkv T Dv", "Hkv P T Dv", "P T Hkv Dv", "P*T:slots Hkv Dv", "-", "-"},
                .like = "k_pages",
                .use = tensor_use::input_and_output,
                .contiguous_rows = true,
                .elsewhere = separate},
    tensor_text{.name = "kv_pages",
                .shapes = {"-", "-", "-", "-", "P T 2Hkv:channels D", "P T G L W"},
                .types = pool_types,
                .use = tensor_use::input_and_output,
                .contiguous_rows = true,
                .elsewhere = together},
    tensor_text{.name = "block_table",
                .shapes = everywhere("N M"),
                .types = dtype::i32,
                .contiguous_rows = true,
                .holds = tensor_contents::page_numbers,
                .counts = "P",
                .used_by = "seqlens_k",
                .page = "T"},
    tensor_text{.name = "seqlens_k",
                .shapes = everywhere("N"),
                .types = dtype::i32,
                .contiguous_rows = true,
                .covers = "cu_seqlens_q"},
    tensor_text{.name = "cu_seqlens_q",
                .shapes = everywhere("N+1"),
                .types = dtype::i32,
                .contiguous_rows = true,
                .holds = tensor_contents::offsets,
                .counts = "R",
                .free = true},
    tensor_text{.name = "num_seqs",
                .shapes = everywhere("1"),
                .types = dtype::i32,
                .holds = tensor_contents::count,
                .counts = "N",
                .free = true},
    tensor_text{.name = "k_scales",
                .shapes = everywhere("Hkv"),
                .types = dtype::f32,
                .contiguous_rows = true,
                .free = true},
    tensor_text{.name = "v_scales",
                .shapes = everywhere("Hkv"),
                .types = dtype::f32,
                .contiguous_rows = true,
                .free = true},
    tensor_text{.name = "source_pages",
                .shapes = everywhere("-"),
                .types = dtype::i32,
                .contiguous_rows = true},
    tensor_text{.name = "target_pages",
                .shapes = everywhere("-"),
                .types = dtype::i32,
                .contiguous_rows = true},
    scales_of_tokens("k_token_scales"),
    scales_of_tokens("v_token_scales"),
};
static_assert(tensor_texts[k_pages].name == "k_pages" && tensor_texts[kv_pages].name == "kv_pages");

inline constexpr std::array option_forms{
    option_form{.name = "k_scale",
                .offset = offsetof(options, k_scale),
                .type = option_type::number,
                .limit = option_limit::positive_float,
                .free = true},
    option_form{.name = "v_scale",
                .offset = offsetof(options, v_scale),
                .type = option_type::number,
                .limit = option_limit::positive_float,
                .free = true},
    option_form{.name = "pool_layout",
                .offset = offsetof(options, pool_layout),
                .type = option_type::choice,
                .enumerators = cache_layout_names},
    option_form{.name = "page_size",
                .offset = offsetof(options, page_size),
                .type = option_type::integer,
                .limit = option_limit::at_least},
};
/// Where new tokens go, no choice depends on how pages lie.
inline constexpr auto append_option_forms = [] {
  auto forms = option_forms;
  for (option_form& form : forms) form.free = true;
  return forms;
}();

/// A pool with an axis of tokens says the page size itself.
inline bool says_page_size_once(const bound_call& call, status& failure) {
  const auto& wanted = call.options_as<options>();
  return wanted.pool_layout == cache_layout::PT_HD || wanted.page_size == 0 ||
         checks::refuse(failure, "page_size: is ", wanted.page_size,
                        ", must be 0: ", name_in(cache_layout_names, wanted.pool_layout),
                        " pools have an axis of tokens");
}
/// Without offsets each sequence has one new token.
inline bool is_append(const bound_call& call, status& failure) {
  const std::int64_t tokens = call.dims[dim_of("R")], sequences = call.dims[dim_of("N")];
  if (!says_page_size_once(call, failure)) return false;
  return call.has(static_cast<std::size_t>(declared::tensor_named(tensor_texts, "cu_seqlens_q"))) ||
         tokens == sequences ||
         checks::refuse(failure, "k_new: new tokens is ", tokens, ", seqlens_k has ", sequences,
                        " sequences; without cu_seqlens_q each has one");
}

inline bool has_codes(const bound_call& call) {
  const dtype type = call.tensors[call.has(kv_pages) ? kv_pages : k_pages].type;
  return size_of(type) == 1;
}
consteval tensor_rule of_coded_pool(std::string_view name) {
  return {declared::tensor_named(tensor_texts, name), &has_codes,
          "is given; scales of tokens are written beside pools of f8_e4m3, f8_e5m2 or i8"};
}
inline constexpr std::array rules{of_coded_pool("k_token_scales"), of_coded_pool("v_token_scales")};

inline constexpr signature form =
    declared::signature_of<kv_cache_problem, tensor_texts, dims, cache_layout_names>({
        .options = append_option_forms,
        .rules = rules,
        .layout_of = &declared::layout_named<&options::pool_layout>,
        .hook = &is_append,
    });

inline constexpr std::size_t append = offsetof(kernel, append);
constexpr kernel kernel_defaults() noexcept {
  return {.copy = {.k_runs = {.extents = {1, 1, 1}}, .v_runs = {.extents = {1, 1, 1}}}};
}
consteval std::array<stride_text, 4> strides_of(std::size_t pool) {
  return {{{"P", pool + offsetof(pool_strides, page)},
           {"T", pool + offsetof(pool_strides, token)},
           {"Hkv|G", pool + offsetof(pool_strides, group)},
           {"L", pool + offsetof(pool_strides, head)}}};
}
inline constexpr std::size_t k_strides = append + offsetof(kv_append_args, k_strides);
inline constexpr std::size_t v_strides = append + offsetof(kv_append_args, v_strides);
inline constexpr std::size_t k_new_strides = append + offsetof(kv_append_args, k_new_strides);
inline constexpr std::size_t v_new_strides = append + offsetof(kv_append_args, v_new_strides);
consteval binding_text token_scales_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(token_scales, data),
          {{{"P", at + offsetof(token_scales, page)},
            {"T", at + offsetof(token_scales, slot)},
            {"Hkv", at + offsetof(token_scales, head)}}}};
}
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        binding_text{"k_new",
                     append + offsetof(kv_append_args, k_new),
                     {{{"R", k_new_strides + offsetof(new_token_strides, token)},
                       {"Hkv", k_new_strides + offsetof(new_token_strides, head)}}},
                     append + offsetof(kv_append_args, new_type)},
        binding_text{"v_new",
                     append + offsetof(kv_append_args, v_new),
                     {{{"R", v_new_strides + offsetof(new_token_strides, token)},
                       {"Hkv", v_new_strides + offsetof(new_token_strides, head)}}}},
        binding_text{"k_pages", append + offsetof(kv_append_args, k), strides_of(k_strides),
                     append + offsetof(kv_append_args, pool_type)},
        binding_text{"v_pages", append + offsetof(kv_append_args, v), strides_of(v_strides)},
        binding_text{"kv_pages", append + offsetof(kv_append_args, k), strides_of(k_strides),
                     append + offsetof(kv_append_args, pool_type)},
        binding_text{"block_table",
                     append + offsetof(kv_append_args, table),
                     {{{"N", append + offsetof(kv_append_args, table_row)}}}},
        binding_text{"seqlens_k", append + offsetof(kv_append_args, seqlens_k)},
        binding_text{"cu_seqlens_q", append + offsetof(kv_append_args, cu_seqlens_q)},
        binding_text{"num_seqs", append + offsetof(kv_append_args, num_seqs)},
        binding_text{"k_scales", append + offsetof(kv_append_args, k_scales)},
        binding_text{"v_scales", append + offsetof(kv_append_args, v_scales)},
        token_scales_at("k_token_scales", append + offsetof(kv_append_args, k_token_scales)),
        token_scales_at("v_token_scales", append + offsetof(kv_append_args, v_token_scales))},
    form);
inline constexpr auto sizes =
    declared::sizes_in(std::array{size_text{"P", append + offsetof(kv_append_args, page_count)},
                                  size_text{"T", append + offsetof(kv_append_args, page_size)},
                                  size_text{"Hkv", append + offsetof(kv_append_args, heads)},
                                  size_text{"D", append + offsetof(kv_append_args, k_columns)},
                                  size_text{"Dv|D", append + offsetof(kv_append_args, v_columns)},
                                  size_text{"W|D", append + offsetof(kv_append_args, k_width)},
                                  size_text{"W|Dv|D", append + offsetof(kv_append_args, v_width)},
                                  size_text{"M", append + offsetof(kv_append_args, table_pages)},
                                  size_text{"N", append + offsetof(kv_append_args, sequences)},
                                  size_text{"R", append + offsetof(kv_append_args, tokens)}},
                       form);

/// Channels to heads: keys of head h lie in channel 2h, values in the next one.
inline void join_pools(kv_append_args& filled, std::int64_t lanes, std::int64_t groups) {
  pool_strides& pool = filled.k_strides;
  if (lanes == 1) {
    filled.v_offset = pool.group;
    pool.group *= 2;
  } else {
    filled.v_offset = pool.head;
    pool.head *= 2;
    filled.heads_per_group = lanes / 2;
  }
  filled.pool_heads = groups * lanes / 2;
  filled.v_strides = pool;
}

inline void finish_append(const bound_call& call, void* to) {
  kv_append_args& filled = static_cast<kernel*>(to)->append;
  const options& wanted = call.options_as<options>();
  filled.k_scale = static_cast<float>(wanted.k_scale);
  filled.v_scale = static_cast<float>(wanted.v_scale);
  filled.pool_heads = filled.heads;
  switch (wanted.pool_layout) {
    case cache_layout::PT_HD:
      for (pool_strides* pool : {&filled.k_strides, &filled.v_strides}) {
        pool->token = pool->page;
        pool->page *= filled.page_size;
      }
      for (token_scales* scales : {&filled.k_token_scales, &filled.v_token_scales}) {
        scales->slot = scales->page;
        scales->page *= filled.page_size;
      }
      return;
    case cache_layout::PTCD:
      return join_pools(filled, 1, 2 * filled.heads);
    case cache_layout::PTCLD:
      return join_pools(filled, lanes_of(call), call.dims[dim_of("G")]);
    default:
      return;
  }
}
inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish_append);

}  // namespace tessera::kv_cache_table
