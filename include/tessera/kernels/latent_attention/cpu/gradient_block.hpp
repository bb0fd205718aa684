// A block of query rows against tiles of keys, backwards: the weights again from lse, gradients of
// scores, and what they add to the gradients of queries, keys and values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/kernels/latent_attention/cpu/attend.hpp>
#include <tessera/kernels/latent_attention/cpu/expand.hpp>
#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Keys and values of a tile as operands of the products backwards.
template <class Kernel>
struct gradient_tile {
  using panels = typename traits<Kernel>::panels;
  key_range keys{};
  panels k_columns{};  ///< [width of a key, block_keys]
  panels v_columns{};  ///< [value columns, block_keys]
  panels k_rows{};     ///< [block_keys, width of a key]; zeros instead of rows that are not finite
};

/// Scratch memory of a block of rows.
template <class Kernel>
struct gradient_scratch {
  using shape = traits<Kernel>;

  gradient_scratch(const latent_attention_kernel_args& args, prim::float_carver& carver) {
    constexpr int rows = shape::block_rows;
    const std::int64_t width = args.nope + args.rope;
    const std::int64_t of_key = shape::columns_of(width), of_value = shape::columns_of(args.value);
    row = carver.take(std::max(of_key, of_value) + shape::width);
    value = carver.take(of_value);
    q = carver.take(slabs<Kernel>::floats(rows, width));
    d_out = carver.take(slabs<Kernel>::floats(rows, args.value));
    q_rows = carver.take(rows * of_key);
    d_out_rows = carver.take(rows * of_value);
    for (float** each : {&shift, &correction, &taint}) *each = carver.take(rows);
    for (float** each : {&weights, &d_before, &d_scores}) {
      *each = carver.take(std::int64_t{rows} * shape::score_stride);
    }
    slopes = carver.take(shape::score_stride);
    transposed = carver.take(std::int64_t{shape::block_keys} * shape::query_stride);
    d_q = carver.take(rows * of_key);
  }

  float *row, *value;          ///< of one query or value, of one value
  float *q, *d_out;            ///< slabs
  float *q_rows, *d_out_rows;  ///< rows of B
  float* shift;                ///< exp(s - shift) is the weight of a logit
  float* correction;           ///< what is subtracted from the gradient of a weight
  float* taint;                ///< 0, or NaN where d_out has elements that are not finite
  float* weights;              ///< scores at first
  float* d_before;             ///< gradients of products; of weights at first
  float* d_scores;             ///< of logits
  float* slopes;               ///< of the cap, of one row
  float* transposed;           ///< [block_keys, query_stride]
  float* d_q;
};

template <class Kernel>
class gradient_block {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  using panels = typename shape::panels;
  static constexpr auto add = prim::product_kind::add;

 public:
  /// `correction`: of the rows of the block.
  gradient_block(const latent_attention_kernel_args& args, const query_rows<Kernel>& rows,
                 const float* correction, const gradient_scratch<Kernel>& scratch)
      : args_(args),
        rows_(rows),
        mod_(args, rows),
        scratch_(scratch),
        q_(scratch.q, shape::block_rows, args.nope + args.rope),
        d_out_(scratch.d_out, shape::block_rows, args.value),
        q_rows_{scratch.q_rows, shape::block_rows,
                static_cast<int>(shape::columns_of(args.nope + args.rope))},
        d_out_rows_{scratch.d_out_rows, shape::block_rows,
                    static_cast<int>(shape::columns_of(args.value))} {
    for (int r = 0; r < rows.count(); ++r) load(r, correction[r]);
    std::fill_n(scratch.d_q, rows.count() * q_rows_.columns, 0.0f);
  }
  gradient_block(const gradient_block&) = delete;
  gradient_block& operator=(const gradient_block&) = delete;

  /// Weights and gradients of scores of a tile that some row sees.
  void compute(const gradient_tile<Kernel>& tile) const {
    constexpr auto overwrite = prim::product_kind::overwrite;
    const std::int64_t columns = shape::columns_of(tile.keys.count);
    q_.template multiply<overwrite>(rows_.count(), tile.k_columns, columns, scratch_.weights,
                                    shape::score_stride);
    d_out_.template multiply<overwrite>(rows_.count(), tile.v_columns, columns, scratch_.d_before,
                                        shape::score_stride);
    for (int r = 0; r < rows_.count(); ++r) compute_row(r, tile.keys);
  }

  /// d_q += d_s K.
  void add_to_queries(const gradient_tile<Kernel>& tile) const {
    prim::product<add, words, shape::mr, shape::score_stride>(
        scratch_.d_before, rows_.count(), tile.k_rows, {0, tile.keys.count}, {0, q_rows_.columns},
        scratch_.d_q, q_rows_.columns);
  }
  /// d_k += d_s^T Q, d_v += P^T d_out, from the tile's first key on.
  void add_to_keys(const gradient_tile<Kernel>& tile, float* d_k, float* d_v) const {
    add_transposed(scratch_.d_before, tile.keys.count, q_rows_, d_k);
    add_transposed(scratch_.weights, tile.keys.count, d_out_rows_, d_v);
  }

  const float* d_q(int r) const { return scratch_.d_q + std::int64_t{r} * q_rows_.columns; }
  const float* d_scores(int r) const { return scratch_.d_scores + r * shape::score_stride; }

