// The operations of grouped and of plain matrix products, declared: tensors, dims, options, and
// where kernels find them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/demand.hpp>
#include <tessera/families/grouped_matmul/group_forms.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/families/grouped_matmul/problem.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera::grouped_matmul_table {

using options = grouped_matmul_options;
using texts = std::array<std::string_view, max_layouts>;

inline constexpr std::array dims{
    dim{.symbol = "M", .label = "rows"},    dim{.symbol = "K", .label = "inner dim"},
    dim{.symbol = "N", .label = "columns"}, dim{.symbol = "G", .label = "groups"},
    dim{.symbol = "S", .label = "groups"},  dim{.symbol = "P", .label = "scale blocks", .least = 1},
    dim{.symbol = "B", .label = "batch"},   code_scale_blocks<2>(),
};

/// Matrices of groups, a matrix, and a batch of them; each plain or transposed.
inline constexpr std::array<std::string_view, 6> layouts{
    "grouped", "grouped transposed", "plain", "transposed", "batched", "batched transposed"};
inline constexpr texts of_weights{"G K N", "G N K", "K N", "N K", "B K N", "B N K"};
inline constexpr texts of_scales{"G P N", "G P N", "P N", "P N", "B P N", "B P N"};
inline constexpr texts of_biases{"G N", "G N", "N", "N", "B N", "B N"};
inline constexpr texts of_inputs{"M K", "M K", "M K", "M K", "B M K", "B M K"};
inline constexpr texts of_results{"M N", "M N", "M N", "M N", "B M N", "B M N"};
inline constexpr texts of_code_scales{"M? O?", "M? O?", "M? O?", "M? O?", "B M? O?", "B M? O?"};
inline constexpr texts of_sizes{"S", "S", "-", "-", "-", "-"};

constexpr tensor_text matrix(std::string_view name, const texts& shapes, bool free) {
  return {.name = name,
          .shapes = shapes,
          .types = floating_types,
          .contiguous_rows = true,
          .free = free};
}
/// Of the type of lhs unless a call says otherwise.
constexpr tensor_text like_lhs(tensor_text text) {
  text.like = "lhs";
  return text;
}
constexpr tensor_text with_aligned_rows(tensor_text text) {
  text.aligned_rows = true;
  return text;
}
constexpr tensor_text as_output(tensor_text text) {
  text.use = tensor_use::output;
  return text;
}
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  text.gradient_of = of;
  return as_output(text);
}
/// What elements of out are multiplied by, or what is added to them.
constexpr tensor_text beside_result(std::string_view name) {
  return matrix(name, of_results, true);
}
constexpr tensor_text result() {
  tensor_text text = as_output(like_lhs(matrix("out", of_results, false)));
  text.shares = "out_init";
  text.types = floating_types | code_types;
  return text;
}

