// Blocks of a row of logits: as floats in a first-level cache, and sums over them. Sums run in four
// registers of partial sums, which keeps their error that of a few dozen additions.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include <tessera/families/losses/schedule_cpu.hpp>
#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

using losses_schedule::block_classes;
using prim::finite_maximum;
using prim::minus_infinity;
inline constexpr float ln_2 = 0.693147180559945309417f;

/// A block of logits, or of what belongs to them.
struct alignas(64) float_block {
  float at[block_classes];
};

/// Lanes 0 to count - 1 of `x`, the others of `rest`.
template <class Isa>
TESSERA_INLINE typename prim::simd<Isa>::reg first_lanes(typename prim::simd<Isa>::reg x, int count,
                                                         typename prim::simd<Isa>::reg rest) {
  using vec = prim::simd<Isa>;
  static constexpr float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return vec::select_below(vec::load(numbers), vec::broadcast(static_cast<float>(count)), x, rest);
}

/// The largest of `count` floats; NaN does not count.
template <class Isa>
TESSERA_INLINE float maximum_of(const float* x, int count) {
  using vec = prim::simd<Isa>;
  const auto none = vec::broadcast(minus_infinity);
  auto most = none;
  int at = 0;
  // A comparison with NaN keeps the second operand.
  for (; at + vec::width <= count; at += vec::width) most = vec::max(vec::load(x + at), most);
  if (at < count) {
    const int left = count - at;
    most = vec::max(first_lanes<Isa>(vec::load_n(x + at, left), left, none), most);
  }
  return vec::maximum(most);
}

/// The sum of term(at), a register of terms of elements at, at + 1, ..., over `count` elements.
/// Terms of elements behind the last one are asked for, up to a whole register, and dropped.
template <class Isa, class Term>
TESSERA_INLINE double sum_of(int count, const Term& term) {
  using vec = prim::simd<Isa>;
  constexpr int width = vec::width;
  typename vec::reg sums[4] = {vec::zero(), vec::zero(), vec::zero(), vec::zero()};
  int at = 0;
  for (; at + 4 * width <= count; at += 4 * width) {
    for (int i = 0; i < 4; ++i) sums[i] = vec::add(sums[i], term(at + i * width));
  }
  for (; at < count; at += width) {
    const auto terms = term(at);
    sums[0] = vec::add(
        sums[0], at + width <= count ? terms : first_lanes<Isa>(terms, count - at, vec::zero()));
  }
  return static_cast<double>(
      vec::sum(vec::add(vec::add(sums[0], sums[1]), vec::add(sums[2], sums[3]))));
}

/// The sum of exp((x - shift) factor / log2(e)) over a block; exp(-inf) is 0.
template <class Isa>
TESSERA_INLINE double sum_of_powers(const float* x, int count, float shift, float factor) {
  using vec = prim::simd<Isa>;
  const auto from = vec::broadcast(shift), by = vec::broadcast(factor);
  return sum_of<Isa>(
      count, [&](int at) { return vec::exp2(vec::mul(vec::sub(vec::load(x + at), from), by)); });
}

/// The logarithm of the sum of a row's powers: at least 0, as that of the largest logit is 1, which
/// exp2 may round down. -inf where all logits are.
inline double log_of_powers(double sum) {
  return sum > 0 && sum < 1 ? 0 : std::log(sum);
}

/// Calls body(first, count) for every block of at most `Most` of the classes, which are cut into
/// `parts` of equal size first.
template <class Isa, std::int64_t Most = block_classes, class Body>
TESSERA_INLINE void for_each_block(std::int64_t classes, std::int64_t parts, const Body& body) {
  const std::int64_t size = classes / parts;
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t done = 0; done < size; done += Most) {
      const std::int64_t left = size - done;
      body(part * size + done, static_cast<int>(left < Most ? left : Most));
    }
  }
}

}  // namespace tessera::kernels::losses::cpu
