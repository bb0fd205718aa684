// What operations over keys in pages share in their declarations: pools and their pages; batches of
// sequences (rows of q, lengths, sequences in use) and new tokens; what a kernel is told of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::paged_batch_table {

using declared::everywhere;
using kernel = attention_kernel_args;
using namespace attention_table;  // NOLINT: what the operations of a family share

inline constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
inline constexpr dim tokens{.symbol = "Tq", .label = "length", .most = most};
inline constexpr dim sequences{.symbol = "N", .label = "sequences", .most = most};
inline constexpr dim pool_pages{.symbol = "P", .label = "pages", .most = most};
inline constexpr dim page_extent{.symbol = "T", .label = "page size", .least = 1, .most = most};
inline constexpr dim sequence_pages{.symbol = "M", .label = "pages of a sequence", .most = most};
inline constexpr dim prefix_groups{.symbol = "F", .label = "groups of sequences", .most = most};
inline constexpr dim sink_logits{.symbol = "n", .label = "number of sinks", .most = most_heads};

/// What a pool may hold instead of elements of q's type.
inline constexpr dtype_set code_types = dtype::f8_e4m3 | dtype::f8_e5m2 | dtype::i8;
constexpr bool is_code_type(dtype type) noexcept {
  return size_of(type) == 1;
}

/// Whether an operation writes new tokens to its pools.
enum class pool_use { read, written };

/// `elsewhere`: said of layouts that have no such pool.
constexpr tensor_text pool(std::string_view name, const texts& shapes, pool_use use,
                           std::string_view elsewhere) {
  tensor_text text = operand(name, shapes);
  text.types = code_types;
  text.elsewhere = elsewhere;
  if (use == pool_use::written) text.use = tensor_use::input_and_output;
  return text;
}
constexpr tensor_text list(std::string_view name, std::string_view shape, tensor_contents holds,
                           std::string_view counts) {
  return {.name = name,
          .shapes = everywhere(shape),
          .types = dtype::i32,
          .contiguous_rows = true,
          .holds = holds,
          .counts = counts};
}
constexpr tensor_text block_table(std::string_view shape = "N M") {
  tensor_text text = list("block_table", shape, tensor_contents::page_numbers, "P");
  text.used_by = "seqlens_k";
  text.page = "T";
  return text;
}
/// Lengths of sequences whose last tokens are the rows of q.
constexpr tensor_text key_lengths(std::string_view shape, pool_use use) {
  tensor_text text = list("seqlens_k", shape, tensor_contents::values, {});
  if (use == pool_use::written) text.covers = "cu_seqlens_q";
  return text;
}
constexpr tensor_text row_offsets() {
  return list("cu_seqlens_q", "N+1", tensor_contents::offsets, "Tq");
}
constexpr tensor_text count_of_sequences() {
  tensor_text text = list("num_seqs", "1:length", tensor_contents::count, "N");
  text.free = true;
  return text;
}
constexpr tensor_text new_tokens_of(std::string_view name, std::string_view shape) {
  tensor_text text = operand(name, everywhere(shape));
  text.types = code_types;
  text.aligned_rows = false;
  return text;
}
constexpr tensor_text new_values_of(std::string_view name, std::string_view shape) {
  tensor_text text = new_tokens_of(name, shape);
  text.types = {};
  text.like = "k_new";
  return text;
}
constexpr tensor_text scales_of_heads(std::string_view name) {
  return {.name = name,
          .shapes = everywhere("Hkv"),
          .types = dtype::f32,
          .contiguous_rows = true,
          .free = true};
}

/// Of each token of a pool and head, wherever those lie in the pool itself; written where tokens
/// are. `slots`: the shape beside (PT)HD pools.
constexpr tensor_text scales_of_tokens(std::string_view name, pool_use use,
                                       std::string_view slots = "P*T:slots Hkv") {
  return {.name = name,
          .shapes = {"P T Hkv", "P T Hkv", "P T Hkv", slots, "P T Hkv", "P T Hkv"},
          .types = dtype::f32,
          .use = use == pool_use::written ? tensor_use::input_and_output : tensor_use::input,
          .free = true};
}

/// Sequences that share their first pages: groups of them, and how many pages each shares.
constexpr tensor_text groups_of_sequences() {
  tensor_text text = list("cu_prefix_seqs", "F+1", tensor_contents::groups, "N");
  text.free =
      true;  // what a choice depends on is how many groups there are, which prefix_pages say
  return text;
}
constexpr tensor_text pages_of_groups(std::string_view offsets) {
  tensor_text text = list("prefix_pages", "F", tensor_contents::shared_pages, "M");
  text.used_by = "cu_prefix_seqs";
  text.apart = "block_table";
  text.covers = offsets;
  return text;
}

inline constexpr std::string_view needs_prefix_pages =
    "is given, prefix_pages is not; it says how many pages the sequences of a group share";
inline constexpr std::string_view needs_groups =
    "is given, cu_prefix_seqs is not; it says which sequences share pages";
/// Groups and their pages come together.
template <std::int8_t Other>
consteval tensor_rule goes_with(std::int8_t tensor, std::string_view sentence) {
  return {tensor, [](const bound_call& call) { return call.has(Other); }, sentence};
}

