// Logits that nobody holds: those of a tile of tokens with a block of classes, computed from hidden
// rows and the weight where they are needed.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/families/losses/schedule_cpu.hpp>
#include <tessera/kernels/losses/cpu/logit_sums.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/math.hpp>
#include <tessera/prim/cpu/rows.hpp>
#include <tessera/prim/cpu/simd.hpp>

namespace tessera::kernels::losses::cpu {

/// Sizes of tiles, and the microkernel's.
template <class Kernel>
struct linear_shape {
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using vec = prim::simd<isa_type>;
  using words = prim::f32_words<isa_type>;
  static constexpr int width = vec::width;
  static constexpr int vectors = 2;
  static constexpr int mr = losses_schedule::register_rows(Kernel::config.target);
  using panels = prim::panels<isa_type, vectors>;

  static constexpr int tokens = losses_schedule::tile_tokens;
  static constexpr int classes = losses_schedule::tile_classes;
  static constexpr int depth = losses_schedule::tile_depth;  ///< of a product at a time

  /// C (+)= A B with rows of A that are AStride apart.
  template <int AStride>
  static void multiply(const float* a, int rows, const panels& b, int columns, float* c,
                       std::int64_t c_stride, bool overwrite) {
    using prim::product_kind;
    const prim::product_range all{0, b.words}, used{0, columns};
    if (overwrite) {
      prim::product<product_kind::overwrite, words, mr, AStride>(a, rows, b, all, used, c,
                                                                 c_stride);
    } else {
      prim::product<product_kind::add, words, mr, AStride>(a, rows, b, all, used, c, c_stride);
    }
  }

  static constexpr int padded(std::int64_t count) {
    return static_cast<int>(prim::padded<isa_type>(count));
  }
  static constexpr std::int64_t depths(std::int64_t columns) {
    return (columns + depth - 1) / depth;
  }
};

/// Memory of a thread: parts of one piece of floats, each a whole number of cache lines.
struct linear_scratch {
  float* hidden = nullptr;      ///< [depths][tokens][depth]: rows of a product
  float* transposed = nullptr;  ///< [columns][tokens]: the same tokens as columns
  float* panels = nullptr;      ///< the other operand of a product
  float* logits = nullptr;      ///< [tokens][classes]
  float* sums = nullptr;        ///< of a gradient: [tokens][columns], or [columns][classes]
};

/// Up to shape::tokens tokens by their numbers, with their hidden rows packed.
template <class Kernel>
class linear_tile {
  using shape = linear_shape<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;

 public:
  linear_tile(const linear_cross_entropy_kernel_args& args, const linear_scratch& scratch)
      : args_(args), scratch_(scratch) {}

  int count() const { return count_; }
  token_place place(int row) const { return place_of<isa_type>(args_.tokens, rows_[row]); }
  float* logits(int row) const { return scratch_.logits + std::ptrdiff_t{row} * shape::classes; }

  /// Packs the hidden rows of tokens number rows[0 ... count).
  void enter(const std::int64_t* rows, int count) {
    rows_ = rows;
    count_ = count;
    with_hidden_rows([&](const auto& hidden) {
      for (std::int64_t first = 0; first < args_.columns; first += shape::depth) {
        float* const to = scratch_.hidden + first * shape::tokens;
        for (int row = 0; row < count_; ++row) {
          prim::pack_a<isa_type, typename shape::words>(hidden.row(row) + first, depth_at(first),
                                                        to + std::ptrdiff_t{row} * shape::depth);
        }
      }
    });
  }

  /// Calls visit(rows) with the hidden rows, whatever their type.
  template <class Visit>
  void with_hidden_rows(const Visit& visit) const {
    prim::with_elements<isa_type>(args_.hidden, [&](const auto* elements) {
      prim::listed_rows<std::remove_cvref_t<decltype(*elements)>, shape::tokens> rows{};
      for (int row = 0; row < count_; ++row) {
        rows.address[row] = elements + offset_of<isa_type>(args_.hidden, place(row));
      }
      visit(rows);
    });
  }

  /// Logits of classes [first, first + count), before the soft cap.
  void multiply(std::int64_t first, int count) const {
    for (std::int64_t k = 0; k < args_.columns; k += shape::depth) {
      const typename shape::panels weight{scratch_.panels, shape::padded(depth_at(k)),
                                          shape::padded(count)};
      prim::with_elements<isa_type>(args_.weight, [&](const auto* elements) {
        using element = std::remove_cvref_t<decltype(*elements)>;
        const prim::strided_rows<element> rows{elements + k * args_.weight.row + first,
                                               args_.weight.row};
        prim::pack_rows<typename shape::words>(rows, {0, depth_at(k)}, count, nullptr, weight);
      });
      shape::template multiply<shape::depth>(scratch_.hidden + k * shape::tokens, count_, weight,
                                             weight.columns, scratch_.logits, shape::classes,
                                             k == 0);
    }
    add_bias(first, count);
  }

  /// The logits of a row as they are compared with targets.
  const float* capped(int row, int count, float* to) const {
    const float* const x = logits(row);
    if (args_.soft_cap == 0) return x;
    const auto cap = vec::broadcast(args_.soft_cap), inverse = vec::broadcast(1 / args_.soft_cap);
    for (int at = 0; at < count; at += vec::width) {
      const auto bounded = prim::tanh_of<isa_type>(vec::mul(vec::load(x + at), inverse));
      vec::store(to + at, vec::mul(cap, bounded));
    }
    return to;
  }

  /// Columns of a product that starts at column `first`.
  int depth_at(std::int64_t first) const {
    const std::int64_t left = args_.columns - first;
    return left < shape::depth ? static_cast<int>(left) : shape::depth;
  }

 private:
  void add_bias(std::int64_t first, int count) const {
    if (args_.bias.data == nullptr) return;
    alignas(64) float bias[shape::classes];
    prim::load_row<isa_type>(args_.bias, first, count, bias);
    for (int row = 0; row < count_; ++row) {
      float* const x = logits(row);
      for (int at = 0; at < count; at += vec::width) {
        vec::store(x + at, vec::add(vec::load(x + at), vec::load(bias + at)));
      }
    }
  }

  const linear_cross_entropy_kernel_args& args_;
  const linear_scratch scratch_;
  const std::int64_t* rows_ = nullptr;
  int count_ = 0;
};

}  // namespace tessera::kernels::losses::cpu
