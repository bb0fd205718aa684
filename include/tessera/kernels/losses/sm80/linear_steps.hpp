// The steps of a launch of linear cross entropy beside its products: the tokens that count, their
// losses, what makes gradients, and these back in their places.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm80/linear_rows.hpp>
#include <tessera/kernels/losses/sm80/row_launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::losses::sm80 {

constexpr std::int64_t whole_chunks(std::int64_t elements) {
  return (elements + 7) / 8 * 8;
}

/// Device memory of tokens.
template <class Element>
struct linear_token_memory {
  row_memory rows;
  active_tokens active{};
  Element* hidden = nullptr;  ///< of the tokens that count
  linear_row* known = nullptr;
  // Gradients.
  linear_gradient* gradients = nullptr;
  float* d_hidden = nullptr;

  void place(const linear_cross_entropy_kernel_args& args, bool backward,
             cuda::workspace_parts& parts) {
    const std::int64_t tokens = count_of(args.tokens), columns = whole_chunks(args.columns);
    rows.place(args.tokens, backward, parts);
    parts.take(active.count, 1);
    parts.take(active.rows, tokens);
    parts.take(active.places, tokens);
    parts.take(hidden, tokens * columns);
    parts.take(known, tokens);
    if (!backward) return;
    parts.take(gradients, tokens);
    parts.take(d_hidden, tokens * columns);
  }
};

template <class Element>
class linear_steps {
 public:
  linear_steps(const linear_cross_entropy_kernel_args& args,
               const linear_token_memory<Element>& memory, row_launch& rows, bool backwards = false)
      : args_(args), memory_(memory), rows_(rows), backwards_(backwards) {}

  static auto entries() {
    return std::array{cuda::entry_of(&total_values),   cuda::entry_of(&total_weights),
                      cuda::entry_of(&find_active),    cuda::entry_of(&gather_hidden<Element>),
                      cuda::entry_of(&scatter_hidden), cuda::entry_of(&linear_values),
                      cuda::entry_of(&linear_factors)};
  }

  entropy_terms terms() const { return entropy_terms::of(args_.form, args_.tokens.classes); }

  /// Finds the tokens that count, and brings their hidden rows together.
  void gather() const {
    const std::int64_t tokens = count_of(args_.tokens);
    rows_.enqueue(&find_active, 1, total_threads, 0, args_.tokens, args_.form.z_part,
                  args_.logit_sums, memory_.active, memory_.rows.values);
    rows_.enqueue(&gather_hidden<Element>, tokens, 256, 0, args_, memory_.active, memory_.hidden,
                  whole_chunks(args_.columns), backwards_);
  }
  /// Losses, from what is known of all logits.
  void evaluate() const {
    rows_.enqueue(&linear_values, token_blocks(), token_threads, 0, args_, terms(), memory_.active,
                  static_cast<const linear_row*>(memory_.known), memory_.rows.values);
    rows_.total(memory_.rows, args_.form.z_part, args_.form.accuracy);
  }
  /// What makes gradients of logits, from the same.
  void prepare_gradients() const {
    rows_.sum_weights(memory_.rows);
    rows_.enqueue(&linear_factors, token_blocks(), token_threads, 0, args_, terms(), memory_.active,
                  static_cast<const linear_row*>(memory_.known),
                  static_cast<const double*>(memory_.rows.weight_sum), memory_.gradients);
  }
  void scatter() const {
    rows_.enqueue(&scatter_hidden, count_of(args_.tokens), 256, 0, args_, memory_.active,
                  static_cast<const float*>(memory_.d_hidden), whole_chunks(args_.columns),
                  backwards_);
  }

  /// Gradients without a token.
  void clear_parameters() const {
    const auto clear = [&](const parameter_rows& of, std::int64_t count) {
      const auto size = static_cast<std::int64_t>(size_of(of.type));
      for (std::int64_t row = 0; of.data != nullptr && row < count; ++row) {
        rows_.clear(static_cast<std::byte*>(of.data) + row * of.row * size,
                    static_cast<std::size_t>(args_.tokens.classes * size));
      }
    };
    clear(args_.d_weight, args_.columns);
    clear(args_.d_bias, 1);
  }

 private:
  std::int64_t token_blocks() const {
    return (count_of(args_.tokens) + token_threads - 1) / token_threads;
  }

  const linear_cross_entropy_kernel_args& args_;
  const linear_token_memory<Element>& memory_;
  row_launch& rows_;
  bool
      backwards_;  ///< columns of hidden rows are in the order of a weight whose rows lie backwards
};

// Products and their operands.

/// A product over the tokens that count, as a group of rows.
inline grouped_matmul_kernel_args product_of_active(const linear_cross_entropy_kernel_args& args,
                                                    const active_tokens& active) {
  grouped_matmul_kernel_args product;
  product.group_sizes = active.count;
  product.all_groups = 1;
  product.m = count_of(args.tokens);
  return product;
}

inline grouped_matrix rows_at(void* data, dtype type, std::int64_t row) {
  grouped_matrix matrix;
  matrix.data = data;
  matrix.type = type;
  matrix.row = row;
  return matrix;
}
/// The columns of a parameter from class `first` on.
inline grouped_matrix part_of(const parameter_rows& of, std::int64_t first) {
  if (of.data == nullptr) return {};
  const auto size = static_cast<std::int64_t>(size_of(of.type));
  return rows_at(static_cast<std::byte*>(of.data) + first * size, of.type, of.row);
}

}  // namespace tessera::kernels::losses::sm80
