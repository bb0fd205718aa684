// The two products of decode on AMX tiles, keys and values read where they lie. Sixteen keys are
// the rows of an operand as they are, so that scores come out transposed: key by query row. Values
// are interleaved in pairs of keys, as VDPBF16PS takes them, into a buffer that stays in the
// caches. Sixteen query rows go together, or 32 whose scores stay key by row, and tiles have as
// many rows as there are.
//
// Scores of a tile of keys lie in one of two layouts. [row][key] is what everything that looks at
// scores expects. Where nothing but the softmax does and rows fill tiles, they stay as they come
// out, [key][row], a row in a lane: softmax_columns.hpp makes operands of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/kernels/attention/cpu/coded_source.hpp>
#include <tessera/kernels/attention/cpu/decode_entry.hpp>
#include <tessera/kernels/attention/cpu/key_order.hpp>
#include <tessera/kernels/attention/cpu/softmax_columns.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/prim/cpu/gemm/word_reader.hpp>

namespace tessera::kernels::attention::cpu {

template <class Kernel>
class decode_tiles {
  using shape = traits<Kernel>;
  using element = typename shape::element;
  using words = typename shape::words;
  using reader = prim::word_reader<words>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  using tiles = prim::tiles;
  static constexpr int elements_of_line = 64 / static_cast<int>(sizeof(element));
  static constexpr int head_dim = shape::config.head_dim;
  static constexpr int v_head_dim = shape::config.v_head_dim;
  static constexpr int depth = head_dim / words::k_pack;  ///< words of a key
  static constexpr int sum_stride = strides::sums(shape::config, v_head_dim);

 public:
  static constexpr int most_rows = prim::tile_rows;  ///< of queries in a tile
  static int rows_of_tile(int rows) { return rows < most_rows ? rows : most_rows; }

  /// Of an item with room for so many query rows.
  static prim::tile_shapes shapes(int rows) {
    const int used = rows_of_tile(rows);
    const int used_bytes = used * static_cast<int>(word_bytes);
    prim::tile_shapes all = prim::tile_shapes::full();
    all.set(first_scores, prim::tile_rows, used_bytes);
    all.set(second_scores, prim::tile_rows, used_bytes);
    all.set(queries, prim::tile_rows, used_bytes);
    all.set(weights, used, 64);
    all.set(first_sums, used, 64);
    all.set(second_sums, used, 64);
    return all;
  }

  /// Products of the first `rows` rows, of which there may be fewer than there is room for.
  decode_tiles(const decode_scratch<Kernel>& scratch, int rows)
      : scratch_(scratch), rows_(rows), tile_rows_(rows_of_tile(scratch.rows)) {}

  /// Words of Q from one word of a row to the next.
  int q_stride() const { return tile_rows_; }
  /// The rows of tiles with some of the rows.
  int rows_with_tail() const { return round_up(rows_, tile_rows_); }

  /// Whether scores of `keys` keys that nothing but the softmax looks at stay [key][row].
  /// That follows from the rows of the sequence alone, not from those that the batch has besides.
  bool keeps_columns(int keys) const {
    return tile_rows_ == most_rows && rows_ >= most_rows &&
           keys % softmax_columns<Kernel>::keys_at_once == 0;
  }

  /// Words of Q as operands B, [tile of rows][word][row], zeros behind the last row. `row_of(r)` is
  /// row r.
  template <class RowOf>
  void pack_q(const RowOf& row_of) const {
    for (int first = 0; first < rows_; first += most_rows) {
      for (int word = 0; word < depth; word += vec::width) {
        reg block[most_rows];
        for (int r = 0; r < most_rows; ++r) {
          block[r] = first + r < rows_ ? reader::read(row_of(first + r) + word * words::k_pack)
                                       : vec::zero();
        }
        vec::transpose(block);
        float* to = scratch_.q + first * depth + word * tile_rows_;
        for (int w = 0; w < vec::width; ++w, to += tile_rows_)
          vec::store_n(to, block[w], tile_rows_);
      }
    }
  }

  /// Scores of a step. Those behind its last key are anything.
  template <class Rows>
  void gemm_qk(const key_step<Rows>& at) const {
    alignas(64) element spare[2][prim::tile_rows * head_dim];
    alignas(64) float products[2][prim::tile_rows * most_rows];
    for (int key = 0; key < at.count; key += keys_at_once) {
      const tile_operand keys[2] = {
          keys_from<prim::tile_rows>(at, key, spare[0]),
          keys_from<prim::tile_rows>(at, key + prim::tile_rows, spare[1])};
      for (int first = 0; first < rows_; first += most_rows) {
        multiply_keys<2, 1>(keys, first, {products[0], products[1]}, [&](int part) {
          if (first == 0) ask_for<keys_at_once>(at, key, part);
        });
        for (int half = 0; half < 2; ++half) {
          store_scores(products[half], first, at.column + key + half * prim::tile_rows);
        }
      }
    }
    drop_scores();
  }

