// The default table of mean pooling: which rows exist and why. Each block is a product of its
// lists; combinations that break a rule (`broken_table_rule`) are dropped and counted, and no row
// may come from two blocks.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/mean_pooling/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct mean_pooling_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<dtype> types{dtype::f32, dtype::f16, dtype::bf16};
  std::vector<pooling_pass> passes;
  std::vector<int> streams{0};
  std::vector<pooling_stores> stores{pooling_stores::cached};
};
BOOST_DESCRIBE_STRUCT(mean_pooling_axes, (), (targets, types, passes, streams, stores))

inline std::vector<mean_pooling_axes> mean_pooling_blocks() {
  using enum backend;
  using enum kernel_pass;
  using enum pooling_stores;
  return {
      {
          .about = "portable means",
          .targets = {cpu_generic},
          .passes = {forward},
          .streams = {4},
      },
      {
          .about = "portable gradients",
          .targets = {cpu_generic},
          .passes = {backward},
      },
      {
          .about = "means: how many streams memory serves best is the machine's",
          .targets = {cpu_avx2, cpu_avx512},
          .passes = {forward},
          .streams = {2, 4, 8},
      },
      {
          .about = "gradients that stay in the caches, and gradients larger than them",
          .targets = {cpu_avx2, cpu_avx512},
          .passes = {backward},
          .stores = {cached, streaming},
      },
      {
          .about = "sm80: means; long sequences want more tokens of a thread in flight, short ones "
                   "more threads",
          .targets = {cuda_sm80},
          .passes = {forward},
          .streams = {4, 8},
      },
      {
          .about = "sm80: gradients that stay in the L2 cache, and gradients larger than it",
          .targets = {cuda_sm80},
          .passes = {backward},
          .stores = {cached, streaming},
      },
  };
}

}  // namespace tessera::generate
