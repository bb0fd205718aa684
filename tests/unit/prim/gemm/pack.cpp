// Panels against their definition, for every remainder of rows and columns, and nothing written
// outside them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/pack_columns.hpp>

#include "../native.hpp"

namespace {

using tessera::bf16;
using tessera::f16;
using tessera::prim::listed_rows;
using tessera::prim::panels;
using tessera::prim::strided_rows;
using tessera::test::native_isa;
using tessera::test::vec;

using f32_words = tessera::prim::f32_words<native_isa>;

// Element e of word k of a column; words hold 1 f32 or 2 bf16.
template <class Words>
float element_of(const float* words, std::size_t word, int e) {
  if constexpr (Words::k_pack == 1) {
    return words[word];
  } else {
    bf16 pair[2];
    std::memcpy(static_cast<void*>(pair), words + word, sizeof pair);
    return static_cast<float>(pair[e]);
  }
}

template <class Element>
std::vector<Element> rows_of(int rows, int stride, int used) {
  std::vector<Element> data(static_cast<std::size_t>(rows * stride),
                            Element(std::numeric_limits<float>::quiet_NaN()));
  for (int r = 0; r < rows; ++r) {
    for (int d = 0; d < used; ++d) {
      data[static_cast<std::size_t>(r * stride + d)] =
          Element(static_cast<float>((r * 37 + d * 11) % 251 - 125));
    }
  }
  return data;
}

template <class Words, int Vectors, class Element>
void expect_columns_pack(int count, int head_dim) {
  constexpr int columns = Vectors * vec::width;
  constexpr float guard = 12345.0f;
  const auto data = rows_of<Element>(count, head_dim + 3, head_dim);
  const int words = tessera::prim::words_for<Words>(head_dim);
  const int panels_needed = (count + columns - 1) / columns;
  const auto size = static_cast<std::size_t>(panels_needed * words * columns);
  std::vector<float> out(size + vec::width, guard);
  // A register of keys at a time, in the wrong order: slices do not depend on each other.
  const int padded = (count + vec::width - 1) / vec::width * vec::width;
  for (int low = padded - vec::width; low >= 0; low -= vec::width) {
    tessera::prim::pack_transposed<Words>(
        strided_rows<Element>{data.data(), head_dim + 3}, {low, std::min(low + vec::width, count)},
        head_dim, panels<native_isa, Vectors>{out.data(), words, panels_needed * columns});
  }
  for (std::size_t n = size; n < out.size(); ++n) ASSERT_EQ(out[n], guard);
  for (int key = 0; key < padded; ++key) {
    const float* panel = out.data() + (key / columns) * words * columns;
    for (int d = 0; d < words * Words::k_pack; ++d) {
      const float ours = element_of<Words>(
          panel, static_cast<std::size_t>((d / Words::k_pack) * columns + key % columns),
          d % Words::k_pack);
      const bool inside = key < count && d < head_dim;
      const float want =
          inside ? static_cast<float>(data[static_cast<std::size_t>(key * (head_dim + 3) + d)])
                 : 0.0f;
      ASSERT_EQ(ours, want) << "key " << key << " of " << count << ", element " << d << " of "
                            << head_dim;
    }
  }
}

template <class Words, int Vectors, class Element>
void expect_rows_pack(int count, int v_head_dim, bool skip_some) {
  constexpr int width = vec::width;
  const int padded = (count + width - 1) / width * width;
  const auto data = rows_of<Element>(count, v_head_dim + 5, v_head_dim);
  const auto skip = std::make_unique<bool[]>(static_cast<std::size_t>(count) + 1);
  for (int key = 0; key < count; ++key) {
    skip[static_cast<std::size_t>(key)] = skip_some && key % 3 == 1;
  }
  const int registers = (v_head_dim + width - 1) / width;
  constexpr float guard = 12345.0f;
  const auto size = static_cast<std::size_t>(registers * width * padded / Words::k_pack);
  std::vector<float> out(size + width, guard);
  for (int low = padded - width; low >= 0; low -= width) {
    const bool finite = tessera::prim::pack_rows<Words>(
        strided_rows<Element>{data.data(), v_head_dim + 5}, {low, std::min(low + width, count)},
        v_head_dim, skip_some ? skip.get() : nullptr,
        panels<native_isa, Vectors>{out.data(), padded / Words::k_pack, registers * width});
    EXPECT_TRUE(finite) << "nothing beyond a row's used elements may be looked at";
  }
  for (std::size_t n = size; n < out.size(); ++n) ASSERT_EQ(out[n], guard);
  for (int key = 0; key < padded; ++key) {
    for (int d = 0; d < registers * width; ++d) {
      const int panel = d / (Vectors * width);
      const int panel_columns = std::min(Vectors, registers - panel * Vectors) * width;
      const auto word =
          static_cast<std::size_t>(panel * Vectors * width * (padded / Words::k_pack) +
                                   key / Words::k_pack * panel_columns + d % (Vectors * width));
      const bool inside =
          key < count && d < v_head_dim && !(skip_some && skip[static_cast<std::size_t>(key)]);
      const float want =
          inside ? static_cast<float>(data[static_cast<std::size_t>(key * (v_head_dim + 5) + d)])
                 : 0.0f;
      ASSERT_EQ(element_of<Words>(out.data(), word, key % Words::k_pack), want)
          << "key " << key << " of " << count << ", column " << d << " of " << v_head_dim;
    }
  }
}

template <class Words, class Element>
void expect_all_sizes_pack() {
  for (const int count : {1, 2, 3, vec::width - 1, vec::width, vec::width + 1, 2 * vec::width,
                          2 * vec::width + 1, 3 * vec::width + 2}) {
    for (const int dim : {1, 2, 3, vec::width - 1, vec::width, vec::width + 1, 40,
                          2 * vec::width + 1, 4 * vec::width}) {
      expect_columns_pack<Words, 1, Element>(count, dim);
      expect_columns_pack<Words, 2, Element>(count, dim);
      expect_rows_pack<Words, 2, Element>(count, dim, false);
      expect_rows_pack<Words, 2, Element>(count, dim, true);
    }
  }
}

TEST(pack, f32_words_of_every_type) {
  expect_all_sizes_pack<f32_words, float>();
  expect_all_sizes_pack<f32_words, f16>();
  expect_all_sizes_pack<f32_words, bf16>();
}

#if defined(__AVX512BF16__)
TEST(pack, bf16_pairs) {
  expect_all_sizes_pack<tessera::prim::bf16_words<tessera::isa::avx512_bf16>, bf16>();
}
#endif

TEST(pack, nonfinite_values_are_noticed_wherever_they_are) {
  const int count = 5, dim = vec::width + 3;
  for (const float special : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -HUGE_VALF}) {
    for (int at = 0; at < count * dim; ++at) {
      auto data = rows_of<float>(count, dim, dim);
      data[static_cast<std::size_t>(at)] = special;
      const strided_rows<float> source{data.data(), dim};
      std::vector<float> out(static_cast<std::size_t>((count + vec::width) * 2 * 2 * vec::width));
      EXPECT_FALSE(tessera::prim::pack_rows<f32_words>(
          source, {0, count}, dim, nullptr,
          panels<native_isa, 2>{out.data(), vec::width * ((count + vec::width - 1) / vec::width),
                                2 * vec::width}));
      bool found[count];
      tessera::prim::find_nonfinite<native_isa>(source, {0, count}, dim, found);
      for (int key = 0; key < count; ++key) EXPECT_EQ(found[key], key == at / dim);
    }
  }
}

