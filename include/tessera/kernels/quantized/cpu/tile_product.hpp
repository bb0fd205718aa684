// out[m, r] = sum over columns c of a[m, c] w[r, c] for codes of 4 bits, on the tile registers of
// AMX: codes become bf16, which has all of them, and sums of a group's columns are scaled.
//
//   for each 512 columns, 16 rows of weights {
//     codes of the rows to words
//     for each 16 columns of the batch, group { tile = words times batch; sums += scale tile + ...
//     }
//   }
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/batch_parts.hpp>
#include <tessera/kernels/quantized/cpu/bf16_codes.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/kernels/quantized/cpu/special_elements.hpp>
#include <tessera/kernels/quantized/cpu/traits.hpp>
#include <tessera/kernels/quantized/cpu/word_rows.hpp>
#include <tessera/prim/cpu/code_words.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/prim/cpu/line_queue.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

template <class Tiles, class Isa>
class tile_product {
 public:
  /// `out` has the batch rows of `a`.
  tile_product(const quantized_kernel_args& args, const strided_matrix& a,
               const strided_matrix& out)
      : args_(args),
        weights_(args.weights),
        a_(a),
        out_(out),
        layout_{.columns = weights_.columns(),
                .span = static_cast<int>(std::min<std::int64_t>(weights_.group_size, most_decoded)),
                .parts = word_parts_of(a.type)} {}

  std::size_t workspace_bytes(int threads) const {
    const std::int64_t floats =
        layout_.words(most_tiles()) + most_tiles() * layout_.sums() + threads * floats_of_thread();
    return batch_parts<Isa>::bytes(args_) + bytes_of_flags() +
           static_cast<std::size_t>(floats) * sizeof(float);
  }

  void run(std::byte* memory, int threads) const {
    const batch_parts<Isa> parts(args_, memory);
    const operands batch = operands_in(memory + batch_parts<Isa>::bytes(args_));
    pack(parts, batch, threads);
    const std::int64_t tiles = (weights_.rows + rows_of_tile - 1) / rows_of_tile;
    // Of an item all tiles but the first are asked for before they are needed.
    const std::int64_t together =
        std::clamp<std::int64_t>(tiles * parts.items(1) / (4 * threads), 1, most_tiles_of_item);
    const std::int64_t items = (tiles + together - 1) / together;
    prim::parallel_items<Isa>(parts.items(items), threads, [&](std::int64_t item, int thread) {
      const prim::tile_scope<Tiles> registers;
      prim::line_queue queue;
      parts.run_item(item, items, [&](std::int64_t number, const batch_part& part) {
        const packed_weights weights = weights_.at(part.matrix);
        const std::int64_t end = std::min((number + 1) * together, tiles);
        // One after the other weights come in the order of memory; side by side they meet the same
        // words of the batch.
        const bool many = layout_.tiles(part.rows) >= many_tiles;
        const std::int64_t step = many ? together : 1;
        for (std::int64_t of_item = number * together; of_item < end; of_item += step) {
          queue.clear();
          if (of_item + step < end) ask_for(weights, (of_item + step) * rows_of_tile, queue);
          queue.spread(static_cast<int>(
              layout_.tiles(part.rows) * layout_.columns / word_layout::block + 1));
          multiply(weights, {of_item, std::min(of_item + step, end), part}, batch,
                   first_tile(parts, part), queue, batch.scratch + thread * floats_of_thread());
        }
      });
    });
  }

 private:
  using vec = prim::simd<Isa>;
  using reg = typename vec::reg;
  using lanes = prim::code_words<Isa>;
  using reader_type = weight_reader<Isa>;
  using numbers_of_groups = typename reader_type::numbers_of_groups;
  static constexpr int rows_of_tile = prim::tile_rows;
  static constexpr int floats_of_sums = rows_of_tile * prim::tile_width;
  /// Words of a row that are decoded together: not a power of two apart.
  static constexpr int stride = most_decoded / 2 + 16;
  static constexpr std::int64_t most_tiles_of_item = 8;
  static constexpr std::int64_t many_tiles = 3;  ///< of the batch
  static constexpr int rotating = 4;             ///< tiles of sums: one is stored while others grow

  /// Tiles of rows of weights, for rows of the batch.
  struct weight_tiles {
    std::int64_t begin, end;
    const batch_part& part;
  };
  /// Words and sums tile by tile of each part; whether a row has special elements.
  using operands = packed_batch<bool, float>;
  /// A thread's.
  struct memory_of_thread {
    float* words;                ///< decoded weights
    float* tiles;                ///< sums of groups
    float* sums;                 ///< of the part
    numbers_of_groups* numbers;  ///< of each row of weights: scales, and what sums of a meet
  };

