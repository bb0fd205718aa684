// The selective state-space operations, declared: tensors, dims, options, and where kernels find
// them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/selective_scan/demand.hpp>
#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/families/selective_scan/problem.hpp>
#include <tessera/families/selective_scan/state_space_args.hpp>
#include <tessera/families/selective_scan/state_space_options.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/shared_texts.hpp>

namespace tessera::state_space_table {

using options = state_space_options;
using texts = std::array<std::string_view, max_layouts>;

/// A block of channels keeps all states of 64 tokens on its way back.
inline constexpr std::int64_t most_states = 4096;

inline constexpr std::array dims{
    dim{.symbol = "B", .label = "batch"},
    dim{.symbol = "T", .label = "length"},
    dim{.symbol = "S", .label = "sequences"},
    dim{.symbol = "D", .label = "channels"},
    dim{.symbol = "H", .label = "heads"},
    dim{.symbol = "P", .label = "head dim"},
    dim{.symbol = "G", .label = "groups", .least = 1},
    dim{.symbol = "N", .label = "state size", .most = most_states},
    dim{.symbol = "W",
        .label = "columns",
        .source = dim_source::formula,
        .of = "H",
        .value = [](const bound_call& call) { return call.dims[4] * call.dims[5]; }},
    dim{.symbol = "L", .label = "slots"},
};

/// A layout is a packing, without and with an axis that one tensor may have: groups of B and C in
/// state_space_v1, columns of D in state_space_v2.
inline constexpr std::array<std::string_view, 6> channel_layouts{
    "dense", "grouped", "packed", "packed grouped", "pooled", "pooled grouped"};
inline constexpr std::array<std::string_view, 6> head_layouts{
    "dense heads",  "per-column dense heads", "packed heads", "per-column packed heads",
    "pooled heads", "per-column pooled heads"};

/// Of a tensor that has the same axes either way.
constexpr texts of_packings(std::string_view dense, std::string_view packed,
                            std::string_view pooled) {
  return {dense, dense, packed, packed, pooled, pooled};
}
constexpr texts of_packings(std::string_view dense, std::string_view packed) {
  return of_packings(dense, packed, packed);
}
constexpr texts of_packings(std::string_view shape) {
  return of_packings(shape, shape);
}

/// What the two operations have in different shapes.
struct shape_texts {
  texts tokens, steps, groups, decays, skips, biases, states, columns;
};
inline constexpr shape_texts channel_shapes{
    .tokens = of_packings("B T D", "1:batch T D"),
    .steps = of_packings("B T D", "1:batch T D"),
    .groups = {"B T N", "B T G N", "1:batch T N", "1:batch T G N", "1:batch T N", "1:batch T G N"},
    .decays = of_packings("D N"),
    .skips = of_packings("D"),
    .biases = of_packings("D"),
    .states = of_packings("B D N", "S D N", "L D N"),
    .columns = of_packings("-")};
inline constexpr shape_texts head_shapes{.tokens = of_packings("B T H P", "1:batch T H P"),
                                         .steps = of_packings("B T H", "1:batch T H"),
                                         .groups = of_packings("B T G N", "1:batch T G N"),
                                         .decays = of_packings("H"),
                                         .skips = {"H", "H P", "H", "H P", "H", "H P"},
                                         .biases = of_packings("H"),
                                         .states = of_packings("B H P N", "S H P N", "L H P N"),
                                         .columns = of_packings("W")};

constexpr tensor_text like_tokens(std::string_view name, const texts& shapes, bool free = false) {
  return {.name = name, .shapes = shapes, .like = "x", .contiguous_rows = true, .free = free};
}
constexpr tensor_text parameter(std::string_view name, const texts& shapes, bool free = false) {
  return {.name = name, .shapes = shapes, .types = dtype::f32, .like = "x", .free = free};
}
constexpr tensor_text as_output(tensor_text text) {
  text.use = tensor_use::output;
  return text;
}
/// Of the type of what it belongs to, which a parameter has by itself.
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  text.gradient_of = of;
  if (text.types.has(dtype::f32) && !text.like.empty()) {
    text.types = floating_types;
    text.like = {};
  }
  return as_output(text);
}
constexpr tensor_text states(std::string_view name, const texts& shapes) {
  return declared::state(name, shapes, false);
}
constexpr tensor_text steps(std::string_view name, const texts& shapes) {
  tensor_text text = parameter(name, shapes);
  text.contiguous_rows = true;
  return text;
}