template <class Words, class Element>
void expect_value_words() {
  constexpr int vectors = 2 * Words::k_pack;
  constexpr int columns = vectors * vec::width;
  const auto data = rows_of<Element>(Words::k_pack, columns, columns);
  for (const int count : {columns, columns - 1, vec::width + 1, 1}) {
    const Element* rows[Words::k_pack];
    for (int i = 0; i < Words::k_pack; ++i) rows[i] = data.data() + i * columns;
    typename vec::reg words[vectors];
    tessera::prim::word_reader<Words>::template read_interleaved<vectors>(rows, count, words);
    float memory[columns];
    for (int v = 0; v < vectors; ++v) vec::store(memory + v * vec::width, words[v]);
    for (int d = 0; d < columns; ++d) {
      for (int i = 0; i < Words::k_pack; ++i) {
        const float want = d < count ? static_cast<float>(rows[i][d]) : 0.0f;
        const auto word = static_cast<std::size_t>(Words::interleaved_column(d));
        ASSERT_EQ(element_of<Words>(memory, word, i), want) << "column " << d << " of " << count;
      }
    }
  }
}

TEST(pack, value_words_lie_where_interleaved_column_says) {
  expect_value_words<f32_words, float>();
  expect_value_words<f32_words, f16>();
#if defined(__AVX512BF16__)
  expect_value_words<tessera::prim::bf16_words<tessera::isa::avx512_bf16>, bf16>();
#endif
}

