// From raw scores to logits: biases, soft cap, user functors, masks and segments, one row of a tile
// at a time. Shared by the prefill and decode loops.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/kernels/flash_attention/traits.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::flash {

/// One query row against the keys [key0, key0 + columns) of a tile.
struct row_of_scores {
  float* scores = nullptr;  ///< column c is key key0 + c
  position at{};            ///< batch, head, query and query_position of the row
  std::int64_t key0 = 0;
  int columns = 0;         ///< keys that exist; scores beyond are not read
  int low = 0, high = 0;   ///< columns in use, whole registers
  int begin = 0, end = 0;  ///< columns that lengths, diagonal and window leave visible
};

template <class Row, class Hooks>
struct score_modifiers {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  static constexpr bool caps = shape::has(flash_feature::soft_cap);
  static constexpr bool biases = shape::has(flash_feature::bias);
  static constexpr bool masks = shape::has(flash_feature::mask);
  static constexpr bool segments = shape::has(flash_feature::segments);

  /// True if keys inside the visible interval may be hidden, beyond what `tile_visibility` says.
  static TESSERA_INLINE bool may_hide(const flash_kernel_args& args) {
    return Hooks::has_mask || Hooks::has_logits || (masks && args.mask.data != nullptr) ||
           (segments && args.q_segments.data != nullptr) ||
           (biases && (args.bias_pre.data != nullptr || args.bias_post.data != nullptr));
  }

  /// Applies everything to one row and sets hidden columns of [low, high) to -inf.
  static TESSERA_INLINE void apply(const flash_kernel_args& args, const Hooks& hooks,
                                   const row_of_scores& row) {
    if constexpr (caps || biases) add_biases_and_cap(args, row);
    if constexpr (Hooks::has_logits) modify(hooks, row);
    if constexpr (masks) hide_by_mask(args, row);
    if constexpr (segments) hide_by_segment(args, row);
    if constexpr (Hooks::has_mask) hide_by_functor(hooks, row);
    for (int c = row.low; c < row.begin; ++c) row.scores[c] = prim::minus_infinity;
    for (int c = row.end; c < row.high; ++c) row.scores[c] = prim::minus_infinity;
  }

 private:
  /// The row of a [batch, head, row, column] tensor, at the tile's first key.
  struct score_row {
    const char* data = nullptr;
    dtype type = dtype::none;
    std::int64_t step = 0;  ///< bytes between columns

    TESSERA_INLINE bool present() const { return data != nullptr; }

    /// Columns [c, c + count) as floats.
    TESSERA_INLINE reg load(int c, int count) const {
      const char* p = data + c * step;
      if (step == static_cast<std::int64_t>(size_of(type)) && count >= vec::width) {
        if (type == dtype::f32) return vec::load_as(reinterpret_cast<const float*>(p));
        if (type == dtype::f16) return vec::load_as(reinterpret_cast<const f16*>(p));
        return vec::load_as(reinterpret_cast<const bf16*>(p));
      }
      float lanes[vec::width] = {};
      for (int i = 0; i < count && i < vec::width; ++i) lanes[i] = one(p + i * step);
      return vec::load(lanes);
    }

   private:
    TESSERA_INLINE float one(const char* p) const {
      if (type == dtype::f32) return *reinterpret_cast<const float*>(p);
      if (type == dtype::f16) return static_cast<float>(*reinterpret_cast<const f16*>(p));
      return static_cast<float>(*reinterpret_cast<const bf16*>(p));
    }
  };

  static TESSERA_INLINE score_row row_in(const score_tensor& tensor, const row_of_scores& row) {
    if (tensor.data == nullptr) return {};
    const auto size = static_cast<std::int64_t>(size_of(tensor.type));
    const std::int64_t offset = row.at.batch * tensor.batch + row.at.head * tensor.head +
                                row.at.query * tensor.row + row.key0 * tensor.column;
    return {static_cast<const char*>(tensor.data) + offset * size, tensor.type,
            tensor.column * size};
  }

  static TESSERA_INLINE reg hide_where_minus_infinity(reg bias, reg x) {
    return vec::select_below(bias, vec::broadcast(std::numeric_limits<float>::lowest()),
                             vec::broadcast(prim::minus_infinity), x);
  }

