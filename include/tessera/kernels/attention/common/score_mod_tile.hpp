// What score_mod_row.hpp makes of one row at a time, for 16 rows of a warp of a GPU where all keys
// of the tile can be read: pairs of biases, 16 bytes of a mask, pairs of segment ids. No user
// functors.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/tanh.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention {

using prim::cuda::tanh_fast;
using prim::cuda::tanh_near;
using prim::cuda::tanh_near_zero;

/// Two neighbouring elements of a bias.
template <class Element>
struct bias_pair {
  std::uint32_t word;
  __device__ __forceinline__ float low() const {
    return prim::cuda::half_words<Element>::unpack(static_cast<std::uint16_t>(word));
  }
  __device__ __forceinline__ float high() const {
    return prim::cuda::half_words<Element>::unpack(static_cast<std::uint16_t>(word >> 16));
  }
};
template <>
struct bias_pair<float> {
  float2 both;
  __device__ __forceinline__ float low() const { return both.x; }
  __device__ __forceinline__ float high() const { return both.y; }
};

/// Biases of positions, of one row.
class row_biases {
 public:
  __device__ __forceinline__ row_biases(const position_bias& positions, const position& row)
      : context_(static_cast<int>(row.query_position - row.query)),
        slope_(positions.slopes != nullptr ? positions.slopes[row.head] : 0.0f) {
    if (positions.bias == nullptr || row.query >= positions.extent) return;
    bias_ = positions.bias + row.query * positions.row;
    extent_ = static_cast<unsigned>(positions.extent);
  }

  /// The logit of a key with them; -inf hides whatever it is.
  __device__ __forceinline__ float added(float logit, int key) const {
    const int distance = key - context_;
    const float moved = fmaf(slope_, static_cast<float>(distance), logit);
    if (static_cast<unsigned>(distance) >= extent_) return moved;
    const float bias = bias_[distance];
    return bias == prim::minus_infinity ? bias : moved + bias;
  }

 private:
  int context_;  ///< key at which the sequence's row 0 stands
  float slope_;
  const float* bias_ = nullptr;
  unsigned extent_ = 0;
};

/// The bias of a call that has one.
__device__ __host__ __forceinline__ const score_tensor& bias_of(const attention_kernel_args& call) {
  return call.bias_pre.data != nullptr ? call.bias_pre : call.bias_post;
}

/// `RowAt(half)` gives the position of row `half` of the accumulators, always one that is used;
/// `Args` is the target's launch_args, of which `scale_of_head<Traits>(args, head)` is known.
template <class Traits, class Args, class RowAt>
class score_mod_tile {
  static constexpr int key_tiles = Traits::key_tiles;
  using scores_type = prim::cuda::accumulator[key_tiles];
  using pair = bias_pair<typename Traits::element>;

 public:
  /// A lane's biases of a row of the tile.
  struct row_pairs {
    pair of[Traits::has_biases ? key_tiles : 1];
  };
  /// Of both its rows.
  struct biases {
    row_pairs row[2];
  };

  __device__ __forceinline__ score_mod_tile(const Args& args, scores_type& scores,
                                            const RowAt& row_at, int thread, int key0)
      : args_(args), scores_(scores), row_at_(row_at), quarter_(thread % 4), key0_(key0) {}

