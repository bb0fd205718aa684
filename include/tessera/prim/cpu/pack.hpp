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
  /// Asks for the cache lines of `elements` elements of a row.
  TESSERA_INLINE void prefetch(std::int64_t r, int elements) const {
    constexpr int line = 64 / static_cast<int>(sizeof(Element));
    const Element* p = row(r);
    for (int i = 0; i < elements; i += line) TESSERA_PREFETCH(p + i);
  }
  /// The same into the second-level cache, for parts [part, end) of `parts` of the first `count`
  /// rows.
  TESSERA_INLINE void prefetch_parts(int count, int elements, int part, int end, int parts) const {
    constexpr int line = 64 / static_cast<int>(sizeof(Element));
    for (int r = count * part / parts; r < count * end / parts; ++r) {
      const Element* p = row(r);
      for (int i = 0; i < elements; i += line) TESSERA_PREFETCH_L2(p + i);
    }
  }
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
  /// 0 where every value of the register is finite, else NaN.
  static TESSERA_INLINE reg accumulate_nonfinite(reg x, reg acc) {
    return vec::fma(x, vec::zero(), acc);
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
  static TESSERA_INLINE reg accumulate_nonfinite(reg x, reg acc) {
    const __m512i bits = _mm512_castps_si512(x);
    const reg low = _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    const reg high = _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(-65536)));
    return vec::fma(high, vec::zero(), vec::fma(low, vec::zero(), acc));
  }
};
#endif

/// Words of the summed axis for `elements` elements.
template <class Words>
constexpr int words_for(int elements) {
  return (elements + Words::per_word - 1) / Words::per_word;
}

/// Packs keys [0, count) of `source` into panels of `Vectors` registers of keys. Panel p starts at
/// out + p * words * Vectors * width. Keys beyond `count` in the last panel become 0.
template <class Isa, class Words, int Vectors, class Element>
void pack_keys(row_source<Element> source, int count, int head_dim, float* TESSERA_RESTRICT out) {
  using vec = simd<Isa>;
  using reader = word_reader<Words>;
  constexpr int width = vec::width;
  constexpr int columns = Vectors * width;
  const int words = words_for<Words>(head_dim);
  for (int key0 = 0; key0 < count; key0 += width) {
    const int keys = count - key0 < width ? count - key0 : width;
    float* panel = out + (key0 / columns) * words * columns + key0 % columns;
    for (int word0 = 0; word0 < words; word0 += width) {
      const int element0 = word0 * Words::per_word;
      typename vec::reg block[width];
      for (int i = 0; i < width; ++i) {
        block[i] = i < keys ? reader::read(source.row(key0 + i) + element0, head_dim - element0)
                            : vec::zero();
      }
      vec::transpose(block);
      const int used = words - word0 < width ? words - word0 : width;
      for (int i = 0; i < used; ++i) vec::store(panel + (word0 + i) * columns, block[i]);
    }
  }
  // The second half of a last panel that no key reached.
  const int padded = (count + width - 1) / width * width;
  if (Vectors > 1 && padded % columns != 0) {
    float* panel = out + (padded / columns) * words * columns + padded % columns;
    for (int word = 0; word < words; ++word) {
      for (int column = padded % columns; column < columns; column += width) {
        vec::store(panel + word * columns + (column - padded % columns), vec::zero());
      }
    }
  }
}

/// Packs `count` value rows, followed by zeros up to `padded` (a multiple of Words::per_word), into
/// panels of `Vectors` registers of columns; a last panel may have fewer. Panel p starts at
/// out + p * Vectors * width * padded / per_word. Keys with skip[key] (null: none) become zeros.
/// Returns false if a packed value is NaN or infinite.
template <class Isa, class Words, int Vectors, class Element>
bool pack_values(row_source<Element> source, int count, int padded, int v_head_dim,
                 const bool* skip, float* TESSERA_RESTRICT out) {
  using vec = simd<Isa>;
  using reader = word_reader<Words>;
  constexpr int width = vec::width;
  auto nonfinite = vec::zero();
  const int registers = (v_head_dim + width - 1) / width;
  for (int key = 0; key < padded; key += Words::per_word) {
    const Element* rows[Words::per_word];
    for (int i = 0; i < Words::per_word; ++i) {
      const bool present = key + i < count && (skip == nullptr || !skip[key + i]);
      rows[i] = present ? source.row(key + i) : nullptr;
    }
    for (int r = 0; r < registers; ++r) {
      const int panel = r / Vectors;
      const int panel_vectors =
          registers - panel * Vectors < Vectors ? registers - panel * Vectors : Vectors;
      const auto x = reader::read_values(rows, v_head_dim - r * width);
      nonfinite = reader::accumulate_nonfinite(x, nonfinite);
      vec::store(out + panel * Vectors * width * (padded / Words::per_word) +
                     (key / Words::per_word) * panel_vectors * width + (r % Vectors) * width,
                 x);
      for (int i = 0; i < Words::per_word; ++i) rows[i] += rows[i] != nullptr ? width : 0;
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