  static TESSERA_INLINE void add_biases_and_cap(const flash_kernel_args& args,
                                                const row_of_scores& row) {
    const score_row pre = biases ? row_in(args.bias_pre, row) : score_row{};
    const score_row post = biases ? row_in(args.bias_post, row) : score_row{};
    const bool capped = caps && args.soft_cap > 0.0f;
    const reg cap = vec::broadcast(args.soft_cap);
    const reg inverse_cap = vec::broadcast(capped ? 1.0f / args.soft_cap : 0.0f);
    for (int c = row.low; c < row.high; c += vec::width) {
      const int count = row.columns - c;
      if (count <= 0) break;
      const reg before = pre.present() ? pre.load(c, count) : vec::zero();
      const reg after = post.present() ? post.load(c, count) : vec::zero();
      reg x = vec::load(row.scores + c);
      if (pre.present()) x = vec::add(x, before);
      if (capped) {
        x = vec::mul(cap, prim::tanh_of<typename shape::isa_type>(vec::mul(x, inverse_cap)));
      }
      if (post.present()) x = vec::add(x, after);
      // Last, so that -inf in one bias hides whatever the cap, the other bias or the key make of
      // it.
      if (biases) x = hide_where_minus_infinity(after, hide_where_minus_infinity(before, x));
      vec::store(row.scores + c, x);
    }
  }

  static TESSERA_INLINE void modify(const Hooks& hooks, const row_of_scores& row) {
    position at = row.at;
    for (int c = row.begin; c < row.end; ++c) {
      at.key = row.key0 + c;
      const float before = row.scores[c];
      const float after = hooks.logits(before, at);
      row.scores[c] = before == prim::minus_infinity ? before : after;
    }
  }

  static TESSERA_INLINE void hide_by_mask(const flash_kernel_args& args, const row_of_scores& row) {
    if (args.mask.data == nullptr) return;
    const auto* mask = static_cast<const std::uint8_t*>(args.mask.data) +
                       row.at.batch * args.mask.batch + row.at.head * args.mask.head +
                       row.at.query * args.mask.row + row.key0 * args.mask.column;
    for (int c = row.begin; c < row.end; ++c) {
      if (mask[c * args.mask.column] == 0) row.scores[c] = prim::minus_infinity;
    }
  }

  static TESSERA_INLINE void hide_by_segment(const flash_kernel_args& args,
                                             const row_of_scores& row) {
    if (args.q_segments.data == nullptr) return;
    const std::int32_t own =
        args.q_segments
            .data[row.at.batch * args.q_segments.batch + row.at.query * args.q_segments.row];
    const std::int32_t* ids = args.kv_segments.data + row.at.batch * args.kv_segments.batch +
                              row.key0 * args.kv_segments.row;
    for (int c = row.begin; c < row.end; ++c) {
      if (own < 0 || ids[c * args.kv_segments.row] != own) row.scores[c] = prim::minus_infinity;
    }
  }

  static TESSERA_INLINE void hide_by_functor(const Hooks& hooks, const row_of_scores& row) {
    position at = row.at;
    for (int c = row.begin; c < row.end; ++c) {
      at.key = row.key0 + c;
      if (!hooks.mask(at)) row.scores[c] = prim::minus_infinity;
    }
  }
};

/// 1 where dropout keeps the weight of keys key0 + [0, width), else 0. key0 need not be aligned.
template <class Vec>
TESSERA_INLINE typename Vec::reg kept_lanes(const flash_kernel_args& args, const position& at,
                                            std::int64_t key0) {
  float lanes[Vec::width];
  prim::philox_block words{};
  for (int i = 0; i < Vec::width; ++i) {
    const std::int64_t key = key0 + i;
    if (i == 0 || key % 4 == 0) {
      words = prim::dropout_words(args.dropout_seed, at.batch, at.head, at.query, key);
    }
    lanes[i] = words[static_cast<std::size_t>(key % 4)] >= args.dropout_threshold ? 1.0f : 0.0f;
  }
  return Vec::load(lanes);
}

/// Updates one row's running softmax with the logits [row.low, row.high), replaces them by the
/// weights' words and returns what the row's accumulated output must be multiplied by first.
template <class Row>
TESSERA_INLINE float softmax_row(const flash_kernel_args& args, const row_of_scores& row,
                                 prim::softmax_state& state) {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  using words = typename shape::words;
  auto best = vec::broadcast(state.maximum);
  for (int c = row.low; c < row.high; c += vec::width) {
    best = vec::max(best, vec::load(row.scores + c));
  }
  const float maximum = vec::maximum(best);
  const float shift = prim::finite_maximum(maximum);
  const float correction = state.maximum == maximum
                               ? 1.0f
                               : prim::exp_of<typename shape::isa_type>(state.maximum - shift);
  const auto shifts = vec::broadcast(shift);
  auto sum = vec::zero();
  for (int c = row.low; c < row.high; c += vec::width) {
    auto weight =
        prim::exp_of<typename shape::isa_type>(vec::sub(vec::load(row.scores + c), shifts));
    sum = vec::add(sum, weight);
    if constexpr (shape::has(flash_feature::dropout)) {
      if (args.dropout) weight = vec::mul(weight, kept_lanes<vec>(args, row.at, row.key0 + c));
    }
    words::store_weights(row.scores, c, weight);
  }
  state.maximum = maximum;
  state.denominator = state.denominator * correction + vec::sum(sum);
  return correction;
}

}  // namespace tessera::flash