 private:
  /// A row that sees nothing has no gradients, whatever its tensors hold.
  void load(int r, float correction) const {
    const float lse = *rows_.at(args_.lse, r);
    const bool skipped = lse == prim::minus_infinity;
    scratch_.shift[r] = skipped ? std::numeric_limits<float>::infinity() : lse;
    scratch_.correction[r] = correction;
    rows_.load_query(r, scratch_.row);
    std::fill(scratch_.row + args_.nope + args_.rope, scratch_.row + q_rows_.columns, 0.0f);
    prim::load_row<isa_type>(args_.d_out, rows_.at(args_.d_out, r), args_.value, scratch_.value);
    if (skipped) {
      std::fill_n(scratch_.row, q_rows_.columns, 0.0f);
      std::fill_n(scratch_.value, d_out_rows_.columns, 0.0f);
    }
    q_.load(r, scratch_.row);
    d_out_.load(r, scratch_.value);
    // What is not finite reaches the keys that the row sees through its scores, and no others.
    static_cast<void>(pack_finite_row<Kernel>(scratch_.row, r, q_rows_));
    const bool finite = pack_finite_row<Kernel>(scratch_.value, r, d_out_rows_);
    scratch_.taint[r] = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  }

  /// Products of queries and keys become weights, those of d_out and values gradients of products.
  void compute_row(int r, const key_range& keys) const {
    float* const weights = scratch_.weights + r * shape::score_stride;
    float* const d_before = scratch_.d_before + r * shape::score_stride;
    float* const d_scores = scratch_.d_scores + r * shape::score_stride;
    const bool capped = args_.soft_cap > 0;
    if (capped) compute_slopes(keys, weights);
    mod_.apply(r, keys, weights);
    const bool skipped = scratch_.shift[r] == std::numeric_limits<float>::infinity();
    const reg hidden = vec::broadcast(skipped ? std::numeric_limits<float>::infinity()
                                              : std::numeric_limits<float>::lowest());
    const reg shift = vec::broadcast(scratch_.shift[r]);
    const reg correction = vec::broadcast(scratch_.correction[r]);
    const reg taint = vec::broadcast(scratch_.taint[r]);
    const reg scale = vec::broadcast(args_.softmax_scale);
    float kept[shape::block_keys];  // what weights are multiplied by behind their sum
    std::fill_n(kept, shape::block_keys, 1.0f);
    if (args_.dropout) {
      mod_.for_each_kept(r, keys, [&](int c, reg keeps) {
        vec::store(kept + c, vec::mul(keeps, vec::broadcast(args_.out_factor)));
      });
    }
    for (int c = 0; c < keys.count; c += vec::width) {
      const reg score = vec::load(weights + c);
      const auto where_seen = [&](reg x) {
        return vec::select_below(score, hidden, vec::zero(), x);
      };
      const reg weight = where_seen(prim::exp_of<isa_type>(vec::sub(score, shift)));
      const reg keeps = vec::load(kept + c);
      const reg d_weight = vec::mul(vec::load(d_before + c), keeps);
      const reg d_score = where_seen(vec::mul(weight, vec::sub(d_weight, correction)));
      const reg slope = capped ? vec::load(scratch_.slopes + c) : vec::broadcast(1.0f);
      vec::store(weights + c, where_seen(vec::add(vec::mul(weight, keeps), taint)));
      vec::store(d_scores + c, d_score);
      vec::store(d_before + c, where_seen(vec::mul(vec::mul(d_score, slope), scale)));
    }
  }

  /// The derivative of the cap at x = cap u is 1 - tanh(u)^2: 4 e / (1 + e)^2 with e = exp(-2 |u|),
  /// which keeps its digits where tanh is nearly 1.
  void compute_slopes(const key_range& keys, const float* products) const {
    const reg factor = vec::broadcast(args_.softmax_scale / args_.soft_cap);
    const reg one = vec::broadcast(1.0f);
    for (int c = 0; c < keys.count; c += vec::width) {
      const reg u = vec::mul(vec::load(products + c), factor);
      const reg magnitude = vec::select_below(u, vec::zero(), vec::sub(vec::zero(), u), u);
      const reg e = vec::exp2(vec::mul(magnitude, vec::broadcast(-2.0f * prim::log2_e)));
      const reg sum = vec::add(one, e);
      vec::store(scratch_.slopes + c,
                 vec::div(vec::mul(vec::broadcast(4.0f), e), vec::mul(sum, sum)));
    }
  }

  /// C += A^T B for the block's rows of A, one for each row of B.
  void add_transposed(const float* a, int keys, const panels& b, float* c) const {
    constexpr int width = vec::width;
    for (int r0 = 0; r0 < rows_.count(); r0 += width) {
      for (int c0 = 0; c0 < keys; c0 += width) {
        reg tile[width];
        for (int i = 0; i < width; ++i) {
          tile[i] = r0 + i < rows_.count() ? vec::load(a + (r0 + i) * shape::score_stride + c0)
                                           : vec::zero();
        }
        vec::transpose(tile);
        for (int i = 0; i < width; ++i) {
          vec::store(scratch_.transposed + (c0 + i) * shape::query_stride + r0, tile[i]);
        }
      }
    }
    prim::product<add, words, shape::mr, shape::query_stride>(
        scratch_.transposed, keys, b, {0, rows_.count()}, {0, b.columns}, c, b.columns);
  }

  const latent_attention_kernel_args& args_;
  const query_rows<Kernel>& rows_;
  score_mod<Kernel> mod_;
  const gradient_scratch<Kernel>& scratch_;
  slabs<Kernel> q_, d_out_;
  panels q_rows_, d_out_rows_;
};

}  // namespace tessera::kernels::latent_attention::cpu
