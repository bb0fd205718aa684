// ragged_page_attention_v2 and _v3, declared: batches of prompts and single tokens over keys and
// values in pages of one pool, whose channels are K and V of the heads in turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/attention/paged_batch.hpp>
#include <tessera/families/attention/ragged_page_args.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::ragged_page_table {

using options = ragged_page_options;
using namespace paged_batch_table;  // NOLINT: what batches over pages share

inline constexpr std::size_t kv_pages = 1;  ///< its number among the tensors

/// Lanes of a group of channels: four bytes of elements.
inline std::int64_t lanes_of(const bound_call& call) {
  const auto bytes = static_cast<std::int64_t>(size_of(call.tensors[kv_pages].type));
  return bytes > 0 ? 4 / bytes : 1;
}
inline constexpr std::int64_t column_block = 128;

inline constexpr std::array dims{
    tokens,
    sequences,
    pool_pages,
    page_extent,
    sequence_pages,
    query_heads,
    key_heads,
    head_dim_of_qk,
    sink_logits,
    dim{.symbol = "L",
        .label = "lanes",
        .source = dim_source::formula,
        .of = "D",
        .value = &lanes_of},
    dim{.symbol = "C",
        .label = "channel groups",
        .source = dim_source::formula,
        .of = "Hkv",
        .value =
            [](const bound_call& call) {
              const std::int64_t heads = call.dims[6], lanes = lanes_of(call);
              return (2 * heads + lanes - 1) / lanes;
            }},
    dim{.symbol = "Dp",
        .label = "columns",
        .source = dim_source::formula,
        .of = "D",
        .value =
            [](const bound_call& call) {
              return (call.dims[7] + column_block - 1) / column_block * column_block;
            }},
    prefix_groups,
};
static_assert(dims[6].symbol == "Hkv" && dims[7].symbol == "D");
inline constexpr texts pools{"-", "-", "-", "-", "P T 2Hkv:channels D", "P T C L Dp"};
inline constexpr std::string_view no_pool =
    "is given, PHTD, HPTD, PTHD and (PT)HD are layouts of two pools; kv_pages has PTCD or PTCLD";

consteval std::array<tensor_text, 17> tensors_for(pool_use use) {
  return {first_operand("q", everywhere("Tq Hq D")),
          pool("kv_pages", pools, use, no_pool),
          block_table(),
          key_lengths("N", use),
          row_offsets(),
          count_of_sequences(),
          new_tokens_of("k_new", "Tq Hkv D"),
          new_values_of("v_new", "Tq Hkv D"),
          sinks(),
          scales_of_heads("k_scales"),
          scales_of_heads("v_scales"),
          result_of("out", everywhere("Tq Hq D")),
          statistic("lse", everywhere("Hq Tq")),
          groups_of_sequences(),
          pages_of_groups("cu_seqlens_q"),
          scales_of_tokens("k_token_scales", use, "-"),
          scales_of_tokens("v_token_scales", use, "-")};
}
inline constexpr auto read_texts = tensors_for(pool_use::read);
inline constexpr auto written_texts = tensors_for(pool_use::written);
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(read_texts, name);
}
static_assert(tensor("kv_pages") == kv_pages);
/// Of pool_layout no choice depends on how channels lie.
inline constexpr std::array option_forms{
    softmax_scale_at(offsetof(options, softmax_scale)),
    window_at("window_left", offsetof(options, window_left)),
    soft_cap_at(offsetof(options, logits_soft_cap)),
    free_option(pool_layout_at(offsetof(options, pool_layout), page_layout_names)),
    scale_at("q_scale", offsetof(options, q_scale)),
    scale_at("k_scale", offsetof(options, k_scale)),
    scale_at("v_scale", offsetof(options, v_scale)),
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "Hq"), declared::dim_named(dims, "Hkv")}};

inline constexpr std::array rules{
    of_coded_pool<kv_pages>(tensor("k_scales")),
    of_coded_pool<kv_pages>(tensor("v_scales")),
    of_tokens_in_codes<kv_pages>(tensor("k_token_scales")),
    of_tokens_in_codes<kv_pages>(tensor("v_token_scales")),
    goes_with<tensor("prefix_pages")>(tensor("cu_prefix_seqs"), needs_prefix_pages),
    goes_with<tensor("cu_prefix_seqs")>(tensor("prefix_pages"), needs_groups)};

