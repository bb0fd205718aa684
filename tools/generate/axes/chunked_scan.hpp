// The default table of linear attention with decay: which rows exist and why; see
// axes/mean_pooling.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/recurrent_chunks.hpp>
#include <tessera/families/recurrent_keys.hpp>

namespace tessera::generate {

/// One product of axis values.
struct chunked_scan_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<dtype> types{dtype::f32, dtype::f16, dtype::bf16};
  std::vector<chunked_scan_pass> passes;
  std::vector<chunked_scan_form> forms;
  std::vector<int> key_dims{0};
};
BOOST_DESCRIBE_STRUCT(chunked_scan_axes, (), (targets, types, passes, forms, key_dims))

inline std::vector<chunked_scan_axes> chunked_scan_blocks() {
  using enum backend;
  using enum kernel_pass;
  using enum chunked_scan_form;
  return {
      {
          .about = "outputs and final states, token by token",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .passes = {forward},
          .forms = {step},
      },
      {
          .about = "gradients of every operand",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .passes = {backward},
          .forms = {step},
      },
      {
          .about = "sm80: a tile of the state stays in the registers of a block",
          .targets = {cuda_sm80},
          .passes = {forward, backward},
          .forms = {step},
          .key_dims = {recurrent_key_dims.begin(), recurrent_key_dims.end()},
      },
      {
          .about = "sm80: prompts, and their gradients, in chunks of 64 tokens on the matrix unit",
          .targets = {cuda_sm80},
          .types = {dtype::f16, dtype::bf16},
          .passes = {forward, backward},
          .forms = {chunk},
          .key_dims = {64, most_chunk_keys},
      },
      {
          .about = "sm90: prompts likewise with wgmma, gradients but those of decays of heads",
          .targets = {cuda_sm90},
          .types = {dtype::bf16},
          .passes = {forward, backward},
          .forms = {chunk},
          .key_dims = {64, most_chunk_keys},
      },
  };
}

}  // namespace tessera::generate
