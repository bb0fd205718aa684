// The default table of sparse attention: which rows exist and why; see axes/mean_pooling.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/sparse_attention/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct sparse_attention_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<sparse_pattern> patterns;
  std::vector<sparse_pass> passes;
  std::vector<dtype> types = {dtype::none};
  std::vector<int> head_dims = {0};
};
BOOST_DESCRIBE_STRUCT(sparse_attention_axes, (), (targets, patterns, passes, types, head_dims))

inline std::vector<sparse_attention_axes> sparse_attention_blocks() {
  using enum backend;
  return {
      {
          .about = "masks and blocks, gradients by the dense loops: the widest registers there are",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .patterns = {sparse_pattern::blocksparse},
          .passes = {sparse_pass::forward, sparse_pass::backward},
      },
      {
          .about = "blocks that a mask shows, by the dense loops",
          .targets = {cpu_avx2},
          .patterns = {sparse_pattern::blocksparse},
          .passes = {sparse_pass::forward},
          .types = {dtype::f32, dtype::bf16},
          .head_dims = {64, 128},
      },
      {
          .about = "the same with wider registers",
          .targets = {cpu_avx512},
          .patterns = {sparse_pattern::blocksparse},
          .passes = {sparse_pass::forward},
          .types = {dtype::f32, dtype::f16, dtype::bf16},
          .head_dims = {64, 128},
      },
      {
          .about = "both patterns with products of bf16, of pairs and of tiles",
          .targets = {cpu_avx512_bf16, cpu_amx_bf16},
          .patterns = {sparse_pattern::blocksparse, sparse_pattern::native_sparse},
          .passes = {sparse_pass::forward},
          .types = {dtype::bf16},
          .head_dims = {64, 128},
      },
      {
          .about = "gradients over blocks that a mask shows, with products of bf16",
          .targets = {cpu_avx512_bf16, cpu_amx_bf16},
          .patterns = {sparse_pattern::blocksparse},
          .passes = {sparse_pass::backward},
          .types = {dtype::bf16},
      },
      {
          .about = "selected blocks: tiles of a few rows, whose keys are transposed each time",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .patterns = {sparse_pattern::native_sparse},
          .passes = {sparse_pass::forward, sparse_pass::backward},
      },
      {
          .about = "selected blocks, by the products of the dense loops with packed keys",
          .targets = {cpu_avx512},
          .patterns = {sparse_pattern::native_sparse},
          .passes = {sparse_pass::forward},
          .types = {dtype::f32, dtype::bf16},
          .head_dims = {64, 128},
      },
      {
          .about = "sm80: any type and head dim, products of floats",
          .targets = {cuda_sm80},
          .patterns = {sparse_pattern::blocksparse, sparse_pattern::native_sparse},
          .passes = {sparse_pass::forward, sparse_pass::backward},
      },
      {
          .about = "sm80: tiles that a mask shows, and selected blocks, on the matrix unit",
          .targets = {cuda_sm80},
          .patterns = {sparse_pattern::blocksparse, sparse_pattern::native_sparse},
          .passes = {sparse_pass::forward},
          .types = {dtype::f16, dtype::bf16},
          .head_dims = {64, 128},
      },
      {
          .about = "sm90: tiles that a mask shows, and selected blocks that tokens share",
          .targets = {cuda_sm90},
          .patterns = {sparse_pattern::blocksparse, sparse_pattern::native_sparse},
          .passes = {sparse_pass::forward},
          .types = {dtype::f16, dtype::bf16},
          .head_dims = {64, 128},
      },
      {
          .about = "sm80: gradients over tiles that a mask shows, on the matrix unit",
          .targets = {cuda_sm80},
          .patterns = {sparse_pattern::blocksparse},
          .passes = {sparse_pass::backward},
          .types = {dtype::f16, dtype::bf16},
          .head_dims = {64, 128},
      },
  };
}

}  // namespace tessera::generate
