// Score modification in vector registers: scale, biases, soft cap, user functors, masks and
// segments, one row of a tile at a time; dropout of weights.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/kernels/attention/common/score_mod.hpp>
#include <tessera/kernels/attention/cpu/mask_hooks.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::kernels::attention::cpu {

/// Columns of a tile of keys: column c is key key0 + c.
struct key_columns {
  std::int64_t key0 = 0;
  int count = 0;           ///< keys that exist; scores beyond are not read
  int begin = 0, end = 0;  ///< that some row of a register tile sees
  int low = 0, high = 0;   ///< the same in whole registers, or tiles of them
  prim::tile_visibility seen = prim::tile_visibility::skip;  ///< of [begin, end), intervals aside

  TESSERA_INLINE prim::key_interval keys() const { return {key0 + begin, key0 + end}; }
};

/// One query row against the keys [key0, key0 + columns) of a tile.
struct score_row {
  float* scores = nullptr;  ///< column c is key key0 + c
  position at{};            ///< batch, head, query and query_position of the row
  std::int64_t key0 = 0;
  int columns = 0;         ///< keys that exist; scores beyond are not read
  int low = 0, high = 0;   ///< columns in use, whole registers
  int begin = 0, end = 0;  ///< columns that lengths, diagonal and window leave visible
};

template <class Kernel, class Hooks>
struct score_mod : score_mods<Kernel, Hooks> {
  using mods = score_mods<Kernel, Hooks>;
  using mods::caps, mods::biases, mods::position_biases, mods::masks, mods::segments;
  using mods::has_cap;
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  /// Applies everything to one row and sets hidden columns of [low, high) to -inf. Masks, segments
  /// and mask functors are asked only if they hide something.
  static TESSERA_INLINE void apply(const attention_kernel_args& args, const Hooks& hooks,
                                   const score_units& units, const score_row& row, bool hides) {
    if (units.scale != 1.0f) scale_all(units.scale, row);
    if constexpr (caps || biases) add_biases_and_cap(args, row);
    if constexpr (position_biases) add_position_biases(args.positions, row);
    if constexpr (Hooks::has_logits) modify(hooks, row);
    if (hides) {
      if constexpr (masks) hide_by_mask(args, row);
      if constexpr (segments) hide_by_segment(args, row);
      if constexpr (Hooks::has_mask) hide_by_functor(hooks, row);
    }
    for (int c = row.low; c < row.begin; ++c) row.scores[c] = prim::minus_infinity;
    for (int c = row.end; c < row.high; ++c) row.scores[c] = prim::minus_infinity;
  }

 private:
  static TESSERA_INLINE void scale_all(float scale, const score_row& row) {
    const reg factor = vec::broadcast(scale);
    for (int c = row.low; c < row.high; c += vec::width) {
      vec::store(row.scores + c, vec::mul(vec::load(row.scores + c), factor));
    }
  }

  /// The row of a [batch, head, row, column] tensor, at the tile's first key.
  struct tensor_row {
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
      for (int i = 0; i < count && i < vec::width; ++i) lanes[i] = element(p + i * step);
      return vec::load(lanes);
    }

