// The delta rule over a pool of states with q, k and v side by side, declared: tensors, dims,
// options, and where kernels find them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <tessera/families/delta_rule/ragged_declaration.hpp>

namespace tessera::ragged_delta_rule_v2_table {

using declared::as_output;
using declared::everywhere;
using delta_rule_table::gate;
using delta_rule_table::optional_output;
using delta_rule_table::single;
using options = ragged_delta_rule_v2_options;
using kernel = delta_rule_kernel_args;
namespace pooled = ragged_delta_rule_table;

/// H; no sum of columns of so many overflows.
inline std::int64_t qk_heads_of(const options& wanted, std::int64_t value_heads) {
  if (wanted.num_qk_heads == 0) return value_heads;
  return std::min(wanted.num_qk_heads, delta_rule_table::most_recurrent_heads);
}

inline constexpr std::array dims{
    pooled::tokens,
    pooled::sequences,
    pooled::slots,
    pooled::value_heads,
    pooled::key_dim,
    pooled::value_dim,
    dim{.symbol = "C",
        .label = "columns",
        .source = dim_source::formula,
        .of = "V",
        .value =
            [](const bound_call& call) {
              const std::int64_t heads = call.dims[3];
              const std::int64_t qk_heads = qk_heads_of(call.options_as<options>(), heads);
              return 2 * qk_heads * call.dims[4] + heads * call.dims[5];
            },
        .owner = "the sum of q, k and v"},
};

constexpr tensor_text columns(std::string_view name) {
  return {.name = name,
          .shapes = everywhere("T C"),
          .types = floating_types,
          .contiguous_rows = true,
          .aligned_rows = true};
}
constexpr tensor_text values(std::string_view name) {
  return {.name = name,
          .shapes = everywhere("T HV V"),
          .like = "mixed_qkv",
          .contiguous_rows = true,
          .aligned_rows = true};
}
consteval auto tensor_texts(tensor_use pool_use) {
  return std::array{
      columns("mixed_qkv"),
      gate("a", everywhere("T HV")),
      gate("b", everywhere("T HV")),
      single("A_log", everywhere("HV")),
      single("dt_bias", everywhere("HV")),
      pooled::pool("state_pool", pool_use),
      pooled::offsets,
      pooled::indices,
      pooled::flags,
      as_output(values("out")),
      values("d_out"),
      as_output(columns("d_mixed_qkv"), "mixed_qkv"),
      as_output(gate("d_a", everywhere("T HV")), "a"),
      as_output(gate("d_b", everywhere("T HV")), "b"),
      optional_output(single("d_A_log", everywhere("HV")), "A_log"),
      optional_output(single("d_dt_bias", everywhere("HV")), "dt_bias"),
      pooled::pool_gradient(),
  };
}
inline constexpr auto texts = tensor_texts(tensor_use::input_and_output);
inline constexpr auto backward_texts = tensor_texts(tensor_use::input);
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(texts, name);
}

inline constexpr std::array option_forms{
    option_form{.name = "num_qk_heads",
                .offset = offsetof(options, num_qk_heads),
                .type = option_type::integer,
                .limit = option_limit::at_least,
                .free = true},
    option_form{.name = "head_dim_qk",
                .offset = offsetof(options, head_dim_qk),
                .type = option_type::integer,
                .limit = option_limit::at_least,
                .free = true},
    option_form{.name = "scale",
                .offset = offsetof(options, scale),
                .type = option_type::optional_number,
                .limit = option_limit::finite_float,
                .unset = "1/sqrt(K)",
                .free = true},
    option_form{.name = "use_qk_l2norm", .offset = offsetof(options, use_qk_l2norm), .free = true},
    option_form{.name = "apply_silu", .offset = offsetof(options, apply_silu)},
};

/// Options say what state_pool has.
inline bool hook(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  const std::int64_t heads = call.dims[3], channels = call.dims[4];
  if (wanted.num_qk_heads > 0 && heads % wanted.num_qk_heads != 0) {
    return checks::refuse(failure, "num_qk_heads: is ", wanted.num_qk_heads, ", state_pool has ",
                          heads, " heads, not a multiple");
  }
  return wanted.head_dim_qk == 0 || wanted.head_dim_qk == channels ||
         checks::refuse(failure, "head_dim_qk: is ", wanted.head_dim_qk, ", state_pool has ",
                        channels);
}

template <const auto& Texts>
consteval signature form_of() {
  return declared::signature_of<ragged_delta_rule_v2_problem, Texts, dims, pooled::layouts, texts>({
      .options = option_forms,
      .hook = &hook,
  });
}
inline constexpr signature form = form_of<texts>();
inline constexpr signature backward_form = form_of<backward_texts>();

// Where a kernel finds them: q, k and v follow from the columns of mixed_qkv.

constexpr kernel kernel_defaults() noexcept {
  return {.beta_is_raw = true, .gate = {.raw = true}};
}

consteval binding_text columns_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(delta_rule_input, data),
          {{{"T", at + offsetof(delta_rule_input, token)}}},
          at + offsetof(delta_rule_input, type)};
}
inline constexpr auto bindings = declared::bindings_in(
    declared::with(pooled::shared_bindings, columns_at("mixed_qkv", offsetof(kernel, q)),
                   columns_at("d_mixed_qkv", offsetof(kernel, d_q)),
                   pooled::rows_at("a", offsetof(kernel, decay), "HV"),
                   pooled::rows_at("b", offsetof(kernel, beta), "HV"),
                   pooled::rows_at("d_a", offsetof(kernel, d_decay), "HV"),
                   pooled::rows_at("d_b", offsetof(kernel, d_beta), "HV")),
    form);
inline constexpr auto sizes = declared::sizes_in(pooled::shared_sizes, form);

/// q, k and v of rows that have them side by side, from q's pointer and strides.
template <class Rows>
void split_columns(const kernel& args, Rows& q, Rows& k, Rows& v) {
  if (q.data == nullptr) return;
  q.head = args.key_dim;
  k = v = q;
  v.head = args.value_dim;
  const auto behind = [&](std::int64_t columns) {
    using bytes = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(q.data)>>,
                                     const std::byte, std::byte>;
    return static_cast<bytes*>(q.data) + columns * static_cast<std::int64_t>(size_of(q.type));
  };
  k.data = behind(args.key_heads * args.key_dim);
  v.data = behind(2 * args.key_heads * args.key_dim);
}

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.key_heads = qk_heads_of(wanted, filled.value_heads);
  filled.scale = delta_rule_table::scale_of(wanted.scale, filled.key_dim);
  filled.normalizes = wanted.use_qk_l2norm;
  filled.activates = wanted.apply_silu;
  split_columns(filled, filled.q, filled.k, filled.v);
  split_columns(filled, filled.d_q, filled.d_k, filled.d_v);
}

inline constexpr lowering lower =
    declared::lowering_of<kernel_defaults>(sizes, bindings, &finish, true);

inline constexpr std::array operations{
    declared::operation_of("ragged_gated_delta_rule_v2", 0, form, lower,
                           "mixed_qkv! a! b! A_log! dt_bias! state_pool! cu_seqlens! "
                           "state_indices! has_initial_state out!"),
    declared::operation_of("ragged_gated_delta_rule_v2_backward", 1, backward_form, lower,
                           "mixed_qkv! a! b! A_log! dt_bias! state_pool! cu_seqlens! "
                           "state_indices! has_initial_state d_out! d_mixed_qkv! d_a! d_b! "
                           "d_A_log d_dt_bias d_state_pool"),
};

}  // namespace tessera::ragged_delta_rule_v2_table