constexpr auto texts_of(const shape_texts& of) {
  return std::array{
      tensor_text{
          .name = "x", .shapes = of.tokens, .types = floating_types, .contiguous_rows = true},
      steps("dt", of.steps),
      parameter("A", of.decays),
      like_tokens("B", of.groups),
      like_tokens("C", of.groups),
      parameter("D", of.skips, true),
      like_tokens("z", of.tokens, true),
      parameter("dt_bias", of.biases, true),
      states("initial_state", of.states),
      declared::packed_offsets(of_packings("-", "S+1")),
      as_output(like_tokens("out", of.tokens)),
      declared::final_state(of.states, false),
      parameter("norm_weight", of.columns, true),
      like_tokens("d_out", of.tokens),
      states("d_final_state", of.states),
      gradient_of("x", like_tokens("d_x", of.tokens)),
      gradient_of("dt", steps("d_dt", of.steps)),
      gradient_of("A", parameter("d_A", of.decays)),
      gradient_of("B", like_tokens("d_B", of.groups)),
      gradient_of("C", like_tokens("d_C", of.groups)),
      gradient_of("D", parameter("d_D", of.skips, true)),
      gradient_of("z", like_tokens("d_z", of.tokens, true)),
      gradient_of("dt_bias", parameter("d_dt_bias", of.biases, true)),
      gradient_of("initial_state", states("d_initial_state", of.states)),
      gradient_of("norm_weight", parameter("d_norm_weight", of.columns, true)),
      declared::pool_slots(of_packings("-", "-", "S"), "L"),
  };
}
inline constexpr auto channel_texts = texts_of(channel_shapes);
inline constexpr auto head_texts = texts_of(head_shapes);
/// Both have the same tensors.
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(channel_texts, name);
}

inline constexpr std::array option_forms{
    option_form{.name = "dt_softplus", .offset = offsetof(options, dt_softplus), .free = true},
    option_form{.name = "dt_min",
                .offset = offsetof(options, dt_min),
                .type = option_type::optional_number,
                .limit = option_limit::finite_float,
                .unset = "unbounded",
                .free = true},
    option_form{.name = "dt_max",
                .offset = offsetof(options, dt_max),
                .type = option_type::optional_number,
                .limit = option_limit::finite_float,
                .unset = "unbounded",
                .free = true},
    option_form{.name = "norm", .offset = offsetof(options, norm)},
    option_form{
        .name = "norm_before_gate", .offset = offsetof(options, norm_before_gate), .free = true},
    option_form{.name = "norm_group_size",
                .offset = offsetof(options, norm_group_size),
                .type = option_type::optional_integer,
                .limit = option_limit::at_least,
                .least = 1,
                .unset = "all columns of a token",
                .free = true},
    option_form{.name = "norm_eps",
                .offset = offsetof(options, norm_eps),
                .type = option_type::number,
                .limit = option_limit::positive_float,
                .free = true},
};

inline constexpr std::array rules{
    tensor_rule{tensor("norm_weight"),
                [](const bound_call& call) { return call.options_as<options>().norm; },
                "is given, norm is false; it multiplies what has been normalised"},
    declared::goes_with<tensor("d_D"), tensor("D")>("is given, D is absent"),
    declared::goes_with<tensor("d_z"), tensor("z")>("is given, z is absent"),
    declared::goes_with<tensor("d_dt_bias"), tensor("dt_bias")>("is given, dt_bias is absent"),
    declared::goes_with<tensor("d_initial_state"), tensor("initial_state")>(
        "is given, initial_state is absent"),
    declared::goes_with<tensor("d_norm_weight"), tensor("norm_weight")>(
        "is given, norm_weight is absent"),
    declared::slots_rule<tensor("state_indices"), tensor("initial_state"), tensor("final_state")>(),
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "D"), declared::dim_named(dims, "G")},
    multiple_rule{declared::dim_named(dims, "H"), declared::dim_named(dims, "G")},
};

inline bool has_heads(const bound_call& call) noexcept {
  return recurrence_of(static_cast<state_space_op>(call.op->place)) ==
         scan_recurrence::state_space_v2;
}

/// `Tensor` has an axis more, and so `Rank`, or not.
template <std::int8_t Tensor, int Rank>
int layout_of(const bound_call& call) {
  const int packing = declared::packing_of<tensor("cu_seqlens"), tensor("state_indices")>(call);
  const bool has_axis = declared::is_given<Tensor>(call) && call.tensors[Tensor].rank == Rank;
  return 2 * packing + (has_axis ? 1 : 0);
}

