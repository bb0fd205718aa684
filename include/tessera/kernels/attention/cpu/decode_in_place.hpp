// Decode of four or eight query rows a key on AMX tiles that reads keys and values where they lie.
//
// Sixteen keys are the rows of an operand A, as in decode_tiles.hpp, and sixteen values those of an
// operand B, whose words are then pairs of neighbouring columns. Weights in the low halves of words
// give the sums of even columns, in the high halves those of odd ones: a query row is two rows of
// weights, 32 columns have their sums in one tile, and nothing is interleaved.
//
// Keys are those that all rows see and nothing but the softmax looks at. A value that is not finite
// reaches the column beside its own (0 * NaN), so rows whose results are not finite are made anew
// by decode_tiles.hpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <tessera/kernels/attention/cpu/decode_entry.hpp>
#include <tessera/kernels/attention/cpu/key_order.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/few_rows.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>

namespace tessera::kernels::attention::cpu {

/// Asks for the rows [key, end) of some heads in the order of memory, `Lines` lines each.
template <class Tokens, int Lines>
class row_requests {
  using stored = typename Tokens::stored;

 public:
  row_requests(const Tokens& tokens, const head_range& heads, std::int64_t key, std::int64_t end)
      : rows_(tokens, heads, key, end - 1), left_(key < end ? (end - key) * heads.count : 0) {}
  TESSERA_INLINE void ask(int rows) {
    for (; rows > 0 && left_ > 0; --rows, --left_) {
      const stored* row[1];
      rows_.take(row);
      TESSERA_UNROLL
      for (int line = 0; line < Lines; ++line) {
        TESSERA_PREFETCH_L2(row[0] + line * (64 / static_cast<int>(sizeof(stored))));
      }
    }
  }

 private:
  row_walk<Tokens> rows_;
  std::int64_t left_;
};

/// Where the keys, or the values, of a step lie: a tile of them, and the one behind it.
template <class Element>
struct tile_pair {
  const Element* tiles[2];
  std::int64_t stride;
  bool straight;  ///< all rows of a tile are `stride` apart

  template <class Tokens>
  static TESSERA_INLINE tile_pair of(const Tokens& tokens, std::int64_t key, int head) {
    constexpr std::int64_t rows = prim::tile_rows;
    const std::int64_t run = tokens.contiguous_run(key);
    const Element* const first = tokens.row(key, head);
    if (run >= 2 * rows) return {{first, first + rows * tokens.stride()}, tokens.stride(), true};
    return {{first, tokens.row(key + rows, head)},
            tokens.stride(),
            run >= rows && tokens.contiguous_run(key + rows) >= rows};
  }
  /// Of the head `offset` elements behind.
  TESSERA_INLINE tile_pair behind(std::int64_t offset) const {
    return {{tiles[0] + offset, tiles[1] + offset}, stride, straight};
  }
};

/// The rows of one head, as many as `Rows`. Their sums lie in the scratch memory of the head,
/// [32 columns][even, odd][row][16], until `finish` gives them the order of all others.
template <class Kernel, int Rows>
class in_place_tiles {
  using shape = traits<Kernel>;
  using element = typename shape::element;
  using words = typename shape::words;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  using lanes = prim::few_rows<Rows>;
  using tiles = prim::tiles;
  static constexpr int head_dim = shape::config.head_dim;
  static constexpr int v_head_dim = shape::config.v_head_dim;
  static constexpr int columns_of_tile = 2 * prim::tile_width;
  static constexpr int floats_of_tile = 2 * Rows * prim::tile_width;
  static constexpr int sum_stride = strides::sums(shape::config, v_head_dim);

 public:
  static constexpr int keys_of_step = 2 * prim::tile_rows;
  /// Lines of a key and of a value, and as many rows as two tiles of operands have lines.
  static constexpr int key_lines = head_dim / 32, value_lines = v_head_dim / 32;
  static constexpr int key_rows = keys_of_step / key_lines, value_rows = keys_of_step / value_lines;

  static prim::tile_shapes shapes() {
    prim::tile_shapes all = prim::tile_shapes::full();
    constexpr int row_bytes = Rows * static_cast<int>(sizeof(float));
    for (const int tile : {first_scores, second_scores, queries}) {
      all.set(tile, prim::tile_rows, row_bytes);
    }
    for (const int tile : {weights, first_sums, second_sums}) all.set(tile, 2 * Rows, 64);
    return all;
  }