/// Scales of heads belong to pools of 8 bits. Until types are known, elements of 8 bits are some.
template <std::int8_t Pool>
consteval tensor_rule of_coded_pool(std::int8_t scales) {
  return {scales, [](const bound_call& call) { return is_code_type(call.tensors[Pool].type); },
          "is given, the pool has the type of q; scales of heads belong to pools of f8_e4m3, "
          "f8_e5m2 or i8"};
}
/// So do those of tokens.
template <std::int8_t Pool>
consteval tensor_rule of_tokens_in_codes(std::int8_t scales) {
  return {scales, [](const bound_call& call) { return is_code_type(call.tensors[Pool].type); },
          "is given, the pool has the type of q; scales of tokens belong to pools of f8_e4m3, "
          "f8_e5m2 or i8"};
}

/// New tokens of 8 bits are those of the pool.
inline bool new_tokens_fit(const bound_call& call, std::size_t fresh, std::size_t pool,
                           status& failure) {
  const dtype type = call.tensors[fresh].type, of_pool = call.tensors[pool].type;
  return !call.has(fresh) || !is_code_type(type) || type == of_pool ||
         checks::refuse(failure, call.form().tensors[fresh].name, ": dtype is ", name_of(type),
                        ", ", call.form().tensors[pool].name, " has ", name_of(of_pool),
                        "; elements of 8 bits are written as they are");
}
constexpr tensor_text sinks() {
  return {.name = "sinks", .shapes = everywhere("Hq? n"), .types = dtype::f32};
}

// Where a kernel finds them.

inline constexpr std::size_t pages = offsetof(kernel, pages);
inline constexpr std::size_t written = offsetof(kernel, written);
inline constexpr std::size_t prefixes = offsetof(kernel, prefixes);
inline constexpr size_text prefix_count{"F", prefixes + offsetof(shared_prefixes, count)};
constexpr kernel batch_defaults() noexcept {
  return {.sink_stride = 0, .causal = true};
}
inline constexpr std::array batch_sizes{
    size_text{"Hq", offsetof(kernel, q_heads), sizeof(int)},
    size_text{"Hkv", offsetof(kernel, kv_heads), sizeof(int)},
    size_text{"D", offsetof(kernel, head_dim), sizeof(int)},
    size_text{"N", offsetof(kernel, batch)},
    size_text{"Tq", offsetof(kernel, q_len)},
    size_text{"T", pages + offsetof(page_table, page_size)},
    size_text{"P", pages + offsetof(page_table, page_count)},
    size_text{"n", offsetof(kernel, sink_count), sizeof(int)},
    prefix_count,
};
inline constexpr binding_text prefix_sequences{"cu_prefix_seqs",
                                               prefixes + offsetof(shared_prefixes, sequences)};
inline constexpr binding_text prefix_pages{"prefix_pages",
                                           prefixes + offsetof(shared_prefixes, pages)};
consteval binding_text with_type(binding_text text, std::size_t at) {
  text.type = at;
  return text;
}
/// Pages of keys, whose type is that of values.
consteval binding_text pages_of(std::string_view name, std::size_t data, std::size_t strides,
                                std::string_view heads) {
  return with_type(rows_of(name, data, strides, "P", "T", heads), offsetof(kernel, pool_type));
}
consteval binding_text token_scales_at(std::string_view name, std::size_t at) {
  return rows_of(name, at + offsetof(slot_scales, data), at + offsetof(slot_scales, strides), "P",
                 "T", "Hkv");
}
inline constexpr std::array token_scale_bindings{
    token_scales_at("k_token_scales", offsetof(kernel, k_token_scales)),
    token_scales_at("v_token_scales", offsetof(kernel, v_token_scales)),
};
inline constexpr std::array batch_bindings{
    rows_of("q", offsetof(kernel, q), offsetof(kernel, q_strides), "", "Tq", "Hq"),
    rows_of("out", offsetof(kernel, out), offsetof(kernel, out_strides), "", "Tq", "Hq"),
    statistics_of("lse", offsetof(kernel, lse), "", "Tq"),
    binding_text{"block_table",
                 pages + offsetof(page_table, numbers),
                 {{{"N", pages + offsetof(page_table, row)}}}},
    binding_text{"seqlens_k", offsetof(kernel, seqlens_k)},
    binding_text{"cu_seqlens_q", offsetof(kernel, cu_seqlens_q)},
    binding_text{"num_seqs", offsetof(kernel, num_seqs)},
    sinks_at(offsetof(kernel, sinks)),
    with_type(rows_of("k_new", written + offsetof(new_tokens, k),
                      written + offsetof(new_tokens, k_strides), "", "Tq", "Hkv"),
              written + offsetof(new_tokens, type)),
    rows_of("v_new", written + offsetof(new_tokens, v), written + offsetof(new_tokens, v_strides),
            "", "Tq", "Hkv"),
    binding_text{"k_scales", offsetof(kernel, k_scales)},
    binding_text{"v_scales", offsetof(kernel, v_scales)},
    prefix_sequences,
    prefix_pages,
    token_scale_bindings[0],
    token_scale_bindings[1],
};

/// Keys that a sequence has room for, whose table has so many pages: none in a pool without any.
inline std::int64_t room_for_keys(const kernel& filled, std::int64_t table_pages) noexcept {
  return filled.pages.page_count > 0 ? table_pages * filled.pages.page_size : 0;
}

/// Scores and out of what pools hold: the scale of keys is a factor of the one, that of values of
/// the other. `factor`: another one of scores.
template <class Options>
void set_scaled_scores(const Options& wanted, kernel& filled, double factor = 1.0) noexcept {
  set_scores(wanted, filled, factor * wanted.k_scale.value_or(1.0));
  filled.out_factor = static_cast<float>(wanted.v_scale.value_or(1.0));
}

}  // namespace tessera::paged_batch_table
