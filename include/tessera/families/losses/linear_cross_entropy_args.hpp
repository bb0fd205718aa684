// The tensors of a fused linear cross entropy call, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | hidden, d_hidden | [...,H] | f32, f16, bf16 |
// | lm_head_weight, d_lm_head_weight | [H,V] | f32 or that of hidden |
// | lm_head_bias, d_lm_head_bias | [V] | f32 or that of hidden |
// | targets | [...] | i32 |
// | weights, mask | [...] | f32; u8 |
// | loss, z_loss, d_loss | [1]; reduction none: [...] | f32 |
// | weight_sum, accuracy | [1] | f32 |
// | logit_sums | [...,2] | f32 |
//
// The axes ... that tokens lie in are one to four, the same for all tensors of a call.
//
// The last axis of hidden, lm_head_weight and lm_head_bias, of their gradients and of sums of
// logits has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct linear_cross_entropy_args {
  tensor_view hidden{};
  tensor_view lm_head_weight{};  ///< the logits of a token are hidden lm_head_weight
  tensor_view lm_head_bias{};    ///< and this
  tensor_view targets{};         ///< the class of each token
  tensor_view weights{};         ///< of tokens; fractions and negative numbers are legal
  tensor_view mask{};            ///< multiplies the weights
  tensor_view loss{};
  tensor_view z_loss{};      ///< the part of the loss that option z_loss adds, reduced like it
  tensor_view weight_sum{};  ///< of the weights of tokens that are not ignored
  tensor_view accuracy{};  ///< share of tokens, by weight, whose first largest logit is the target
  /// A token's largest logit m and sum_v exp(x_v - m); zeros where its weight is 0. Backward it is
  /// what the loss left there; absent: these sums are computed again.
  tensor_view logit_sums{};

  // Backward. A gradient has the shape and type of what it belongs to.
  tensor_view d_loss{};  ///< gradient of loss
  tensor_view d_hidden{};
  tensor_view d_lm_head_weight{};
  tensor_view d_lm_head_bias{};
};

}  // namespace tessera
