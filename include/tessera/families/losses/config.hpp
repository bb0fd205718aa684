// What a kernel of fused losses is, at compile time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/kernel_pass.hpp>

namespace tessera {

/// The loss that a kernel computes.
enum class loss_kind : std::uint8_t {
  cross_entropy,         ///< of logits in memory
  kl_divergence,         ///< between two kinds of logits in memory
  linear_cross_entropy,  ///< of logits that are a product, tile by tile
};
inline constexpr std::array<std::string_view, 3> loss_kind_names{"cross_entropy", "kl_divergence",
                                                                 "linear_cross_entropy"};
constexpr std::string_view name_of(loss_kind kind) noexcept {
  return loss_kind_names[static_cast<std::size_t>(kind)];
}

using loss_pass = kernel_pass;

/// One row of the table. Kernels take every element type, size and option, but for products on
/// GPUs: those of f32 take every one, others what the matrix unit multiplies.
struct losses_config {
  backend target = backend::cpu_generic;
  loss_kind loss = loss_kind::cross_entropy;
  loss_pass pass = loss_pass::forward;
  dtype type = dtype::none;  ///< CUDA rows of linear_cross_entropy: what is multiplied; else none
  friend constexpr bool operator==(const losses_config&, const losses_config&) = default;
};

/// The config with every default filled in.
constexpr losses_config resolved(losses_config config) noexcept {
  return config;
}

}  // namespace tessera