  in_place_tiles() = default;
  /// `q_stride` words lie between the words of the queries (decode_tiles::pack_q).
  in_place_tiles(const decode_scratch<Kernel>& scratch, int q_stride)
      : scratch_(&scratch), q_bytes_(q_stride * std::int64_t{sizeof(float)}) {
    most_ = vec::broadcast(prim::minus_infinity);
    sum_ = vec::zero();
  }

  /// A step of keys and values; meanwhile asks for what comes next.
  template <class KeyRequests, class ValueRequests>
  TESSERA_INLINE void attend(const score_units& units, const tile_pair<element>& keys,
                             const tile_pair<element>& values, KeyRequests& next_keys,
                             ValueRequests& next_values) {
    alignas(64) float scores[keys_of_step * Rows];
    alignas(64) float turned[2 * floats_of_tile];
    multiply_keys(keys, scores, next_keys);
    weigh(vec::broadcast(units.exponent), scores, turned);
    add_values(values, turned, next_values);
  }

  /// Sums and states as decode_tiles.hpp has them.
  void finish() const {
    alignas(64) float own[Rows * v_head_dim];
    std::memcpy(own, scratch_->sums, sizeof own);
    for (int r = 0; r < Rows; ++r) {
      for (int d = 0; d < v_head_dim; d += columns_of_tile) {
        const float* const from = own + d * Rows + r * prim::tile_width;
        reg even = vec::load(from), odd = vec::load(from + Rows * prim::tile_width);
        lanes::interleave(even, odd);
        vec::store(scratch_->sums + r * sum_stride + d, even);
        vec::store(scratch_->sums + r * sum_stride + d + prim::tile_width, odd);
      }
    }
    const reg sum = lanes::fold_keys(sum_, [](reg a, reg b) { return vec::add(a, b); });
    vec::store_n(scratch_->softmax.row_max, most_, Rows);
    vec::store_n(scratch_->softmax.row_sum, sum, Rows);
  }

  /// After `finish`: rows whose results are not finite become those that `again()` leaves.
  template <class Again>
  void make_anew(const Again& again) const {
    bool finite[Rows];
    int count = 0;
    for (int r = 0; r < Rows; ++r) count += finite[r] = is_finite(r);
    if (count == Rows) return;
    float sums[Rows * sum_stride];
    prim::softmax_state states[Rows];
    std::memcpy(sums, scratch_->sums, sizeof sums);
    for (int r = 0; r < Rows; ++r) states[r] = scratch_->softmax.state(r);
    again();
    for (int r = 0; r < Rows; ++r) {
      if (!finite[r]) continue;
      std::memcpy(scratch_->sums + r * sum_stride, sums + r * sum_stride,
                  sum_stride * sizeof(float));
      scratch_->softmax.row_max[r] = states[r].maximum;
      scratch_->softmax.row_sum[r] = states[r].denominator;
    }
  }

 private:
  /// Whether all results of a row are finite.
  bool is_finite(int row) const {
    reg bits = vec::zero();
    for (int d = 0; d < v_head_dim; d += vec::width) {
      const reg x = vec::load(scratch_->sums + row * sum_stride + d);
      bits = vec::bit_or(bits, vec::mul(x, vec::zero()));
    }
    return vec::sum(bits) == 0.0f && std::isfinite(scratch_->softmax.row_max[row]) &&
           std::isfinite(scratch_->softmax.row_sum[row]);
  }

  // Registers, which are zeros when they are not in use (see tile_product).
  static constexpr int first_scores = 0, second_scores = 1, queries = 2, weights = 3, operand = 4,
                       first_sums = 5, second_sums = 6;

