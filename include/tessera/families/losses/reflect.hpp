// Reflection over the family of fused losses, and the names of its rows.
#pragma once

#include <boost/describe/class.hpp>
#include <boost/describe/enum.hpp>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/problem.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/spec/reflect.hpp>
#include <tessera/spec/row_name.hpp>

namespace tessera {

BOOST_DESCRIBE_ENUM(loss_kind, cross_entropy, kl_divergence, linear_cross_entropy)
BOOST_DESCRIBE_ENUM(loss_pass, forward, backward)
BOOST_DESCRIBE_ENUM(loss_reduction, mean, sum, none)
BOOST_DESCRIBE_ENUM(kl_direction, forward, reverse, jsd)
BOOST_DESCRIBE_ENUM(losses_rule, none, cuda_rows_are_sm80, cuda_products_have_a_type,
                    cuda_gradients_are_not_f16, other_rows_take_any_type,
                    bf16_instructions_add_nothing)
BOOST_DESCRIBE_ENUM(cross_entropy_op, fused_cross_entropy, fused_cross_entropy_backward)
BOOST_DESCRIBE_ENUM(kl_divergence_op, fused_kl_divergence, fused_kl_divergence_backward)
BOOST_DESCRIBE_ENUM(linear_cross_entropy_op, fused_linear_cross_entropy,
                    fused_linear_cross_entropy_backward)

BOOST_DESCRIBE_STRUCT(losses_config, (), (target, loss, pass, type))
BOOST_DESCRIBE_STRUCT(cross_entropy_options, (),
                      (reduction, ignore_index, label_smoothing, z_loss, world_size))
BOOST_DESCRIBE_STRUCT(cross_entropy_args, (),
                      (logits, targets, soft_targets, weights, mask, loss, z_loss, weight_sum,
                       accuracy, d_loss, d_logits, d_soft_targets))

BOOST_DESCRIBE_STRUCT(kl_divergence_options, (),
                      (reduction, direction, temperature, beta, world_size))
BOOST_DESCRIBE_STRUCT(kl_divergence_args, (),
                      (student_logits, teacher_logits, weights, mask, loss, weight_sum,
                       teacher_entropy, d_loss, d_student_logits))

BOOST_DESCRIBE_STRUCT(linear_cross_entropy_options, (),
                      (reduction, ignore_index, label_smoothing, z_loss, logits_soft_cap,
                       world_size))
BOOST_DESCRIBE_STRUCT(linear_cross_entropy_args, (),
                      (hidden, lm_head_weight, lm_head_bias, targets, weights, mask, loss, z_loss,
                       weight_sum, accuracy, d_loss, d_hidden, d_lm_head_weight, d_lm_head_bias))

/// `losses.<backend>.<loss>.<pass>`, of products on GPUs with `.<dtype>` behind it.
inline constexpr auto losses_names = row_names<losses_config>(
    "losses", spelling::word{&losses_config::target}, spelling::word{&losses_config::loss},
    spelling::word{&losses_config::pass},
    spelling::where{[](const losses_config& row) {
                      return is_cuda(row.target) && row.loss == loss_kind::linear_cross_entropy;
                    },
                    spelling::word{&losses_config::type}});

/// The stable name of a row.
constexpr row_name name_of(const losses_config& config) {
  return losses_names.name_of(config);
}

}  // namespace tessera
