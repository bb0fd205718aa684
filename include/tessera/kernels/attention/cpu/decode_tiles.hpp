// The two products of decode on AMX tiles, keys and values read where they lie. Sixteen keys are
// the rows of an operand as they are, so that scores come out transposed: key by query row. Values
// are interleaved in pairs of keys, as VDPBF16PS takes them, into a buffer that stays in the
// caches. Up to sixteen query rows go together, and tiles have as many rows as there are.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include <tessera/kernels/attention/cpu/coded_source.hpp>
#include <tessera/kernels/attention/cpu/decode_entry.hpp>
#include <tessera/kernels/attention/cpu/key_order.hpp>
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
    constexpr int word_bytes = 4;
    prim::tile_shapes all = prim::tile_shapes::full();
    all.set(first_scores, prim::tile_rows, used * word_bytes);
    all.set(second_scores, prim::tile_rows, used * word_bytes);
    all.set(queries, prim::tile_rows, used * word_bytes);
    all.set(weights, used, 64);
    all.set(first_sums, used, 64);
    all.set(second_sums, used, 64);
    return all;
  }

  /// Products of the first `rows` rows, of which there may be fewer than there is room for.
  decode_tiles(const decode_scratch<Kernel>& scratch, int rows)
      : scratch_(scratch), rows_(rows), tile_rows_(rows_of_tile(scratch.rows)) {}

  /// The rows of tiles with some of the rows.
  int rows_with_tail() const { return round_up(rows_, tile_rows_); }

  /// Words of Q as operand B, [tile of rows][word][row of the tile], zeros behind the last row.
  /// `row_of(r)` is row r.
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
        float* const to = scratch_.q + first * depth + word * tile_rows_;
        for (int w = 0; w < vec::width; ++w)
          vec::store_n(to + w * tile_rows_, block[w], tile_rows_);
      }
    }
  }

  /// Scores of a step. Those behind its last key are anything.
  template <class Rows>
  void gemm_qk(const key_step<Rows>& at) const {
    alignas(64) element spare[2][prim::tile_rows * head_dim];
    alignas(64) float products[2 * prim::tile_rows * most_rows];
    const std::int64_t row_bytes = tile_rows_ * std::int64_t{sizeof(float)};
    for (int key = 0; key < at.count; key += keys_at_once) {
      const tile_operand low = keys_from(at, key, spare[0]);
      const tile_operand high = keys_from(at, key + prim::tile_rows, spare[1]);
      for (int first = 0; first < rows_; first += most_rows) {
        const float* const q = scratch_.q + first * depth;
        tiles::zero<first_scores>();
        tiles::zero<second_scores>();
        for (int word = 0; word < depth; word += prim::tile_width) {
          tiles::load<queries>(q + word * tile_rows_, row_bytes);
          tiles::load<first_keys>(low.data + word, low.stride);
          tiles::multiply_add<first_scores, first_keys, queries>();
          tiles::load<second_keys>(high.data + word, high.stride);
          tiles::multiply_add<second_scores, second_keys, queries>();
          if (first == 0) ask_for(at, key, word / prim::tile_width);
        }
        tiles::store<first_scores>(products, row_bytes);
        tiles::store<second_scores>(products + prim::tile_rows * tile_rows_, row_bytes);
        for (int half = 0; half < keys_at_once; half += prim::tile_rows) {
          store_scores(products + half * tile_rows_, first, at.column + key + half);
        }
      }
    }
  }

  /// Sums of a step, whose weights behind the last key are zeros.
  template <class Rows>
  void gemm_pv(const key_step<Rows>& at) const {
    alignas(64) float panels[panel_words * v_head_dim];
    const std::int64_t score_bytes = shape::score_stride * std::int64_t{sizeof(float)};
    const std::int64_t sum_bytes = sum_stride * std::int64_t{sizeof(float)};
    constexpr std::int64_t panel_bytes = 64;
    for (int key = 0; key < at.count; key += words::k_pack * panel_words) {
      const int used = pack_values(at, key, panels);
      for (int first = 0; first < rows_; first += most_rows) {
        const float* const p = scratch_.score_row(first) + (at.column + key) / words::k_pack;
        for (int column = 0; column < v_head_dim; column += 2 * prim::tile_width) {
          float* const sums = scratch_.sums + first * sum_stride + column;
          const float* const v = panels + column * panel_words;
          tiles::load<first_sums>(sums, sum_bytes);
          tiles::load<second_sums>(sums + prim::tile_width, sum_bytes);
          for (int word = 0; word < used; word += prim::tile_width) {
            tiles::load<weights>(p + word, score_bytes);
            tiles::load<first_values>(v + word * prim::tile_width, panel_bytes);
            tiles::multiply_add<first_sums, weights, first_values>();
            tiles::load<second_values>(v + (panel_words + word) * prim::tile_width, panel_bytes);
            tiles::multiply_add<second_sums, weights, second_values>();
          }
          tiles::store<first_sums>(sums, sum_bytes);
          tiles::store<second_sums>(sums + prim::tile_width, sum_bytes);
        }
      }
    }
  }

 private:
  // Registers. Values come where keys were.
  static constexpr int first_scores = 0, second_scores = 1, first_keys = 2, second_keys = 3,
                       queries = 4, weights = 5, first_sums = 6, second_sums = 7, first_values = 2,
                       second_values = 3;
  static constexpr int keys_at_once = 2 * prim::tile_rows;
  /// Words of keys whose values are interleaved at a time.
  static constexpr int panel_words = 2 * prim::tile_width;

  /// Sixteen rows, `stride` bytes apart.
  struct tile_operand {
    const float* data;
    std::int64_t stride;
  };
  template <class Rows>
  static constexpr bool equally_spaced = requires(const Rows& rows) {
    rows.stride;
  };

  /// Keys [key, key + 16) of a step where they lie, if they are all there and equally far apart;
  /// else copied to `room`, zeros behind the last.
  template <class Rows>
  static tile_operand keys_from(const key_step<Rows>& at, int key, element* room) {
    const int left = at.count - key;
    const auto operand = [](const element* data, std::int64_t stride) {
      return tile_operand{reinterpret_cast<const float*>(data),
                          stride * static_cast<std::int64_t>(sizeof(element))};
    };
    if (left >= prim::tile_rows) {
      const element* const data = at.rows.row(key);
      const std::int64_t stride = at.rows.row(key + 1) - data;
      bool straight = true;
      if constexpr (!equally_spaced<Rows>) {
        for (int i = 2; i < prim::tile_rows; ++i) {
          straight = straight && at.rows.row(key + i) == data + i * stride;
        }
      }
      if (straight) return operand(data, stride);
    }
    for (int i = 0; i < prim::tile_rows; ++i) {
      element* const to = room + i * head_dim;
      constexpr std::size_t bytes = std::size_t{head_dim} * sizeof(element);
      if (i < left) {
        std::memcpy(static_cast<void*>(to), at.rows.row(key + i), bytes);
      } else {
        std::memset(static_cast<void*>(to), 0, bytes);
      }
    }
    return operand(room, head_dim);
  }

  /// Asks for some of the rows that a step's keys [key, key + keys_at_once) come with, line after
  /// line: all of them in head_dim / elements_of_line parts.
  template <class Rows>
  static TESSERA_INLINE void ask_for(const key_step<Rows>& at, int key, int part) {
    if constexpr (!std::is_same_v<Rows, buffered_rows<element>>) {
      constexpr int parts = head_dim / elements_of_line;
      const int begin = keys_at_once * part / parts, end = keys_at_once * (part + 1) / parts;
      for (int i = begin; i < end; ++i) {
        for (int d = 0; d < head_dim; d += elements_of_line) {
          TESSERA_PREFETCH_L2(at.ahead[key + i] + d);
        }
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

  /// Values from `key` on as panels of sixteen columns, in the order of interleaved words; returns
  /// their words, whole tiles.
  template <class Rows>
  static int pack_values(const key_step<Rows>& at, int key, float* panels) {
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
        vec::store(to + panel_words * prim::tile_width, x[1]);
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
