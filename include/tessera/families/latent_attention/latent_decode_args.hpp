// The tensors and options of flash_mla_decode, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q | [B,Sq,H,W]: absorbed query and rope | f32, f16, bf16 |
// | kv_cache | [P,T,1,W]: latents; the first R columns are values | that of q, f8_e4m3, f8_e5m2 |
// | kv_scale | [P,T,G]: factors of R/G columns of a latent each, of the first R | f32 |
// | pe_cache | [P,T,1,W-R]: their rope parts; then kv_cache is [P,T,1,R] | that of q |
// | block_table | [B,M]: page m holds latents [m T, m T + T) of the sequence | i32 |
// | seqlens_k | [B]: latents of the sequence, its tokens of q included; 0 to M T | i32 |
// | sinks | [H or 1, number of sinks] | f32 |
// | out | [B,Sq,H,R] | that of q |
// | lse | [B,H,Sq] | f32, natural logarithm |
//
// The last axis of all but sinks and lse has stride 1; every other stride is free. So the rows of
// 656 bytes that FlashMLA has, 512 of f8_e4m3, four scales and 64 rope columns of bf16, are three
// tensors with the same bytes between their rows. Entries of block_table behind ceil(seqlens_k / T)
// are never read, nor what pages hold behind seqlens_k.
#pragma once

#include <cstdint>
#include <optional>

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; all but kv_scale, pe_cache, sinks and
/// lse are required.
struct flash_mla_decode_args {
  tensor_view q{};
  tensor_view kv_cache{};
  tensor_view kv_scale{};  ///< absent: 1
  tensor_view pe_cache{};
  tensor_view block_table{};
  tensor_view seqlens_k{};
  tensor_view sinks{};  ///< logits that enter the denominator only

  tensor_view out{};
  tensor_view lse{};  ///< optional output: log sum exp of the row, sinks included
};

struct flash_mla_decode_options {
  /// Multiplies q.k before everything else. Required: that of the model, whose heads have other
  /// widths than latents. Must be finite.
  std::optional<double> softmax_scale{};
  /// Rows are the last tokens of a sequence, and each sees latents up to its own.
  bool causal = false;
  /// Columns R of a latent that are also its value. Unset: all W.
  std::optional<std::int64_t> v_dim{};

  friend bool operator==(const flash_mla_decode_options&,
                         const flash_mla_decode_options&) = default;
};

}  // namespace tessera
