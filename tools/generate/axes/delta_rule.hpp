// The default table of the delta rule: which rows exist and why. Each block is a product of its
// lists; combinations that break a rule (`broken_table_rule`) are dropped and counted, and no row
// may come from two blocks.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/families/recurrent_keys.hpp>

namespace tessera::generate {

/// One product of axis values.
struct delta_rule_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<dtype> types{dtype::f32, dtype::f16, dtype::bf16};
  std::vector<delta_rule_pass> passes;
  std::vector<int> chunks{0};
  std::vector<int> columns{0};
  std::vector<int> key_dims{0};
};
BOOST_DESCRIBE_STRUCT(delta_rule_axes, (), (targets, types, passes, chunks, columns, key_dims))

inline std::vector<delta_rule_axes> delta_rule_blocks() {
  using enum backend;
  using enum kernel_pass;
  return {
      {
          .about = "token by token; four vectors of columns hide the latency of their sums",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .passes = {forward},
      },
      {
          .about = "gradients: a tile of the states of 64 tokens stays in the second-level cache",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .passes = {backward},
      },
      {
          .about = "sm80: a tile of the state stays in the registers of a block",
          .targets = {cuda_sm80},
          .passes = {forward, backward},
          .key_dims = {recurrent_key_dims.begin(), recurrent_key_dims.end()},
      },
      {
          .about = "sm80: prompts in chunks of 64 tokens, on the matrix unit, and their gradients",
          .targets = {cuda_sm80},
          .types = {dtype::bf16},
          .passes = {forward, backward},
          .chunks = {static_cast<int>(tokens_of_chunk)},
          .key_dims = {64, most_chunk_keys},
      },
      {
          .about = "sm90: the same with wgmma, decays of channels too",
          .targets = {cuda_sm90},
          .types = {dtype::bf16},
          .passes = {forward},
          .chunks = {static_cast<int>(tokens_of_chunk)},
          .key_dims = {64, most_chunk_keys},
      },
  };
}

}  // namespace tessera::generate
