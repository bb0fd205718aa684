// Rows of tokens as floats, and log decays as the factors they stand for.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/sequence.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/prim/cpu/math.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// exp(x) for x <= 87, exactly 0 for -inf. A state that decays slowly multiplies the error of a
/// factor by the length of its memory: near 0 this is 1 + x p(x) (a Taylor polynomial whose next
/// term is below 2^-27), which rounds once and without bias. Further off 2^x will do.
template <class Isa>
TESSERA_INLINE typename prim::simd<Isa>::reg decay_factor(typename prim::simd<Isa>::reg x) {
  using vec = prim::simd<Isa>;
  const auto low = vec::broadcast(-0.35f), high = vec::broadcast(0.35f);
  constexpr float coefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f};
  const auto bounded = vec::max(low, x);  // -inf would give NaN
  auto p = vec::broadcast(1.0f / 5040);
  for (const float coefficient : coefficients) {
    p = vec::fma(bounded, p, vec::broadcast(coefficient));
  }
  const auto near = vec::fma(bounded, p, vec::broadcast(1.0f));
  const auto far = prim::exp_of<Isa>(x);
  return vec::select_below(x, low, far, vec::select_below(high, x, far, near));
}

/// Columns [first, first + count) of a row as floats, times `scale`; zeros up to `padded`, a
/// multiple of the register width.
template <class Kernel, class Element>
TESSERA_INLINE void load_row(const Element* from, std::int64_t count, float scale,
                             std::int64_t padded, float* to) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  const auto factor = vec::broadcast(scale);
  for (std::int64_t column = 0; column < padded; column += shape::width) {
    const auto left = static_cast<int>(std::clamp<std::int64_t>(count - column, 0, shape::width));
    const auto values = left == shape::width ? vec::load_as(from + column)
                        : left > 0           ? vec::load_as_n(from + column, left)
                                             : vec::zero();
    vec::store(to + column, vec::mul(values, factor));
  }
}

/// Where element 0 of (entry, token, head) lies, in elements.
inline std::int64_t place_of(const chunked_scan_rows& rows, const sequence& one, std::int64_t step,
                             std::int64_t head) noexcept {
  return one.entry * rows.entry + one.token(step) * rows.token + head * rows.head;
}

/// Part of a row of operands or decays, whichever of the two types it has.
template <class Kernel>
void load_part(const chunked_scan_rows& rows, std::int64_t place, std::int64_t count, float scale,
               std::int64_t padded, float* to) {
  using element = typename traits<Kernel>::element;
  if (rows.type == dtype::f32) {
    load_row<Kernel>(static_cast<const float*>(rows.data) + place, count, scale, padded, to);
  } else {
    load_row<Kernel>(static_cast<const element*>(rows.data) + place, count, scale, padded, to);
  }
}

/// One number of a tensor of numbers per token and head.
template <class Kernel>
float load_number(const chunked_scan_rows& rows, std::int64_t place) {
  if (rows.type == dtype::f32) return static_cast<const float*>(rows.data)[place];
  return static_cast<float>(static_cast<const typename traits<Kernel>::element*>(rows.data)[place]);
}

/// Replaces log decays, each after `added`, by factors.
template <class Kernel>
void raise(float added, std::int64_t count, float* row) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  const auto more = vec::broadcast(added);
  for (std::int64_t column = 0; column < count; column += shape::width) {
    vec::store(row + column,
               decay_factor<typename shape::isa_type>(vec::add(vec::load(row + column), more)));
  }
}

/// The factors of the rows of a state at a token: exp(g + g_gamma + gk).
template <class Kernel>
void load_key_decays(const chunked_scan_kernel_args& args, const sequence& one, std::int64_t step,
                     std::int64_t head, std::int64_t padded, float* to) {
  float of_head = 0.0f;
  if (args.g_gamma != nullptr) {
    of_head += args.g_gamma[one.index * args.gamma_sequence + head * args.gamma_head];
  }
  if (args.g.data != nullptr) {
    of_head += load_number<Kernel>(args.g, place_of(args.g, one, step, head));
  }
  if (args.gk.data == nullptr) {
    using isa_type = typename traits<Kernel>::isa_type;
    using vec = typename traits<Kernel>::vec;
    std::fill_n(to, padded, vec::first(decay_factor<isa_type>(vec::broadcast(of_head))));
    return;
  }
  load_part<Kernel>(args.gk, place_of(args.gk, one, step, head), args.keys, 1.0f, padded, to);
  raise<Kernel>(of_head, padded, to);
}

/// A row of floats, cut to `count` columns, in the type of `rows`.
template <class Kernel>
void store_part(const chunked_scan_rows& rows, std::int64_t place, std::int64_t count,
                const float* from) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  const auto store = [&](auto* to) {
    for (std::int64_t column = 0; column < count; column += shape::width) {
      const auto values = vec::load(from + column);
      if (count - column >= shape::width) {
        vec::store_as(to + column, values);
      } else {
        vec::store_as_n(to + column, values, static_cast<int>(count - column));
      }
    }
  };
  if (rows.type == dtype::f32) {
    store(static_cast<float*>(rows.data) + place);
  } else {
    store(static_cast<typename shape::element*>(rows.data) + place);
  }
}

/// Zeros in the rows of tokens that belong to no sequence.
template <class Kernel>
void clear_unused(const chunked_scan_kernel_args& args, const chunked_scan_rows& rows,
                  std::int64_t heads, std::int64_t columns) {
  if (args.cu_seqlens == nullptr || rows.data == nullptr) return;
  const auto size = static_cast<std::int64_t>(size_of(rows.type));
  for (std::int64_t token = tokens_in_use(args); token < args.tokens; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      auto* const to =
          static_cast<std::byte*>(rows.data) + (token * rows.token + head * rows.head) * size;
      std::fill_n(to, columns * size, std::byte{});
    }
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