  /// Where the lane's biases of the row's key 0 lie; null: there are none.
  __device__ __forceinline__ const pair* first_biases(int half) const {
    const score_tensor& bias = bias_of(args_.call);
    return bias.data != nullptr ? biases_at(bias, half) - key0_ / 2 : nullptr;
  }
  /// The biases of `key0` on: asked for while products are made.
  static __device__ __forceinline__ void load(const pair* from, int key0, row_pairs& to) {
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) to.of[n] = from[key0 / 2 + n * 4];
  }

  /// Products become logits.
  __device__ __forceinline__ void change() {
    change_with([&](const score_tensor& bias, float scale) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        row_pairs pairs;
        load_row(bias, half, pairs);
        add_row(pairs, half, scale);
      }
    });
  }
  /// The same of calls that are read wide (`reads_are_wide`), whose bias is one and the last of
  /// all: `load_biases(to)` loads it.
  template <class LoadBiases>
  __device__ __forceinline__ void change(const LoadBiases& load_biases) {
    const attention_kernel_args& call = args_.call;
    float scale = scale_of_head<Traits>(args_, row_at_(0).head);  // rows of one group
    if constexpr (Traits::has(attention_feature::soft_cap)) {
      if (call.soft_cap > 0.0f) {
        cap(scale);
        scale = 1.0f;
      }
    }
    if (bias_of(call).data == nullptr) return;
    biases pairs;
    load_biases(pairs);
#pragma unroll
    for (int half = 0; half < 2; ++half) add_row(pairs.row[half], half, scale);
  }

  /// -inf where the mask or the segments hide.
  __device__ __forceinline__ void hide() {
    if constexpr (Traits::has(attention_feature::mask)) {
      if (args_.call.mask.data != nullptr) hide_by_mask(args_.call.mask);
    }
    if constexpr (Traits::has(attention_feature::segments)) {
      if (args_.call.q_segments.data != nullptr) hide_by_segments();
    }
  }

  /// -inf outside of the rows' intervals `keys_at(half)`.
  template <class KeysAt>
  __device__ __forceinline__ void clip(const KeysAt& keys_at) {
    const int first = key0_ + quarter_ * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const prim::key_interval keys = keys_at(half);
      const int begin = static_cast<int>(keys.begin) - first;
      const int end = static_cast<int>(keys.end) - first;
#pragma unroll
      for (int e = 0; e < 2 * key_tiles; ++e) {
        const int at = e / 2 * 8 + e % 2;
        float& x = scores_[e / 2].at[2 * half + e % 2];
        x = at >= begin && at < end ? x : prim::minus_infinity;
      }
    }
  }

 private:
  /// `add_bias(bias, scale)`: products times `scale` plus biases.
  template <class AddBias>
  __device__ __forceinline__ void change_with(const AddBias& add_bias) {
    const attention_kernel_args& call = args_.call;
    float scale = scale_of_head<Traits>(args_, row_at_(0).head);  // rows of one group
    if constexpr (Traits::has_biases) {
      if (call.bias_pre.data != nullptr) {
        add_bias(call.bias_pre, scale);
        scale = 1.0f;
      }
    }
    if constexpr (Traits::has(attention_feature::soft_cap)) {
      if (call.soft_cap > 0.0f) {
        cap(scale);
        scale = 1.0f;
      }
    }
    if constexpr (Traits::has_biases) {
      if (call.bias_post.data != nullptr) add_bias(call.bias_post, scale);
    }
    if constexpr (Traits::has_position_biases) {
      add_position_biases(call.positions, scale);
    } else if constexpr (Traits::codes) {
      if (scale != 1.0f) for_each([&](float& x) { x *= scale; });
    }
  }

  /// Element (batch, head, query, key0) of row `half`.
  __device__ __forceinline__ std::int64_t offset_in(const score_tensor& tensor, int half) const {
    const position at = row_at_(half);
    return at.batch * tensor.batch + at.head * tensor.head + at.query * tensor.row + key0_;
  }

  /// soft_cap * tanh(scores * scale / soft_cap), for f32 to the last bits. Where no score of the
  /// warp comes near the cap, the series alone will do, without the unit that has the exponentials
  /// to make.
  __device__ __forceinline__ void cap(float scale) {
    const float rate = scale * args_.inverse_cap;
    if constexpr (Traits::use_3xtf32) {
      const float most = args_.call.soft_cap;
      for_each([&](float& x) { x = most * tanhf(x * scale / most); });
      return;
    }
    float large[4] = {};
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) large[e] = fmaxf(large[e], fabsf(scores_[n].at[e]));
    }
    const float largest = fmaxf(fmaxf(large[0], large[1]), fmaxf(large[2], large[3]));
    if (prim::cuda::any_of_warp(largest * fabsf(rate) >= tanh_near)) {
      for_each([&](float& x) { x = args_.call.soft_cap * tanh_fast(x * rate); });
      return;
    }
    // NaN, which fmaxf leaves out, stays what it is.
    for_each([&](float& x) { x = args_.call.soft_cap * tanh_near_zero(x * rate); });
  }

  template <class Action>
  __device__ __forceinline__ void for_each(const Action& action) {
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) action(scores_[n].at[e]);
    }
  }

  __device__ __forceinline__ const pair* biases_at(const score_tensor& bias, int half) const {
    return reinterpret_cast<const pair*>(static_cast<const typename Traits::stored*>(bias.data) +
                                         offset_in(bias, half)) +
           quarter_;
  }
  __device__ __forceinline__ void load_row(const score_tensor& bias, int half,
                                           row_pairs& to) const {
    load(biases_at(bias, half), 0, to);
  }
  /// scores * scale + bias, of the row's element type; -inf hides whatever the score is.
  __device__ __forceinline__ void add_row(const row_pairs& pairs, int half, float scale) {
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) {
      add(scores_[n].at[2 * half], scale, pairs.of[n].low());
      add(scores_[n].at[2 * half + 1], scale, pairs.of[n].high());
    }
  }
  /// scores * scale + what positions add; once where there is none.
  __device__ __forceinline__ void add_position_biases(const position_bias& positions, float scale) {
    if (scale != 1.0f) for_each([&](float& x) { x *= scale; });
    if (positions.slopes == nullptr && positions.bias == nullptr) return;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const row_biases more(positions, row_at_(half));
#pragma unroll
      for (int e = 0; e < 2 * key_tiles; ++e) {
        float& x = scores_[e / 2].at[2 * half + e % 2];
        x = more.added(x, key0_ + quarter_ * 2 + e / 2 * 8 + e % 2);
      }
    }
  }
  /// A score that is not finite below a bias of -inf makes NaN of its row's sums: a target that
  /// does such rows again needs no look at every bias.
  static __device__ __forceinline__ void add(float& x, float scale, float bias) {
    const float sum = fmaf(x, scale, bias);
    x = !Traits::mends_rows && bias == prim::minus_infinity ? prim::minus_infinity : sum;
  }

  /// The four lanes of a row read a quarter of its bytes each, and exchange a bit for each.
  __device__ __forceinline__ void hide_by_mask(const score_tensor& mask) {
    constexpr int bytes = Traits::block_kv / 4;  // of a lane
    static_assert(bytes <= 16, "the bits of a row are a word of 64");
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto* from =
          static_cast<const std::uint8_t*>(mask.data) + offset_in(mask, half) + quarter_ * bytes;
      const std::uint64_t shown = bits_of_quad<bytes>(shown_bits<bytes>(from)) >> quarter_ * 2;
      const auto low = static_cast<std::uint32_t>(shown);
      const auto high = static_cast<std::uint32_t>(shown >> 32);
#pragma unroll
      for (int e = 0; e < 2 * key_tiles; ++e) {
        const int at = e / 2 * 8 + e % 2;
        float& x = scores_[e / 2].at[2 * half + e % 2];
        x = ((at < 32 ? low : high) >> at % 32 & 1u) != 0 ? x : prim::minus_infinity;
      }
    }
  }

  /// Bit i: byte i is not 0.
  template <int Bytes>
  static __device__ __forceinline__ std::uint32_t shown_bits(const std::uint8_t* from) {
    std::uint32_t words[Bytes / 4];
    if constexpr (Bytes == 16) {
      const uint4 all = *reinterpret_cast<const uint4*>(from);
      words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
    } else {
#pragma unroll
      for (int i = 0; i < Bytes / 4; ++i)
        words[i] = reinterpret_cast<const std::uint32_t*>(from)[i];
    }
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = Bytes / 4 - 1; i >= 0; --i) {
      // The highest bit of each byte that is not 0, gathered in the word's highest four.
      const std::uint32_t set = (((words[i] & 0x7f7f7f7fu) + 0x7f7f7f7fu) | words[i]) & 0x80808080u;
      bits = __funnelshift_l(set * 0x00204081u, bits, 4);
    }
    return bits;
  }

  /// The `Count` bits of each lane of a quad, those of its first lane lowest.
  template <int Count>
  __device__ __forceinline__ std::uint64_t bits_of_quad(std::uint32_t own) const {
    const int lane = quarter_;
    const std::uint32_t beside = __shfl_xor_sync(prim::cuda::all_lanes, own, 1);
    const std::uint32_t two = lane % 2 == 0 ? own | beside << Count : beside | own << Count;
    const std::uint32_t others = __shfl_xor_sync(prim::cuda::all_lanes, two, 2);
    const std::uint64_t low = lane < 2 ? two : others;
    const std::uint64_t high = lane < 2 ? others : two;
    return low | high << 2 * Count;
  }

  __device__ __forceinline__ void hide_by_segments() {
    const attention_kernel_args& call = args_.call;
    const std::int64_t batch = row_at_(0).batch;
    const auto* from = reinterpret_cast<const int2*>(call.kv_segments.data +
                                                     batch * call.kv_segments.batch + key0_) +
                       quarter_;
    int2 ids[key_tiles];
#pragma unroll
    for (int n = 0; n < key_tiles; ++n) ids[n] = from[n * 4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t id =
          call.q_segments
              .data[batch * call.q_segments.batch + row_at_(half).query * call.q_segments.row];
      // No key has the id of a row that is padding.
      const std::int32_t own = id < 0 ? INT32_MIN : id;
      const bool lost = id < 0;
#pragma unroll
      for (int n = 0; n < key_tiles; ++n) {
        float(&x)[4] = scores_[n].at;
        x[2 * half] = ids[n].x == own && !lost ? x[2 * half] : prim::minus_infinity;
        x[2 * half + 1] = ids[n].y == own && !lost ? x[2 * half + 1] : prim::minus_infinity;
      }
    }
  }

  const Args& args_;
  scores_type& scores_;
  const RowAt& row_at_;
  int quarter_;  ///< lane 4 g + t of the warp holds columns 2t and 2t + 1 of each 8 keys
  int key0_;
};

