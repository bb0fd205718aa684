// Arithmetic on rows of floats that end where a register ends.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// to += x.
template <class Kernel>
TESSERA_INLINE void add_row(float* to, const float* x, int count) {
  using vec = typename traits<Kernel>::vec;
  for (int at = 0; at < count; at += vec::width) {
    vec::store(to + at, vec::add(vec::load(to + at), vec::load(x + at)));
  }
}

/// to *= x.
template <class Kernel>
TESSERA_INLINE void multiply_row(float* to, const float* x, int count) {
  using vec = typename traits<Kernel>::vec;
  for (int at = 0; at < count; at += vec::width) {
    vec::store(to + at, vec::mul(vec::load(to + at), vec::load(x + at)));
  }
}

/// to += x y.
template <class Kernel>
TESSERA_INLINE void add_product(float* to, const float* x, const float* y, int count) {
  using vec = typename traits<Kernel>::vec;
  for (int at = 0; at < count; at += vec::width) {
    vec::store(to + at, vec::fma(vec::load(x + at), vec::load(y + at), vec::load(to + at)));
  }
}

/// `count` floats, which need not end where a register does, times a factor.
template <class Kernel>
TESSERA_INLINE void scale_part(float* to, float factor, int count) {
  using vec = typename traits<Kernel>::vec;
  const auto factors = vec::broadcast(factor);
  int at = 0;
  for (; at + vec::width <= count; at += vec::width) {
    vec::store(to + at, vec::mul(vec::load(to + at), factors));
  }
  if (at == count) return;
  const int rest = count - at;
  vec::store_n(to + at, vec::mul(vec::load_n(to + at, rest), factors), rest);
}

/// The sum of x y over as many floats.
template <class Kernel>
TESSERA_INLINE float dot_of_part(const float* x, const float* y, int count) {
  using vec = typename traits<Kernel>::vec;
  auto sum = vec::zero();
  int at = 0;
  for (; at + vec::width <= count; at += vec::width) {
    sum = vec::fma(vec::load(x + at), vec::load(y + at), sum);
  }
  if (at < count) {
    const int rest = count - at;
    sum = vec::fma(vec::load_n(x + at, rest), vec::load_n(y + at, rest), sum);
  }
  return vec::sum(sum);
}

/// Elements of a tensor become 0.
template <class Kernel, class Tensor>
void clear_row(const Tensor& tensor, std::int64_t offset, std::int64_t count) {
  prim::with_elements<typename traits<Kernel>::isa_type>(tensor, [&](auto* elements) {
    using element = std::remove_pointer_t<decltype(elements)>;
    std::fill_n(elements + offset, count, element(0.0f));
  });
}

}  // namespace tessera::kernels::grouped_matmul::cpu
