// The running softmax of rows whose scores lie key by row, as products on tiles leave them: a row
// is a lane, so that maxima and sums need no turning, and only weights are turned. For up to a
// register of rows whose scores nothing else looks at.
#pragma once

#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/absorbed_tiles.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::kernels::latent_attention::cpu {

template <class Kernel>
class column_softmax {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using reg = typename shape::reg;

 public:
  static constexpr int width = shape::width;

  /// Calls weights(row, key, weights of `width` keys) for products with `keys` keys, whole
  /// registers of them, updates the states of `rows` rows, and writes what their sums up to then
  /// are to be multiplied by. Gives the rows whose weights have no finite sum, a bit each: their
  /// states stay as they are, and so do their sums.
  template <class Weights>
  static std::uint32_t update(prim::softmax_state* state, int rows, const word_rows& products,
                              int keys, float scale, const Weights& weights, float* factors) {
    const reg factor = vec::broadcast(scale);
    const auto logits_of = [&](int key) {
      return vec::mul(vec::load(products.at(key, 0)), factor);
    };
    float before[width], after[width], sums[width];
    for (int r = 0; r < width; ++r) before[r] = r < rows ? state[r].maximum : prim::minus_infinity;
    const reg maximum = vec::max(maximum_of(keys, logits_of), vec::load(before));
    vec::store(after, maximum);
    reg sum = vec::zero();
    for (int key = 0; key < keys; key += width) {
      reg block[width];
      TESSERA_UNROLL
      for (int i = 0; i < width; ++i) {
        block[i] = prim::exp_of<isa_type>(vec::sub(logits_of(key + i), maximum));
        sum = vec::add(sum, block[i]);
      }
      vec::transpose(block);
      TESSERA_UNROLL
      for (int r = 0; r < width; ++r) weights(r, key, block[r]);
    }
    vec::store(sums, sum);
    vec::store(factors, prim::exp_of<isa_type>(vec::sub(vec::load(before), maximum)));
    std::uint32_t left = 0;
    for (int r = 0; r < rows; ++r) {
      const bool is_finite = sums[r] * 0.0f == 0.0f;
      if (!is_finite) left |= std::uint32_t{1} << r;
      if (!is_finite || before[r] == after[r]) factors[r] = 1.0f;
      if (is_finite) state[r] = {after[r], state[r].denominator * factors[r] + sums[r]};
    }
    return left;
  }

 private:
  template <class LogitsOf>
  static reg maximum_of(int keys, const LogitsOf& logits_of) {
    constexpr int chains = 4;
    reg best[chains];
    TESSERA_UNROLL
    for (int i = 0; i < chains; ++i) best[i] = logits_of(i);
    for (int key = chains; key < keys; key += chains) {
      TESSERA_UNROLL
      for (int i = 0; i < chains; ++i) best[i] = vec::max(best[i], logits_of(key + i));
    }
    return vec::max(vec::max(best[0], best[1]), vec::max(best[2], best[3]));
  }
};

}  // namespace tessera::kernels::latent_attention::cpu
