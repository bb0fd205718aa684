// A tile of a product of i8 with scales on tile registers, which multiply signed bytes. Where rows
// and columns have one scale each, sums stay whole numbers to the end. Else the sums of elements
// that share their scales are stored, and are scaled and added beside the products of the next
// ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/byte_scales.hpp>
#include <tessera/kernels/grouped_matmul/cpu/pack.hpp>
#include <tessera/kernels/grouped_matmul/cpu/parts.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_blocks.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_register_product.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_sums.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/rows.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Rows of lhs times columns of a matrix.
template <class Kernel>
class byte_tile_product {
  using shape = traits<Kernel>;
  using words = typename shape::words;
  using vec = typename shape::vec;
  using reg = typename vec::reg;
  using tiles_type = prim::tiles_of_bytes<prim::tiles>;

 public:
  byte_tile_product(const grouped_matmul_kernel_args& args, const row_block& rows,
                    part_of_axis columns, const tile_memory<Kernel>& memory, tile_sums result)
      : args_(args), rows_(rows), columns_(columns), memory_(memory), result_(result) {}

  /// result = the product.
  void run() const {
    if (args_.scales != product_scales::blocks) {
      load_scales_of_columns<Kernel>(args_, rows_.group, columns_, memory_.rows[0]);
    }
    if (!sums_stay_whole(args_)) return add_parts();
    multiply_on_tiles<Kernel, tiles_type>(size(), args_.k, memory_, {memory_.c, memory_.c_stride},
                                          pack_a(), pack_b());
    for (int row = 0; row < size().rows; ++row) scale_row(row);
  }

 private:
  static constexpr int step_words = prim::tile_width;
  static constexpr int panel = shape::panels::nr;

  tile_size size() const { return {static_cast<int>(rows_.rows), columns_.count}; }

  auto pack_a() const {
    return [this](part_of_axis depth, part_of_axis rows, float* to) {
      const auto* const elements = static_cast<const std::int8_t*>(args_.lhs.data);
      pack_a_rows<Kernel>(
          prim::strided_rows<std::int8_t>{
              elements + args_.lhs.offset(rows_.group, rows_.first + rows.first, depth.first),
              args_.lhs.row},
          rows.count, depth.count, to);
    };
  }
  auto pack_b() const {
    return [this](part_of_axis depth, part_of_axis columns, const typename shape::panels& packed) {
      const auto* const elements = static_cast<const std::int8_t*>(args_.rhs.data);
      pack_b_columns<Kernel>(
          prim::strided_rows<std::int8_t>{
              elements + args_.rhs.offset(rows_.group, columns_.first + columns.first, depth.first),
              args_.rhs.row},
          columns.count, depth.count, packed);
    };
  }
  /// Whole numbers become floats.
  void scale_row(int row) const {
    const float* const sums = memory_.c + std::int64_t{row} * memory_.c_stride;
    float* const to = result_.data + std::int64_t{row} * result_.stride;
    const reg scale = vec::broadcast(scale_of_lhs(row, 0));
    for (int column = 0; column < columns_.count; column += shape::width) {
      vec::store(to + column, vec::mul(words::float_of_sum(vec::load(sums + column)),
                                       vec::mul(scale, vec::load(memory_.rows[0] + column))));
    }
  }
  float scale_of_lhs(std::int64_t row, std::int64_t block) const {
    return static_cast<const float*>(
        args_.lhs_scale.data)[args_.lhs_scale.offset(rows_.group, rows_.first + row, block)];
  }

  /// Sums of a part of the summed axis, on their way to c.
  struct part_sums {
    const float* sums = nullptr;
    const float* scales = nullptr;  ///< of rows
    float* c = nullptr;
    int rows = 0, column = 0;
    std::int64_t block = 0;  ///< of scales
  };

  /// c += A B part by part.
  void add_parts() const {
    std::fill_n(memory_.c, rows_.rows * memory_.c_stride, 0.0f);
    const bool blocks = args_.scales == product_scales::blocks;
    const int together = (blocks ? scale_block : shape::block_k) / (step_words * words::k_pack);
    const prim::tile_scope<prim::tiles> registers;
    register_sums<Kernel, tiles_type> sums;
    part_sums before;
    std::int64_t scaled = -1, number = 0;
    tile_pipeline pipeline(size(), args_.k, memory_, pack_a(), pack_b());
    pipeline.run([&](const tile_place& place, const auto& beside) {
      if (scaled != place.depth.first) {
        sums.finish();
        add(before);
        before = {};
        load_scales_of_rows(place.depth, together);
        scaled = place.depth.first;
      }
      for (int step = 0; step < place.steps; step += together) {
        tile_place part = place;
        part.a += std::int64_t{step} * step_words * shape::mr;
        part.b += std::int64_t{step} * step_words * panel;
        part.steps = std::min(together, place.steps - step);
        float* const to = memory_.starts + number++ % 2 * shape::mr * panel;
        bool waits = true;
        sums.multiply(part, false, {}, {to, panel}, [&] {
          // Its products follow the stores of the part before.
          if (waits) add(before);
          waits = false;
          beside();
        });
        before = {to,
                  memory_.scales + std::int64_t{step / together} * rows_.rows + place.row,
                  memory_.c + place.row * memory_.c_stride + place.column,
                  std::min(size().rows - place.row, shape::mr),
                  place.column,
                  blocks ? place.depth.first / scale_block + step / together : 0};
      }
    });
    sums.finish();
    add(before);
  }

  void load_scales_of_rows(part_of_axis depth, int together) const {
    const bool blocks = args_.scales == product_scales::blocks;
    const int elements = together * step_words * words::k_pack;
    for (int part = 0; part * elements < depth.count; ++part) {
      float* const to = memory_.scales + std::int64_t{part} * rows_.rows;
      for (int row = 0; row < size().rows; ++row) {
        to[row] = scale_of_lhs(row, blocks ? depth.first / scale_block + part : 0);
      }
    }
  }

  /// c += sums scale.
  void add(const part_sums& part) const {
    if (part.sums == nullptr) return;
    if (args_.scales == product_scales::blocks) {
      const auto* const scales = static_cast<const float*>(args_.rhs_scale.data);
      const float by = scales[args_.rhs_scale.offset(
          rows_.group, (columns_.first + part.column) / scale_block, part.block)];
      return add(part, [&](int row, int) { return vec::broadcast(part.scales[row] * by); });
    }
    const float* const of_columns = memory_.rows[0] + part.column;
    add(part, [&](int row, int v) {
      return vec::mul(vec::broadcast(part.scales[row]), vec::load(of_columns + v * shape::width));
    });
  }
  template <class Factor>
  void add(const part_sums& part, const Factor& factor) const {
    for (int row = 0; row < part.rows; ++row) {
      float* const to = part.c + row * memory_.c_stride;
      TESSERA_UNROLL
      for (int v = 0; v < shape::vectors; ++v) {
        const reg sum = vec::load(part.sums + row * panel + v * shape::width);
        vec::store(to + v * shape::width, vec::fma(words::float_of_sum(sum), factor(row, v),
                                                   vec::load(to + v * shape::width)));
      }
    }
  }

  const grouped_matmul_kernel_args& args_;
  const row_block& rows_;
  part_of_axis columns_;
  const tile_memory<Kernel>& memory_;
  tile_sums result_;
};

}  // namespace tessera::kernels::grouped_matmul::cpu
