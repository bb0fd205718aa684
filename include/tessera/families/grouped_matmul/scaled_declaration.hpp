// scaled_grouped_matmul and scaled_matmul, declared: operands of 8 bits with scales of blocks or of
// rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/grouped_matmul/declaration.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::scaled_matmul_table {

using options = scaled_matmul_options;
using texts = grouped_matmul_table::texts;
using kernel = grouped_matmul_kernel_args;
using grouped_matmul_table::kernel_defaults, grouped_matmul_table::matrix_at;

inline bool has_blocks(const bound_call& call) {
  return call.options_as<options>().scales == product_scales::blocks;
}
constexpr std::int64_t blocks_of(std::int64_t extent) {
  return extent / scale_block + (extent % scale_block != 0 ? 1 : 0);
}

inline constexpr std::array dims{
    dim{.symbol = "M", .label = "rows"},
    dim{.symbol = "K", .label = "inner dim"},
    dim{.symbol = "N", .label = "columns"},
    dim{.symbol = "G", .label = "groups"},
    dim{.symbol = "S", .label = "groups"},
    dim{.symbol = "P",
        .label = "scale blocks",
        .source = dim_source::formula,
        .of = "K",
        .value =
            [](const bound_call& call) {
              return has_blocks(call) ? blocks_of(call.dims[1]) : std::int64_t{1};
            }},
    dim{.symbol = "Q",
        .label = "scale blocks",
        .source = dim_source::formula,
        .of = "N",
        .value =
            [](const bound_call& call) {
              return has_blocks(call) ? blocks_of(call.dims[2]) : call.dims[2];
            }},
    dim{.symbol = "B", .label = "batch"},
    grouped_matmul_table::code_scale_blocks<2>(),
};

/// Matrices of groups, a matrix, and a batch of them.
inline constexpr std::array<std::string_view, 3> layouts{"grouped", "plain", "batched"};
inline constexpr texts of_inputs{"M K", "M K", "B M K"};
inline constexpr texts of_weights{"G N K", "N K", "B N K"};
inline constexpr texts of_results{"M N", "M N", "B M N"};
inline constexpr texts of_code_scales{"M? O?", "M? O?", "B M? O?"};
inline constexpr texts of_sizes{"S", "-", "-"};
inline constexpr texts of_biases{"G N", "N", "B N"};
inline constexpr texts of_input_scales{"M P", "M P", "B M P"};
inline constexpr texts of_weight_scales{"G Q P", "Q P", "B Q P"};

constexpr tensor_text numbers(std::string_view name, const texts& shapes) {
  return grouped_matmul_table::matrix(name, shapes, true);
}
constexpr tensor_text codes(std::string_view name, const texts& shapes, dtype_set types,
                            std::string_view like) {
  return {.name = name,
          .shapes = shapes,
          .types = types,
          .like = like,
          .contiguous_rows = true,
          .aligned_rows = true};
}
constexpr tensor_text scales(std::string_view name, const texts& shapes) {
  return {.name = name, .shapes = shapes, .types = dtype::f32, .contiguous_rows = true};
}
constexpr tensor_text result() {
  tensor_text text = numbers("out", of_results);
  text.use = tensor_use::output;
  text.shares = "out_init";
  text.free = false;
  text.types = floating_types | grouped_matmul_table::code_types;
  return text;
}

inline constexpr std::array tensor_texts{
    codes("lhs", of_inputs, grouped_matmul_table::code_types, {}),
    codes("rhs", of_weights, dtype::f8_e4m3 | dtype::f8_e5m2, "lhs"),
    tensor_text{
        .name = "group_sizes", .shapes = of_sizes, .types = dtype::i32, .contiguous_rows = true},
    scales("lhs_scale", of_input_scales),
    scales("rhs_scale", of_weight_scales),
    numbers("rhs_bias", of_biases),
    numbers("out_init", of_results),
    numbers("multiplier", of_results),
    numbers("residual", of_results),
    result(),
    grouped_matmul_table::code_scales_of("out_code_scale", of_code_scales),
};
consteval std::int8_t tensor(std::string_view name) {
  return declared::tensor_named(tensor_texts, name);
}

