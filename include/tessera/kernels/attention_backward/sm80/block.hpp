// What all kernels of the gradients share: a launch, the rows and keys of a sequence, and the
// weight of a score with its gradient.
#pragma once

#include <cstdint>

#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/sm80/score_mod.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention_backward::sm80 {

inline constexpr int threads = 256;

/// What elements of a key and its value that are not finite make of the products of all queries
/// that see it: NaN, else 0.
struct key_taint {  // without initial values: it lies in shared memory
  float k;
  float v;
};

struct launch_args {
  attention_backward_kernel_args call{};
  float shift_unit = 1.0f;  ///< shifts are multiplied by it: log2(e) where weights are powers of 2
  /// [q_heads][rows]: exp(s - shift) is a weight. Infinite: the row has none, whatever its tensors
  /// hold; NaN: an element of q or d_out is not finite, and so is all that comes of the row.
  float* shift = nullptr;
  float* correction = nullptr;  ///< [q_heads][rows]: subtracted from the gradients of weights
  key_taint* taint = nullptr;   ///< [kv_heads][keys]
  std::int64_t rows = 0;        ///< of q, all entries
  std::int64_t keys = 0;        ///< of k, all entries
  std::int64_t tiles = 0;       ///< of a sequence at most
  bool behind_cap = false;      ///< which gradient a launch computes: of bias_post, or of bias_pre

  __host__ __device__ const score_gradient& d_bias() const {
    return behind_cap ? call.d_bias_post : call.d_bias_pre;
  }
};

/// A sequence of a launch with numbers from device memory cut to the tensors. Number `batch` of a
/// packed launch is what lies behind the last sequence, of which nothing is used.
struct block_sequence {
  prim::sequence seq;
  std::int64_t all_q = 0, all_k = 0;  ///< rows and keys whose gradients are written

  static __device__ block_sequence of(const attention_kernel_args& args, std::int64_t index) {
    using kernels::attention::sm80::cut_to;
    block_sequence result;
    if (args.cu_seqlens_q != nullptr && index == args.batch) {
      result.seq.index = index;
      result.seq.q_begin = cut_to(args.cu_seqlens_q[index], args.q_len);
      result.seq.k_begin = cut_to(args.cu_seqlens_k[index], args.kv_len);
      result.all_q = args.q_len - result.seq.q_begin;
      result.all_k = args.kv_len - result.seq.k_begin;
      return result;
    }
    result.seq = kernels::attention::sm80::sequence_of(args, index);
    const bool packed = args.cu_seqlens_q != nullptr;
    result.all_q = packed ? result.seq.q_len : args.q_len;
    result.all_k = packed ? result.seq.k_len : args.kv_len;
    return result;
  }
  /// The place of a row among those of all entries, and of a key.
  __device__ std::int64_t row(const attention_kernel_args& args, std::int64_t query) const {
    return (args.cu_seqlens_q != nullptr ? seq.q_begin : seq.index * args.q_len) + query;
  }
  __device__ std::int64_t key(const attention_kernel_args& args, std::int64_t index) const {
    return (args.cu_seqlens_q != nullptr ? seq.k_begin : seq.index * args.kv_len) + index;
  }
};

/// A token's row of a head; `token` counts from the first of the entry, or of all when packed.
template <class Element>
__device__ __forceinline__ Element* row_of(const void* data, const row_strides& strides,
                                           const prim::sequence& seq, std::int64_t token,
                                           int head) {
  return const_cast<Element*>(static_cast<const Element*>(data)) + seq.index * strides.batch +
         token * strides.row + head * strides.head;
}

__device__ __forceinline__ float infinite() {
  return __int_as_float(0x7f800000);
}
__device__ __forceinline__ float not_a_number() {
  return __int_as_float(0x7fffffff);
}

/// Where a score lies, seen from its sequence.
struct score_place {
  std::int64_t entry = 0;
  int head = 0;
  std::int64_t query = 0, key = 0;

  template <class Tensor>
  __device__ std::int64_t offset_in(const Tensor& of) const {
    return entry * of.batch + head * of.head + query * of.row + key * of.column;
  }
};

/// What a weight and the gradient of its score are made of.
struct weight_parts {
  float logit = prim::minus_infinity;  ///< of a hidden key
  float slope = 1.0f;                  ///< of the cap
  float keep = 1.0f;                   ///< of dropout: 0, or the factor of what is kept
};

/// The logit of a product: scale, biases, cap, masks, segments, in the order of the forward pass.
/// The key is visible as far as lengths, diagonal and window go.
static __device__ __noinline__ weight_parts modified(const attention_kernel_args& args,
                                                     const score_place& at, float product) {
  using kernels::attention::load_bias;
  weight_parts parts;
  float x = product * args.softmax_scale;
  if (args.bias_pre.data != nullptr) {
    const float bias = load_bias(args.bias_pre, at.offset_in(args.bias_pre));
    if (bias == prim::minus_infinity) return parts;
    x += bias;
  }
  if (args.soft_cap > 0.0f) {
    // Of a saturated tanh nothing would be left in 1 - tanh^2.
    const float u = x / args.soft_cap;
    const float e = expf(-2.0f * fabsf(u));
    parts.slope = 4.0f * e / ((1.0f + e) * (1.0f + e));
    x = args.soft_cap * tanhf(u);
  }
  if (args.bias_post.data != nullptr) {
    const float bias = load_bias(args.bias_post, at.offset_in(args.bias_post));
    if (bias == prim::minus_infinity) return parts;
    x += bias;
  }
  if (args.mask.data != nullptr &&
      static_cast<const std::uint8_t*>(args.mask.data)[at.offset_in(args.mask)] == 0) {
    return parts;
  }
  if (args.q_segments.data != nullptr) {
    const std::int32_t own =
        args.q_segments.data[at.entry * args.q_segments.batch + at.query * args.q_segments.row];
    const std::int32_t other =
        args.kv_segments.data[at.entry * args.kv_segments.batch + at.key * args.kv_segments.row];
    if (own < 0 || own != other) return parts;
  }
  if (args.dropout) {
    const bool kept = prim::dropout_keeps(args.dropout_seed, args.dropout_threshold, at.entry,
                                          at.head, at.query, at.key);
    parts.keep = kept ? args.dropout_scale : 0.0f;
  }
  parts.logit = x;
  return parts;
}

/// Tensors, a cap or dropout say something of single scores.
inline bool modifies_scores(const attention_kernel_args& args) {
  return args.bias_pre.data != nullptr || args.bias_post.data != nullptr ||
         args.mask.data != nullptr || args.q_segments.data != nullptr || args.soft_cap > 0.0f ||
         args.dropout;
}

/// A weight with dropout, and the gradients of its score behind and before the cap.
struct score_gradients {
  float weight = 0.0f;
  float behind_cap = 0.0f;
  float before_cap = 0.0f;
};

/// Of a weight, 0 for hidden keys, and the gradient that comes into it.
__device__ __forceinline__ score_gradients gradients_of(const weight_parts& parts, float weight,
                                                        float incoming, float correction) {
  if (parts.logit == prim::minus_infinity) return {};
  const float d_score = weight * (parts.keep * incoming - correction);
  return {weight * parts.keep, d_score, d_score * parts.slope};
}

}  // namespace tessera::kernels::attention_backward::sm80