  /// The rows against a tile of keys and its values, a multiple of keys_at_once, all of which they
  /// see: scores, softmax and sums of a few rows and keys at a time, which stay in the first-level
  /// cache.
  template <class KeyRows, class ValueRows>
  void attend_columns(const score_units& units, const key_step<KeyRows>& k,
                      const key_step<ValueRows>& v) const {
    alignas(64) float panels[most_words_of_pass * v_head_dim];
    const int all = rows_with_tail();
    const int panel_words = all > most_rows ? most_words_of_pass : words_of_panel;
    const int keys_of_pass = words::k_pack * panel_words;
    for (int key = 0; key < k.count; key += keys_of_pass) {
      const int count = k.count - key < keys_of_pass ? k.count - key : keys_of_pass;
      pack_values(v, key, panel_words, panels);
      for (int first = 0; first < all; first += rows_of_pass) {
        const int end = all - first < rows_of_pass ? all : first + rows_of_pass;
        const int pairs_end = first + (end - first) / keys_at_once * keys_at_once;
        if (pairs_end > first) multiply_keys_of<2>(k, key, count, {first, pairs_end});
        if (end > pairs_end) multiply_keys_of<1>(k, key, count, {pairs_end, end});
        for (int row = first; row < end; row += most_rows) {
          columns_of(row).update(units, count, scratch_.softmax.from(row), scratch_.rescale + row);
        }
        scratch_.rescale_sums(first, end < rows_ ? end : rows_, sum_stride);
        if (pairs_end > first) add_values_of<2>(panels, panel_words, count, {first, pairs_end});
        if (end > pairs_end) add_values_of<1>(panels, panel_words, count, {pairs_end, end});
      }
    }
    drop_scores();
  }

  /// Sums of a step, whose weights behind the last key are zeros.
  template <class Rows>
  void gemm_pv(const key_step<Rows>& at) const {
    alignas(64) float panels[words_of_panel * v_head_dim];
    constexpr std::int64_t score_bytes = shape::score_stride * word_bytes;
    for (int key = 0; key < at.count; key += words::k_pack * words_of_panel) {
      const int used = pack_values(at, key, words_of_panel, panels);
      for (int first = 0; first < rows_; first += most_rows) {
        const float* const p = scratch_.score_row(first) + (at.column + key) / words::k_pack;
        for (int column = 0; column < v_head_dim; column += 2 * prim::tile_width) {
          float* const sums = scratch_.sums + first * sum_stride + column;
          const float* const v = panels + column * words_of_panel;
          constexpr int next_column = prim::tile_width * words_of_panel;
          tiles::load<first_sums>(sums, sum_bytes);
          tiles::load<second_sums>(sums + prim::tile_width, sum_bytes);
          for (int word = 0; word < used; word += prim::tile_width) {
            tiles::load<weights>(p + word, score_bytes);
            tiles::load<operand>(v + word * prim::tile_width, 64);
            tiles::multiply_add<first_sums, weights, operand>();
            tiles::load<operand>(v + next_column + word * prim::tile_width, 64);
            tiles::multiply_add<second_sums, weights, operand>();
          }
          tiles::store<first_sums>(sums, sum_bytes);
          tiles::store<second_sums>(sums + prim::tile_width, sum_bytes);
        }
      }
    }
    tiles::zero<first_sums>();
    tiles::zero<second_sums>();
    tiles::zero<weights>();
  }

 private:
  // Registers, which are zeros when they are not in use (see tile_product).
  static constexpr int first_scores = 0, second_scores = 1, operand = 2, queries = 3, weights = 4,
                       first_sums = 5, second_sums = 6;
  static void drop_scores() {
    tiles::zero<first_scores>();
    tiles::zero<second_scores>();
    tiles::zero<queries>();
  }

  static constexpr int keys_at_once = 2 * prim::tile_rows;
  static constexpr std::int64_t word_bytes = sizeof(float), sum_bytes = sum_stride * word_bytes;
  /// Words of keys whose values are interleaved at a time.
  static constexpr int words_of_panel = 2 * prim::tile_width;

  /// Rows whose scores are made at a time where they lie key by row, and words of as many keys: of
  /// more rows more, so that their sums come and go less often.
  static constexpr int rows_of_pass = 4 * prim::tile_rows;
  static constexpr int most_words_of_pass = 2 * words_of_panel;

