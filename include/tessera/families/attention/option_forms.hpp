// Options that several signatures of attention have, declared once.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/spec/declaration.hpp>

namespace tessera::attention_table {

// By the offsets of their members.

consteval option_form softmax_scale_at(std::size_t offset) {
  return {.name = "softmax_scale",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::optional_number,
          .limit = option_limit::finite_float,
          .free = true};
}
consteval option_form window_at(std::string_view name, std::size_t offset) {
  return {.name = name,
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::optional_integer,
          .limit = option_limit::at_least,
          .unset = "unbounded"};
}
consteval option_form soft_cap_at(std::size_t offset) {
  return {.name = "logits_soft_cap",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::optional_number,
          .limit = option_limit::positive_float};
}
consteval option_form dropout_probability_at(std::size_t offset) {
  return {.name = "dropout_probability",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::number,
          .limit = option_limit::probability};
}
consteval option_form dropout_seed_at(std::size_t offset) {
  return {.name = "dropout_seed",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::natural,
          .free = true};
}
/// Dropped iff a 32-bit random word is below this: ceil(p * 2^32), exact in double.
inline std::uint64_t dropout_threshold(double probability) noexcept {
  return static_cast<std::uint64_t>(std::ceil(probability * 0x1p32));
}
inline constexpr std::array<std::string_view, 2> alignments{"bottom_right", "top_left"};
consteval option_form causal_alignment_at(std::size_t offset) {
  return {.name = "causal_alignment",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::choice,
          .enumerators = alignments};
}
/// A factor of scores or of out.
consteval option_form scale_at(std::string_view name, std::size_t offset) {
  return {.name = name,
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::optional_number,
          .limit = option_limit::positive_float,
          .free = true};
}

/// An option that no choice depends on.
consteval option_form free_option(option_form form) {
  form.free = true;
  return form;
}

consteval option_form pool_layout_at(std::size_t offset,
                                     std::span<const std::string_view> layouts) {
  return {.name = "pool_layout",
          .offset = static_cast<std::uint16_t>(offset),
          .type = option_type::choice,
          .enumerators = layouts};
}

}  // namespace tessera::attention_table