   private:
    TESSERA_INLINE float element(const char* p) const {
      if (type == dtype::f32) return *reinterpret_cast<const float*>(p);
      if (type == dtype::f16) return static_cast<float>(*reinterpret_cast<const f16*>(p));
      return static_cast<float>(*reinterpret_cast<const bf16*>(p));
    }
  };

  static TESSERA_INLINE tensor_row row_in(const score_tensor& tensor, const score_row& row) {
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

  static TESSERA_INLINE void add_biases_and_cap(const attention_kernel_args& args,
                                                const score_row& row) {
    const tensor_row pre = biases ? row_in(args.bias_pre, row) : tensor_row{};
    const tensor_row post = biases ? row_in(args.bias_post, row) : tensor_row{};
    const bool capped = has_cap(args);
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

  static TESSERA_INLINE void add_position_biases(const position_bias& positions,
                                                 const score_row& row) {
    float* TESSERA_RESTRICT scores = row.scores;
    // Column c is key `first + c` behind the sequence's row 0.
    const auto first = static_cast<int>(row.key0 - (row.at.query_position - row.at.query));
    if (positions.slopes != nullptr) {
      const float slope = positions.slopes[row.at.head];
      TESSERA_INDEPENDENT
      for (int c = row.begin; c < row.end; ++c) {
        scores[c] += slope * static_cast<float>(first + c);
      }
    }
    if (positions.bias == nullptr || row.at.query >= positions.extent) return;
    const int begin = first + row.begin > 0 ? row.begin : -first;
    const float* const bias = positions.bias + row.at.query * positions.row;
    for (int c = begin; c < row.end && first + c < positions.extent; ++c) {
      const float added = bias[first + c];
      scores[c] = added == prim::minus_infinity ? added : scores[c] + added;
    }
  }

  /// The loops below are written for the vectoriser: no column depends on another, nothing they
  /// read changes.
  static TESSERA_INLINE void modify(const Hooks& hooks, const score_row& row) {
    float* TESSERA_RESTRICT scores = row.scores;
    TESSERA_INDEPENDENT
    for (int c = row.begin; c < row.end; ++c) {
      position at = row.at;
      at.key = row.key0 + c;
      const float before = scores[c];
      const float after = hooks.logits(before, at);
      scores[c] = before == prim::minus_infinity ? before : after;
    }
  }

  /// Hides the columns for which `hidden(c)` holds.
  template <class Hidden>
  static TESSERA_INLINE void hide_where(const score_row& row, const Hidden& hidden) {
    float* TESSERA_RESTRICT scores = row.scores;
    TESSERA_INDEPENDENT
    for (int c = row.begin; c < row.end; ++c) {
      scores[c] = hidden(c) ? prim::minus_infinity : scores[c];
    }
  }

  static TESSERA_INLINE void hide_by_mask(const attention_kernel_args& args, const score_row& row) {
    if (args.mask.data == nullptr) return;
    const std::int64_t step = args.mask.column;
    const auto* TESSERA_RESTRICT mask =
        static_cast<const std::uint8_t*>(args.mask.data) + row.at.batch * args.mask.batch +
        row.at.head * args.mask.head + row.at.query * args.mask.row + row.key0 * step;
    if (step == 1) {
      hide_where(row, [mask](int c) { return mask[c] == 0; });
    } else {
      hide_where(row, [mask, step](int c) { return mask[c * step] == 0; });
    }
  }

  static TESSERA_INLINE void hide_by_segment(const attention_kernel_args& args,
                                             const score_row& row) {
    if (args.q_segments.data == nullptr) return;
    const std::int32_t own =
        args.q_segments
            .data[row.at.batch * args.q_segments.batch + row.at.query * args.q_segments.row];
    const std::int64_t step = args.kv_segments.row;
    const std::int32_t* TESSERA_RESTRICT ids =
        args.kv_segments.data + row.at.batch * args.kv_segments.batch + row.key0 * step;
    if (own < 0) {
      hide_where(row, [](int) { return true; });
    } else if (step == 1) {
      hide_where(row, [ids, own](int c) { return ids[c] != own; });
    } else {
      hide_where(row, [ids, own, step](int c) { return ids[c * step] != own; });
    }
  }

  static TESSERA_INLINE void hide_by_functor(const Hooks& hooks, const score_row& row) {
    if constexpr (hides_rows<decltype(hooks.mask)>) {
      hooks.mask.hide_row(row.at, row.key0, row.begin, row.end, row.scores);
    } else {
      hide_where(row, [&](int c) {
        position at = row.at;
        at.key = row.key0 + c;
        return !hooks.mask(at);
      });
    }
  }
};

/// For registers of keys one after the other: 1 where dropout keeps the weight, else 0.
template <class Vec>
class kept_weights {
 public:
  TESSERA_INLINE kept_weights(const attention_kernel_args& args, const position& at,
                              std::int64_t key)
      : args_(args), at_(at), key_(key) {}

  TESSERA_INLINE typename Vec::reg next() {
    if (used_ == prim::dropout_keys_at_once) {
      prim::dropout_kept(args_.dropout_seed, args_.dropout_threshold, at_.batch, at_.head,
                         at_.query, key_, kept_);
      key_ += prim::dropout_keys_at_once;
      used_ = 0;
    }
    const auto lanes = Vec::load(kept_ + used_);
    used_ += Vec::width;
    return lanes;
  }

 private:
  const attention_kernel_args& args_;
  position at_;
  std::int64_t key_;
  int used_ = prim::dropout_keys_at_once;
  float kept_[prim::dropout_keys_at_once];
};

}  // namespace tessera::kernels::attention::cpu
