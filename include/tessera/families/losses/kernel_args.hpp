// What the kernels of fused losses receive: raw pointers, element strides and sizes of one launch.
// Made from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>

#include <tessera/families/losses/kl_divergence_options.hpp>
#include <tessera/families/losses/reduction.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// A tensor with an element or a row of elements, which lie side by side, for each token: strides
/// of the axes that tokens lie in. Null: absent.
struct token_rows {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t nest = 0;
  std::int64_t group = 0;
  std::int64_t entry = 0;
  std::int64_t token = 0;
};

/// What every loss has: tokens with weights, and one number made of their losses, or one each.
struct loss_tokens {
  std::int64_t nests = 1;
  std::int64_t groups = 1;   ///< of a nest
  std::int64_t entries = 1;  ///< of a group
  std::int64_t tokens = 0;   ///< of an entry
  std::int64_t classes = 0;
  std::int64_t parts = 1;  ///< that classes are cut into; divides them

  token_rows targets{};  ///< absent: every token counts
  token_rows weights{}, mask{};
  std::int64_t ignore_index = 0;

  loss_reduction reduction = loss_reduction::mean;
  token_rows loss{}, d_loss{};  ///< strides are 0 where they are one number
  float* weight_sum = nullptr;
};

/// What becomes of logits and targets.
struct cross_entropy_form {
  double label_smoothing = 0;
  double z_loss = 0;
  token_rows z_part{};
  float* accuracy = nullptr;
};

/// Arguments of a cross entropy launch.
struct cross_entropy_kernel_args {
  loss_tokens tokens{};
  cross_entropy_form form{};
  token_rows logits{}, soft_targets{};
  token_rows d_logits{}, d_soft_targets{};
};

/// Arguments of a KL divergence launch.
struct kl_divergence_kernel_args {
  loss_tokens tokens{};
  kl_direction direction = kl_direction::forward;
  double temperature = 1;
  double beta = 0;
  token_rows teacher_entropy{};
  token_rows student{}, teacher{}, d_student{};
};

/// A tensor with rows of classes, which lie side by side. Null: absent.
struct parameter_rows {
  void* data = nullptr;
  dtype type = dtype::none;
  std::int64_t row = 0;
};

/// Arguments of a launch of cross entropy of a product.
struct linear_cross_entropy_kernel_args {
  loss_tokens tokens{};
  cross_entropy_form form{};
  std::int64_t columns = 0;  ///< of hidden rows
  float soft_cap = 0;        ///< 0: none
  token_rows hidden{}, d_hidden{};
  /// Of each token its largest logit, and behind it the sum of powers relative to that: what a loss
  /// leaves, what gradients are given.
  token_rows logit_sums{};
  parameter_rows weight{}, bias{}, d_weight{}, d_bias{};
};

/// Arguments of a launch: those of the row's loss are filled.
struct losses_kernel_args {
  cross_entropy_kernel_args cross_entropy{};
  kl_divergence_kernel_args kl_divergence{};
  linear_cross_entropy_kernel_args linear_cross_entropy{};
};

}  // namespace tessera
