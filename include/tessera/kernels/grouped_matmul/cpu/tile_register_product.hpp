// A tile of a product on the tile registers of AMX.
//
//   for each block of the summed axis { pack A; for each columns packed together {
//     pack B
//     for each 32 columns, 32 rows, step of the summed axis { multiply }
//   }}
//
// Of few rows memory is what takes time: the next block is packed beside the products of one, a
// share each step.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_sums.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/common/ceil_div.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Units of work, spread evenly over so many steps.
class spread_work {
 public:
  spread_work() = default;
  spread_work(std::int64_t units, std::int64_t steps) : units_(units), steps_(steps) {}

  /// Does the units that are due by now: body(number).
  template <class Body>
  TESSERA_INLINE void step(const Body& body) {
    for (due_ += units_; due_ >= steps_; due_ -= steps_) body(next_++);
  }

 private:
  std::int64_t units_ = 0, steps_ = 1, due_ = 0, next_ = 0;
};

/// Up to two register tiles of rows and two of columns, of one block of the summed axis.
struct tile_place {
  int row, row_tiles, column;
  const float* a;
  const float* b;
  int steps;
  part_of_axis depth;
  int next_row, next_column;  ///< of what is multiplied next in this block
};

/// The blocks of a product in their order, and packed operands of them.
template <class Kernel, class PackA, class PackB>
class tile_pipeline {
  using shape = traits<Kernel>;
  using words = typename shape::words;
  using memory_type = tile_memory<Kernel>;

 public:
  tile_pipeline(tile_size size, std::int64_t depth, const tile_memory<Kernel>& memory,
                const PackA& pack_a, const PackB& pack_b)
      : size_(size),
        depth_(depth),
        memory_(memory),
        pack_a_(pack_a),
        pack_b_(pack_b),
        beside_(size.rows <= shape::mr),
        deep_(shape::block_k * (size.across ? 1 : blocks_together(size.rows))),
        wide_(deep_ > shape::block_k           ? panel_columns
              : blocks_together(size.rows) > 1 ? memory_type::deepest * panel_columns
                                               : shape::block_n),
        across_(prim::ceil_div(size.columns, wide_)),
        blocks_(across_ * prim::ceil_div(depth, deep_)) {}

  /// Calls multiply(place, beside) for each place of each block, which calls beside() once for each
  /// step.
  template <class Multiply>
  void run(const Multiply& multiply) const {
    spread_work of_a;
    for (std::int64_t block = 0; block < blocks_; ++block) {
      const bool is_deeper = block % across_ == 0;
      if (!beside_ || block == 0) {
        if (is_deeper) pack_a(block);
        pack_b(block);
      }
      if (!beside_) {
        for_each_place(block, [&](const tile_place& place) { multiply(place, [] {}); });
        continue;
      }
      const std::int64_t steps = std::int64_t{strips()} * panels_of(block) * steps_of(block);
      if (is_deeper) {
        const bool goes_on = block + across_ < blocks_;
        of_a = {goes_on ? units_of_a(block + across_) : 0,
                std::int64_t{strips()} * prim::ceil_div(size_.columns, panel_columns) *
                    steps_of(block)};
      }
      spread_work of_b(block + 1 < blocks_ ? units_of_b(block + 1) : 0, steps);
      for_each_place(block, [&](const tile_place& place) {
        multiply(place, [&] {
          of_b.step([&](std::int64_t unit) { pack_unit_of_b(block + 1, unit); });
          of_a.step([&](std::int64_t unit) { pack_unit_of_a(block + across_, unit); });
        });
      });
    }
  }

 private:
  static constexpr int few_rows = 64;
  static constexpr int panel_columns = shape::panels::nr;
  static constexpr int step_words = prim::tile_width;
  static constexpr int step_elements = step_words * shape::words::k_pack;

