// Cross entropy of logits that are a product of hidden rows and a weight, and its gradients, on a
// GPU. Logits of some classes come and go: no launch holds more than `chunk_floats` of them, or
// those of `least_classes`.
//
//   loss:        for each chunk of classes { logits; sums of each token }
//   gradients:   the same, then
//                for each chunk of classes { logits; their gradients;
//                  d_hidden += gradients weight^T; d_weight = hidden^T gradients; d_bias }
//
// Products are those of grouped_matmul/sm80, whose group is the tokens that count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/grouped_matmul/config.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/launch.hpp>
#include <tessera/kernels/losses/sm80/linear_rows.hpp>
#include <tessera/kernels/losses/sm80/linear_steps.hpp>
#include <tessera/kernels/losses/sm80/row_launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::losses::sm80 {

/// The kernels of its products.
template <dtype Type>
struct linear_factor_row {
  static constexpr grouped_matmul_config config{.target = backend::cuda_sm80, .type = Type};
};

inline constexpr std::int64_t chunk_floats = 16 << 20, least_classes = 256;

/// Classes whose logits are there at a time.
constexpr std::int64_t classes_together(std::int64_t tokens, std::int64_t classes) {
  const std::int64_t fitting =
      chunk_floats / std::max<std::int64_t>(tokens, 1) / least_classes * least_classes;
  return std::min(std::max(fitting, least_classes), classes);
}
/// Device memory of a launch.
template <class Element>
struct linear_memory : linear_token_memory<Element> {
  float* logits = nullptr;
  std::byte* product = nullptr;
  Element* d_logits = nullptr;  ///< for gradients
  std::size_t bytes = 0;

  linear_memory(const linear_cross_entropy_kernel_args& args, bool backward, std::byte* base,
                std::size_t bytes_of_product) {
    const std::int64_t tokens = count_of(args.tokens);
    const std::int64_t classes = whole_chunks(classes_together(tokens, args.tokens.classes));
    cuda::workspace_parts parts(base);
    this->place(args, backward, parts);
    parts.take(logits, tokens * classes);
    parts.take(product, static_cast<std::int64_t>(bytes_of_product));
    // Gradients of floats take the place of their logits.
    if (backward && sizeof(Element) != sizeof(float)) parts.take(d_logits, tokens * classes);
    bytes = parts.bytes();
  }
};

/// A launch of either direction.
template <dtype Type, bool Backward>
class linear_cross_entropy_row {
  using element = element_t<Type>;
  using factor_row = linear_factor_row<Type>;

 public:
  linear_cross_entropy_row(const losses_kernel_args& args, std::byte* workspace)
      : args_(args.linear_cross_entropy), memory_(args_, Backward, workspace, product_bytes()) {}

  static auto entries() {
    return cuda::joined(
        grouped_matmul::sm80::row_kernels<factor_row>::entries(), linear_steps<element>::entries(),
        std::array{cuda::entry_of(&add_logits), cuda::entry_of(&chunk_gradients<element>)});
  }
  std::size_t bytes() const { return memory_.bytes; }

  cudaError_t launch(cudaStream_t stream) {
    stream_ = stream;
    row_launch rows(args_.tokens, stream);
    const linear_steps<element> steps(args_, memory_, rows);
    const bool smoothed = steps.terms().elsewhere != 0;
    steps.gather();
    if (!Backward || args_.logit_sums.data == nullptr) {
      for_each_chunk([&](const logit_chunk& chunk, const row_grid& grid) {
        multiply(logits_of(chunk), rows);
        rows.run(&add_logits, grid, args_, memory_.active, chunk, smoothed, grid.by_warp,
                 memory_.known);
      });
    }
    if constexpr (Backward) {
      differentiate(rows, steps);
    } else {
      steps.evaluate();
    }
    return rows.code();
  }

