// The tensors of one call that packs or unpacks weights, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | w | quantize [N,K]; dequantize as stored: axis row [K,N], else [N,K] | f32, f16, bf16 |
// | w_q | [rows, ceil(columns bits / 32)], rows and columns as stored | u32 |
// | scales | [rows, columns / group size] | affine and nf4: f32, f16, bf16; else u8 |
// | zeros | likewise; affine only | that of scales |
// | tensor_scale | [1]; nvfp4 only | f32 |
//
// With axis k_major w_q is [words,rows], and scales and zeros are [groups,rows].
//
// The codes of a row are one stream of bits: code i has bits [i bits, (i + 1) bits), counted from
// the lowest one of the first word. The last axis of each tensor has stride 1.
#pragma once

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed. `quantize` writes w_q, scales and
/// zeros, `dequantize` writes w.
struct weight_args {
  tensor_view w{};
  tensor_view w_q{};
  tensor_view scales{};
  tensor_view zeros{};         ///< affine: needed; else absent
  tensor_view tensor_scale{};  ///< above 0 and finite, multiplies every scale; absent: 1
};

}  // namespace tessera
