// What the declarations of all losses share: tensors with an element for each token, options, and
// where kernels find them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/reduction.hpp>
#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::loss_forms {

using texts = std::array<std::string_view, max_layouts>;

// Layouts: tokens lie in one axis to four, losses are reduced or not, and so again for soft
// targets.
inline constexpr std::array<std::string_view, 16> layouts{
    "flat",
    "batched",
    "grouped",
    "nested",
    "flat unreduced",
    "batched unreduced",
    "grouped unreduced",
    "nested unreduced",
    "soft flat",
    "soft batched",
    "soft grouped",
    "soft nested",
    "soft flat unreduced",
    "soft batched unreduced",
    "soft grouped unreduced",
    "soft nested unreduced",
};
inline constexpr std::size_t most_axes = 4, hard_layouts = 2 * most_axes;
using axes_texts = std::array<std::string_view, most_axes>;  ///< by axes that tokens lie in
inline constexpr axes_texts token_axes{"T", "B T", "G B T", "N G B T"};
inline constexpr axes_texts class_axes{"T V", "B T V", "G B T V", "N G B T V"};
inline constexpr axes_texts one_number_axes{"1", "1", "1", "1"};
inline constexpr axes_texts no_axes{"-", "-", "-", "-"};

/// Of losses that are reduced, of others, and of both kinds with soft targets.
consteval texts in_layouts(const axes_texts& reduced, const axes_texts& unreduced,
                           const axes_texts& soft, const axes_texts& soft_unreduced) {
  texts all{};
  auto end = all.begin();
  for (const axes_texts* part : {&reduced, &unreduced, &soft, &soft_unreduced}) {
    end = std::copy(part->begin(), part->end(), end);
  }
  return all;
}
/// The same whether losses are reduced or not.
consteval texts in_layouts(const axes_texts& hard, const axes_texts& soft) {
  return in_layouts(hard, hard, soft, soft);
}
inline constexpr texts of_tokens = in_layouts(token_axes, token_axes);
inline constexpr texts of_losses =
    in_layouts(one_number_axes, token_axes, one_number_axes, token_axes);
inline constexpr texts of_classes = in_layouts(class_axes, class_axes);

/// `rank` is that of logits; that of a tensor with no such rank is refused.
constexpr int layout_of(int rank, loss_reduction reduction, bool soft) noexcept {
  constexpr int most = most_axes;
  const int axes = rank < 2 ? 1 : rank - 1 > most ? most : rank - 1;
  return (soft ? 2 * most : 0) + (reduction == loss_reduction::none ? most : 0) + axes - 1;
}

inline constexpr dim nest{.symbol = "N", .label = "outer groups"};
inline constexpr dim group{.symbol = "G", .label = "groups"};
inline constexpr dim batch{.symbol = "B", .label = "batch"};
inline constexpr dim length{.symbol = "T", .label = "length"};
inline constexpr dim classes{.symbol = "V", .label = "classes", .least = 1};

constexpr tensor_text of_each_token(std::string_view name, dtype type) {
  return {.name = name, .shapes = of_tokens, .types = type, .free = true};
}
constexpr tensor_text loss_output() {
  return {.name = "loss", .shapes = of_losses, .types = dtype::f32, .use = tensor_use::output};
}
constexpr tensor_text reduced_like_loss(std::string_view name) {
  tensor_text text = loss_output();
  text.name = name;
  text.free = true;
  return text;
}
constexpr tensor_text one_number(std::string_view name) {
  return {.name = name,
          .shapes = declared::everywhere("1"),
          .types = dtype::f32,
          .use = tensor_use::output,
          .free = true};
}
constexpr tensor_text gradient_of(std::string_view of, tensor_text text) {
  text.use = tensor_use::output;
  text.gradient_of = of;
  return text;
}

consteval option_form reduction(std::size_t offset) {
  return {.name = "reduction",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::choice,
          .enumerators = loss_reduction_names,
          .free = true};
}
consteval option_form world_size(std::size_t offset) {
  return {.name = "world_size",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::integer,
          .limit = option_limit::at_least,
          .least = 1,
          .free = true};
}
consteval option_form ignore_index(std::size_t offset) {
  return {.name = "ignore_index",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::integer,
          .free = true};
}
consteval option_form label_smoothing(std::size_t offset) {
  return {.name = "label_smoothing",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::number,
          .limit = option_limit::probability,
          .free = true};
}
consteval option_form z_loss(std::size_t offset) {
  return {.name = "z_loss",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::number,
          .limit = option_limit::finite_float,
          .free = true};
}

/// The tensor decides the classes, dim number `dim`.
inline bool are_equal_parts(const bound_call& call, std::int64_t parts, std::size_t dim,
                            std::string_view tensor, status& failure) {
  return call.dims[dim] % parts == 0 ||
         checks::refuse(failure, "world_size: is ", parts, ", does not divide the ", call.dims[dim],
                        " classes of ", tensor);
}
inline bool is_not_negative(double z_loss, status& failure) {
  return z_loss >= 0 || checks::refuse(failure, "z_loss: is ", z_loss, ", must be at least 0");
}

/// Places of a tensor with rows or elements of tokens.
consteval binding_text rows_at(std::string_view name, std::size_t at) {
  return {name,
          at + offsetof(token_rows, data),
          {{{"N", at + offsetof(token_rows, nest)},
            {"G", at + offsetof(token_rows, group)},
            {"B", at + offsetof(token_rows, entry)},
            {"T", at + offsetof(token_rows, token)}}},
          at + offsetof(token_rows, type)};
}
/// The same of what all losses have; `at` is where their tokens are.
consteval std::array<binding_text, 5> token_bindings(std::size_t at) {
  return {rows_at("weights", at + offsetof(loss_tokens, weights)),
          rows_at("mask", at + offsetof(loss_tokens, mask)),
          rows_at("loss", at + offsetof(loss_tokens, loss)),
          rows_at("d_loss", at + offsetof(loss_tokens, d_loss)),
          binding_text{"weight_sum", at + offsetof(loss_tokens, weight_sum)}};
}
consteval std::array<size_text, 5> token_sizes(std::size_t at) {
  return {size_text{"N", at + offsetof(loss_tokens, nests)},
          size_text{"G", at + offsetof(loss_tokens, groups)},
          size_text{"B", at + offsetof(loss_tokens, entries)},
          size_text{"T", at + offsetof(loss_tokens, tokens)},
          size_text{"V", at + offsetof(loss_tokens, classes)}};
}

}  // namespace tessera::loss_forms