  struct row_range {
    int begin, end;
  };
  /// Where scores of the tile of rows from `row` on lie key by row.
  softmax_columns<Kernel> columns_of(int row) const {
    return softmax_columns<Kernel>(scratch_.score_row(row));
  }

  /// Rows, `stride` bytes apart.
  struct tile_operand {
    const float* data;
    std::int64_t stride;
  };
  template <class Rows>
  static constexpr bool equally_spaced = requires(const Rows& rows) {
    rows.stride;
  };

  /// Keys [key, key + Count) of a step where they lie, if they are all there and equally far apart;
  /// else copied to `room`, zeros behind the last.
  template <int Count, class Rows>
  static tile_operand keys_from(const key_step<Rows>& at, int key, element* room) {
    const int left = at.count - key;
    const auto from_elements = [](const element* data, std::int64_t stride) {
      return tile_operand{reinterpret_cast<const float*>(data),
                          stride * static_cast<std::int64_t>(sizeof(element))};
    };
    if (left >= Count) {
      const element* const data = at.rows.row(key);
      const std::int64_t stride = at.rows.row(key + 1) - data;
      bool straight = true;
      if constexpr (!equally_spaced<Rows>) {
        for (int i = 2; i < Count; ++i) {
          straight = straight && at.rows.row(key + i) == data + i * stride;
        }
      }
      if (straight) return from_elements(data, stride);
    }
    for (int i = 0; i < Count; ++i) {
      element* const to = room + i * head_dim;
      constexpr std::size_t bytes = std::size_t{head_dim} * sizeof(element);
      if (i < left) {
        std::memcpy(static_cast<void*>(to), at.rows.row(key + i), bytes);
      } else {
        std::memset(static_cast<void*>(to), 0, bytes);
      }
    }
    return from_elements(room, head_dim);
  }

  /// Asks for some of the rows that a step's keys [key, key + Keys) come with, line after
  /// line: all of them in head_dim / elements_of_line parts.
  template <int Keys, class Rows>
  static TESSERA_INLINE void ask_for(const key_step<Rows>& at, int key, int part) {
    if constexpr (!std::is_same_v<Rows, buffered_rows<element>>) {
      constexpr int parts = head_dim / elements_of_line;
      const int begin = Keys * part / parts, end = Keys * (part + 1) / parts;
      for (int i = begin; i < end; ++i) {
        for (int d = 0; d < head_dim; d += elements_of_line) {
          TESSERA_PREFETCH_L2(at.ahead[key + i] + d);
        }
      }
    }
  }

  /// Scores of two tiles of keys with a tile of rows from `first` on, or of one with two, key by
  /// row. `beside(part)` goes on beside the products of each tile_width words.
  template <int KeyTiles, int RowTiles, class Beside>
  TESSERA_INLINE void multiply_keys(const tile_operand (&keys)[KeyTiles], int first,
                                    float* const (&to)[2], const Beside& beside) const {
    static_assert(KeyTiles * RowTiles == 2);
    const std::int64_t row_bytes = tile_rows_ * word_bytes;
    const float* q = scratch_.q + first * depth;
    tiles::zero<first_scores>();
    tiles::zero<second_scores>();
    for (int word = 0; word < depth; word += prim::tile_width) {
      tiles::load<queries>(q, row_bytes);
      tiles::load<operand>(keys[0].data + word, keys[0].stride);
      tiles::multiply_add<first_scores, operand, queries>();
      if constexpr (KeyTiles == 2) {
        tiles::load<operand>(keys[1].data + word, keys[1].stride);
      } else {
        tiles::load<queries>(q + most_rows * depth, row_bytes);
      }
      tiles::multiply_add<second_scores, operand, queries>();
      beside(word / prim::tile_width);
      q += prim::tile_width * tile_rows_;
    }
    tiles::store<first_scores>(to[0], row_bytes);
    tiles::store<second_scores>(to[1], row_bytes);
  }

  /// Scores of the keys [key, key + count) of a step with tiles of rows, one or two at a time.
  template <int RowTiles, class Rows>
  void multiply_keys_of(const key_step<Rows>& at, int key, int count, row_range rows) const {
    constexpr int key_tiles = 2 / RowTiles, keys_of_block = key_tiles * prim::tile_rows;
    alignas(64) element spare[keys_of_block * head_dim];
    for (int i = 0; i < count; i += keys_of_block) {
      tile_operand keys[key_tiles];
      keys[0] = keys_from<keys_of_block>(at, key + i, spare);
      if constexpr (key_tiles == 2) {
        keys[1] = {keys[0].data + prim::tile_rows * keys[0].stride / word_bytes, keys[0].stride};
      }
      for (int row = rows.begin; row < rows.end; row += RowTiles * most_rows) {
        float* const scores = columns_of(row).scores(i);
        float* const next = RowTiles == 2 ? columns_of(row + most_rows).scores(i)
                                          : columns_of(row).scores(i + prim::tile_rows);
        multiply_keys<key_tiles, RowTiles>(keys, row, {scores, next}, [&](int part) {
          if (row == 0) ask_for<keys_of_block>(at, key + i, part);
        });
      }
    }
  }

