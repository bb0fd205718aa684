// Rows of tokens as floats, and log decays as the factors they stand for.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/cpu/decay_factor.hpp>
#include <tessera/prim/cpu/activations.hpp>
#include <tessera/prim/cpu/ask_for.hpp>

namespace tessera::kernels::chunked_scan::cpu {

using recurrence::decay_factor;
using recurrence::sequence;
using recurrence::sequence_of;

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
  return recurrence::row_of(rows, one.entry, one.token(step), head);
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

/// Asks for part of a row ahead of its use.
TESSERA_INLINE void ask_for(const chunked_scan_rows& rows, std::int64_t place, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(size_of(rows.type));
  prim::ask_for(static_cast<const std::byte*>(rows.data) + place * size, count * size);
}

/// One number of a tensor of numbers per token and head.
template <class Kernel>
float load_number(const chunked_scan_rows& rows, std::int64_t place) {
  using element = typename traits<Kernel>::element;
  if (rows.type == dtype::f32) return static_cast<const float*>(rows.data)[place];
  return static_cast<float>(static_cast<const element*>(rows.data)[place]);
}

/// Each register of a row becomes `function` of it.
template <class Kernel, class Function>
TESSERA_INLINE void transform(std::int64_t count, float* row, const Function& function) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  for (std::int64_t column = 0; column < count; column += shape::width) {
    vec::store(row + column, function(vec::load(row + column)));
  }
}

/// -exp(x), the log decay that raw numbers stand for; finite, for a decay of -exp(80) is as good as
/// any that forgets.
template <class Isa>
TESSERA_INLINE typename prim::simd<Isa>::reg log_decay_of_raw(typename prim::simd<Isa>::reg x) {
  using vec = prim::simd<Isa>;
  const auto most = vec::broadcast(80.0f);
  return vec::sub(vec::zero(), prim::precise_exp_of<Isa>(vec::select_below(most, x, most, x)));
}

/// The log decay that all rows of a state have at a token: g + g_gamma.
template <class Kernel>
float log_decay_of_head(const chunked_scan_kernel_args& args, const sequence& one,
                        std::int64_t step, std::int64_t head) {
  float of_head = 0.0f;
  if (args.g_gamma != nullptr) {
    of_head += args.g_gamma[one.number * args.gamma_sequence + head * args.gamma_head];
  }
  if (args.g.data != nullptr) {
    of_head += load_number<Kernel>(args.g, place_of(args.g, one, step, head));
  }
  return of_head;
}

/// Those that each of them has by itself, gk, as logarithms, where the call has it.
template <class Kernel>
void load_log_key_decays(const chunked_scan_kernel_args& args, const sequence& one,
                         std::int64_t step, std::int64_t head, std::int64_t padded, float* to) {
  using isa_type = typename traits<Kernel>::isa_type;
  load_part<Kernel>(args.gk, place_of(args.gk, one, step, head), args.keys, 1.0f, padded, to);
  if (args.raw_decay) transform<Kernel>(padded, to, log_decay_of_raw<isa_type>);
}

/// The gradient of a raw decay from that of its logarithm, -exp(w), whose derivative is itself.
/// `row` is scratch.
template <class Kernel>
void through_raw_decay(const chunked_scan_kernel_args& args, const sequence& one, std::int64_t step,
                       std::int64_t head, std::int64_t padded, float* row, float* d_row) {
  using vec = typename traits<Kernel>::vec;
  load_log_key_decays<Kernel>(args, one, step, head, padded, row);
  for (std::int64_t key = 0; key < padded; key += traits<Kernel>::width) {
    vec::store(d_row + key, vec::mul(vec::load(d_row + key), vec::load(row + key)));
  }
}

/// The factors of the rows of a state at a token: exp(g + g_gamma + gk).
template <class Kernel>
void load_key_decays(const chunked_scan_kernel_args& args, const sequence& one, std::int64_t step,
                     std::int64_t head, std::int64_t padded, float* to) {
  using vec = typename traits<Kernel>::vec;
  using isa_type = typename traits<Kernel>::isa_type;
  using reg = typename traits<Kernel>::reg;
  const reg added = vec::broadcast(log_decay_of_head<Kernel>(args, one, step, head));
  if (args.gk.data == nullptr) {
    std::fill_n(to, padded, vec::first(decay_factor<isa_type>(added)));
    return;
  }
  load_log_key_decays<Kernel>(args, one, step, head, padded, to);
  transform<Kernel>(padded, to, [&](reg x) { return decay_factor<isa_type>(vec::add(x, added)); });
}

/// Those of its columns, from `value` on: exp(gv).
template <class Kernel>
void load_value_decays(const chunked_scan_kernel_args& args, const sequence& one, std::int64_t step,
                       std::int64_t head, std::int64_t value, std::int64_t values,
                       std::int64_t padded, float* to) {
  using isa_type = typename traits<Kernel>::isa_type;
  load_part<Kernel>(args.gv, place_of(args.gv, one, step, head) + value, values, 1.0f, padded, to);
  transform<Kernel>(padded, to, decay_factor<isa_type>);
}

/// The sum over keys of a u b.
template <class Kernel>
float bonus_of(const float* a, const float* u, const float* b, std::int64_t keys) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  auto sum = vec::zero();
  for (std::int64_t key = 0; key < keys; key += shape::width) {
    sum = vec::fma(vec::mul(vec::load(a + key), vec::load(u + key)), vec::load(b + key), sum);
  }
  return vec::sum(sum);
}

/// A row of floats times `factor`, cut to `count` columns, in the type of `rows`.
template <class Kernel>
void store_part(const chunked_scan_rows& rows, std::int64_t place, std::int64_t count,
                const float* from, float factor = 1.0f) {
  using shape = traits<Kernel>;
  using vec = typename shape::vec;
  const auto store = [&](auto* to) {
    for (std::int64_t column = 0; column < count; column += shape::width) {
      const auto values = vec::mul(vec::load(from + column), vec::broadcast(factor));
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

/// One number, in the type of `rows`.
template <class Kernel>
void store_number(const chunked_scan_rows& rows, std::int64_t place, float number) {
  using element = typename traits<Kernel>::element;
  if (rows.type == dtype::f32) {
    static_cast<float*>(rows.data)[place] = number;
  } else {
    static_cast<element*>(rows.data)[place] = static_cast<element>(number);
  }
}

/// Zeros in the rows of tokens that belong to no sequence.
template <class Kernel>
void clear_unused(const chunked_scan_kernel_args& args, const chunked_scan_rows& rows,
                  std::int64_t heads, std::int64_t columns) {
  if (args.cu_seqlens == nullptr || rows.data == nullptr) return;
  const auto size = static_cast<std::int64_t>(size_of(rows.type));
  const std::int64_t begin =
      sequence_of<typename traits<Kernel>::isa_type>(args, args.sequences).begin;
  for (std::int64_t token = begin; token < args.tokens; ++token) {
    for (std::int64_t head = 0; head < heads; ++head) {
      auto* const to =
          static_cast<std::byte*>(rows.data) + (token * rows.token + head * rows.head) * size;
      std::fill_n(to, columns * size, std::byte{});
    }
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
