// A block of query rows against tiles of keys: scores, the running softmax, weighted values.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691, on register tiles.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Keys as columns and values as rows of the products of a tile.
template <class Kernel>
struct key_tile {
  key_range keys{};
  typename traits<Kernel>::panels k{};  ///< [width of a key, block_keys]
  typename traits<Kernel>::panels v{};  ///< [block_keys, value columns]
  /// Not 0: the key's values are zeros here, for some of them are not finite. Null: all are.
  const float* nonfinite = nullptr;
};

/// Scratch memory of a block of rows.
template <class Kernel>
struct attend_scratch {
  using shape = traits<Kernel>;

  attend_scratch(const latent_attention_kernel_args& args, prim::float_carver& carver) {
    const std::int64_t width = args.nope + args.rope;
    query = carver.take(shape::columns_of(width) + shape::width);
    q = carver.take(slabs<Kernel>::floats(shape::block_rows, width));
    scores = carver.take(std::int64_t{shape::block_rows} * shape::score_stride);
    out = carver.take(shape::block_rows * shape::columns_of(args.value));
  }

  float* query;  ///< of one row
  float* q;      ///< slabs
  float* scores;
  float* out;  ///< what is summed
};

template <class Kernel>
class attend_block {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using reg = typename shape::reg;

 public:
  attend_block(const latent_attention_kernel_args& args, const query_rows<Kernel>& rows,
               const attend_scratch<Kernel>& scratch)
      : args_(args),
        rows_(rows),
        mod_(args, rows),
        scratch_(scratch),
        q_(scratch.q, shape::block_rows, args.nope + args.rope),
        out_stride_(shape::columns_of(args.value)) {
    for (int r = 0; r < rows.count(); ++r) {
      rows.load_query(r, scratch.query);
      q_.load(r, scratch.query);
    }
    for (std::int64_t at = 0; at < rows.count() * out_stride_; at += vec::width) {
      vec::store(scratch.out + at, vec::zero());
    }
  }
  attend_block(const attend_block&) = delete;
  attend_block& operator=(const attend_block&) = delete;

  /// The keys of a tile, which some row sees.
  void add(const key_tile<Kernel>& tile) {
    q_.template multiply<prim::product_kind::overwrite>(rows_.count(), tile.k,
                                                        shape::columns_of(tile.keys.count),
                                                        scratch_.scores, shape::score_stride);
    for (int r = 0; r < rows_.count(); ++r) {
      mod_.apply(r, tile.keys, scores_of(r));
      rescale(out_of(r), softmax(state_[r], tile.keys.count, scores_of(r)));
    }
    prim::product<prim::product_kind::add, typename shape::words, shape::mr, shape::score_stride>(
        scratch_.scores, rows_.count(), tile.v, {0, tile.keys.count},
        {0, static_cast<int>(out_stride_)}, scratch_.out, out_stride_);
    if (tile.nonfinite != nullptr) add_nonfinite(tile);
  }

  /// Writes the finished rows.
  void store() const {
    for (int r = 0; r < rows_.count(); ++r) {
      const std::int64_t head = rows_.row(r).head;
      const prim::softmax_result result =
          prim::finish_row(state_[r], args_.sinks + head * args_.sink_head_stride,
                           static_cast<int>(args_.sink_count), args_.sink_stride, true);
      rescale(out_of(r), result.scale * args_.out_factor);
      prim::store_row<isa_type>(args_.out, rows_.at(args_.out, r), args_.value, out_of(r));
      if (args_.lse.data != nullptr) *rows_.at(args_.lse, r) = result.lse;
    }
  }

 private:
  float* scores_of(int r) const { return scratch_.scores + r * shape::score_stride; }
  float* out_of(int r) const { return scratch_.out + r * out_stride_; }

  /// Logits of a row become weights relative to its maximum so far. Returns what sums up to now
  /// count relative to it.
  static float softmax(prim::softmax_state& state, int count, float* scores) {
    reg most = vec::broadcast(prim::minus_infinity);
    for (int c = 0; c < count; c += vec::width) most = vec::max(most, vec::load(scores + c));
    const float before = state.maximum, of_tile = vec::maximum(most);
    const float maximum = of_tile > before ? of_tile : before;
    const reg shift = vec::broadcast(prim::finite_maximum(maximum));
    reg sum = vec::zero();
    for (int c = 0; c < count; c += vec::width) {
      const reg weight = prim::exp_of<isa_type>(vec::sub(vec::load(scores + c), shift));
      sum = vec::add(sum, weight);
      vec::store(scores + c, weight);
    }
    const float factor =
        before == maximum ? 1.0f : prim::exp_of<isa_type>(before - prim::finite_maximum(maximum));
    state.maximum = maximum;
    state.denominator = state.denominator * factor + vec::sum(sum);
    return factor;
  }

  void rescale(float* row, float factor) const {
    if (factor == 1.0f) return;
    const reg by = vec::broadcast(factor);
    for (std::int64_t d = 0; d < out_stride_; d += vec::width) {
      vec::store(row + d, vec::mul(vec::load(row + d), by));
    }
  }

  /// Rows that see a key with values that are not finite are no numbers.
  void add_nonfinite(const key_tile<Kernel>& tile) const {
    for (int key = 0; key < tile.keys.count; ++key) {
      if (tile.nonfinite[key] == 0.0f) continue;
      for (int r = 0; r < rows_.count(); ++r) {
        if (scores_of(r)[key] == 0.0f) continue;
        rescale(out_of(r), std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  const latent_attention_kernel_args& args_;
  const query_rows<Kernel>& rows_;
  score_mod<Kernel> mod_;
  const attend_scratch<Kernel>& scratch_;
  slabs<Kernel> q_;
  std::int64_t out_stride_;
  prim::softmax_state state_[shape::block_rows];
};

}  // namespace tessera::kernels::latent_attention::cpu
