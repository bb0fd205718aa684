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
#include <tessera/kernels/attention/cpu/gemm_tiles.hpp>
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
      : scratch_(scratch),
        rows_(rows),
        tile_rows_(rows_of_tile(scratch.rows)),
        all_rows_(round_up(scratch.rows, tile_rows_)) {}

  /// Words of Q from one word of a row to the next.
  int q_stride() const { return all_rows_; }
  /// The rows of tiles with some of the rows.
  int rows_with_tail() const { return round_up(rows_, tile_rows_); }

  /// Whether scores of `keys` keys that nothing but the softmax looks at stay [key][row].
  /// That follows from the rows of the sequence alone, not from those that the batch has besides.
  bool keeps_columns(int keys) const {
    return tile_rows_ == most_rows && rows_ >= most_rows &&
           keys % softmax_columns<Kernel>::keys_at_once == 0;
  }

  /// Words of Q as operand B, [word][row], zeros behind the last row. `row_of(r)` is row r.
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
        float* const to = scratch_.q + word * all_rows_ + first;
        for (int w = 0; w < vec::width; ++w) vec::store_n(to + w * all_rows_, block[w], tile_rows_);
      }
    }
  }

  /// Scores of a step. Those behind its last key are anything.
  template <class Rows>
  void gemm_qk(const key_step<Rows>& at) const {
    alignas(64) element spare[2][prim::tile_rows * head_dim];
    alignas(64) float products[2 * prim::tile_rows * most_rows];
    const std::int64_t row_bytes = tile_rows_ * std::int64_t{sizeof(float)};
    const std::int64_t q_bytes = all_rows_ * word_bytes;
    for (int key = 0; key < at.count; key += keys_at_once) {
      const tile_operand low = keys_from<prim::tile_rows>(at, key, spare[0]);
      const tile_operand high = keys_from<prim::tile_rows>(at, key + prim::tile_rows, spare[1]);
      for (int first = 0; first < rows_; first += most_rows) {
        const float* const q = scratch_.q + first;
        tiles::zero<first_scores>();
        tiles::zero<second_scores>();
        for (int word = 0; word < depth; word += prim::tile_width) {
          tiles::load<queries>(q + word * all_rows_, q_bytes);
          tiles::load<operand>(low.data + word, low.stride);
          tiles::multiply_add<first_scores, operand, queries>();
          tiles::load<operand>(high.data + word, high.stride);
          tiles::multiply_add<second_scores, operand, queries>();
          if (first == 0) ask_for<keys_at_once>(at, key, word / prim::tile_width);
        }
        tiles::store<first_scores>(products, row_bytes);
        tiles::store<second_scores>(products + prim::tile_rows * tile_rows_, row_bytes);
        for (int half = 0; half < keys_at_once; half += prim::tile_rows) {
          store_scores(products + half * tile_rows_, first, at.column + key + half);
        }
      }
    }
    tiles::zero<first_scores>();
    tiles::zero<second_scores>();
    tiles::zero<queries>();
  }

  /// The rows against a tile of keys and its values, a multiple of keys_at_once, all of which they
  /// see: scores, softmax and sums of a few rows and keys at a time, which stay in the first-level
  /// cache.
  template <class KeyRows, class ValueRows>
  void attend_columns(const score_units& units, const key_step<KeyRows>& k,
                      const key_step<ValueRows>& v) const {
    alignas(64) float panels[most_words_of_pass * v_head_dim];
    const int own_rows = round_up(rows_, most_rows);
    const int room = own_rows < rows_of_pass ? own_rows : rows_of_pass;
    const int panel_words = room > most_rows ? most_words_of_pass : words_of_panel;
    const int keys_of_pass = words::k_pack * panel_words;
    for (int key = 0; key < k.count; key += keys_of_pass) {
      const int count = k.count - key < keys_of_pass ? k.count - key : keys_of_pass;
      pack_values(v, key, panel_words, panels);
      for (int first = 0; first < rows_; first += room) {
        const int left = round_up(rows_ - first, most_rows);
        const softmax_columns<Kernel> columns(scratch_.scores, room, left < room ? left : room);
        multiply_keys(k, key, count, first, columns);
        columns.update(units, count, scratch_.softmax.from(first), scratch_.rescale + first);
        add_values(panels, panel_words, count, first, columns);
      }
    }
  }

  /// Sums of a step, whose weights behind the last key are zeros.
  template <class Rows>
  void gemm_pv(const key_step<Rows>& at) const {
    alignas(64) float panels[words_of_panel * v_head_dim];
    const std::int64_t score_bytes = shape::score_stride * std::int64_t{sizeof(float)};
    const std::int64_t sum_bytes = sum_stride * std::int64_t{sizeof(float)};
    constexpr std::int64_t panel_bytes = panel_columns * std::int64_t{sizeof(float)};
    for (int key = 0; key < at.count; key += words::k_pack * words_of_panel) {
      const int used = pack_values(at, key, words_of_panel, panels);
      for (int first = 0; first < rows_; first += most_rows) {
        const float* const p = scratch_.score_row(first) + (at.column + key) / words::k_pack;
        for (int column = 0; column < v_head_dim; column += panel_columns) {
          float* const sums = scratch_.sums + first * sum_stride + column;
          const float* const v = panels + column * words_of_panel;
          tiles::load<first_sums>(sums, sum_bytes);
          tiles::load<second_sums>(sums + prim::tile_width, sum_bytes);
          for (int word = 0; word < used; word += prim::tile_width) {
            tiles::load<weights>(p + word, score_bytes);
            tiles::load<operand>(v + word * panel_columns, panel_bytes);
            tiles::multiply_add<first_sums, weights, operand>();
            tiles::load<operand>(v + word * panel_columns + prim::tile_width, panel_bytes);
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
  static constexpr int keys_at_once = 2 * prim::tile_rows;
  static constexpr std::int64_t word_bytes = sizeof(float);
  /// Words of keys whose values are interleaved at a time, and columns that lie side by side.
  static constexpr int words_of_panel = 2 * prim::tile_width;
  static constexpr int panel_columns = 2 * prim::tile_width;

  /// Rows whose scores are in the buffer at a time where they lie key by row, and words of as many
  /// keys: of more rows more, so that their sums come and go less often.
  static constexpr int rows_of_pass = 2 * prim::tile_rows;
  static constexpr int most_words_of_pass = 2 * words_of_panel;

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

  /// Scores of the keys [key, key + count) of a step with some rows from `first` on.
  template <class Rows>
  void multiply_keys(const key_step<Rows>& at, int key, int count, int first,
                     const softmax_columns<Kernel>& columns) const {
    alignas(64) element spare[keys_at_once * head_dim];
    with_row_tiles(columns.rows(), [&]<int RowTiles>() {
      constexpr int key_tiles = RowTiles == 2 ? 1 : 2, keys_of_block = key_tiles * prim::tile_rows;
      prim::tile_product<tiles, key_tiles, RowTiles> product;
      for (int i = 0; i < count; i += keys_of_block) {
        const tile_operand keys = keys_from<keys_of_block>(at, key + i, spare);
        const typename decltype(product)::operands from{keys.data, keys.stride / word_bytes,
                                                        scratch_.q + first, all_rows_};
        int part = 0;
        const auto ask = [&] {
          if (first == 0) ask_for<keys_of_block>(at, key + i, part++);
        };
        ask();
        product.template begin<false>(from, columns.scores(i), columns.room());
        product.add(product.next(from), depth - prim::tile_width, ask);
      }
      product.finish();
    });
  }

  /// Sums of these rows, which follow their maxima, and the weights of `count` keys times `panels`.
  void add_values(const float* panels, int panel_words, int count, int first,
                  const softmax_columns<Kernel>& columns) const {
    const int end = columns.rows() < rows_ - first ? first + columns.rows() : rows_;
    scratch_.rescale_sums(first, end, sum_stride);
    with_row_tiles(columns.rows(), [&]<int RowTiles>() {
      constexpr int column_tiles = RowTiles == 2 ? 1 : 2;
      prim::tile_product<tiles, RowTiles, column_tiles> product;
      for (int column = 0; column < v_head_dim; column += column_tiles * prim::tile_width) {
        const int in_panel = column % panel_columns;
        const typename decltype(product)::operands from{
            columns.weights(0), prim::tile_width,
            panels + (column - in_panel) * panel_words + in_panel, panel_columns,
            columns.room() * prim::tile_width};
        product.template begin<true>(from, scratch_.sums + first * sum_stride + column, sum_stride);
        product.add(product.next(from), count / words::k_pack - prim::tile_width);
      }
      product.finish();
    });
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

  /// Values from `key` on as panels of panel_columns, in the order of interleaved words; returns
  /// their words, whole tiles.
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
        float* const to = panels + d * panel_words + word * panel_columns;
        vec::store(to, x[0]);
        vec::store(to + prim::tile_width, x[1]);
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
  int rows_, tile_rows_, all_rows_;
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
