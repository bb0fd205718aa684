// A block of query rows against a tile of keys: the weights again, and the gradients of scores.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/kernels/attention/common/key_tiles.hpp>
#include <tessera/kernels/attention/cpu/prefill.hpp>
#include <tessera/kernels/attention_backward/cpu/scratch.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>

namespace tessera::kernels::attention_backward::cpu {

using forward::key_columns;
using forward::row_tile;
using forward::token_row;

/// Columns of a tile that some row of a block sees, in whole registers.
struct seen_columns {
  int low = 0;
  int high = 0;
  TESSERA_INLINE bool empty() const { return low >= high; }
};

/// What is wanted of a block.
enum class block_part {
  weights,    ///< the sum over keys of weight and its incoming gradient, added to `correction`
  gradients,  ///< weights, and gradients of scores before and behind the cap
};

template <class Row>
class block {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using element = typename shape::element;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  using panels = typename shape::panels;
  using query_rows = typename shape::query_rows;
  using source = kernels::attention::strided_source<element>;

 public:
  block(const attention_backward_kernel_args& args, const query_rows& rows,
        const scratch<Row>& memory)
      : args_(args), rows_(rows), memory_(memory) {}

  /// Some row sees some of the keys.
  bool sees(std::int64_t key0, int count) const {
    return rows_.count() > 0 && tile_of(key0, count).seen != prim::tile_visibility::skip;
  }

  /// Words of A, statistics, and with `with_panels` the panels of B. `correction`: of each row.
  void load_rows(const float* correction, bool with_panels) const {
    const attention_kernel_args& args = args_.forward;
    const prim::sequence& seq = rows_.sequence();
    prim::listed_rows<element, shape::block_q> q, d_out;
    for (int r = 0; r < rows_.count(); ++r) {
      const auto statistic = [&](const row_statistics& of) {
        return of.data[seq.index * of.batch + rows_.head_of(r) * of.head +
                       (seq.q_begin + rows_.query_of(r)) * of.row];
      };
      q.address[r] = rows_.query(r);
      d_out.address[r] = gradient_row(r);
      const float lse = statistic(args.lse);
      memory_.skipped[r] = lse == prim::minus_infinity;
      // A row that sees nothing: its weights are 0, whatever its tensors hold.
      memory_.shift[r] = memory_.skipped[r] ? std::numeric_limits<float>::infinity()
                         : args.normalize   ? lse
                                            : statistic(args.row_max);
      memory_.correction[r] = memory_.skipped[r] ? 0.0f : correction[r];
      memory_.taint[r] = 0.0f;
      load_words(q.address[r], shape::head_dim(args), r, memory_.q_row(r));
      load_words(d_out.address[r], shape::v_head_dim(args), r, memory_.d_out_row(r));
    }
    if (!with_panels) return;
    pack(q, shape::head_dim(args), memory_.q_panels, [](int) {});
    pack(d_out, shape::v_head_dim(args), memory_.d_out_panels,
         [&](int r) { memory_.taint[r] = std::numeric_limits<float>::quiet_NaN(); });
  }

  /// K and V as columns of B, and with `with_panels` K as rows of B.
  void load_keys(std::int64_t key0, int count, bool with_panels) const {
    const attention_kernel_args& args = args_.forward;
    const source from = source::of(args, rows_.sequence());
    const auto keys = from.k.rows(key0, rows_.kv_head());
    const prim::row_range all{0, count};
    prim::pack_transposed<words>(keys, all, shape::head_dim(args), k_columns());
    prim::pack_transposed<words>(from.v.rows(key0, rows_.kv_head()), all, shape::v_head_dim(args),
                                 v_columns());
    if (!with_panels ||
        prim::pack_rows<words>(keys, all, shape::head_dim(args), nullptr, k_rows(count))) {
      return;
    }
    // 0 times NaN: such keys reach the rows that see them through their scores.
    prim::find_nonfinite<isa_type>(keys, all, shape::head_dim(args), memory_.nonfinite);
    static_cast<void>(
        prim::pack_rows<words>(keys, all, shape::head_dim(args), memory_.nonfinite, k_rows(count)));
  }

