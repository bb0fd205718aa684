// Packing of key and value tiles into panels: what a register tile reads as its B operand.
//
// A panel holds `columns` columns; word k of every column lies contiguously, so that a kernel
// streams through it. Keys: summed axis = head dim, columns = keys (a transpose). Values: summed
// axis = keys, columns = value dims. Words hold one f32 or two bf16 neighbours of the summed axis.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/prim/cpu/dot.hpp>

namespace tessera::prim {

/// Source rows of one head: row r starts at data + r * stride, its elements are contiguous.
template <class Element>
struct row_source {
  const Element* data = nullptr;
  std::int64_t stride = 0;
  TESSERA_INLINE const Element* row(std::int64_t r) const { return data + r * stride; }
};

/// Reads and widens rows into words.
template <class Words>
struct word_reader;

template <class Isa>
struct word_reader<f32_words<Isa>> {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int elements = vec::width;  ///< of the summed axis in one register

  template <class Element>
  static TESSERA_INLINE reg read(const Element* p) {
    return vec::load_as(p);
  }
  /// The first `count` elements; zeros behind them.
  template <class Element>
  static TESSERA_INLINE reg read(const Element* p, int count) {
    return count >= elements ? vec::load_as(p) : vec::load_as_n(p, count);
  }
  /// Words of `count` value columns of one key.
  template <class Element>
  static TESSERA_INLINE reg read_values(const Element* const (&key)[1], int count) {
    if (key[0] == nullptr) return vec::zero();
    return read(key[0], count);
  }
  /// The words of the first `count` columns of one key: column Words::value_column(d) of the
  /// registers is column d. A null row counts as zeros.
  template <int Vectors, class Element>
  static TESSERA_INLINE void read_value_words(const Element* const (&key)[1], int count,
                                              reg (&words)[Vectors]) {
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; ++v) {
      const int left = count - v * vec::width;
      words[v] = read(key[0] + v * vec::width, left < 0 ? 0 : left);
    }
  }
  /// 0 or -0 where every value is finite, else NaN. The bits of NaN survive an OR, which unlike a
  /// sum costs one cycle.
  static TESSERA_INLINE reg accumulate_nonfinite(reg x, reg acc) {
    return vec::bit_or(acc, vec::mul(x, vec::zero()));
  }
};

#if defined(__AVX512BF16__)
template <class Isa>
struct word_reader<bf16_words<Isa>> {
  using vec = simd<Isa>;
  using reg = typename vec::reg;
  static constexpr int elements = 2 * vec::width;

  static TESSERA_INLINE reg read(const bf16* p) {
    return _mm512_castsi512_ps(_mm512_loadu_si512(p));
  }
  static TESSERA_INLINE reg read(const bf16* p, int count) {
    const __mmask32 lanes = count >= elements ? ~__mmask32{0} : (__mmask32{1} << count) - 1u;
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(lanes, p));
  }
  /// Words of `count` value columns: key[0] in the low halves, key[1] in the high ones.
  static TESSERA_INLINE reg read_values(const bf16* const (&key)[2], int count) {
    const auto lanes = static_cast<__mmask16>(count >= vec::width ? 0xffffu : (1u << count) - 1u);
    const auto load = [lanes](const bf16* p) {
      return p == nullptr ? _mm512_setzero_si512()
                          : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p));
    };
    return _mm512_castsi512_ps(_mm512_or_si512(load(key[0]), _mm512_slli_epi32(load(key[1]), 16)));
  }
  template <int Vectors>
  static TESSERA_INLINE void read_value_words(const bf16* const (&key)[2], int count,
                                              reg (&words)[Vectors]) {
    static_assert(Vectors % 2 == 0);
    TESSERA_UNROLL
    for (int v = 0; v < Vectors; v += 2) {
      const int column = v * vec::width;
      const int left = count < column ? 0 : count - column;
      const __m512i even = _mm512_castps_si512(read(key[0] + column, left));
      const __m512i odd = key[1] == nullptr ? _mm512_setzero_si512()
                                            : _mm512_castps_si512(read(key[1] + column, left));
      words[v] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(even, odd));
      words[v + 1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(even, odd));
    }
  }
  static TESSERA_INLINE reg accumulate_nonfinite(reg x, reg acc) {
    const __m512i bits = _mm512_castps_si512(x);
    const reg low = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    const reg high = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
    return vec::bit_or(acc, vec::bit_or(vec::mul(low, vec::zero()), vec::mul(high, vec::zero())));
  }
};
#endif

