// The default table of the gradients of attention: which rows exist and why. Each block is a
// product of its lists; combinations that break a rule (`broken_table_rule`) are dropped and
// counted, and no row may come from two blocks.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/attention_backward/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct attention_backward_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<dtype> types{dtype::f32, dtype::f16, dtype::bf16};
  std::vector<int> head_dims{0};
  std::vector<int> v_head_dims{0};
  std::vector<bool> d_q_atomics{false};
  std::vector<int> block_q{0};
  std::vector<int> block_kv{0};
  std::vector<bool> in_turns{false};
};
BOOST_DESCRIBE_STRUCT(attention_backward_axes, (),
                      (targets, types, head_dims, v_head_dims, d_q_atomics, block_q, block_kv,
                       in_turns))

inline std::vector<attention_backward_axes> attention_backward_blocks() {
  using enum backend;
  return {
      {
          .about = "every problem: head dims are known at run time",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512, cpu_avx512_bf16, cpu_amx_bf16},
      },
      {
          .about = "CUDA: every problem",
          .targets = {cuda_sm80},
      },
      {
          .about = "CUDA: the matrix unit, the same bits in every run",
          .targets = {cuda_sm80},
          .types = {dtype::f16, dtype::bf16},
          .head_dims = {64, 96, 128},
      },
      {
          .about = "CUDA: the matrix unit, d_q added up in memory, in no order or in turns",
          .targets = {cuda_sm80},
          .types = {dtype::f16, dtype::bf16},
          .head_dims = {64, 96, 128, 256},
          .d_q_atomics = {true},
          .in_turns = {false, true},
      },
      {
          .about = "the same by the matrix unit of Hopper",
          .targets = {cuda_sm90},
          .types = {dtype::f16, dtype::bf16},
          .head_dims = {64, 96, 128, 256},
          .d_q_atomics = {true},
          .in_turns = {false, true},
      },
      {
          .about = "the same for keys of latent attention",
          .targets = {cuda_sm80, cuda_sm90},
          .types = {dtype::f16, dtype::bf16},
          .head_dims = {192},
          .v_head_dims = {128},
          .d_q_atomics = {true},
          .in_turns = {false, true},
      },
  };
}

}  // namespace tessera::generate