  /// Computes the part for rows and keys that are loaded; of gradients, columns outside of the
  /// result are not written.
  template <block_part Part>
  seen_columns compute(std::int64_t key0, int count) const {
    const kernels::attention::key_tile tile = tile_of(key0, count);
    seen_columns seen{shape::block_kv, 0};
    for (row_tile rows = rows_.first_tile(); rows.rows > 0; rows = rows_.tile_after(rows)) {
      const key_columns used = rows_.columns_of(rows, tile);
      if (used.seen == prim::tile_visibility::skip) continue;
      seen.low = used.low < seen.low ? used.low : seen.low;
      seen.high = used.high > seen.high ? used.high : seen.high;
    }
    if (seen.empty()) return seen;
    for (row_tile rows = rows_.first_tile(); rows.rows > 0; rows = rows_.tile_after(rows)) {
      key_columns used = rows_.columns_of(rows, tile);
      if (used.seen == prim::tile_visibility::skip) used.low = used.high = seen.low;
      if (used.low < used.high) compute_scores<Part>(rows, used);
      for (int r = 0; r < rows.rows; ++r) {
        if constexpr (Part == block_part::weights) {
          if (used.low < used.high) add_to_correction(rows.first + r, r, used);
        } else {
          if (used.low < used.high) write_gradients(rows.first + r, r, used);
          clear_outside(rows.first + r, used, seen);
        }
      }
    }
    return seen;
  }

  TESSERA_INLINE panels k_rows(int count) const {
    return {memory_.k_panels, forward::round_up(count, shape::width) / shape::k_pack,
            shape::columns_of(shape::head_dim(args_.forward))};
  }
  /// Panels whose summed axis is the block's rows.
  TESSERA_INLINE panels rows_panels(float* data, int head_dim) const {
    return {data, forward::round_up(rows_.count(), shape::width) / shape::k_pack,
            shape::columns_of(head_dim)};
  }

 private:
  TESSERA_INLINE const element* gradient_row(int r) const {
    return token_row<const element>(args_.d_out, args_.d_out_strides, rows_.sequence().index,
                                    rows_.sequence().q_begin + rows_.query_of(r), rows_.head_of(r));
  }
  kernels::attention::key_tile tile_of(std::int64_t key0, int count) const {
    const prim::key_interval keys =
        prim::intersection(rows_.keys_of_all().some, {key0, key0 + count});
    if (keys.empty()) return {key0, count, prim::tile_visibility::skip};
    return {key0, count, rows_.visibility_of_keys({key0, key0 + count})};
  }
  TESSERA_INLINE panels k_columns() const { return shape::k_panels(args_.forward, memory_.k); }
  TESSERA_INLINE panels v_columns() const {
    return {memory_.v, prim::words_for<words>(shape::v_head_dim(args_.forward)), shape::block_kv};
  }

  void load_words(const element* row, int head_dim, int r, float* to) const {
    if (memory_.skipped[r]) {
      std::memset(to, 0, static_cast<std::size_t>(shape::q_stride) * sizeof(float));
    } else {
      prim::pack_a<isa_type, words>(row, head_dim, to);
    }
  }

  /// Rows without those that are skipped; those with elements that are not finite are reported and
  /// left out too.
  template <class Rows, class Report>
  void pack(const Rows& rows, int head_dim, float* data, const Report& report) const {
    const panels to = rows_panels(data, head_dim);
    const prim::row_range all{0, rows_.count()};
    if (prim::pack_rows<words>(rows, all, head_dim, memory_.skipped, to)) return;
    bool left_out[shape::block_q];
    prim::find_nonfinite<isa_type>(rows, all, head_dim, left_out);
    for (int r = 0; r < rows_.count(); ++r) {
      if (left_out[r] && !memory_.skipped[r]) report(r);
      left_out[r] = left_out[r] || memory_.skipped[r];
    }
    static_cast<void>(prim::pack_rows<words>(rows, all, head_dim, left_out, to));
  }

  /// Logits of a register tile, slopes of their cap, and gradients of the weights.
  template <block_part Part>
  void compute_scores(row_tile rows, const key_columns& used) const {
    [[maybe_unused]] const attention_kernel_args& args = args_.forward;
    using kernel = typename shape::kernel;
    const panels k = k_columns(), v = v_columns();
    prim::product<prim::product_kind::overwrite, words, shape::mr, shape::q_stride>(
        memory_.q_row(rows.first), rows.rows, k, {0, k.words}, {used.low, used.high},
        memory_.scores, shape::score_stride, shape::score_chain);
    if constexpr (Part == block_part::gradients) {
      prim::product<prim::product_kind::overwrite, words, shape::mr, shape::q_stride>(
          memory_.d_out_row(rows.first), rows.rows, v, {0, v.words}, {used.low, used.high},
          memory_.d_weights, shape::score_stride);
      if (shape::mods::has_cap(args)) compute_slopes(rows, used);
    }
    if constexpr (shape::hooks::has_logits) {
      apply_functors(rows, used);
    } else {
      forward::prefill_scratch<kernel> scores{};
      scores.scores = memory_.scores;
      forward::apply_score_mod(rows_, rows, used, scores);
    }
  }