inline constexpr std::array tensor_texts{
    with_aligned_rows(matrix("lhs", of_inputs, false)),
    tensor_text{.name = "rhs",
                .shapes = of_weights,
                .types = dtype::i8,
                .like = "lhs",
                .contiguous_rows = true,
                .aligned_rows = true},
    tensor_text{
        .name = "group_sizes", .shapes = of_sizes, .types = dtype::i32, .contiguous_rows = true},
    matrix("rhs_scale", of_scales, false),
    matrix("rhs_bias", of_biases, true),
    matrix("out_init", of_results, true),
    result(),
    with_aligned_rows(like_lhs(matrix("d_out", of_results, false))),
    gradient_of("lhs", matrix("d_lhs", of_inputs, false)),
    gradient_of("rhs", matrix("d_rhs", of_weights, true)),
    gradient_of("rhs_scale", matrix("d_rhs_scale", of_scales, true)),
    gradient_of("rhs_bias", matrix("d_rhs_bias", of_biases, true)),
    gradient_of("out_init", matrix("d_out_init", of_results, true)),
    beside_result("multiplier"),
    beside_result("residual"),
    code_scales_of("out_code_scale", of_code_scales),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

constexpr option_form out_scale_at(std::size_t offset) {
  return {.name = "out_scale",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::number,
          .limit = option_limit::finite_float,
          .free = true};
}
inline constexpr std::array option_forms{
    option_form{.name = "transpose_rhs", .offset = offsetof(options, transpose_rhs)},
    group_offset_at(offsetof(options, group_offset)),
    free_choice_at("lhs_rows", offsetof(options, lhs_rows), grouped_rows_names),
    free_choice_at("activation", offsetof(options, activation), product_activation_names),
    out_scale_at(offsetof(options, out_scale)),
};

/// A gradient belongs to an operand that is given.
template <std::int8_t Gradient, std::int8_t Of>
consteval tensor_rule gradient_rule(std::string_view sentence) {
  return {Gradient, [](const bound_call& call) { return call.has(static_cast<std::size_t>(Of)); },
          sentence};
}
inline constexpr std::array rules{
    gradient_rule<tensor("d_rhs_scale"), tensor("rhs_scale")>("is given, rhs_scale is absent"),
    rule_of_code_scales<tensor("out_code_scale"), tensor("out")>(),
};
inline constexpr std::array multiples{
    multiple_rule{declared::dim_named(dims, "K"), declared::dim_named(dims, "P")},
};

inline grouped_matmul_op op_of(const bound_call& call) noexcept {
  return static_cast<grouped_matmul_op>(call.op->place);
}

/// A batch is said by the rank of lhs.
inline int layout_of(const bound_call& call) {
  const int transposed = call.options_as<options>().transpose_rhs ? 1 : 0;
  if (has_groups(op_of(call))) return transposed;
  return (call.tensors[tensor("lhs")].rank == 3 ? 4 : 2) + transposed;
}

inline bool hook(const bound_call& call, status& failure) {
  return !has_groups(op_of(call)) || has_sizes(call.dims[3], call.dims[4], "rhs",
                                               call.options_as<options>().group_offset, failure);
}

/// The type of out, which is that of its view.
inline constexpr std::array<std::string_view, 1> remarks{"out_dtype"};

inline constexpr signature form =
    declared::signature_of<grouped_matmul_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .remarks = remarks,
        .rules = rules,
        .multiples = multiples,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

using kernel = grouped_matmul_kernel_args;
inline constexpr auto kernel_defaults = &declared::plain_args<kernel>;

/// A matrix, or one for each group. Rows of weights are along K or N; see `finish`.
consteval binding_text matrix_at(std::string_view name, std::size_t at,
                                 std::string_view rows = "M|P") {
  return {
      name,
      at + offsetof(grouped_matrix, data),
      {{{"G|B", at + offsetof(grouped_matrix, group)}, {rows, at + offsetof(grouped_matrix, row)}}},
      at + offsetof(grouped_matrix, type)};
}
/// Scales of a result of codes.
consteval binding_text code_scales_at(std::size_t at) {
  return {"out_code_scale",
          at + offsetof(result_scales, data),
          {{{"B", at + offsetof(result_scales, group)},
            {"M", at + offsetof(result_scales, row)},
            {"O", at + offsetof(result_scales, block)}}}};
}
inline constexpr auto bindings = declared::bindings_in(
    std::array{matrix_at("lhs", offsetof(kernel, lhs)), matrix_at("rhs", offsetof(kernel, rhs)),
               matrix_at("rhs_scale", offsetof(kernel, rhs_scale)),
               matrix_at("rhs_bias", offsetof(kernel, rhs_bias)),
               matrix_at("out_init", offsetof(kernel, out_init)),
               matrix_at("out", offsetof(kernel, out)), matrix_at("d_out", offsetof(kernel, d_out)),
               matrix_at("d_lhs", offsetof(kernel, d_lhs)),
               matrix_at("d_rhs", offsetof(kernel, d_rhs)),
               matrix_at("d_rhs_scale", offsetof(kernel, d_rhs_scale)),
               matrix_at("d_rhs_bias", offsetof(kernel, d_rhs_bias)),
               matrix_at("d_out_init", offsetof(kernel, d_out_init)),
               matrix_at("multiplier", offsetof(kernel, multiplier)),
               matrix_at("residual", offsetof(kernel, residual)),
               code_scales_at(offsetof(kernel, out_code_scale)),
               binding_text{"group_sizes", offsetof(kernel, group_sizes)}},
    form);
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"M", offsetof(kernel, m)}, size_text{"N", offsetof(kernel, n)},
               size_text{"K", offsetof(kernel, k)}, size_text{"G|B", offsetof(kernel, groups)},
               size_text{"S", offsetof(kernel, all_groups)},
               size_text{"P", offsetof(kernel, scale_blocks)}},
    form);

/// What all options of products have.
template <class Options>
void set_rows_and_epilogue(const Options& wanted, kernel& filled) {
  filled.group_offset = wanted.group_offset;
  filled.local_rows = wanted.lhs_rows == grouped_rows::local;
  filled.activation = wanted.activation;
  filled.out_scale = static_cast<float>(wanted.out_scale);
}
inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.transpose_rhs = wanted.transpose_rhs;
  set_rows_and_epilogue(wanted, filled);
  keep_groups(has_groups(op_of(call)), filled.group_sizes);
  const auto row_of = [&](std::int8_t weights) {
    const tensor_view& view = call.tensors[weights];
    return stride_of(view, view.rank - 2);
  };
  filled.rhs.row = row_of(tensor("rhs"));
  if (call.has(static_cast<std::size_t>(tensor("d_rhs")))) {
    filled.d_rhs.row = row_of(tensor("d_rhs"));
  }
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("grouped_matmul", 0, form, lower,
                           "lhs! rhs! group_sizes! rhs_scale rhs_bias out_init out! multiplier "
                           "residual out_code_scale"),
    declared::operation_of("grouped_matmul_backward", 1, form, lower,
                           "lhs! rhs! group_sizes! rhs_scale d_out! d_lhs! d_rhs d_rhs_scale "
                           "d_rhs_bias d_out_init",
                           "activation out_scale"),
    declared::operation_of("matmul", 2, form, lower,
                           "lhs! rhs! rhs_scale rhs_bias out_init out! multiplier residual "
                           "out_code_scale",
                           "group_offset lhs_rows"),
    declared::operation_of("matmul_backward", 3, form, lower,
                           "lhs! rhs! rhs_scale d_out! d_lhs! d_rhs d_rhs_scale d_rhs_bias "
                           "d_out_init",
                           "group_offset lhs_rows activation out_scale"),
};

}  // namespace tessera::grouped_matmul_table
