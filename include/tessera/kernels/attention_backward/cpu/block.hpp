// A block of query rows against a tile of keys: the weights again, and the gradients of scores.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include <tessera/kernels/attention/common/key_source.hpp>
#include <tessera/kernels/attention/common/key_tiles.hpp>
#include <tessera/kernels/attention/cpu/prefill.hpp>
#include <tessera/kernels/attention_backward/cpu/scratch.hpp>
#include <tessera/kernels/attention_backward/cpu/seen_pairs.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>

namespace tessera::kernels::attention_backward::cpu {

using forward::token_row;

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

  /// Words of A and statistics. `correction` and `taint` (null: zeros) of each row.
  void load_rows(const float* correction, const float* taint) const {
    const attention_kernel_args& args = args_.forward;
    const prim::sequence& seq = rows_.sequence();
    const int group = kernels::attention::group_of(args);
    const int end_head = (rows_.kv_head() + 1) * group;
    std::int64_t query = rows_.query_of(0);
    int head = rows_.head_of(0);
    for (int r = 0; r < rows_.count(); ++r) {
      const std::int64_t token = seq.q_begin + query;
      const auto statistic = [&](const row_statistics& of) {
        return of.data[seq.index * of.batch + head * of.head + token * of.row];
      };
      const float lse = statistic(args.lse);
      memory_.skipped[r] = lse == prim::minus_infinity;
      // A row that sees nothing: its weights are 0, whatever its tensors hold.
      memory_.shift[r] = memory_.skipped[r] ? std::numeric_limits<float>::infinity()
                         : args.normalize   ? lse
                                            : statistic(args.row_max);
      memory_.correction[r] = memory_.skipped[r] ? 0.0f : correction[r];
      memory_.taint[r] = taint != nullptr ? taint[r] : 0.0f;
      load_words(token_row<const element>(args.q, args.q_strides, seq.index, token, head),
                 shape::head_dim(args), r, memory_.q_row(r));
      load_words(token_row<const element>(args_.d_out, args_.d_out_strides, seq.index, token, head),
                 shape::v_head_dim(args), r, memory_.d_out_row(r));
      if (++head == end_head) head -= group, ++query;
    }
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
    if (!with_panels) return;
    if constexpr (shape::key_step > shape::width) {
      prim::clear_rows<words>(
          {forward::round_up(count, shape::width), k_rows(count).words * k_pack}, k_rows(count));
    }
    if (prim::pack_rows<words>(keys, all, shape::head_dim(args), nullptr, k_rows(count))) return;
    // 0 times NaN: such keys reach the rows that see them through their scores.
    prim::find_nonfinite<isa_type>(keys, all, shape::head_dim(args), memory_.nonfinite);
    static_cast<void>(
        prim::pack_rows<words>(keys, all, shape::head_dim(args), memory_.nonfinite, k_rows(count)));
  }

  /// Computes the part for rows and keys that are loaded; of gradients, columns outside of the
  /// result are not written. `beside(row)` is called before what becomes of the scores of a row of
  /// the block, which keeps memory idle: the place to ask for lines. `each(rows, used, seen)` is
  /// called when those of a register tile of rows are there, whose own columns `used` may be none.
  template <block_part Part, class Beside, class Each>
  seen_pairs<Row> compute(std::int64_t key0, int count, const Beside& beside,
                          const Each& each) const {
    const kernels::attention::key_tile tile = tile_of(key0, count);
    key_columns columns[most_tiles];
    seen_pairs<Row> seen;
    int tiles = 0;
    for (row_tile rows = rows_.first_tile(); rows.rows > 0; rows = rows_.tile_after(rows)) {
      key_columns& used = columns[tiles++] = columns_seen<Row>(rows_, rows, tile);
      if (used.seen == prim::tile_visibility::skip) used.low = used.high = 0;
      if (used.low < used.high) seen.add(rows, used);
    }
    if (seen.empty()) return seen;
    tiles = 0;
    for (row_tile rows = rows_.first_tile(); rows.rows > 0; rows = rows_.tile_after(rows)) {
      key_columns& used = columns[tiles++];
      if (used.low >= used.high) used.low = used.high = seen.low;
      if (used.low < used.high) compute_scores<Part>(rows, used);
      for (int r = 0; r < rows.rows; ++r) {
        beside(rows.first + r);
        if constexpr (Part == block_part::weights) {
          if (used.low < used.high) add_to_correction(rows.first + r, r, used);
        } else {
          if (used.low < used.high) write_gradients(rows.first + r, r, used);
          clear_outside(rows.first + r, r, used, seen);
        }
      }
      each(rows, used, seen);
    }
    return seen;
  }
  template <block_part Part>
  seen_columns compute(std::int64_t key0, int count) const {
    return compute<Part>(
        key0, count, [](int) {}, [](row_tile, const key_columns&, const seen_columns&) {});
  }