 private:
  /// Calls visit(chunk, grid) for every chunk of classes and what a kernel over its rows has.
  template <class Visit>
  void for_each_chunk(const Visit& visit) const {
    const std::int64_t tokens = count_of(args_.tokens), classes = args_.tokens.classes;
    const std::int64_t together = classes_together(tokens, classes);
    for (std::int64_t first = 0; tokens > 0 && first < classes; first += together) {
      const logit_chunk chunk{.logits = memory_.logits,
                              .stride = whole_chunks(together),
                              .first = first,
                              .count = std::min(together, classes - first)};
      loss_tokens of_chunk = args_.tokens;
      of_chunk.classes = chunk.count;
      visit(chunk, row_grid::of(of_chunk, 256, 4096));
    }
  }

  void differentiate(row_launch& rows, const linear_steps<element>& steps) {
    steps.prepare_gradients();
    for_each_chunk([&](const logit_chunk& chunk, const row_grid& grid) {
      multiply(logits_of(chunk), rows);
      rows.run(&chunk_gradients<element>, grid, args_, memory_.active, chunk, grid.by_warp,
               static_cast<const linear_gradient*>(memory_.gradients), d_logits());
      multiply(gradient_of_hidden(chunk), rows);
      multiply(gradient_of_weight(chunk), rows);
    });
    if (count_of(args_.tokens) == 0) return steps.clear_parameters();
    steps.scatter();
  }

  element* d_logits() const {
    if constexpr (Type == dtype::f32) {
      return memory_.logits;
    } else {
      return memory_.d_logits;
    }
  }

  // Products.

  static std::size_t product_bytes() {
    grouped_matmul_kernel_args sizes;
    constexpr std::int32_t one_group = 0;
    sizes.group_sizes = &one_group;
    return cuda::workspace_bytes<grouped_matmul::sm80::launcher<factor_row>>(sizes, 0);
  }
  grouped_matmul_kernel_args product() const { return product_of_active(args_, memory_.active); }
  grouped_matrix hidden() const {
    return rows_at(memory_.hidden, Type, whole_chunks(args_.columns));
  }
  grouped_matrix gradients_in(const logit_chunk& chunk) const {
    return rows_at(d_logits(), Type, chunk.stride);
  }
  grouped_matmul_kernel_args logits_of(const logit_chunk& chunk) const {
    grouped_matmul_kernel_args made = product();
    made.lhs = hidden();
    made.rhs = part_of(args_.weight, chunk.first);
    made.rhs_bias = part_of(args_.bias, chunk.first);
    made.out = rows_at(chunk.logits, dtype::f32, chunk.stride);
    made.n = chunk.count;
    made.k = args_.columns;
    return made;
  }
  /// d_hidden (+)= gradients weight^T.
  grouped_matmul_kernel_args gradient_of_hidden(const logit_chunk& chunk) const {
    grouped_matmul_kernel_args made = product();
    made.lhs = gradients_in(chunk);
    made.rhs = part_of(args_.weight, chunk.first);
    made.out = rows_at(memory_.d_hidden, dtype::f32, whole_chunks(args_.columns));
    if (chunk.first != 0) made.out_init = made.out;
    made.n = args_.columns;
    made.k = chunk.count;
    made.transpose_rhs = true;
    return made;
  }
  /// d_weight = hidden^T gradients, and sums of these for d_bias.
  grouped_matmul_kernel_args gradient_of_weight(const logit_chunk& chunk) const {
    grouped_matmul_kernel_args made = product();
    made.lhs = hidden();
    made.d_out = gradients_in(chunk);
    made.d_rhs = part_of(args_.d_weight, chunk.first);
    made.d_rhs_bias = part_of(args_.d_bias, chunk.first);
    made.n = chunk.count;
    made.k = args_.columns;
    return made;
  }

  void multiply(const grouped_matmul_kernel_args& product, row_launch& rows) const {
    rows.add(
        grouped_matmul::sm80::grouped_launch<factor_row>(product, memory_.product).launch(stream_));
  }

  const linear_cross_entropy_kernel_args& args_;
  linear_memory<element> memory_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tessera::kernels::losses::sm80
