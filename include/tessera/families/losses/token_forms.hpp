// What the declarations of all losses share: tensors with an element for each token, options, and
// where kernels find them.
#pragma once

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

// Layouts: tokens lie in one axis or two, losses are reduced or not, and so again for soft targets.
inline constexpr std::array<std::string_view, 8> layouts{
    "flat",      "batched",      "flat unreduced",      "batched unreduced",
    "soft flat", "soft batched", "soft flat unreduced", "soft batched unreduced"};
inline constexpr std::size_t hard_layouts = 4;
inline constexpr texts of_tokens{"T", "B T", "T", "B T", "T", "B T", "T", "B T"};
inline constexpr texts of_losses{"1", "1", "T", "B T", "1", "1", "T", "B T"};
inline constexpr texts of_classes{"T V", "B T V", "T V", "B T V", "T V", "B T V", "T V", "B T V"};

constexpr int layout_of(int rank, loss_reduction reduction, bool soft) noexcept {
  return (soft ? 4 : 0) + (reduction == loss_reduction::none ? 2 : 0) + (rank == 3 ? 1 : 0);
}

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
          {{{"B", at + offsetof(token_rows, entry)}, {"T", at + offsetof(token_rows, token)}}},
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
consteval std::array<size_text, 3> token_sizes(std::size_t at) {
  return {size_text{"B", at + offsetof(loss_tokens, entries)},
          size_text{"T", at + offsetof(loss_tokens, tokens)},
          size_text{"V", at + offsetof(loss_tokens, classes)}};
}

}  // namespace tessera::loss_forms