  /// Of few rows that much more of B is packed together: rows of memory are read on and on.
  static int blocks_together(int rows) {
    const int whole = shape::up_to(rows, shape::mr);
    if (whole > few_rows) return 1;
    return std::clamp(shape::block_m / whole, 1, memory_type::deepest);
  }
  part_of_axis depth_of(std::int64_t block) const {
    return part_of<Kernel>(block / across_, deep_, depth_);
  }
  part_of_axis columns_of(std::int64_t block) const {
    return part_of<Kernel>(block % across_, wide_, size_.columns);
  }
  /// Rows of A lie in strips of mr.
  std::int64_t a_at(int row, int step) const {
    const std::int64_t strip = row / shape::mr * (deep_ / shape::words::k_pack * shape::mr);
    return strip + shape::a_at(row % shape::mr, std::int64_t{step} * step_words);
  }
  int strips() const { return static_cast<int>(prim::ceil_div(size_.rows, shape::mr)); }
  int row_tiles() const { return static_cast<int>(prim::ceil_div(size_.rows, prim::tile_rows)); }
  int steps_of(std::int64_t block) const {
    return static_cast<int>(prim::ceil_div(depth_of(block).count, step_elements));
  }
  int panels_of(std::int64_t block) const {
    return static_cast<int>(prim::ceil_div(columns_of(block).count, panel_columns));
  }
  float* a_of(std::int64_t block) const {
    return memory_.a + (beside_ ? block / across_ % 2 * memory_type::words_of_a : 0);
  }
  float* b_of(std::int64_t block) const {
    return memory_.b + (beside_ ? block % 2 * memory_type::words_of_b : 0);
  }

  /// Beside products a unit is a tile.
  std::int64_t units_of_a(std::int64_t block) const {
    return std::int64_t{row_tiles()} * steps_of(block);
  }
  void pack_unit_of_a(std::int64_t block, std::int64_t unit) const {
    const int steps = steps_of(block), step = static_cast<int>(unit % steps);
    pack_rows(block, static_cast<int>(unit / steps) * prim::tile_rows, step,
              step_of(depth_of(block), step));
  }
  void pack_a(std::int64_t block) const {
    for (int row = 0; row < size_.rows; row += prim::tile_rows) {
      pack_rows(block, row, 0, depth_of(block));
    }
  }
  /// Rows of a tile from `row` on, and zeros where there are none.
  void pack_rows(std::int64_t block, int row, int step, part_of_axis depth) const {
    const int rows = std::min(size_.rows - row, prim::tile_rows);
    float* const to = a_of(block) + a_at(row, step);
    pack_a_(depth, part_of_axis{row, rows}, to);
    for (int word = 0; rows < prim::tile_rows && word < prim::words_for<words>(depth.count);
         word += step_words) {
      std::fill_n(to + shape::a_at(rows, word), (prim::tile_rows - rows) * shape::a_stride, 0.0f);
    }
  }
  /// A unit is a tile of each half of a panel. Panels lie one after the other, whatever their
  /// number.
  std::int64_t units_of_b(std::int64_t block) const {
    return std::int64_t{panels_of(block)} * steps_of(block);
  }
  void pack_unit_of_b(std::int64_t block, std::int64_t unit) const {
    const int panels = panels_of(block), step = static_cast<int>(unit / panels);
    const int panel = static_cast<int>(unit % panels);
    const part_of_axis columns = columns_of(block);
    const part_of_axis of_panel{columns.first + panel * panel_columns,
                                std::min(columns.count - panel * panel_columns, panel_columns)};
    pack_b_(step_of(depth_of(block), step), of_panel,
            typename shape::panels{b_of(block) + panel_at(block, panel) +
                                       std::int64_t{step} * step_words * panel_columns,
                                   step_words, panel_columns});
  }
  void pack_b(std::int64_t block) const {
    pack_b_(depth_of(block), columns_of(block),
            typename shape::panels{b_of(block), steps_of(block) * step_words,
                                   panels_of(block) * panel_columns});
  }
  std::int64_t panel_at(std::int64_t block, int panel) const {
    return std::int64_t{panel} * steps_of(block) * step_words * panel_columns;
  }
  static part_of_axis step_of(part_of_axis depth, int step) {
    const int first = step * step_elements;
    return {depth.first + first, std::min(depth.count - first, step_elements)};
  }