  /// Functors as score modification calls them; what the first is given is written down, and its
  /// derivative.
  struct recording_hooks {
    static constexpr bool has_logits = true, has_mask = shape::hooks::has_mask;
    struct recorded {
      const typename shape::hooks& hooks;
      std::int64_t key0;
      float* scores;
      float* slopes;
      TESSERA_INLINE float operator()(float score, const position& at) const {
        const score_with_slope logit = hooks.logits.with_slope(score, at);
        scores[at.key - key0] = score;
        slopes[at.key - key0] = logit.slope;
        return logit.score;
      }
    };
    recorded logits;
    const decltype(shape::hooks::mask)& mask;
  };

  void apply_functors(row_tile rows, const key_columns& used) const {
    using mods = forward::score_mod<typename shape::kernel, recording_hooks>;
    const typename shape::hooks& hooks = rows_.hooks();
    for (int r = 0; r < rows.rows; ++r) {
      const recording_hooks recording{
          {hooks, used.key0, memory_.functor_scores + (rows.first + r) * shape::score_stride,
           memory_.functor_slopes + r * shape::score_stride},
          hooks.mask};
      mods::apply(
          args_.forward, recording, rows_.units(),
          rows_.scores_of_row(rows.first + r, memory_.scores + r * shape::score_stride, used),
          used.seen != prim::tile_visibility::full);
    }
  }

  /// The derivative of the cap at x, what raw scores are before it: 1 - tanh(u)^2 with u = x / cap.
  /// Of a saturated tanh nothing would be left: it is 4 e / (1 + e)^2 with e = exp(-2 |u|).
  void compute_slopes(row_tile rows, const key_columns& used) const {
    attention_kernel_args before = args_.forward;
    const reg exponent = vec::broadcast(-2.0f * prim::log2_e / before.soft_cap);
    const reg one = vec::broadcast(1.0f);
    before.bias_post = {};
    before.soft_cap = 0.0f;
    for (int r = 0; r < rows.rows; ++r) {
      const int row = r * shape::score_stride;
      float* const slopes = memory_.slopes + row;
      for (int c = used.low; c < used.high; c += vec::width) {
        vec::store(slopes + c, vec::load(memory_.scores + row + c));
      }
      forward::score_mod<typename shape::kernel, flash_hooks<>>::apply(
          before, {}, rows_.units(), rows_.scores_of_row(rows.first + r, slopes, used), false);
      for (int c = used.low; c < used.high; c += vec::width) {
        const reg x = vec::load(slopes + c);
        const reg magnitude = vec::select_below(x, vec::zero(), vec::sub(vec::zero(), x), x);
        const reg e = vec::exp2(vec::mul(magnitude, exponent));
        const reg sum = vec::add(one, e);
        vec::store(slopes + c, vec::div(vec::mul(vec::broadcast(4.0f), e), vec::mul(sum, sum)));
      }
    }
  }

  /// The weight of each column; -inf is a hidden one.
  struct row_weights {
    reg unit, minus_shift, hidden;
    TESSERA_INLINE row_weights(const kernels::attention::score_units& units, float shift)
        : unit(vec::broadcast(units.unit)),
          minus_shift(vec::broadcast(-shift)),
          hidden(vec::broadcast(std::numeric_limits<float>::lowest())) {}
    TESSERA_INLINE reg of(reg score) const {
      const reg weight =
          vec::exp2(vec::mul(vec::fma(score, unit, minus_shift), vec::broadcast(prim::log2_e)));
      return where_seen(score, weight);
    }
    TESSERA_INLINE reg where_seen(reg score, reg x) const {
      return vec::select_below(score, hidden, vec::zero(), x);
    }
  };

  /// The incoming gradients of the weights of a row, if there are any.
  class weight_gradients {
   public:
    weight_gradients(const attention_kernel_args& args, const position& at, std::int64_t key0)
        : type_(args.weights != nullptr ? args.weights_type : dtype::none),
          offset_(at.batch * args.weights_batch + at.head * args.weights_head +
                  at.query * args.weights_row + key0),
          data_(args.weights) {}
    TESSERA_INLINE bool present() const { return type_ != dtype::none; }
    TESSERA_INLINE reg load(int c, int count) const {
      if (count <= 0) return vec::zero();
      const int lanes = count < vec::width ? count : vec::width;
      if (type_ == dtype::f32) {
        return vec::load_as_n(static_cast<const float*>(data_) + offset_ + c, lanes);
      }
      return vec::load_as_n(static_cast<const element*>(data_) + offset_ + c, lanes);
    }