/// Words of the summed axis for `elements` elements.
template <class Words>
constexpr int words_for(int elements) {
  return (elements + Words::per_word - 1) / Words::per_word;
}

/// Keys [low, high) of a block of `count` keys; `low` is a multiple of the register width.
struct packed_keys {
  int low = 0;
  int high = 0;
  int count = 0;
};

/// Packs the key rows `keys` of a block, followed by zeros up to a whole register of keys, into
/// panels of `Vectors` registers of keys. Panel p starts at out + p * words * Vectors * width.
template <class Isa, class Words, int Vectors, class Element>
void pack_keys(row_source<Element> source, packed_keys keys, int head_dim,
               float* TESSERA_RESTRICT out) {
  using vec = simd<Isa>;
  using reader = word_reader<Words>;
  constexpr int width = vec::width;
  constexpr int columns = Vectors * width;
  const int words = words_for<Words>(head_dim);
  for (int key0 = keys.low; key0 < keys.high; key0 += width) {
    const int present = keys.high - key0 < width ? keys.high - key0 : width;
    float* panel = out + (key0 / columns) * words * columns + key0 % columns;
    for (int word0 = 0; word0 < words; word0 += width) {
      const int element0 = word0 * Words::per_word;
      typename vec::reg block[width];
      for (int i = 0; i < width; ++i) {
        block[i] = i < present ? reader::read(source.row(key0 + i) + element0, head_dim - element0)
                               : vec::zero();
      }
      vec::transpose(block);
      const int used = words - word0 < width ? words - word0 : width;
      for (int i = 0; i < used; ++i) vec::store(panel + (word0 + i) * columns, block[i]);
    }
  }
}

/// Packs the value rows `keys` of a block, followed by zeros up to a whole register of keys, into
/// panels of `Vectors` registers of columns; a last panel may have fewer. Panels have room for the
/// whole block: panel p starts at out + p * Vectors * width * padded / per_word, where `padded` is
/// count in whole registers. Keys with skip[key] (null: none) become zeros. Returns false if a
/// packed value is NaN or infinite.
template <class Isa, class Words, int Vectors, class Element>
bool pack_values(row_source<Element> source, packed_keys keys, int v_head_dim, const bool* skip,
                 float* TESSERA_RESTRICT out) {
  using vec = simd<Isa>;
  using reader = word_reader<Words>;
  constexpr int width = vec::width;
  auto nonfinite = vec::zero();
  const int registers = (v_head_dim + width - 1) / width;
  const int padded = (keys.count + width - 1) / width * width;
  const int end = (keys.high + width - 1) / width * width;
  for (int r = 0; r < registers; ++r) {
    const int panel = r / Vectors * Vectors;
    const int step = (registers - panel < Vectors ? registers - panel : Vectors) * width;
    const int left = v_head_dim - r * width;
    float* to = out + panel * width * (padded / Words::per_word) + (r - panel) * width +
                keys.low / Words::per_word * step;
    for (int key = keys.low; key < end; key += Words::per_word, to += step) {
      const Element* rows[Words::per_word];
      for (int i = 0; i < Words::per_word; ++i) {
        const bool present = key + i < keys.high && (skip == nullptr || !skip[key + i]);
        rows[i] = present ? source.row(key + i) + r * width : nullptr;
      }
      const auto x = reader::read_values(rows, left);
      nonfinite = reader::accumulate_nonfinite(x, nonfinite);
      vec::store(to, x);
    }
  }
  return vec::sum(nonfinite) == 0.0f;
}

/// nonfinite[key] = some value of that key is NaN or infinite.
template <class Isa, class Element>
void find_nonfinite(row_source<Element> source, int count, int v_head_dim, bool* nonfinite) {
  for (int key = 0; key < count; ++key) {
    float sum = 0.0f;
    for (int d = 0; d < v_head_dim; ++d) sum += 0.0f * static_cast<float>(source.row(key)[d]);
    nonfinite[key] = sum != 0.0f;
  }
}

/// Copies one query row into words, zero-padded to whole registers.
template <class Isa, class Words, class Element>
TESSERA_INLINE void pack_query(const Element* row, int head_dim, float* TESSERA_RESTRICT out) {
  using reader = word_reader<Words>;
  for (int element = 0; element < head_dim; element += reader::elements) {
    simd<Isa>::store(out + element / Words::per_word,
                     reader::read(row + element, head_dim - element));
  }
}

}  // namespace tessera::prim