  template <class Requests>
  TESSERA_INLINE void multiply_keys(const tile_pair<element>& keys, float* scores,
                                    Requests& next) const {
    const std::int64_t stride = keys.stride * std::int64_t{sizeof(element)};
    const auto* const low = reinterpret_cast<const float*>(keys.tiles[0]);
    const auto* const high = reinterpret_cast<const float*>(keys.tiles[1]);
    const float* q = scratch_->q;
    constexpr std::int64_t score_bytes = Rows * sizeof(float);
    TESSERA_UNROLL
    for (int word = 0; word < head_dim / words::k_pack; word += prim::tile_width) {
      tiles::load<queries>(q, q_bytes_);
      q += prim::tile_width * q_bytes_ / static_cast<std::int64_t>(sizeof(float));
      tiles::load<operand>(low + word, stride);
      tiles::multiply_add<first_scores, operand, queries>();
      tiles::load<operand>(high + word, stride);
      tiles::multiply_add<second_scores, operand, queries>();
      next.ask(key_rows);
    }
    tiles::store<first_scores>(scores, score_bytes);
    tiles::store<second_scores>(scores + prim::tile_rows * Rows, score_bytes);
    tiles::zero<first_scores>();
    tiles::zero<second_scores>();
    tiles::zero<queries>();
  }

  /// Scores to weights: [sixteen keys][even, odd][row][16] words.
  TESSERA_INLINE void weigh(reg exponent, const float* scores, float* to) {
    constexpr int width = vec::width;
    reg best = vec::load(scores);
    TESSERA_UNROLL
    for (int i = 1; i < keys_of_step * Rows / width; ++i) {
      best = vec::max(best, vec::load(scores + i * width));
    }
    best = lanes::fold_keys(best, [](reg a, reg b) { return vec::max(a, b); });
    if (lanes::any_above(best, most_)) follow(vec::max(best, most_), exponent);
    reg sum = sum_;
    for (int half = 0; half < 2; ++half) {
      reg x[Rows];
      TESSERA_UNROLL
      for (int i = 0; i < Rows; ++i) {
        const reg score = vec::load(scores + (half * Rows + i) * width);
        x[i] = vec::exp2(vec::mul(vec::sub(score, most_), exponent));
        sum = vec::add(sum, x[i]);
      }
      lanes::turn(x);
      float* const row = to + half * floats_of_tile;
      TESSERA_UNROLL
      for (int r = 0; r < Rows; ++r) {
        const reg low = lanes::low_halves(x[r]);
        vec::store(row + r * width, low);
        vec::store(row + (Rows + r) * width, lanes::high_halves(low));
      }
    }
    sum_ = sum;
  }

  /// Sums follow the maxima.
  void follow(reg most, reg exponent) {
    const reg factor = vec::exp2(vec::mul(vec::sub(most_, most), exponent));
    sum_ = vec::mul(sum_, factor);
    most_ = most;
    alignas(64) float factors[vec::width];
    vec::store(factors, factor);
    for (int r = 0; r < Rows; ++r) {
      const reg of_row = vec::broadcast(factors[r]);
      float* sums = scratch_->sums + r * prim::tile_width;
      for (int d = 0; d < v_head_dim; d += prim::tile_width) {
        vec::store(sums, vec::mul(vec::load(sums), of_row));
        sums += Rows * prim::tile_width;
      }
    }
  }

  template <class Requests>
  TESSERA_INLINE void add_values(const tile_pair<element>& values, const float* turned,
                                 Requests& next) const {
    const std::int64_t stride = values.stride * std::int64_t{sizeof(element)};
    TESSERA_UNROLL
    for (int column = 0; column < v_head_dim; column += 2 * columns_of_tile) {
      float* const sums = scratch_->sums + column * Rows;
      tiles::load<first_sums>(sums, 64);
      tiles::load<second_sums>(sums + floats_of_tile, 64);
      TESSERA_UNROLL
      for (int half = 0; half < 2; ++half) {
        const float* const words_of_rows =
            reinterpret_cast<const float*>(values.tiles[half]) + column / words::k_pack;
        tiles::load<weights>(turned + half * floats_of_tile, 64);
        tiles::load<operand>(words_of_rows, stride);
        tiles::multiply_add<first_sums, weights, operand>();
        tiles::load<operand>(words_of_rows + prim::tile_width, stride);
        tiles::multiply_add<second_sums, weights, operand>();
        next.ask(value_rows);
      }
      tiles::store<first_sums>(sums, 64);
      tiles::store<second_sums>(sums + floats_of_tile, 64);
    }
    tiles::zero<first_sums>();
    tiles::zero<second_sums>();
    tiles::zero<weights>();
  }

  const decode_scratch<Kernel>* scratch_ = nullptr;
  std::int64_t q_bytes_ = 0;
  reg most_, sum_;  ///< of rows in lanes; the sums of some of their keys
};

}  // namespace tessera::kernels::attention::cpu