inline constexpr std::array option_forms{
    option_form{.name = "scales",
                .offset = offsetof(options, scales),
                .type = option_type::choice,
                .enumerators = product_scales_names},
    grouped_matmul_table::group_offset_at(offsetof(options, group_offset)),
    grouped_matmul_table::free_choice_at("lhs_rows", offsetof(options, lhs_rows),
                                         grouped_rows_names),
    grouped_matmul_table::free_choice_at("activation", offsetof(options, activation),
                                         product_activation_names),
    grouped_matmul_table::out_scale_at(offsetof(options, out_scale)),
};

inline constexpr std::array rules{
    grouped_matmul_table::rule_of_code_scales<tensor("out_code_scale"), tensor("out")>(),
};

inline scaled_matmul_op op_of(const bound_call& call) noexcept {
  return static_cast<scaled_matmul_op>(call.op->place);
}
/// A batch is said by the rank of lhs.
inline int layout_of(const bound_call& call) {
  if (has_groups(op_of(call))) return 0;
  return call.tensors[tensor("lhs")].rank == 3 ? 2 : 1;
}
inline bool hook(const bound_call& call, status& failure) {
  const dtype lhs = call.tensors[tensor("lhs")].type, rhs = call.tensors[tensor("rhs")].type;
  if (lhs == dtype::i8 && rhs != dtype::i8) {
    return checks::refuse(failure, "rhs: dtype is ", name_of(rhs), ", lhs has i8");
  }
  return !has_groups(op_of(call)) ||
         grouped_matmul_table::has_sizes(call.dims[3], call.dims[4], "rhs",
                                         call.options_as<options>().group_offset, failure);
}

inline constexpr signature form =
    declared::signature_of<scaled_matmul_problem, tensor_texts, dims, layouts>({
        .options = option_forms,
        .remarks = grouped_matmul_table::remarks,
        .rules = rules,
        .layout_of = &layout_of,
        .hook = &hook,
    });

// Where a kernel finds them.

inline constexpr auto bindings = declared::bindings_in(
    std::array{
        matrix_at("lhs", offsetof(kernel, lhs), "M"), matrix_at("rhs", offsetof(kernel, rhs), "N"),
        matrix_at("lhs_scale", offsetof(kernel, lhs_scale), "M"),
        matrix_at("rhs_scale", offsetof(kernel, rhs_scale), "Q"),
        matrix_at("rhs_bias", offsetof(kernel, rhs_bias)),
        matrix_at("out_init", offsetof(kernel, out_init)),
        matrix_at("multiplier", offsetof(kernel, multiplier)),
        matrix_at("residual", offsetof(kernel, residual)), matrix_at("out", offsetof(kernel, out)),
        grouped_matmul_table::code_scales_at(offsetof(kernel, out_code_scale)),
        binding_text{"group_sizes", offsetof(kernel, group_sizes)}},
    form);
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"M", offsetof(kernel, m)}, size_text{"N", offsetof(kernel, n)},
               size_text{"K", offsetof(kernel, k)}, size_text{"G|B", offsetof(kernel, groups)},
               size_text{"S", offsetof(kernel, all_groups)},
               size_text{"P", offsetof(kernel, scale_blocks)}},
    form);

inline void finish(const bound_call& call, void* to) {
  kernel& filled = *static_cast<kernel*>(to);
  const options& wanted = call.options_as<options>();
  filled.transpose_rhs = true;
  filled.scales = wanted.scales;
  grouped_matmul_table::set_rows_and_epilogue(wanted, filled);
  grouped_matmul_table::keep_groups(has_groups(op_of(call)), filled.group_sizes);
}

inline constexpr lowering lower = declared::lowering_of<kernel_defaults>(sizes, bindings, &finish);

inline constexpr std::array operations{
    declared::operation_of("scaled_grouped_matmul", 0, form, lower,
                           "lhs! rhs! group_sizes! lhs_scale! rhs_scale! rhs_bias out_init "
                           "multiplier residual out! out_code_scale"),
    declared::operation_of("scaled_matmul", 1, form, lower,
                           "lhs! rhs! lhs_scale! rhs_scale! rhs_bias out_init multiplier residual "
                           "out! out_code_scale",
                           "group_offset lhs_rows"),
};

}  // namespace tessera::scaled_matmul_table