/// True if a warp can read the call's biases, mask and segment ids in pairs and chunks of 16 bytes
/// wherever a tile of keys starts. What a bias hides must stay hidden behind a cap and a second
/// bias, which may be NaN there: left to the other form.
inline bool reads_are_wide(const attention_kernel_args& call, dtype type) {
  const auto is_wide = [](const score_tensor& tensor, std::int64_t bytes, std::int64_t elements) {
    if (tensor.data == nullptr) return true;
    return reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<std::uintptr_t>(bytes) ==
               0 &&
           tensor.column == 1 && tensor.batch % elements == 0 && tensor.head % elements == 0 &&
           tensor.row % elements == 0;
  };
  const auto pairs = [&](const score_tensor& bias) {
    return is_wide(bias, bias.type == dtype::f32 ? 8 : 4, 2) &&
           (bias.data == nullptr || bias.type == type);
  };
  const bool ids = call.kv_segments.data == nullptr ||
                   (call.kv_segments.row == 1 && call.kv_segments.batch % 2 == 0 &&
                    reinterpret_cast<std::uintptr_t>(call.kv_segments.data) % 8 == 0);
  const bool hidden_before =
      call.bias_pre.data != nullptr && (call.soft_cap > 0.0f || call.bias_post.data != nullptr);
  return ids && !hidden_before && pairs(call.bias_pre) && pairs(call.bias_post) &&
         is_wide(call.mask, 16, 16);
}

}  // namespace tessera::kernels::attention
