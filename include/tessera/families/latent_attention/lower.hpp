// What problems of latent attention mean to the engines of spec/lower.hpp and
// spec/problem_text.hpp.
#pragma once

#include <span>

#include <tessera/families/latent_attention/declaration.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/families/latent_attention/problem.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera {

template <>
struct operation_table<flash_mla_op> {
  using problem_type = flash_mla_problem;
  using kernel_args = latent_attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(latent_attention_operations).first(flash_mla_ops.size());
};

template <>
struct operation_table<flash_mla_decode_op> {
  using problem_type = flash_mla_decode_problem;
  using kernel_args = latent_attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(latent_attention_operations)
          .subspan(flash_mla_ops.size(), flash_mla_decode_ops.size());
};

template <>
struct operation_table<latent_ragged_op> {
  using problem_type = latent_ragged_problem;
  using kernel_args = latent_attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(latent_attention_operations)
          .subspan(flash_mla_ops.size() + flash_mla_decode_ops.size(), latent_ragged_ops.size());
};

template <>
struct operation_table<deepseek_attn_op> {
  using problem_type = deepseek_attn_problem;
  using kernel_args = latent_attention_kernel_args;
  static constexpr auto operations =
      std::span<const operation>(latent_attention_operations).last(deepseek_attn_ops.size());
};

}  // namespace tessera