  /// A panel of B stays in the first-level cache while the rows of A pass by.
  template <class Body>
  void for_each_place(std::int64_t block, const Body& body) const {
    const int steps = steps_of(block), panels = panels_of(block), all = strips();
    const int first = static_cast<int>(columns_of(block).first);
    for (int panel = 0; panel < panels; ++panel) {
      for (int strip = 0; strip < all; ++strip) {
        const int row = strip * shape::mr, column = first + panel * panel_columns;
        const bool wraps = strip + 1 == all;
        body(tile_place{row, size_.rows - row > prim::tile_rows ? 2 : 1, column,
                        a_of(block) + a_at(row, 0), b_of(block) + panel_at(block, panel), steps,
                        depth_of(block), wraps ? 0 : row + shape::mr,
                        wraps ? column + panel_columns : column});
      }
    }
  }

  tile_size size_;
  std::int64_t depth_;
  const memory_type& memory_;
  PackA pack_a_;
  PackB pack_b_;
  /// Whether operands are packed beside products.
  bool beside_;
  std::int64_t deep_;    ///< of the summed axis: elements packed together
  std::int64_t wide_;    ///< columns packed together
  std::int64_t across_;  ///< blocks of them
  std::int64_t blocks_;  ///< of all columns and all of the summed axis
};

/// Sums of 32 rows and columns in registers.
template <class Kernel, class Tiles>
class register_sums {
  using shape = traits<Kernel>;

 public:
  /// Sums of a place begin with `start`, or with 0, and come to `to`.
  template <class Beside>
  void multiply(const tile_place& place, bool adds, tile_sums start, tile_sums to,
                const Beside& beside) {
    if (place.row_tiles == 2) {
      one_.finish_any();
      run(two_, place, adds, start, to, beside);
    } else {
      two_.finish_any();
      run(one_, place, adds, start, to, beside);
    }
  }
  void finish() {
    one_.finish_any();
    two_.finish_any();
  }

 private:
  template <class Product, class Beside>
  static TESSERA_INLINE void run(Product& product, const tile_place& place, bool adds,
                                 tile_sums start, tile_sums to, const Beside& beside) {
    const typename Product::operands from{place.a, shape::a_stride, place.b, shape::panels::nr,
                                          shape::mr * shape::width};
    if (adds) {
      product.template begin<true>(from, {start.data, start.stride}, {to.data, to.stride});
    } else {
      product.template begin<false>(from, {start.data, start.stride}, {to.data, to.stride});
    }
    beside();
    product.add(product.next(from), (place.steps - 1) * prim::tile_width, beside);
  }

  prim::tile_product<Tiles, 2, 2, true> two_;
  prim::tile_product<Tiles, 1, 2, true> one_;
};

/// As multiply_tile (tile_product.hpp) on tile registers. `pack_a(part, rows, to)` packs a tile.
/// Rows and columns of `result` are written up to whole tiles.
template <class Kernel, class Tiles = prim::tiles, class PackA, class PackB>
void multiply_on_tiles(tile_size size, std::int64_t depth, const tile_memory<Kernel>& memory,
                       tile_sums result, const PackA& pack_a, const PackB& pack_b) {
  using shape = traits<Kernel>;
  const prim::tile_scope<prim::tiles> registers;
  register_sums<Kernel, Tiles> sums;
  tile_pipeline(size, depth, memory, pack_a, pack_b)
      .run([&](const tile_place& place, const auto& beside) {
        const bool adds = place.depth.first != 0;
        const bool is_last = place.depth.first + place.depth.count == depth;
        const tile_sums start{memory.c + place.row * memory.c_stride + place.column,
                              memory.c_stride};
        const tile_sums to =
            is_last
                ? tile_sums{result.data + place.row * result.stride + place.column, result.stride}
                : start;
        // Sums that are added to were last used a block of the summed axis ago.
        const float* ahead = memory.c + place.next_row * memory.c_stride + place.next_column;
        const int each_step = adds ? (shape::mr + place.steps - 1) / place.steps : 0;
        int left = adds ? shape::mr : 0;
        sums.multiply(place, adds, start, to, [&] {
          for (int i = 0; i < each_step && left > 0; ++i, --left, ahead += memory.c_stride) {
            TESSERA_PREFETCH(ahead);
            TESSERA_PREFETCH(ahead + shape::width);
          }
          beside();
        });
      });
  sums.finish();
}

}  // namespace tessera::kernels::grouped_matmul::cpu
