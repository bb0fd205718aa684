// The default table of quantised weights: which rows exist and why; see axes/mean_pooling.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/quantized/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct quantized_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<quantized_pass> passes;
  std::vector<dtype> types{dtype::none};
};
BOOST_DESCRIBE_STRUCT(quantized_axes, (), (targets, passes, types))

inline std::vector<quantized_axes> quantized_blocks() {
  using enum backend;
  using enum quantized_pass;
  return {
      {
          .about = "codes in and out: comparisons and look-ups want the widest registers there are",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .passes = {quantize, dequantize},
      },
      {
          .about = "products: codes become floats in registers, sums want many of them",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .passes = {forward, backward},
      },
      {
          .about = "codes of 4 and 8 bits multiplied as bytes: weights are read as fast as memory "
                   "gives them",
          .targets = {cpu_avx512_vnni},
          .passes = {forward},
      },
      {
          .about = "codes of 4 bits as bf16 with x of bf16: an instruction for 32 products, where "
                   "processors start one a cycle",
          .targets = {cpu_avx512_bf16},
          .passes = {forward},
      },
      {
          .about = "codes of 4 bits on tiles: as many rows of x as a tile has cost what one does",
          .targets = {cpu_amx_bf16},
          .passes = {forward},
      },
      {
          .about = "sm80: codes in and out as fast as weights are read or written",
          .targets = {cuda_sm80},
          .passes = {quantize, dequantize},
      },
      {
          .about = "sm80: products of decoded weights, of f32 with any operands",
          .targets = {cuda_sm80},
          .passes = {forward, backward},
          .types = {dtype::f32, dtype::f16, dtype::bf16},
      },
      {
          .about = "sm90: weights decoded into the operands of wgmma, on Hopper alone",
          .targets = {cuda_sm90},
          .passes = {forward},
          .types = {dtype::f16, dtype::bf16},
      },
  };
}

}  // namespace tessera::generate
