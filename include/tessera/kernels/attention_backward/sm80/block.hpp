// What all kernels of the gradients share: a launch, the rows and keys of a sequence, and the
// weight of a score with its gradient.
#pragma once

#include <cstdint>

#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/kernels/attention/common/dropout_bits.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/sm80/score_mod.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/hook_gradients.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention_backward::sm80 {

inline constexpr int threads = 256;

/// What elements of a key and its value that are not finite make of the products of all queries
/// that see it: NaN, else 0.
struct key_taint {  // without initial values: it lies in shared memory
  float k;
  float v;
};

/// Tiles of queries [begin, end).
struct tile_interval {
  int begin = 0, end = 0;
  __device__ bool empty() const { return begin >= end; }
};

struct launch_args {
  attention_backward_kernel_args call{};
  float shift_unit = 1.0f;  ///< shifts are multiplied by it: log2(e) where weights are powers of 2
  /// [q_heads][rows]: exp(s - shift) is a weight. Infinite: the row has none, whatever its tensors
  /// hold; NaN: an element of q or d_out is not finite, and so is all that comes of the row.
  float* shift = nullptr;
  float* correction = nullptr;  ///< [q_heads][rows]: subtracted from the gradients of weights
  key_taint* taint = nullptr;   ///< [kv_heads][keys]
  /// A row whose lse is finite has no element of q that is not: no cap, bias or functor makes a
  /// finite score of one that is not, and no sink hides it.
  bool lse_tells = false;
  std::int64_t rows = 0;      ///< of q, all entries
  std::int64_t keys = 0;      ///< of k, all entries
  std::int64_t tiles = 0;     ///< of a sequence at most
  float* d_q_sums = nullptr;  ///< [q_heads][sum_tiles], see query_sums.hpp
  std::int64_t sum_tiles = 0;
  /// Of each tile of keys, see key_block.hpp; with segments, and in ordered launches.
  tile_interval* seen_by = nullptr;
  tile_interval* of_segment = nullptr;  ///< with segments
  int* turns = nullptr;                 ///< [q_heads][sum_tiles] in ordered launches, see turns.hpp
  unsigned* taken = nullptr;            ///< items, in ordered launches
  int section = 1;  ///< heads of all entries that ordered launches go through together
  /// Of score_kind::dropped: the largest word that takes a weight, and the keys of rounds of words.
  std::uint32_t last_dropped = 0;
  kernels::attention::dropout_keys dropout{};
  bool behind_cap = false;  ///< which gradient a launch computes: of bias_post, or of bias_pre

  __host__ __device__ const score_gradient& d_bias() const {
    return behind_cap ? call.d_bias_post : call.d_bias_pre;
  }
};

/// A launch of a kernel that knows scores, with functors of the caller's.
template <class Hooks>
struct hooked_args : launch_args {
  Hooks hooks;

  using logits = decltype(Hooks::logits);
  static_assert(!Hooks::has_logits || prim::has_slope<logits>,
                "gradients need the derivative of a functor of logits: give it a member "
                "with_slope(float score, const tessera::position& at) that returns a "
                "tessera::score_with_slope");
  static constexpr bool has_functors = Hooks::has_logits || Hooks::has_mask;
  static constexpr bool has_parameters = prim::has_parameters<logits>;
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

/// Of a word with two elements of 16 bits sums whose bits of `not_finite_marks` say which of them
/// are not finite; other bits mean nothing.
inline constexpr std::uint32_t not_finite_marks = 0x80008000u;
template <class Element>
__device__ __forceinline__ std::uint32_t marked_not_finite(std::uint32_t word) {
  constexpr std::uint32_t exponent = prim::cuda::half_words<Element>::exponent;
  constexpr std::uint32_t both = exponent << 16 | exponent, lowest = both & (~both + 0x00010001u);
  return (word & both) + lowest;
}

/// Where a score lies, seen from its sequence.
struct score_place {
  std::int64_t entry = 0;
  int head = 0;
  std::int64_t query = 0, key = 0;
  std::int64_t offset = 0;  ///< position that the first query stands at