  std::int64_t most_tiles() const {
    // Each part ends in a tile of its own.
    return layout_.tiles(args_.batch) + batch_parts<Isa>::most(args_);
  }
  std::size_t bytes_of_flags() const {
    return (static_cast<std::size_t>(args_.batch) + 63) / 64 * 64;
  }
  /// Sums of an item.
  std::int64_t floats_of_item() const {
    return most_tiles_of_item * floats_of_sums *
           layout_.tiles(std::min<std::int64_t>(batch_of_item, args_.batch));
  }
  std::int64_t floats_of_product() const {
    constexpr std::size_t of_numbers =
        most_tiles_of_item * rows_of_tile * sizeof(numbers_of_groups);
    return rows_of_tile * stride + rotating * floats_of_sums + floats_of_item() +
           static_cast<std::int64_t>(of_numbers / sizeof(float));
  }
  memory_of_thread memory_in(float* scratch) const {
    memory_of_thread memory{};
    memory.words = scratch;
    memory.tiles = memory.words + rows_of_tile * stride;
    memory.sums = memory.tiles + rotating * floats_of_sums;
    memory.numbers = reinterpret_cast<numbers_of_groups*>(memory.sums + floats_of_item());
    return memory;
  }
  std::int64_t floats_of_thread() const {
    return std::max(floats_of_product(), whole_lines(layout_.columns));
  }
  operands operands_in(std::byte* memory) const {
    operands batch{};
    batch.rows = reinterpret_cast<bool*>(memory);
    batch.elements = reinterpret_cast<float*>(memory + bytes_of_flags());
    batch.sums = batch.elements + layout_.words(most_tiles());
    batch.scratch = batch.sums + most_tiles() * layout_.sums();
    return batch;
  }
  /// Of a part, by its number: the last tile of another one may be half empty.
  std::int64_t first_tile(const batch_parts<Isa>& parts, const batch_part& part) const {
    return part.first / layout_.rows_of_tile() + parts.number_of(part);
  }

  /// Up to the end of the last part.
  std::int64_t tiles_of(const batch_parts<Isa>& parts) const {
    const batch_part* const last = parts.last();
    return last == nullptr ? 0 : first_tile(parts, *last) + layout_.tiles(last->rows);
  }

  void pack(const batch_parts<Isa>& parts, const operands& batch, int threads) const {
    constexpr std::int64_t together = word_layout::words_together;
    const std::int64_t tiles = tiles_of(parts);
    const std::int64_t items = layout_.words(tiles) / together;
    prim::parallel_items<Isa>(items, threads, [&](std::int64_t item, int) {
      const std::int64_t tile = item % tiles, column = item / tiles * most_decoded;
      std::fill_n(batch.elements + layout_.word(tile, most_tiles(), column), together, 0.0f);
      if (column > 0) return;
      std::fill_n(batch.sums + tile * layout_.sums(), layout_.sums(), 0.0f);
    });
    prim::parallel_items<Isa>(args_.batch, threads, [&](std::int64_t m, int thread) {
      if (!parts.holds(m)) return store_zeros<Isa>(out_, m, weights_.rows);
      const batch_part& part = parts.part_of(m);
      const auto row = static_cast<int>(m - part.first);
      const std::int64_t number = first_tile(parts, part) + row / layout_.rows_of_tile();
      float* const x = batch.scratch + thread * floats_of_thread();
      prim::load_row<Isa>(a_, m * a_.row, layout_.columns, x);
      batch.rows[m] = !pack_word_row(layout_, number, most_tiles(), row % layout_.rows_of_tile(), x,
                                     reinterpret_cast<std::uint32_t*>(batch.elements),
                                     batch.sums + number * layout_.sums());
    });
  }

  /// The numbers of a piece of a row's groups; in the place of zeros what sums of a are multiplied
  /// by.
  TESSERA_INLINE void read_numbers(const reader_type& reader, std::int64_t row, std::int64_t first,
                                   int count, numbers_of_groups& to) const {
    reader.read_numbers(row, first, count, to);
    if (weights_.mode != weight_mode::affine) return;
    const bool biased = is_biased(weights_);
    const auto groups = count / static_cast<int>(weights_.group_size);
    for (int i = 0; i < groups; i += vec::width) {
      const reg scales = vec::load(to.scales + i), zeros = vec::load(to.zeros + i);
      vec::store(to.zeros + i, offsets_of_middle<vec>(scales, zeros, biased));
    }
  }

