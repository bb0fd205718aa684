// Gradients of a block of query rows and a tile of keys:
//
//   P = exp(s - lse),   d_s = P (<d_out, v> - D),   D = <d_out, out> - d_lse
//   d_q += d_s K,   d_k += d_s^T Q,   d_v += P^T d_out
//
// d_q and d_k lack the factor of the scores. Elements that are not finite are zeros in operands
// that meet weights of 0; they reach the pairs that see each other through the scores.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include <tessera/kernels/sparse_attention/cpu/score_block.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::sparse_attention::cpu {

template <class Isa>
struct gradient_block : score_block<Isa> {
  using base = score_block<Isa>;
  using base::columns, base::k, base::keys, base::q, base::q_stride, base::rows, base::scores,
      base::v, base::v_stride;
  using typename base::vec;
  static constexpr std::int64_t score_stride = base::score_stride;

  float *d_out, *v_columns, *d_scores;
  float* d_q;        ///< [rows, q_stride]
  float *d_k, *d_v;  ///< [keys, q_stride], [keys, v_stride]
  float lse[block_rows], correction[block_rows];
  prim::line_queue lines;  ///< asked for between the register tiles of products

  gradient_block(std::int64_t of_qk, std::int64_t of_v, prim::float_carver& memory)
      : base(of_qk, of_v, memory),
        d_out(memory.take(block_rows * v_stride)),
        v_columns(memory.take(v_stride * block_keys)),
        d_scores(memory.take(block_rows * score_stride)),
        d_q(memory.take(block_rows * q_stride)),
        d_k(memory.take(block_keys * q_stride)),
        d_v(memory.take(block_keys * v_stride)) {}

  template <class Tensor, class OffsetOf>
  void load_gradients(const Tensor& tensor, const OffsetOf& offset_of) {
    load_rows<Isa>(tensor, rows, rows, base::v_head_dim, offset_of, d_out, v_stride);
  }
  /// A row that sees nothing: its operands may hold anything, and its weights are 0.
  void leave_out(int r) {
    std::fill(q + r * q_stride, q + (r + 1) * q_stride, 0.0f);
    std::fill(d_out + r * v_stride, d_out + (r + 1) * v_stride, 0.0f);
    lse[r] = std::numeric_limits<float>::infinity();
    correction[r] = 0.0f;
  }
  /// Values of `v` as columns. Keys that are not finite leave the operand of d_q.
  void arrange_values() {
    prim::transpose_rows<Isa>({v, v_stride}, columns(), static_cast<int>(v_stride),
                              {v_columns, block_keys});
    for (int key = 0; key < keys; ++key) clear_nonfinite<Isa>(k + key * q_stride, q_stride);
  }

  /// Scores, asking for lines.
  void compute_scores(const score_units& units) { base::compute_scores(units, asking()); }
  /// <d_out, v> of every pair in place of the gradients of scores.
  void compute_products() {
    prim::strided_product<Isa, prim::strided_product_kind::overwrite>(
        {d_out, v_stride}, rows, static_cast<int>(base::v_head_dim), {v_columns, block_keys},
        columns(), {d_scores, score_stride}, asking());
  }
  /// Weights in place of the scores, and gradients of scores.
  void compute_gradients() {
    compute_products();
    for (int r = 0; r < rows; ++r) differentiate(r);
  }

  /// To d_q, or what it is.
  template <prim::strided_product_kind Kind = prim::strided_product_kind::add>
  void add_to_queries() {
    prim::strided_product<Isa, Kind>({d_scores, score_stride}, rows, keys, {k, q_stride},
                                     static_cast<int>(q_stride), {d_q, q_stride}, asking());
  }
  /// Behind this the rows of the block have lost what was not finite in them.
  void add_to_keys() {
    for (int r = 0; r < rows; ++r) clear_nonfinite<Isa>(q + r * q_stride, q_stride);
    for (int r = 0; r < rows; ++r) clear_nonfinite<Isa>(d_out + r * v_stride, v_stride);
    prim::strided_product<Isa, prim::strided_product_kind::add>(
        {d_scores, 1, score_stride}, keys, rows, {q, q_stride}, static_cast<int>(q_stride),
        {d_k, q_stride}, asking());
    prim::strided_product<Isa, prim::strided_product_kind::add>(
        {scores, 1, score_stride}, keys, rows, {d_out, v_stride}, static_cast<int>(v_stride),
        {d_v, v_stride}, asking());
  }

  /// Spreads `lines` over the products of scores, and with `all` over those of gradients too.
  void spread_lines(bool all) {
    const auto tiles = [](int of_rows, std::int64_t of_columns) {
      return prim::strided::tiles_of<Isa>(of_rows, static_cast<int>(of_columns));
    };
    const int of_scores = 2 * tiles(rows, columns());
    const int of_gradients = tiles(rows, q_stride) + tiles(keys, q_stride) + tiles(keys, v_stride);
    lines.spread(of_scores + (all ? of_gradients : 0));
  }

 private:
  auto asking() {
    return [this] { lines.step(); };
  }

  void differentiate(int r) const {
    float* const weights = scores + r * score_stride;
    float* const gradients = d_scores + r * score_stride;
    const auto shift = vec::broadcast(lse[r]), minus = vec::broadcast(correction[r]);
    const auto hidden = vec::broadcast(std::numeric_limits<float>::lowest());
    for (int c = 0; c < columns(); c += vec::width) {
      const auto score = vec::load(weights + c);
      const auto weight = prim::exp_of<Isa>(vec::sub(score, shift));
      auto d_score = vec::mul(weight, vec::sub(vec::load(gradients + c), minus));
      d_score = vec::select_below(score, hidden, vec::zero(), d_score);
      // NaN of the gradient reaches d_v too, which d_out alone would not make it do.
      const auto tainted = vec::fma(d_score, vec::zero(), weight);
      vec::store(weights + c, vec::select_below(score, hidden, vec::zero(), tainted));
      vec::store(gradients + c, d_score);
    }
  }
};

}  // namespace tessera::kernels::sparse_attention::cpu
