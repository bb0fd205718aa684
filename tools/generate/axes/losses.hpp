// The default table of fused losses: which rows exist and why; see axes/mean_pooling.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/losses/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct losses_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<loss_kind> losses;
  std::vector<loss_pass> passes;
  std::vector<dtype> types{dtype::none};
};
BOOST_DESCRIBE_STRUCT(losses_axes, (), (targets, losses, passes, types))

inline std::vector<losses_axes> losses_blocks() {
  using enum backend;
  using enum loss_kind;
  using enum kernel_pass;
  return {
      {
          .about = "logits in memory: an exponential each, or two",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .losses = {cross_entropy},
          .passes = {forward, backward},
      },
      {
          .about = "a student beside a teacher: two exponentials each, for a mixture four",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .losses = {kl_divergence},
          .passes = {forward, backward},
      },
      {
          .about = "logits as a product of f32 words, whatever the operands' type",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .losses = {linear_cross_entropy},
          .passes = {forward, backward},
      },
      {
          .about = "sm80: rows of logits as fast as they are read",
          .targets = {cuda_sm80},
          .losses = {cross_entropy, kl_divergence},
          .passes = {forward, backward},
      },
      {
          .about = "sm80: logits as a product, of f32 of any operands",
          .targets = {cuda_sm80},
          .losses = {linear_cross_entropy},
          .passes = {forward, backward},
          .types = {dtype::f32, dtype::f16, dtype::bf16},
      },
      {
          .about = "sm90: tiles of logits become sums or gradients before they are stored",
          .targets = {cuda_sm90},
          .losses = {linear_cross_entropy},
          .passes = {forward, backward},
          .types = {dtype::bf16},
      },
  };
}

}  // namespace tessera::generate
