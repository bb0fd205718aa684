// From products to logits: scale, soft cap, bias, and who sees whom; one row of a tile at a time.
// Which weights dropout keeps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Keys [key0, key0 + count) of a sequence.
struct key_range {
  std::int64_t key0 = 0;
  int count = 0;
};

template <class Kernel>
class score_mod {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using reg = typename shape::reg;

 public:
  score_mod(const latent_attention_kernel_args& args, const query_rows<Kernel>& rows)
      : args_(args), rows_(rows) {}

  /// Products of row `r` with the keys become logits, hidden ones -inf, in whole registers.
  void apply(int r, const key_range& keys, float* scores) const {
    scale_and_cap(keys, scores);
    if (args_.bias.data != nullptr) add_bias(r, keys, scores);
    if (args_.mask.data != nullptr) hide_by_mask(r, keys, scores);
    if (args_.lists.keys != nullptr) hide_unlisted(rows_.listed(r), keys, scores);
    const prim::key_interval seen = rows_.keys_of(r);
    const int end = static_cast<int>(shape::columns_of(keys.count));
    for (int c = 0; c < column_of(seen.begin, keys); ++c) scores[c] = prim::minus_infinity;
    for (int c = column_of(seen.end, keys); c < end; ++c) scores[c] = prim::minus_infinity;
  }

  /// Whether logits of all rows and these keys are products times `scale()`, and weights what the
  /// softmax makes of them.
  bool is_plain(const key_range& keys) const {
    // Later tokens see later keys.
    return !(args_.soft_cap > 0) && args_.bias.data == nullptr && args_.mask.data == nullptr &&
           args_.lists.keys == nullptr && !args_.dropout && rows_.count() > 0 &&
           rows_.keys_of(rows_.count() - 1).begin <= keys.key0 &&
           rows_.keys_of(0).end >= keys.key0 + keys.count;
  }
  float scale() const { return args_.softmax_scale; }

  /// Calls body(column, register) for the keys of row `r`: 1 where dropout keeps the weight, else
  /// 0.
  template <class Body>
  void for_each_kept(int r, const key_range& keys, const Body& body) const {
    constexpr int together = prim::dropout_keys_at_once;
    const query_row of = rows_.row(r);
    float kept[together];
    for (int first = 0; first < keys.count; first += together) {
      prim::dropout_kept(args_.dropout_seed, args_.dropout_threshold, rows_.sequence().index,
                         static_cast<int>(of.head), of.token, keys.key0 + first, kept);
      const int end = std::min(keys.count, first + together);
      for (int c = first; c < end; c += vec::width) body(c, vec::load(kept + (c - first)));
    }
  }

 private:
  /// Where a key lies among the columns, cut to them.
  static int column_of(std::int64_t key, const key_range& keys) {
    const std::int64_t column = key - keys.key0;
    return static_cast<int>(column < 0 ? 0 : column > keys.count ? keys.count : column);
  }

  void scale_and_cap(const key_range& keys, float* scores) const {
    const bool capped = args_.soft_cap > 0;
    const reg cap = vec::broadcast(args_.soft_cap);
    const reg factor =
        vec::broadcast(capped ? args_.softmax_scale / args_.soft_cap : args_.softmax_scale);
    for (int c = 0; c < keys.count; c += vec::width) {
      reg x = vec::mul(vec::load(scores + c), factor);
      if (capped) x = vec::mul(cap, prim::tanh_of<isa_type>(x));
      vec::store(scores + c, x);
    }
  }

  /// -inf hides, whatever the score.
  void add_bias(int r, const key_range& keys, float* scores) const {
    float bias[shape::block_keys];
    const std::int64_t offset = rows_.at(args_.bias, r, keys.key0);
    if (args_.bias.column == 1) {
      prim::load_row<isa_type>(args_.bias, offset, keys.count, bias);
    } else {
      for (int c = 0; c < shape::block_keys; ++c) {
        bias[c] = c < keys.count
                      ? prim::element_at<isa_type>(args_.bias, offset + c * args_.bias.column)
                      : 0.0f;
      }
    }
    const reg hidden = vec::broadcast(prim::minus_infinity);
    const reg lowest = vec::broadcast(std::numeric_limits<float>::lowest());
    for (int c = 0; c < keys.count; c += vec::width) {
      const reg added = vec::load(bias + c);
      const reg x = vec::add(vec::load(scores + c), added);
      vec::store(scores + c, vec::select_below(added, lowest, hidden, x));
    }
  }

  void hide_by_mask(int r, const key_range& keys, float* TESSERA_RESTRICT scores) const {
    const std::int64_t step = args_.mask.column;
    const auto* TESSERA_RESTRICT mask =
        static_cast<const std::uint8_t*>(args_.mask.data) + rows_.at(args_.mask, r, keys.key0);
    TESSERA_INDEPENDENT
    for (int c = 0; c < keys.count; ++c) {
      scores[c] = mask[c * step] == 0 ? prim::minus_infinity : scores[c];
    }
  }

  static void hide_unlisted(const listed_keys& list, const key_range& keys, float* scores) {
    float kept[shape::block_keys];
    std::fill_n(kept, shape::block_keys, prim::minus_infinity);
    const listed_keys found = list.within(keys.key0, keys.count);
    for (const std::int32_t* key = found.begin; key != found.end; ++key) {
      kept[*key - keys.key0] = scores[*key - keys.key0];
    }
    std::copy_n(kept, keys.count, scores);
  }

  const latent_attention_kernel_args& args_;
  const query_rows<Kernel>& rows_;
};

}  // namespace tessera::kernels::latent_attention::cpu