  /// Sums of tiles of rows, one or two at a time, plus the weights of `count` keys times `panels`:
  /// in the registers of scores and queries, which are whole ones here, so that four are in use.
  template <int RowTiles>
  void add_values_of(const float* panels, int panel_words, int count, row_range rows) const {
    constexpr int column_tiles = 2 / RowTiles;
    for (int column = 0; column < v_head_dim; column += column_tiles * prim::tile_width) {
      const float* const values = panels + column * panel_words;
      for (int row = rows.begin; row < rows.end; row += RowTiles * most_rows) {
        float* const sums = scratch_.sums + row * sum_stride + column;
        float* const next = sums + (RowTiles == 2 ? most_rows * sum_stride : prim::tile_width);
        tiles::load<first_scores>(sums, sum_bytes);
        tiles::load<second_scores>(next, sum_bytes);
        for (int i = 0; i < count; i += keys_at_once) {
          const float* const word = values + i / words::k_pack * prim::tile_width;
          tiles::load<operand>(word, 64);
          tiles::load<queries>(columns_of(row).weights(i), 64);
          tiles::multiply_add<first_scores, queries, operand>();
          if constexpr (RowTiles == 2) {
            tiles::load<queries>(columns_of(row + most_rows).weights(i), 64);
          } else {
            tiles::load<operand>(word + prim::tile_width * panel_words, 64);
          }
          tiles::multiply_add<second_scores, queries, operand>();
        }
        tiles::store<first_scores>(sums, sum_bytes);
        tiles::store<second_scores>(next, sum_bytes);
      }
    }
  }

  /// Scores of sixteen keys, [key][row], to the rows from `first` on.
  void store_scores(const float* products, int first, int column) const {
    reg block[prim::tile_rows];
    for (int i = 0; i < prim::tile_rows; ++i) {
      block[i] = vec::load_n(products + i * tile_rows_, tile_rows_);
    }
    vec::transpose(block);
    for (int r = 0; r < tile_rows_; ++r) {
      vec::store(scratch_.score_row(first + r) + column, block[r]);
    }
  }

  /// Values from `key` on as panels of tile_width columns, in the order of interleaved words;
  /// returns their words, whole tiles.
  template <class Rows>
  static int pack_values(const key_step<Rows>& at, int key, int panel_words, float* panels) {
    const int left = (at.count - key + words::k_pack - 1) / words::k_pack;
    const int used = left < panel_words ? round_up(left, prim::tile_width) : panel_words;
    for (int word = 0; word < used; ++word) {
      const int pair = key + word * words::k_pack;
      const element* row[words::k_pack];
      for (int i = 0; i < words::k_pack; ++i) {
        row[i] = pair + i < at.count ? at.rows.row(pair + i) : nullptr;
      }
      for (int d = 0; d < v_head_dim; d += elements_of_line) {
        reg x[2] = {vec::zero(), vec::zero()};
        if (row[0] != nullptr) {
          const element* const line[words::k_pack] = {row[0] + d,
                                                      row[1] != nullptr ? row[1] + d : nullptr};
          reader::template read_interleaved<2>(line, elements_of_line, x);
        }
        float* const to = panels + d * panel_words + word * prim::tile_width;
        vec::store(to, x[0]);
        vec::store(to + prim::tile_width * panel_words, x[1]);
        if constexpr (!std::is_same_v<Rows, buffered_rows<element>>) {
          for (int i = 0; i < words::k_pack; ++i) {
            const int asked = words::k_pack * d + i * elements_of_line;
            TESSERA_PREFETCH_L2(at.ahead[pair + asked / v_head_dim] + asked % v_head_dim);
          }
        }
      }
    }
    return used;
  }

  const decode_scratch<Kernel>& scratch_;
  int rows_, tile_rows_;
};

/// What a thread holds while it works on an item of so many rows.
template <class Kernel>
struct decode_scope {
  explicit decode_scope(int) {}
};
template <class Kernel>
requires traits<Kernel>::tiles struct decode_scope<Kernel> : prim::tile_scope<prim::tiles> {
  explicit decode_scope(int rows)
      : prim::tile_scope<prim::tiles>(decode_tiles<Kernel>::shapes(rows)) {}
};

}  // namespace tessera::kernels::attention::cpu