/// Channels of heads that lie two to a group are as far apart as those of the next group.
inline bool groups_follow(const bound_call& call, status& failure) {
  const tensor_view& pool = call.tensors[kv_pages];
  if (pool.rank != 5 || pool.extent[2] < 2 || pool.extent[3] < 4 || pool.elements() == 0) {
    return true;
  }
  const std::int64_t groups = pool.stride[2], lanes = pool.stride[3];
  return groups == 4 * lanes ||
         checks::refuse(failure, "kv_pages: stride of channel groups is ", groups, ", must be ",
                        4 * lanes, ", that of 4 lanes, where heads lie in several groups");
}

/// Keys and values share a pool. Only new tokens say how many heads the channels of a PTCLD pool
/// are for.
inline bool hook(const bound_call& call, status& failure) {
  const page_layout layout = call.options_as<options>().pool_layout;
  const bool reads =
      static_cast<ragged_page_op>(call.op->place) == ragged_page_op::ragged_page_attention_v2;
  if (layout == page_layout::PTCD || (layout == page_layout::PTCLD && !reads)) {
    return new_tokens_fit(call, tensor("k_new"), kv_pages, failure) && groups_follow(call, failure);
  }
  return checks::refuse(failure, "pool_layout: is ", name_in(page_layout_names, layout), ", ",
                        call.op->name, reads ? " takes PTCD" : " takes PTCD or PTCLD");
}

template <const auto& Texts>
consteval signature form_of() {
  return declared::signature_of<ragged_page_problem, Texts, dims, page_layout_names, read_texts>({
      .options = option_forms,
      .rules = rules,
      .multiples = multiples,
      .layout_of = &declared::layout_named<&options::pool_layout>,
      .hook = &hook,
  });
}
inline constexpr signature form = form_of<read_texts>();
inline constexpr signature written_form = form_of<written_texts>();

// Where a kernel finds them.

inline constexpr auto sizes = declared::sizes_in(batch_sizes, form);
inline constexpr auto bindings = declared::bindings_in(
    declared::with(batch_bindings,
                   pages_of("kv_pages", offsetof(kernel, k), offsetof(kernel, k_strides), "")),
    form);

/// Heads and values are channels of the pool. A group of PTCLD has four lanes, K and V of two
/// heads, or two, or one.
inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  const tensor_view& pool = call.tensors[kv_pages];
  constexpr int channel = 2, lane = 3;  // axes
  filled.kv_len = room_for_keys(filled, call.dims[declared::dim_named(dims, "M")]);
  filled.v_head_dim = filled.head_dim;
  const bool grouped = wanted.pool_layout == page_layout::PTCLD;
  const std::int64_t lanes = grouped ? pool.extent[lane] : 1;
  const std::int64_t values = stride_of(pool, lanes > 1 ? lane : channel);
  filled.written.heads = grouped ? pool.extent[channel] * lanes / 2 : filled.kv_heads;
  const std::int64_t of_head = lanes == 2 ? stride_of(pool, channel) : 2 * values;
  filled.k_strides.head = filled.written.heads > 1 ? of_head : 0;
  filled.v_strides = filled.k_strides;
  filled.v = static_cast<const std::byte*>(filled.k) +
             values * static_cast<std::int64_t>(size_of(pool.type));
  filled.written.columns = grouped ? pool.extent[4] : filled.head_dim;
  set_scaled_scores(wanted, filled, wanted.q_scale.value_or(1.0));
  filled.q_divisor = static_cast<float>(wanted.q_scale.value_or(1.0));
  filled.q_as_codes = wanted.q_scale.has_value() && is_code_type(pool.type);
}

/// `v` lies in the pool of `k`.
inline constexpr lowering lower =
    declared::lowering_of<batch_defaults>(sizes, bindings, &finish, true);

inline constexpr std::array operations{
    declared::operation_of("ragged_page_attention_v2", 0, form, lower,
                           "q! kv_pages! num_seqs cu_seqlens_q! block_table! seqlens_k! sinks "
                           "k_scales v_scales cu_prefix_seqs prefix_pages k_token_scales "
                           "v_token_scales out! lse",
                           "q_scale"),
    declared::operation_of("ragged_page_attention_v3", 1, written_form, lower,
                           "q! k_new! v_new! kv_pages! num_seqs cu_seqlens_q! block_table! "
                           "seqlens_k! sinks k_scales v_scales cu_prefix_seqs prefix_pages "
                           "k_token_scales v_token_scales out! lse"),
};

}  // namespace tessera::ragged_page_table
