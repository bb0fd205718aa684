// A tensor of any type as floats, for kernels that take nothing else.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Extents of a tensor of rows.
struct row_extents {
  std::int64_t entries = 0, heads = 0, tokens = 0, width = 0;
};

/// The tensor itself, or memory of the launch with floats that it is read to and written from.
template <class Isa>
class float_rows {
  static constexpr std::int64_t step = 256;  ///< tokens of a work item

 public:
  /// Of type `kept`, which kernels take, the tensor stays where it is, unless memory of its own is
  /// wanted.
  float_rows(const sparse_rows& tensor, const row_extents& extents, dtype kept, bool apart,
             prim::float_carver& memory)
      : tensor_(tensor), floats_(tensor), extents_(extents) {
    if (tensor.type == kept && !apart) return;
    const std::int64_t stride = prim::padded<Isa>(extents.width);
    const std::int64_t of_head = extents.tokens * stride;
    count_ = extents.entries * extents.heads * of_head;
    floats_ = {.data = memory.take(count_),
               .type = dtype::f32,
               .entry = extents.heads * of_head,
               .head = of_head,
               .token = stride};
  }

  const sparse_rows& floats() const { return floats_; }

  void read(int threads) const {
    for_each_row(threads, [&](std::int64_t from, std::int64_t to) {
      prim::load_row<Isa>(tensor_, from, extents_.width, static_cast<float*>(floats_.data) + to);
    });
  }
  void write(int threads) const {
    for_each_row(threads, [&](std::int64_t to, std::int64_t from) {
      prim::store_row<Isa>(tensor_, to, extents_.width,
                           static_cast<const float*>(floats_.data) + from);
    });
  }
  /// Adds another one of the same extents; both have memory of their own.
  void add(const float_rows& other, int threads) const {
    using vec = prim::simd<Isa>;
    for_each_row(threads, [&](std::int64_t, std::int64_t at) {
      float* const to = static_cast<float*>(floats_.data) + at;
      const float* const from = static_cast<const float*>(other.floats_.data) + at;
      for (std::int64_t d = 0; d < floats_.token; d += vec::width) {
        vec::store(to + d, vec::add(vec::load(to + d), vec::load(from + d)));
      }
    });
  }

 private:
  /// body(offset in the tensor, offset in the floats), unless they are the same.
  template <class Body>
  void for_each_row(int threads, const Body& body) const {
    if (count_ == 0) return;
    const std::int64_t steps = (extents_.tokens + step - 1) / step;
    prim::parallel_items<Isa>(extents_.entries * extents_.heads * steps, threads,
                              [&](std::int64_t item, int) {
                                const std::int64_t head = item / steps % extents_.heads;
                                const std::int64_t entry = item / steps / extents_.heads;
                                const std::int64_t begin = item % steps * step;
                                const std::int64_t end = std::min(begin + step, extents_.tokens);
                                for (std::int64_t token = begin; token < end; ++token) {
                                  const auto offset = [&](const sparse_rows& of) {
                                    return entry * of.entry + head * of.head + token * of.token;
                                  };
                                  body(offset(tensor_), offset(floats_));
                                }
                              });
  }

  sparse_rows tensor_, floats_;
  row_extents extents_;
  std::int64_t count_ = 0;
};

}  // namespace tessera::kernels::sparse_attention::cpu
