// The default table of grouped matrix products: which rows exist and why. Each block is a product
// of its lists; combinations that break a rule (`broken_table_rule`) are dropped and counted, and
// no row may come from two blocks.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/grouped_matmul/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct grouped_matmul_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<dtype> types{dtype::none};
  std::vector<int> block_m{0};
  std::vector<int> block_n{0};
  std::vector<int> block_k{0};
};
BOOST_DESCRIBE_STRUCT(grouped_matmul_axes, (), (targets, types, block_m, block_n, block_k))

inline std::vector<grouped_matmul_axes> grouped_matmul_blocks() {
  using enum backend;
  return {
      {
          .about = "tiles that fill the second-level cache",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512, cpu_avx512_vnni, cpu_avx512_bf16},
      },
      {
          .about = "the same on tile registers, of bf16 and of i8 with scales",
          .targets = {cpu_amx_bf16},
          .types = {dtype::bf16, dtype::i8},
      },
      {
          .about = "small groups and many cores: more tiles than threads",
          .targets = {cpu_avx2},
          .block_m = {48},
          .block_n = {128},
      },
      {
          .about = "the same with 14 rows in a register tile",
          .targets = {cpu_avx512, cpu_avx512_vnni, cpu_avx512_bf16},
          .block_m = {56},
          .block_n = {128},
      },
      {
          .about = "sm80: large products; wide tiles read less, others leave less of a result over",
          .targets = {cuda_sm80},
          .types = {dtype::f16, dtype::bf16},
          .block_m = {128},
          .block_n = {128, 256},
      },
      {
          .about = "sm90: the same with wgmma, on Hopper alone",
          .targets = {cuda_sm90},
          .types = {dtype::f16, dtype::bf16},
          .block_m = {128},
          .block_n = {128, 256},
      },
      {
          .about = "sm90: elements of 8 bits with scales; wide tiles read less, others leave less "
                   "of a result over",
          .targets = {cuda_sm90},
          .types = {dtype::f8_e4m3, dtype::i8},
          .block_m = {128},
          .block_n = {128, 192},
      },
      {
          .about = "sm90: f8_e5m2 with f8_e5m2 or, on either side, f8_e4m3",
          .targets = {cuda_sm90},
          .types = {dtype::f8_e5m2},
          .block_m = {128},
          .block_n = {192},
      },
      {
          .about = "sm80: products of f32, or of anything as f32",
          .targets = {cuda_sm80},
          .types = {dtype::f32},
          .block_m = {128},
          .block_n = {128},
      },
      {
          .about = "sm80: more tiles than multiprocessors where a result is small",
          .targets = {cuda_sm80},
          .types = {dtype::f32, dtype::f16, dtype::bf16},
          .block_m = {64},
          .block_n = {64},
      },
      {
          .about = "sm80: a few rows times one matrix: parts of the summed axis side by side",
          .targets = {cuda_sm80},
          .types = {dtype::f16, dtype::bf16},
          .block_m = {64},
          .block_n = {64},
          .block_k = {512},
      },
  };
}

}  // namespace tessera::generate
