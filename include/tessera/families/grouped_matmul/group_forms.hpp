// What declarations of products of groups have in common.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::grouped_matmul_table {

constexpr option_form group_offset_at(std::size_t offset) {
  return {.name = "group_offset",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::integer,
          .limit = option_limit::at_least,
          .free = true};
}
constexpr option_form free_choice_at(std::string_view name, std::size_t offset,
                                     std::span<const std::string_view> enumerators) {
  return {.name = name,
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::choice,
          .enumerators = enumerators,
          .free = true};
}
/// Numbers of 8 bits that results may be rounded to, without infinities.
inline constexpr dtype_set code_types = dtype::i8 | dtype::f8_e4m3 | dtype::f8_e5m2;

/// Scales of a result of codes, which it is divided by, so none is 0: those of rows or one, of
/// blocks of columns (`O`) or one.
constexpr tensor_text code_scales_of(std::string_view name,
                                     const std::array<std::string_view, max_layouts>& shapes) {
  return {
      .name = name, .shapes = shapes, .types = dtype::f32, .contiguous_rows = true, .free = true};
}
/// Their blocks, of the columns `N`, which are dim number `columns`.
template <int Columns>
constexpr dim code_scale_blocks() {
  return {.symbol = "O",
          .label = "scale blocks",
          .source = dim_source::formula,
          .of = "N",
          .value = [](const bound_call& call) {
            const std::int64_t n = call.dims[Columns];
            return n / scale_block + (n % scale_block != 0 ? 1 : 0);
          }};
}
/// Only codes have scales.
template <std::int8_t Scales, std::int8_t Out>
consteval tensor_rule rule_of_code_scales() {
  return {Scales, [](const bound_call& call) { return size_of(call.tensors[Out].type) == 1; },
          "is given, out has no elements of 8 bits"};
}

/// Sizes of no groups may have no memory, but null would say that a matrix has all rows.
inline void keep_groups(bool grouped, const std::int32_t*& sizes) noexcept {
  static constexpr std::int32_t no_size = 0;  // not read: there are no groups
  if (grouped && sizes == nullptr) sizes = &no_size;
}

/// There are sizes of all `local` groups, whose weights `weights` holds, from `offset` on.
inline bool has_sizes(std::int64_t local, std::int64_t all, std::string_view weights,
                      std::int64_t offset, status& failure) {
  return (local <= all && offset <= all - local) ||
         checks::refuse(failure, "group_sizes: has ", all, " groups, ", weights, " has ", local,
                        " from group_offset ", offset, " on");
}

}  // namespace tessera::grouped_matmul_table
