// The tensors of a fused KL divergence call, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | student_logits, d_student_logits | [...,V] | f32, f16, bf16 |
// | teacher_logits | the same | f32, f16, bf16 |
// | weights, mask | [...] | f32; u8 |
// | loss, teacher_entropy, d_loss | [1]; reduction none: [...] | f32 |
// | weight_sum | [1] | f32 |
//
// The axes ... that tokens lie in are one to four, the same for all tensors of a call.
//
// The last axis of the logits and of d_student_logits has stride 1; every other stride is free.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed.
struct kl_divergence_args {
  tensor_view student_logits{};
  tensor_view teacher_logits{};  ///< a constant: it has no gradient
  tensor_view weights{};         ///< of tokens; fractions and negative numbers are legal
  tensor_view mask{};            ///< multiplies the weights
  tensor_view loss{};
  tensor_view weight_sum{};
  tensor_view teacher_entropy{};  ///< times the square of the temperature, reduced like the loss

  // Backward. The gradient has the shape and type of student_logits.
  tensor_view d_loss{};            ///< gradient of loss
  tensor_view d_student_logits{};  ///< may be the memory of student_logits
};

}  // namespace tessera