TEST(panels, every_word_of_every_column_has_a_place_of_its_own) {
  constexpr int words = 3;
  for (int registers = 1; registers <= 5; ++registers) {
    const int columns = registers * vec::width;
    std::vector<float> memory(panels<native_isa, 2>::floats(words, columns));
    const panels<native_isa, 2> packed{memory.data(), words, columns};
    std::vector<int> taken(memory.size());
    for (int column = 0; column < columns; column += vec::width) {
      for (int word = 0; word < words; ++word) {
        const auto at = packed.at(word, column) - memory.data();
        for (int lane = 0; lane < vec::width; ++lane) ++taken[static_cast<std::size_t>(at + lane)];
        if (word > 0) {
          EXPECT_EQ(packed.at(word, column) - packed.at(word - 1, column), packed.stride(column));
        }
      }
    }
    EXPECT_EQ(taken, std::vector<int>(memory.size(), 1));
  }
}

TEST(pack, rows_may_lie_anywhere) {
  constexpr int count = vec::width + 3, dim = 21, first = 5;
  const auto data = rows_of<float>(count, dim, dim);
  const strided_rows<float> strided{data.data(), dim};
  // The same rows back to front in memory, numbered from `first` on.
  std::vector<float> backward;
  for (int r = count - 1; r >= 0; --r) {
    backward.insert(backward.end(), strided.row(r), strided.row(r) + dim);
  }
  listed_rows<float, count> listed{};
  listed.first = first;
  for (int r = 0; r < count; ++r) listed.address[r] = backward.data() + (count - 1 - r) * dim;
  for (int r = 0; r < count; ++r) EXPECT_EQ(listed.row(first + r)[0], strided.row(r)[0]);
  listed.first = 0;
  constexpr int columns = 2 * vec::width;
  std::vector<float> from_strided(dim * columns), from_listed(dim * columns);
  tessera::prim::pack_transposed<f32_words>(
      strided, {0, count}, dim, panels<native_isa, 2>{from_strided.data(), dim, columns});
  tessera::prim::pack_transposed<f32_words>(
      listed, {0, count}, dim, panels<native_isa, 2>{from_listed.data(), dim, columns});
  EXPECT_EQ(from_listed, from_strided);
}

TEST(pack, rows_of_a_are_padded_with_zeros) {
  for (int dim = 1; dim <= 2 * vec::width + 1; ++dim) {
    const auto row = rows_of<f16>(1, dim, dim);
    const int padded = (dim + vec::width - 1) / vec::width * vec::width;
    std::vector<float> out(static_cast<std::size_t>(padded + vec::width), 9.0f);
    tessera::prim::pack_a<native_isa, f32_words>(row.data(), dim, out.data());
    for (int d = 0; d < padded + vec::width; ++d) {
      const auto at = static_cast<std::size_t>(d);
      const float want = d < dim ? static_cast<float>(row[at]) : d < padded ? 0.0f : 9.0f;
      ASSERT_EQ(out[at], want) << d << " of " << dim;
    }
  }
}

