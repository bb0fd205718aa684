// Split-KV: the keys of a row are cut into splits that are worked on apart; each leaves a partial
// result, and `combine` makes the row of them ("Flash-Decoding", T. Dao et al., 2023).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::attention {

/// Per token, query head and split a row of `stride` sums and, behind them, a softmax state, in
/// lines of their own: splits of a row are written by different threads. Tokens of packed tensors
/// count through all sequences, those of dense ones through the entries.
struct partial_results {
  float* sums = nullptr;
  std::int64_t splits = 0;  ///< room for each row
  int q_heads = 0;
  int stride = 0;
  int floats_of_part = 0;

  /// At `base`, 64-byte aligned, for all rows of a launch; with a null base only to count.
  static TESSERA_INLINE partial_results at(std::byte* base, const attention_kernel_args& args,
                                           std::int64_t splits, int stride) {
    constexpr int line = 64 / static_cast<int>(sizeof(float));
    constexpr int state = static_cast<int>(sizeof(prim::softmax_state) / sizeof(float));
    return {reinterpret_cast<float*>(base), splits, args.q_heads, stride,
            (stride + state + line - 1) / line * line};
  }
  TESSERA_INLINE std::size_t bytes(const attention_kernel_args& args) const {
    const std::int64_t tokens = args.cu_seqlens_q != nullptr ? args.q_len : args.batch * args.q_len;
    return static_cast<std::size_t>(tokens * q_heads * splits) *
           static_cast<std::size_t>(floats_of_part) * sizeof(float);
  }

  /// Number of a row's first part.
  TESSERA_INLINE std::int64_t first_part(const attention_kernel_args& args,
                                         const prim::sequence& seq, std::int64_t query,
                                         int head) const {
    const std::int64_t token =
        args.cu_seqlens_q != nullptr ? seq.q_begin + query : seq.index * args.q_len + query;
    return (token * q_heads + head) * splits;
  }
  TESSERA_INLINE float* sum(std::int64_t part) const { return sums + part * floats_of_part; }
  TESSERA_INLINE prim::softmax_state& state(std::int64_t part) const {
    return *reinterpret_cast<prim::softmax_state*>(sum(part) + stride);
  }
};

/// Parts [begin, end) of a row.
struct part_range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The sum and the state of the row that has these parts, in their order. `accumulator` has room
/// for partial.stride floats, whole registers of `Isa`.
template <class Isa>
prim::softmax_state combine(const partial_results& partial, const part_range& own,
                            const part_range& shared, float* accumulator) {
  using vec = prim::simd<Isa>;
  prim::softmax_state all;
  for (const part_range& parts : {own, shared}) {
    for (std::int64_t i = parts.begin; i < parts.end; ++i) {
      const float maximum = partial.state(i).maximum;
      all.maximum = maximum > all.maximum || maximum != maximum ? maximum : all.maximum;
    }
  }
  const float shift = prim::finite_maximum(all.maximum);
  std::memset(accumulator, 0, static_cast<std::size_t>(partial.stride) * sizeof(float));
  for (const part_range& parts : {own, shared}) {
    for (std::int64_t i = parts.begin; i < parts.end; ++i) {
      const prim::softmax_state& part = partial.state(i);
      if (part.maximum == prim::minus_infinity && part.denominator == 0.0f) continue;
      const float rescale =
          part.maximum == all.maximum ? 1.0f : prim::exp_of<Isa>(part.maximum - shift);
      all.denominator += rescale * part.denominator;
      for (int d = 0; d < partial.stride; d += vec::width) {
        vec::store(accumulator + d, vec::fma(vec::broadcast(rescale), vec::load(partial.sum(i) + d),
                                             vec::load(accumulator + d)));
      }
    }
  }
  return all;
}

}  // namespace tessera::kernels::attention