  /// Codes and scales of a tile's rows.
  void ask_for(const packed_weights& weights, std::int64_t row, prim::line_queue& queue) const {
    const auto add = [&](const strided_matrix& of, std::int64_t bytes_of_row, std::int64_t bytes) {
      if (of.data == nullptr) return;
      for (std::int64_t r = row; r < std::min(row + rows_of_tile, weights.rows); ++r) {
        queue.add(static_cast<const std::byte*>(of.data) + r * bytes_of_row, bytes);
      }
    };
    const auto size = static_cast<std::int64_t>(size_of(weights.scales.type));
    add(weights.codes, weights.codes.row * 4, layout_.columns / 2);
    add(weights.scales, weights.scales.row * size, weights.groups * size);
    add(weights.zeros, weights.zeros.row * size, weights.groups * size);
  }

  void multiply(const packed_weights& weights, const weight_tiles& at, const operands& batch,
                std::int64_t first_tile, prim::line_queue& queue, float* scratch) const {
    const reader_type reader(weights);
    const std::int64_t tiles = layout_.tiles(at.part.rows);
    const memory_of_thread memory = memory_in(scratch);
    std::fill_n(memory.sums, (at.end - at.begin) * tiles * floats_of_sums, 0.0f);
    const std::int64_t piece = reader_type::most_groups * weights.group_size;
    for (std::int64_t first = 0; first < layout_.columns; first += most_decoded) {
      const auto count =
          static_cast<int>(std::min<std::int64_t>(most_decoded, layout_.columns - first));
      const auto skipped = static_cast<int>(first % piece / weights.group_size);
      for (std::int64_t of_weights = at.begin; of_weights < at.end; ++of_weights) {
        const std::int64_t own = of_weights - at.begin;
        numbers_of_groups* const numbers = memory.numbers + own * rows_of_tile;
        if (first % piece == 0) {
          const auto of_piece = static_cast<int>(std::min(piece, layout_.columns - first));
          for (int r = 0; r < rows_of_tile; ++r) {
            read_numbers(reader, row_of(of_weights, r), first, of_piece, numbers[r]);
          }
        }
        decode(weights, of_weights, first, count, memory.words);
        for (std::int64_t number = 0; number < tiles; ++number) {
          const std::int64_t of_batch = first_tile + number;
          add_products(
              batch.elements + layout_.word(of_batch, most_tiles(), first),
              batch.sums + of_batch * layout_.sums() + first / layout_.span * prim::tile_width,
              count, numbers, skipped, memory, queue,
              memory.sums + (own * tiles + number) * floats_of_sums);
        }
      }
    }
    for (std::int64_t of_weights = at.begin; of_weights < at.end; ++of_weights) {
      for (std::int64_t number = 0; number < tiles; ++number) {
        store(weights, of_weights, at.part, batch, number,
              memory.sums + ((of_weights - at.begin) * tiles + number) * floats_of_sums);
      }
    }
  }

  /// Behind the last row comes the last one again.
  TESSERA_INLINE std::int64_t row_of(std::int64_t tile, int row) const {
    return std::min(tile * rows_of_tile + row, weights_.rows - 1);
  }

  /// A part of the rows as words.
  TESSERA_INLINE void decode(const packed_weights& weights, std::int64_t tile, std::int64_t first,
                             int count, float* words) const {
    const std::array<bf16, 16> of_codes = bf16_entries(weights_.mode);
    const auto table = lanes::table_of(of_codes.data());
    const std::int64_t row_bytes = weights.codes.row * 4;
    for (int r = 0; r < rows_of_tile; ++r) {
      const std::byte* const codes = static_cast<const std::byte*>(weights.codes.data) +
                                     row_of(tile, r) * row_bytes + first / 2;
      auto* const to = reinterpret_cast<bf16*>(words + r * stride);
      for (int i = 0; i < count; i += lanes::block) lanes::look_up(table, codes + i / 2, to + i);
    }
  }