template <class Words, class Element>
void expect_columns_of_a_pack(int count, int dim, bool skip_some) {
  constexpr int width = vec::width;
  constexpr float guard = 12345.0f;
  const auto padded = [](int n) { return (n + width - 1) / width * width; };
  const int stride = padded((count + Words::k_pack - 1) / Words::k_pack) + 3;
  const auto data = rows_of<Element>(count, dim + 2, dim);
  const auto skip = std::make_unique<bool[]>(static_cast<std::size_t>(count));
  for (int r = 0; r < count; ++r) skip[static_cast<std::size_t>(r)] = skip_some && r % 3 == 1;
  std::vector<float> out(static_cast<std::size_t>(padded(dim) * stride + width), guard);
  EXPECT_TRUE((tessera::prim::pack_columns<Words, native_isa>(
      strided_rows<Element>{data.data(), dim + 2}, count, dim, skip.get(), out.data(), stride)));
  for (int d = 0; d < padded(dim); ++d) {
    const auto row = static_cast<std::size_t>(d * stride);
    for (int r = 0; r < (stride - 3) * Words::k_pack; ++r) {
      const bool inside = r < count && d < dim && !skip[static_cast<std::size_t>(r)];
      const float want =
          inside ? static_cast<float>(data[static_cast<std::size_t>(r * (dim + 2) + d)]) : 0.0f;
      ASSERT_EQ(element_of<Words>(out.data(), row + static_cast<std::size_t>(r / Words::k_pack),
                                  r % Words::k_pack),
                want)
          << "row " << r << " of " << count << ", element " << d << " of " << dim;
    }
    for (int i = 1; i <= 3; ++i) {
      ASSERT_EQ(out[row + static_cast<std::size_t>(stride - i)], guard);
    }
  }
}

template <class Words, class Element>
void expect_columns_of_a_pack() {
  for (const int count : {1, 2, vec::width, 2 * vec::width + 1, 3 * vec::width + 2}) {
    for (const int dim : {1, 3, vec::width, vec::width + 1, 40}) {
      expect_columns_of_a_pack<Words, Element>(count, dim, false);
      expect_columns_of_a_pack<Words, Element>(count, dim, true);
    }
  }
}

/// Floats of k_pack rows as words of one row of B.
template <class Words>
void expect_row_words() {
  typename vec::reg rows[Words::k_pack];
  float values[Words::k_pack][vec::width], words[vec::width];
  for (int i = 0; i < Words::k_pack; ++i) {
    for (int c = 0; c < vec::width; ++c) values[i][c] = static_cast<float>(i * 64 + c - 20);
    rows[i] = vec::load(values[i]);
  }
  tessera::prim::row_words<Words>::store(words, rows);
  for (int i = 0; i < Words::k_pack; ++i) {
    for (int c = 0; c < vec::width; ++c) {
      EXPECT_EQ(element_of<Words>(words, static_cast<std::size_t>(c), i), values[i][c])
          << "row " << i << ", column " << c;
    }
  }
}

TEST(pack, rows_may_be_columns_of_a) {
  expect_columns_of_a_pack<f32_words, float>();
  expect_columns_of_a_pack<f32_words, bf16>();
  expect_row_words<f32_words>();
#if defined(__AVX512BF16__)
  using pairs = tessera::prim::bf16_words<tessera::isa::avx512_bf16>;
  expect_columns_of_a_pack<pairs, bf16>();
  expect_row_words<pairs>();
#endif
  auto data = rows_of<float>(3, 5, 5);
  data[7] = HUGE_VALF;
  std::vector<float> out(static_cast<std::size_t>(8 * vec::width * vec::width));
  const bool none[3] = {}, second[3] = {false, true, false};
  const strided_rows<float> rows{data.data(), 5};
  const auto packs = [&](const bool* skip) {
    return tessera::prim::pack_columns<f32_words, native_isa>(rows, 3, 5, skip, out.data(),
                                                              vec::width);
  };
  EXPECT_FALSE(packs(none));
  EXPECT_TRUE(packs(second)) << "what is skipped is not looked at";
}

}  // namespace