  TESSERA_INLINE panels k_rows(int count) const {
    return {memory_.k_panels, forward::round_up(count, shape::key_step) / k_pack,
            shape::columns_of(shape::head_dim(args_.forward))};
  }

 private:
  static constexpr int k_pack = shape::k_pack;
  /// Register tiles of a block. Rows that fill none are cut into three at most: at the end, and
  /// where a mask functor has tiles end with its blocks of rows, which are a tile at least.
  static constexpr int whole_tiles = shape::block_q / shape::mr;
  static constexpr int most_tiles = whole_tiles + 3 * (whole_tiles + 2);

  kernels::attention::key_tile tile_of(std::int64_t key0, int count) const {
    const prim::key_interval keys =
        prim::intersection(rows_.keys_of_all().some, {key0, key0 + count});
    if (keys.empty()) return {key0, count, prim::tile_visibility::skip};
    return {key0, count, rows_.visibility_of_keys({key0, key0 + count})};
  }
  TESSERA_INLINE panels k_columns() const { return shape::k_panels(args_.forward, memory_.k); }
  TESSERA_INLINE panels v_columns() const {
    return {memory_.v, shape::words_of_head(shape::v_head_dim(args_.forward)), shape::block_kv};
  }

  void load_words(const element* row, int head_dim, int r, float* to) const {
    if (memory_.skipped[r]) {
      std::memset(to, 0, static_cast<std::size_t>(shape::q_stride) * sizeof(float));
    } else {
      prim::pack_a<isa_type, words>(row, head_dim, to);
    }
  }