  /// sums += the products of `count` columns: those of each span grow in a tile, the one before is
  /// stored meanwhile, and the one before that is scaled.
  void add_products(const float* batch_words, const float* batch_sums, int count,
                    const numbers_of_groups* numbers, int skipped, const memory_of_thread& memory,
                    prim::line_queue& queue, float* sums) const {
    const int spans = count / layout_.span, steps = layout_.span / word_layout::block;
    reg total[rows_of_tile];
    TESSERA_UNROLL
    for (int r = 0; r < rows_of_tile; ++r) total[r] = vec::load(sums + r * prim::tile_width);
    const auto grow = [&]<int Tile>(int span) {
      const auto step = [&]<int Operand>(int number) {
        Tiles::template load<4 + Operand>(memory.words + number * prim::tile_width, stride * 4);
        Tiles::template load<6 + Operand>(batch_words + number * floats_of_sums,
                                          prim::tile_width * 4);
        Tiles::template multiply_add<Tile, 4 + Operand, 6 + Operand>();
        queue.step();
      };
      Tiles::template zero<Tile>();
      int number = span * steps;
      const int end = number + steps;
      step.template operator()<Tile % 2>(number);
      for (++number; number < end; number += 2) {
        step.template operator()<1 - Tile % 2>(number);
        if (number + 1 < end) step.template operator()<Tile % 2>(number + 1);
      }
    };
    const auto scale = [&](int span) {
      const float* const products = memory.tiles + span % rotating * floats_of_sums;
      const reg of_batch = vec::load(batch_sums + span * prim::tile_width);
      const bool has_offsets = weights_.mode == weight_mode::affine;
      TESSERA_UNROLL
      for (int r = 0; r < rows_of_tile; ++r) {
        const numbers_of_groups& own = numbers[r];
        total[r] = vec::fma(vec::load(products + r * prim::tile_width),
                            vec::broadcast(own.scales[skipped + span]), total[r]);
        if (has_offsets) total[r] = vec::fma_at(own.zeros + skipped + span, of_batch, total[r]);
      }
    };
    const auto put = [&]<int Tile> {
      Tiles::template store<Tile>(memory.tiles + Tile * floats_of_sums, prim::tile_width * 4);
    };
    for (int span = 0; span < spans; span += rotating) {
      [&]<int... Tile>(std::integer_sequence<int, Tile...>) {
        ((span + Tile < spans
              ? (grow.template operator()<Tile>(span + Tile),
                 span + Tile > 0 ? put.template operator()<(Tile + rotating - 1) % rotating>()
                                 : void(),
                 span + Tile > 1 ? scale(span + Tile - 2) : void())
              : void()),
         ...);
      }
      (std::make_integer_sequence<int, rotating>{});
    }
    [&]<int... Tile>(std::integer_sequence<int, Tile...>) {
      (((spans - 1) % rotating == Tile ? put.template operator()<Tile>() : void()), ...);
    }
    (std::make_integer_sequence<int, rotating>{});
    if (spans > 1) scale(spans - 2);
    scale(spans - 1);
    TESSERA_UNROLL
    for (int r = 0; r < rows_of_tile; ++r) vec::store(sums + r * prim::tile_width, total[r]);
  }

  /// The rows of the batch of a tile: each the sum of its parts.
  void store(const packed_weights& weights, std::int64_t tile, const batch_part& of_batch,
             const operands& batch, std::int64_t number, const float* sums) const {
    const std::int64_t row = tile * rows_of_tile;
    const auto row_count =
        static_cast<int>(std::min<std::int64_t>(rows_of_tile, weights.rows - row));
    reg columns[prim::tile_width];
    for (int r = 0; r < rows_of_tile; ++r) columns[r] = vec::load(sums + r * prim::tile_width);
    vec::transpose(columns);
    float all[prim::tile_width][rows_of_tile];
    for (int c = 0; c < prim::tile_width; ++c) vec::store(all[c], columns[c]);
    const std::int64_t first = number * layout_.rows_of_tile();
    const auto rows =
        static_cast<int>(std::min<std::int64_t>(layout_.rows_of_tile(), of_batch.rows - first));
    for (int i = 0; i < rows; ++i) {
      reg sum = vec::load(all[i]);
      for (int part = 1; part < layout_.parts; ++part) {
        sum = vec::add(sum, vec::load(all[part * layout_.rows_of_tile() + i]));
      }
      float own[rows_of_tile];
      vec::store(own, sum);
      const std::int64_t m = of_batch.first + first + i;
      settle<Isa>(weights, row, row_count, a_, m, batch.rows[m], is_huge, own);
      prim::store_row<Isa>(out_, m * out_.row + row, row_count, own);
    }
  }

  const quantized_kernel_args& args_;
  const packed_weights& weights_;  ///< sizes and forms of all matrices are the same
  const strided_matrix& a_;
  const strided_matrix& out_;
  word_layout layout_;
};

}  // namespace tessera::kernels::quantized::cpu
