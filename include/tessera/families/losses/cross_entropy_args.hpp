// The tensors of a fused cross entropy call, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | logits, d_logits | [...,V] | f32, f16, bf16 |
// | targets | [...] | i32 |
// | soft_targets, d_soft_targets | that of logits | f32 or that of logits |
// | weights, mask | [...] | f32; u8 |
// | loss, z_loss, d_loss | [1]; reduction none: [...] | f32 |
// | weight_sum, accuracy | [1] | f32 |
//
// The axes ... that tokens lie in are one to four, the same for all tensors of a call.
//
// A call has targets or soft_targets. The last axis of logits and soft_targets and of their
// gradients has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct cross_entropy_args {
  tensor_view logits{};
  tensor_view targets{};       ///< the class of each token
  tensor_view soft_targets{};  ///< or the share of each class; shares need not sum to 1
  tensor_view weights{};       ///< of tokens; fractions and negative numbers are legal
  tensor_view mask{};          ///< multiplies the weights
  tensor_view loss{};
  tensor_view z_loss{};      ///< the part of the loss that option z_loss adds, reduced like it
  tensor_view weight_sum{};  ///< of the weights of tokens that are not ignored
  tensor_view accuracy{};  ///< share of tokens, by weight, whose first largest logit is the target

  // Backward. A gradient has the shape and type of what it belongs to.
  tensor_view d_loss{};          ///< gradient of loss
  tensor_view d_logits{};        ///< may be the memory of logits
  tensor_view d_soft_targets{};  ///< may be the memory of soft_targets
};

}  // namespace tessera