/// Bounds of a step in order, groups of a norm that fill a token.
inline bool hook(const bound_call& call, status& failure) {
  const options& wanted = call.options_as<options>();
  const double least = wanted.dt_min.value_or(0);
  if (least < 0) {
    return checks::refuse(failure, "dt_min: is ", least, ", must be at least 0");
  }
  if (wanted.dt_max && *wanted.dt_max < least) {
    return checks::refuse(failure, "dt_max: is ", *wanted.dt_max,
                          wanted.dt_min ? ", dt_min is " : ", must be at least ", least);
  }
  if (!wanted.norm || !wanted.norm_group_size) return true;
  const std::int64_t columns = call.dims[4] * call.dims[5];
  return columns % *wanted.norm_group_size == 0 ||
         checks::refuse(failure, "norm_group_size: is ", *wanted.norm_group_size,
                        ", does not divide the ", columns, " columns of x");
}

template <const auto& Texts, const auto& Layouts, std::int8_t Tensor, int Rank>
consteval signature form_of() {
  return declared::signature_of<state_space_problem, Texts, dims, Layouts>({
      .options = option_forms,
      .rules = rules,
      .multiples = multiples,
      .layout_of = &layout_of<Tensor, Rank>,
      .hook = &hook,
  });
}
inline constexpr signature channel_form = form_of<channel_texts, channel_layouts, tensor("B"), 4>();
inline constexpr signature head_form = form_of<head_texts, head_layouts, tensor("D"), 2>();

// Where a kernel finds them.

using kernel = state_space_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<selective_scan_kernel_args>;
static_assert(offsetof(selective_scan_kernel_args, state_space) == 0);

/// A tensor of tokens. Its column has stride 1.
consteval binding_text tokens_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(scan_tensor, data),
          {{{"B", at + offsetof(scan_tensor, entry)},
            {"T", at + offsetof(scan_tensor, token)},
            {"H|G", at + offsetof(scan_tensor, head)}}},
          at + offsetof(scan_tensor, type)};
}
/// A tensor without tokens: parameters and states.
consteval binding_text columns_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(scan_tensor, data),
          {{{"L|B|S", at + offsetof(scan_tensor, entry)},
            {"H", at + offsetof(scan_tensor, head)},
            {"D|P|W", at + offsetof(scan_tensor, column)},
            {"N", at + offsetof(scan_tensor, state)}}},
          at + offsetof(scan_tensor, type)};
}
constexpr auto bindings_in(const signature& form) {
  return declared::bindings_in(
      std::array{tokens_at("x", offsetof(kernel, x)),
                 tokens_at("dt", offsetof(kernel, dt)),
                 tokens_at("B", offsetof(kernel, B)),
                 tokens_at("C", offsetof(kernel, C)),
                 tokens_at("z", offsetof(kernel, z)),
                 tokens_at("out", offsetof(kernel, out)),
                 tokens_at("d_out", offsetof(kernel, d_out)),
                 tokens_at("d_x", offsetof(kernel, d_x)),
                 tokens_at("d_dt", offsetof(kernel, d_dt)),
                 tokens_at("d_B", offsetof(kernel, d_B)),
                 tokens_at("d_C", offsetof(kernel, d_C)),
                 tokens_at("d_z", offsetof(kernel, d_z)),
                 columns_at("A", offsetof(kernel, A)),
                 columns_at("D", offsetof(kernel, D)),
                 columns_at("dt_bias", offsetof(kernel, dt_bias)),
                 columns_at("norm_weight", offsetof(kernel, norm_weight)),
                 columns_at("initial_state", offsetof(kernel, initial_state)),
                 columns_at("final_state", offsetof(kernel, final_state)),
                 columns_at("d_A", offsetof(kernel, d_A)),
                 columns_at("d_D", offsetof(kernel, d_D)),
                 columns_at("d_dt_bias", offsetof(kernel, d_dt_bias)),
                 columns_at("d_norm_weight", offsetof(kernel, d_norm_weight)),
                 columns_at("d_final_state", offsetof(kernel, d_final_state)),
                 columns_at("d_initial_state", offsetof(kernel, d_initial_state)),
                 binding_text{"cu_seqlens", offsetof(kernel, sequences.cu_seqlens)},
                 binding_text{"state_indices",
                              offsetof(kernel, sequences.slots),
                              {{{"S", offsetof(kernel, sequences.slot_stride)}}}}},
      form);
}
inline constexpr auto channel_bindings = bindings_in(channel_form);
inline constexpr auto head_bindings = bindings_in(head_form);
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"S|B", offsetof(kernel, sequences.count)},
               size_text{"T", offsetof(kernel, sequences.tokens)},
               size_text{"G", offsetof(kernel, groups)}, size_text{"N", offsetof(kernel, states)},
               size_text{"L", offsetof(kernel, sequences.slot_count)}},
    head_form);

