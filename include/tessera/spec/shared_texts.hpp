// What declarations share: texts of tensors, and rules, that several families write alike.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>

namespace tessera::declared {

using layout_texts = std::array<std::string_view, max_layouts>;

/// Tokens of packed sequences: sequence n is tokens [cu_seqlens[n], cu_seqlens[n+1]).
constexpr tensor_text packed_offsets(const layout_texts& shapes, std::string_view tokens = "T") {
  return {.name = "cu_seqlens",
          .shapes = shapes,
          .types = dtype::i32,
          .contiguous_rows = true,
          .holds = tensor_contents::offsets,
          .counts = tokens};
}

/// Where the states of packed sequences lie in a pool.
constexpr tensor_text pool_slots(const layout_texts& shapes, std::string_view slots) {
  return {.name = "state_indices",
          .shapes = shapes,
          .types = dtype::i32,
          .holds = tensor_contents::slots,
          .counts = slots,
          .used_by = "cu_seqlens",
          .elsewhere = "is given without cu_seqlens",
          .free = true};
}

/// A tensor whose rows kernels read in wide pieces: of any floating type, or of that of `like`.
constexpr tensor_text operand(std::string_view name, const layout_texts& shapes,
                              std::string_view like = {}) {
  return {.name = name,
          .shapes = shapes,
          .types = like.empty() ? floating_types : dtype_set{},
          .like = like,
          .contiguous_rows = true,
          .aligned_rows = true};
}

constexpr tensor_text as_output(tensor_text text, std::string_view gradient_of = {}) {
  text.use = tensor_use::output;
  text.gradient_of = gradient_of;
  return text;
}
/// The same of one whose rows may begin anywhere.
constexpr tensor_text as_unaligned_output(tensor_text text, std::string_view gradient_of = {}) {
  text.aligned_rows = false;
  return as_output(text, gradient_of);
}

/// States of a recurrence, which a call may have or not.
constexpr tensor_text state(std::string_view name, const layout_texts& shapes,
                            bool contiguous_rows = true) {
  return {.name = name,
          .shapes = shapes,
          .types = dtype::f32,
          .contiguous_rows = contiguous_rows,
          .free = true};
}
/// Those behind the last tokens, which may lie where the initial ones do.
constexpr tensor_text final_state(const layout_texts& shapes, bool contiguous_rows = true) {
  tensor_text text = as_output(state("final_state", shapes, contiguous_rows));
  text.shares = "initial_state";
  return text;
}

template <std::int8_t Tensor>
bool is_given(const bound_call& call) {
  return call.has(static_cast<std::size_t>(Tensor));
}
/// A tensor that goes with another, as a gradient with what it belongs to.
template <std::int8_t Tensor, std::int8_t With>
consteval tensor_rule goes_with(std::string_view sentence) {
  return {Tensor, &is_given<With>, sentence};
}
/// Slots go with states.
template <std::int8_t Slots, std::int8_t Initial, std::int8_t Final>
consteval tensor_rule slots_rule() {
  return {Slots,
          [](const bound_call& call) { return is_given<Initial>(call) || is_given<Final>(call); },
          "is given, initial_state and final_state are absent"};
}

/// 0 dense, 1 packed, 2 packed with states in a pool.
template <std::int8_t Offsets, std::int8_t Slots>
int packing_of(const bound_call& call) {
  if (!is_given<Offsets>(call)) return 0;
  return is_given<Slots>(call) ? 2 : 1;
}

}  // namespace tessera::declared