  __device__ position seen_by_functors() const { return {entry, head, query, key, query + offset}; }
  template <class Tensor>
  __device__ std::int64_t offset_in(const Tensor& of) const {
    return entry * of.batch + head * of.head + query * of.row + key * of.column;
  }
};

/// Whether the query of a pair is of its key's segment.
__device__ __forceinline__ bool same_segment(const attention_kernel_args& of,
                                             const score_place& at) {
  const std::int32_t own =
      of.q_segments.data[at.entry * of.q_segments.batch + at.query * of.q_segments.row];
  const std::int32_t other =
      of.kv_segments.data[at.entry * of.kv_segments.batch + at.key * of.kv_segments.row];
  return own >= 0 && own == other;
}

/// What a weight and the gradient of its score are made of.
struct weight_parts {
  float logit = prim::minus_infinity;  ///< of a hidden key
  float slope = 1.0f;                  ///< of the cap
  float functor_score = 0.0f;          ///< what a functor is given
  float functor_slope = 1.0f;          ///< its derivative
  float keep = 1.0f;                   ///< of dropout: 0, or the factor of what is kept
};

/// What is done to scores behind their scale.
enum class score_kind : std::uint8_t {
  plain,     ///< nothing
  computed,  ///< a cap, segments, functors
  all,       ///< and what tensors and random numbers say of each
  dropped,   ///< dropout alone, in rows with a kernel for it
};
template <score_kind Kind>
using kind_constant = std::integral_constant<score_kind, Kind>;

/// The logit of a product: scale, biases, cap, functor, masks, segments, in the order of the
/// forward pass. The key is visible as far as lengths, diagonal and window go; where nobody asks,
/// also as far as segments and the mask functor go.
template <score_kind Kind, bool Asks = true, class Hooks>
__device__ __forceinline__ weight_parts logit_of(const hooked_args<Hooks>& args,
                                                 const score_place& at, float product) {
  using kernels::attention::load_bias;
  constexpr bool all = Kind == score_kind::all;
  const attention_kernel_args& of = args.call.forward;
  weight_parts parts;
  float x = product * of.softmax_scale;
  if (all && of.bias_pre.data != nullptr) {
    const float bias = load_bias(of.bias_pre, at.offset_in(of.bias_pre));
    if (bias == prim::minus_infinity) return parts;
    x += bias;
  }
  if (of.soft_cap > 0.0f && Kind == score_kind::computed) {
    const float unit = 2.0f * prim::log2_e / of.soft_cap;
    const prim::cuda::value_with_slope capped = prim::cuda::scaled_tanh_with_slope(x * unit);
    parts.slope = capped.slope;
    x = of.soft_cap * capped.value;
  } else if (of.soft_cap > 0.0f) {
    // Of a saturated tanh nothing would be left in 1 - tanh^2.
    const float u = x / of.soft_cap;
    const float e = expf(-2.0f * fabsf(u));
    parts.slope = 4.0f * e / ((1.0f + e) * (1.0f + e));
    x = of.soft_cap * tanhf(u);
  }
  if (all && of.bias_post.data != nullptr) {
    const float bias = load_bias(of.bias_post, at.offset_in(of.bias_post));
    if (bias == prim::minus_infinity) return parts;
    x += bias;
  }
  if constexpr (Hooks::has_logits) {
    const score_with_slope logit = args.hooks.logits.with_slope(x, at.seen_by_functors());
    parts.functor_score = x;
    parts.functor_slope = logit.slope;
    x = logit.score;
  }
  if (all && of.mask.data != nullptr &&
      static_cast<const std::uint8_t*>(of.mask.data)[at.offset_in(of.mask)] == 0) {
    return parts;
  }
  if (Asks && of.q_segments.data != nullptr && !same_segment(of, at)) return parts;
  if constexpr (Hooks::has_mask && Asks) {
    if (!args.hooks.mask(at.seen_by_functors())) return parts;
  }
  if (all && of.dropout) {
    const bool kept = prim::dropout_keeps(of.dropout_seed, of.dropout_threshold, at.entry, at.head,
                                          at.query, at.key);
    parts.keep = kept ? of.dropout_scale : 0.0f;
  }
  parts.logit = x;
  return parts;
}

/// The same as a call: so much code has no place in unrolled loops.
template <class Hooks>
__device__ __noinline__ weight_parts logit_of_all(const hooked_args<Hooks>& args,
                                                  const score_place& at, float product) {
  return logit_of<score_kind::all>(args, at, product);
}

/// What a call says of single scores, functors aside.
inline score_kind kind_of(const attention_kernel_args& args) {
  if (args.bias_pre.data != nullptr || args.bias_post.data != nullptr ||
      args.mask.data != nullptr || args.dropout) {
    return score_kind::all;
  }
  return args.q_segments.data != nullptr || args.soft_cap > 0.0f ? score_kind::computed
                                                                 : score_kind::plain;
}

/// A weight with dropout, and the gradients of its logit, and of its score behind and before the
/// cap.
struct score_gradients {
  float weight = 0.0f;
  float of_logit = 0.0f;
  float behind_cap = 0.0f;
  float before_cap = 0.0f;
};

/// Of a weight, 0 for hidden keys, and the gradient that comes into it.
__device__ __forceinline__ score_gradients gradients_of(const weight_parts& parts, float weight,
                                                        float incoming, float correction) {
  if (parts.logit == prim::minus_infinity) return {};
  const float d_logit = weight * (parts.keep * incoming - correction);
  const float behind_cap = d_logit * parts.functor_slope;
  return {weight * parts.keep, d_logit, behind_cap, behind_cap * parts.slope};
}

/// What a functor learns from one pair is added to the gradients of its parameters, in no order.
template <class Hooks>
__device__ __forceinline__ void add_parameters(const hooked_args<Hooks>& args,
                                               const score_place& at, const weight_parts& parts,
                                               const score_gradients& found) {
  if constexpr (hooked_args<Hooks>::has_parameters) {
    if (found.of_logit == 0.0f) return;  // of hidden keys, too
    const auto& logits = args.hooks.logits;
    float* const sums = logits.d_parameters();
    const std::int64_t count = logits.parameters();
    logits.add_gradients(found.of_logit, parts.functor_score, at.seen_by_functors(),
                         [&](std::int64_t parameter, float gradient) {
                           if (parameter >= 0 && parameter < count) {
                             atomicAdd(sums + parameter, gradient);
                           }
                         });
  }
}

}  // namespace tessera::kernels::attention_backward::sm80