/// Channels of state_space_v1 are columns of a head for each group.
inline void cut_channels(const bound_call& call, kernel& filled) {
  filled.heads = filled.groups;
  filled.columns = call.dims[3] / filled.groups;
  for (scan_tensor* rows : {&filled.x, &filled.dt, &filled.z, &filled.out, &filled.d_out,
                            &filled.d_x, &filled.d_dt, &filled.d_z}) {
    rows->head = filled.columns;
  }
  for (scan_tensor* each : {&filled.A, &filled.D, &filled.dt_bias, &filled.initial_state,
                            &filled.final_state, &filled.d_A, &filled.d_D, &filled.d_dt_bias,
                            &filled.d_final_state, &filled.d_initial_state}) {
    each->head = filled.columns * each->column;
  }
}

inline void finish(const bound_call& call, void* to) {
  kernel& filled = static_cast<selective_scan_kernel_args*>(to)->state_space;
  if (has_heads(call)) {
    filled.heads = call.dims[4];
    filled.columns = call.dims[5];
    filled.heads_per_group = filled.heads / filled.groups;
    // A stride of 0 says that a head has one sum; here it has at most one column.
    const bool of_columns = call.has(tensor("d_D")) && call.tensors[tensor("d_D")].rank == 2;
    if (of_columns && filled.d_D.column == 0) filled.d_D.column = 1;
  } else {
    cut_channels(call, filled);
  }
  const options& wanted = call.options_as<options>();
  filled.dt_softplus = wanted.dt_softplus;
  if (wanted.dt_min) filled.dt_min = static_cast<float>(*wanted.dt_min);
  if (wanted.dt_max) filled.dt_max = static_cast<float>(*wanted.dt_max);
  filled.norm = wanted.norm;
  filled.norm_before_gate = wanted.norm_before_gate;
  filled.norm_group_size = wanted.norm_group_size.value_or(filled.heads * filled.columns);
  filled.norm_eps = static_cast<float>(wanted.norm_eps);
}

inline constexpr lowering lower_channels =
    declared::lowering_of<kernel_defaults>(sizes, channel_bindings, &finish);
inline constexpr lowering lower_heads =
    declared::lowering_of<kernel_defaults>(sizes, head_bindings, &finish);

/// Texts of problems have A as in state_space_v1, where its states follow from nothing else.
consteval operation with_decays(operation op) {
  op.fields |= 1u << tensor("A");
  return op;
}

inline constexpr std::string_view without_bounds =
    "dt_min dt_max norm norm_before_gate norm_group_size norm_eps";
inline constexpr std::array operations{
    declared::also_called(
        declared::operation_of(
            "state_space_v1", 0, channel_form, lower_channels,
            "x! cu_seqlens dt! A! B! C! D z dt_bias initial_state out! final_state state_indices",
            without_bounds),
        "ssm1", "mamba1"),
    declared::also_called(
        with_decays(declared::operation_of(
            "state_space_v2", 1, head_form, lower_heads,
            "x! cu_seqlens dt! A! B! C! D z dt_bias norm_weight initial_state out! final_state "
            "state_indices")),
        "ssm2", "mamba2"),
    declared::also_called(
        declared::operation_of("state_space_v1_backward", 2, channel_form, lower_channels,
                               "x! cu_seqlens dt! A! B! C! D z dt_bias initial_state d_out! "
                               "d_final_state d_x! d_dt! d_A! d_B! d_C! d_D d_z d_dt_bias "
                               "d_initial_state",
                               without_bounds),
        "ssm1_backward", "mamba1_backward"),
    declared::also_called(
        with_decays(declared::operation_of(
            "state_space_v2_backward", 3, head_form, lower_heads,
            "x! cu_seqlens dt! A! B! C! D z dt_bias norm_weight initial_state d_out! d_final_state "
            "d_x! d_dt! d_A! d_B! d_C! d_D d_z d_dt_bias d_norm_weight d_initial_state")),
        "ssm2_backward", "mamba2_backward"),
};

}  // namespace tessera::state_space_table