   private:
    dtype type_;
    std::int64_t offset_;
    const void* data_;
  };

  /// 0, or the factor of weights that dropout keeps; 1 without dropout.
  template <class Body>
  TESSERA_INLINE void for_each_register(const position& at, const key_columns& used,
                                        const Body& body) const {
    const attention_kernel_args& args = args_.forward;
    if (!args.dropout) {
      for (int c = used.low; c < used.high; c += vec::width) body(c, vec::broadcast(1.0f));
      return;
    }
    const reg scale = vec::broadcast(args.dropout_scale);
    forward::kept_weights<vec> kept(args, at, used.key0 + used.low);
    for (int c = used.low; c < used.high; c += vec::width) body(c, vec::mul(kept.next(), scale));
  }

  /// Row r of the block, row `local` of the register tile.
  void add_to_correction(int r, int local, const key_columns& used) const {
    const position at = rows_.position_of(r);
    const float* scores = memory_.scores + local * shape::score_stride;
    const row_weights weights(rows_.units(), memory_.shift[r]);
    const weight_gradients incoming(args_.forward, at, used.key0);
    reg sum = vec::zero();
    for_each_register(at, used, [&](int c, reg keep) {
      const reg score = vec::load(scores + c);
      const reg term =
          vec::mul(vec::mul(weights.of(score), keep), incoming.load(c, used.count - c));
      sum = vec::add(sum, weights.where_seen(score, term));
    });
    memory_.correction[r] += vec::sum(sum);
  }

  void write_gradients(int r, int local, const key_columns& used) const {
    const position at = rows_.position_of(r);
    const bool capped = shape::mods::has_cap(args_.forward);
    const float* scores = memory_.scores + local * shape::score_stride;
    const float* d_weights = memory_.d_weights + local * shape::score_stride;
    const float* slopes = memory_.slopes + local * shape::score_stride;
    [[maybe_unused]] const float* functor_slopes =
        memory_.functor_slopes + local * shape::score_stride;
    const row_weights weights(rows_.units(), memory_.shift[r]);
    const weight_gradients incoming(args_.forward, at, used.key0);
    const reg correction = vec::broadcast(memory_.correction[r]);
    const reg taint = vec::broadcast(memory_.taint[r]);
    const std::int64_t row = std::int64_t{r} * shape::score_stride;
    for_each_register(at, used, [&](int c, reg keep) {
      const reg score = vec::load(scores + c);
      const reg weight = weights.of(score);
      reg into = vec::load(d_weights + c);
      if (incoming.present()) into = vec::add(into, incoming.load(c, used.count - c));
      reg d_score = vec::mul(weight, vec::sub(vec::mul(into, keep), correction));
      d_score = weights.where_seen(score, d_score);
      if constexpr (shape::hooks::has_logits) {
        vec::store(memory_.d_logits + row + c, d_score);
        d_score = weights.where_seen(score, vec::mul(d_score, vec::load(functor_slopes + c)));
      }
      vec::store(memory_.weights + row + c,
                 weights.where_seen(score, vec::add(vec::mul(weight, keep), taint)));
      vec::store(memory_.d_scores + row + c, d_score);
      if (capped) {
        d_score = weights.where_seen(score, vec::mul(d_score, vec::load(slopes + c)));
      }
      vec::store(memory_.d_before + row + c, d_score);
    });
  }

  void clear_outside(int r, const key_columns& used, const seen_columns& seen) const {
    const std::int64_t row = std::int64_t{r} * shape::score_stride;
    const auto clear = [&](float* to) {
      for (int c = seen.low; c < used.low; c += vec::width) vec::store(to + c, vec::zero());
      for (int c = used.high; c < seen.high; c += vec::width) vec::store(to + c, vec::zero());
    };
    for (float* to : {memory_.weights, memory_.d_scores, memory_.d_before}) clear(to + row);
    if constexpr (shape::hooks::has_logits) clear(memory_.d_logits + row);
  }

  const attention_backward_kernel_args& args_;
  const query_rows& rows_;
  const scratch<Row>& memory_;
};

}  // namespace tessera::kernels::attention_backward::cpu
