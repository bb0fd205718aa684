// What the rows of a block sum up over tiles of keys: from scores to weights by the running
// softmax, weighted values, and finished rows.
#pragma once

#include <cstdint>
#include <limits>

#include <tessera/kernels/latent_attention/cpu/column_softmax.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// What the rows of a block have summed up: weighted values, and the running softmax of each.
struct summed_rows {
  float* out = nullptr;  ///< rows of `stride` floats
  prim::softmax_state* state = nullptr;
  std::int64_t stride = 0;
  int count = 0;

  float* row(int r) const { return out + r * stride; }
};

template <class Kernel>
void scale_row(const summed_rows& sums, int r, float factor) {
  using vec = typename traits<Kernel>::vec;
  if (factor == 1.0f) return;
  const auto by = vec::broadcast(factor);
  for (std::int64_t d = 0; d < sums.stride; d += vec::width) {
    vec::store(sums.row(r) + d, vec::mul(vec::load(sums.row(r) + d), by));
  }
}

/// Adds the sums over the keys behind those of `sums`.
template <class Kernel>
void add_sums(const summed_rows& sums, const summed_rows& behind) {
  using vec = typename traits<Kernel>::vec;
  using isa_type = typename traits<Kernel>::isa_type;
  for (int r = 0; r < sums.count; ++r) {
    prim::softmax_state &state = sums.state[r], other = behind.state[r];
    const float maximum = other.maximum > state.maximum ? other.maximum : state.maximum;
    const auto factor_of = [&](float before) {
      return before == maximum ? 1.0f
                               : prim::exp_of<isa_type>(before - prim::finite_maximum(maximum));
    };
    const float factor = factor_of(state.maximum), of_other = factor_of(other.maximum);
    state = {maximum, state.denominator * factor + other.denominator * of_other};
    const auto by = vec::broadcast(factor), by_other = vec::broadcast(of_other);
    for (std::int64_t d = 0; d < sums.stride; d += vec::width) {
      const auto scaled = vec::mul(vec::load(behind.row(r) + d), by_other);
      vec::store(sums.row(r) + d, vec::fma(vec::load(sums.row(r) + d), by, scaled));
    }
  }
}

/// Writes finished rows.
template <class Kernel>
void store_sums(const latent_attention_kernel_args& args, const query_rows<Kernel>& rows,
                const summed_rows& sums) {
  for (int r = 0; r < rows.count(); ++r) {
    const std::int64_t head = rows.row(r).head;
    const prim::softmax_result result =
        prim::finish_row(sums.state[r], args.sinks + head * args.sink_head_stride,
                         static_cast<int>(args.sink_count), args.sink_stride, true);
    scale_row<Kernel>(sums, r, result.scale * args.out_factor);
    prim::store_row<typename traits<Kernel>::isa_type>(args.out, rows.at(args.out, r), args.value,
                                                       sums.row(r));
    if (args.lse.data != nullptr) *rows.at(args.lse, r) = result.lse;
  }
}

template <class Kernel>
class row_sums {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using reg = typename shape::reg;

 public:
  /// Memory for [block_rows, score_stride] scores and [block_rows, stride()] weighted values.
  row_sums(const latent_attention_kernel_args& args, const query_rows<Kernel>& rows, float* scores,
           float* out)
      : drops_(args.dropout),
        rows_(rows),
        mod_(args, rows),
        scores_(scores),
        out_(out),
        stride_(shape::sum_stride(args.value)) {
    for (std::int64_t at = 0; at < rows.count() * stride_; at += vec::width) {
      vec::store(out + at, vec::zero());
    }
  }

  float* scores(int r) const { return scores_ + r * shape::score_stride; }
  float* out(int r) const { return out_ + r * stride_; }
  /// Of rows of `out`, whole registers.
  std::int64_t stride() const { return stride_; }

  /// Products of row `r` with the keys become weights relative to its maximum so far. Returns what
  /// sums up to then count relative to it.
  float weigh(int r, const key_range& keys) {
    mod_.apply(r, keys, scores(r));
    const float factor = softmax(state_[r], keys.count, scores(r));
    if (drops_) {
      mod_.for_each_kept(r, keys, [&](int c, reg kept) {
        vec::store(scores(r) + c, vec::mul(vec::load(scores(r) + c), kept));
      });
    }
    return factor;
  }

  /// The same where products lie key by row, up to a register of rows: calls weights(row, key,
  /// weights of a register of keys) and rescales the sums. Gives the rows whose states and sums
  /// stay, whose weights are to be set again, a bit each: all where scores of whole registers of
  /// keys are not all there is to it.
  template <class Weights>
  std::uint32_t weigh_columns(const key_range& keys, const word_rows& products,
                              const Weights& weights) {
    using columns = column_softmax<Kernel>;
    if (keys.count % columns::width != 0 || !mod_.is_plain(keys)) return all_rows;
    float factors[columns::width];
    const std::uint32_t left = columns::update(state_, rows_.count(), products, keys.count,
                                               mod_.scale(), weights, factors);
    for (int r = 0; r < rows_.count(); ++r) rescale(r, factors[r]);
    return left;
  }
  static constexpr std::uint32_t all_rows = ~std::uint32_t{0};

  void rescale(int r, float factor) { scale_row<Kernel>(summed(), r, factor); }

  /// Rows that see a key with values that are not finite, whose nonfinite[key] is not 0, are no
  /// numbers.
  void add_nonfinite(int keys, const float* nonfinite) {
    for (int key = 0; key < keys; ++key) {
      if (nonfinite[key] == 0.0f) continue;
      for (int r = 0; r < rows_.count(); ++r) {
        if (scores(r)[key] == 0.0f) continue;
        rescale(r, std::numeric_limits<float>::quiet_NaN());
      }
    }
  }

  summed_rows summed() { return {out_, state_, stride_, rows_.count()}; }

 private:
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

  const bool drops_;  ///< weights, behind their sum
  const query_rows<Kernel>& rows_;
  score_mod<Kernel> mod_;
  float *scores_, *out_;
  std::int64_t stride_;
  prim::softmax_state state_[shape::block_rows];
};

}  // namespace tessera::kernels::latent_attention::cpu