  /// Logits of a register tile, slopes of their cap, and gradients of the weights.
  template <block_part Part>
  void compute_scores(row_tile rows, const key_columns& used) const {
    [[maybe_unused]] const attention_kernel_args& args = args_.forward;
    using kernel = typename shape::kernel;
    const panels k = k_columns(), v = v_columns();
    constexpr auto overwrite = prim::product_kind::overwrite;
    shape::template multiply<overwrite, shape::q_stride>(
        memory_.q_row(rows.first), rows.rows, k, {0, k.words}, {used.low, used.high},
        memory_.scores, shape::score_stride, shape::score_chain);
    if constexpr (Part == block_part::gradients) {
      shape::template multiply<overwrite, shape::q_stride>(memory_.d_out_row(rows.first), rows.rows,
                                                           v, {0, v.words}, {used.low, used.high},
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
    weight_gradients(const query_rows& rows, int r, std::int64_t key0) {
      const attention_kernel_args& args = rows.args();
      if (args.weights == nullptr) return;
      const position at = rows.position_of(r);
      type_ = args.weights_type;
      offset_ = at.batch * args.weights_batch + at.head * args.weights_head +
                at.query * args.weights_row + key0;
      data_ = args.weights;
    }
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
    dtype type_ = dtype::none;
    std::int64_t offset_ = 0;
    const void* data_ = nullptr;
  };

  /// 0, or the factor of weights that dropout keeps; 1 without dropout.
  template <class Body>
  TESSERA_INLINE void for_each_register(int r, const key_columns& used, const Body& body) const {
    const attention_kernel_args& args = args_.forward;
    if (!args.dropout) {
      for (int c = used.low; c < used.high; c += vec::width) body(c, vec::broadcast(1.0f));
      return;
    }
    const reg scale = vec::broadcast(args.dropout_scale);
    forward::kept_weights<vec> kept(args, rows_.position_of(r), used.key0 + used.low);
    for (int c = used.low; c < used.high; c += vec::width) body(c, vec::mul(kept.next(), scale));
  }

  /// Row r of the block, row `local` of the register tile.
  void add_to_correction(int r, int local, const key_columns& used) const {
    const float* scores = memory_.scores + local * shape::score_stride;
    const row_weights weights(rows_.units(), memory_.shift[r]);
    const weight_gradients incoming(rows_, r, used.key0);
    reg sum = vec::zero();
    for_each_register(r, used, [&](int c, reg keep) {
      const reg score = vec::load(scores + c);
      const reg term =
          vec::mul(vec::mul(weights.of(score), keep), incoming.load(c, used.count - c));
      sum = vec::add(sum, weights.where_seen(score, term));
    });
    memory_.correction[r] += vec::sum(sum);
  }

  void write_gradients(int r, int local, const key_columns& used) const {
    const bool capped = shape::mods::has_cap(args_.forward);
    const float* scores = memory_.scores + local * shape::score_stride;
    const float* d_weights = memory_.d_weights + local * shape::score_stride;
    const float* slopes = memory_.slopes + local * shape::score_stride;
    [[maybe_unused]] const float* functor_slopes =
        memory_.functor_slopes + local * shape::score_stride;
    const row_weights weights(rows_.units(), memory_.shift[r]);
    const weight_gradients incoming(rows_, r, used.key0);
    const reg correction = vec::broadcast(memory_.correction[r]);
    const reg taint = vec::broadcast(memory_.taint[r]);
    const std::int64_t row = std::int64_t{r} * shape::score_stride;
    for_each_register(r, used, [&](int c, reg keep) {
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
      const reg kept = weights.where_seen(score, vec::add(vec::mul(weight, keep), taint));
      if constexpr (k_pack == 1) {
        vec::store(panel_at(memory_.weight_panels, r, c), kept);
      } else {
        vec::store(memory_.weights + local * shape::score_stride + c, kept);
      }
      if (capped) {
        vec::store(memory_.d_scores + row + c, d_score);
        d_score = weights.where_seen(score, vec::mul(d_score, vec::load(slopes + c)));
      }
      vec::store(memory_.d_before + row + c, d_score);
      if constexpr (k_pack == 1) vec::store(panel_at(memory_.d_before_panels, r, c), d_score);
    });
  }

  static TESSERA_INLINE float* panel_at(float* data, int r, int c) {
    return shape::query_panels(data).at(r, c);
  }

  void clear_outside(int r, int local, const key_columns& used, const seen_columns& seen) const {
    const auto clear = [&](const auto& at) {
      for (int c = seen.low; c < used.low; c += vec::width) vec::store(at(c), vec::zero());
      for (int c = used.high; c < seen.high; c += vec::width) vec::store(at(c), vec::zero());
    };
    const auto clear_row = [&](float* data, int row) {
      clear([=](int c) { return data + std::int64_t{row} * shape::score_stride + c; });
    };
    clear_row(memory_.d_before, r);
    if (shape::mods::has_cap(args_.forward)) clear_row(memory_.d_scores, r);
    if constexpr (shape::hooks::has_logits) clear_row(memory_.d_logits, r);
    if constexpr (k_pack == 1) {
      clear([&](int c) { return panel_at(memory_.weight_panels, r, c); });
      clear([&](int c) { return panel_at(memory_.d_before_panels, r, c); });
    } else {
      clear_row(memory_.weights, local);
    }
  }

  const attention_backward_kernel_args& args_;
  const query_rows& rows_;
  const scratch<Row>& memory_;
};

}  // namespace tessera::kernels::attention_backward::cpu
