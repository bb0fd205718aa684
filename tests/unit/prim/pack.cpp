// Panels against their definition, for every remainder of rows and columns, and nothing written
// outside them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/prim/cpu/pack.hpp>

#include "native.hpp"

namespace {

using tessera::bf16;
using tessera::f16;
using tessera::prim::row_source;
using tessera::test::native_isa;
using tessera::test::vec;

using f32_words = tessera::prim::f32_words<native_isa>;

// Element e of word k of a column; words hold 1 f32 or 2 bf16.
template <class Words>
float element_of(const float* words, std::size_t word, int e) {
  if constexpr (Words::per_word == 1) {
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
void expect_keys_pack(int count, int head_dim) {
  constexpr int columns = Vectors * vec::width;
  constexpr float guard = 12345.0f;
  const auto data = rows_of<Element>(count, head_dim + 3, head_dim);
  const int words = tessera::prim::words_for<Words>(head_dim);
  const int panels = (count + columns - 1) / columns;
  const auto size = static_cast<std::size_t>(panels * words * columns);
  std::vector<float> out(size + vec::width, guard);
  // A register of keys at a time, in the wrong order: slices do not depend on each other.
  const int padded = (count + vec::width - 1) / vec::width * vec::width;
  for (int low = padded - vec::width; low >= 0; low -= vec::width) {
    tessera::prim::pack_keys<native_isa, Words, Vectors>(
        row_source<Element>{data.data(), head_dim + 3},
        {low, std::min(low + vec::width, count), count}, head_dim, out.data());
  }
  for (std::size_t n = size; n < out.size(); ++n) ASSERT_EQ(out[n], guard);
  for (int key = 0; key < padded; ++key) {
    const float* panel = out.data() + (key / columns) * words * columns;
    for (int d = 0; d < words * Words::per_word; ++d) {
      const float ours = element_of<Words>(
          panel, static_cast<std::size_t>((d / Words::per_word) * columns + key % columns),
          d % Words::per_word);
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
void expect_values_pack(int count, int v_head_dim, bool skip_some) {
  constexpr int width = vec::width;
  const int padded = (count + width - 1) / width * width;
  const auto data = rows_of<Element>(count, v_head_dim + 5, v_head_dim);
  const auto skip = std::make_unique<bool[]>(static_cast<std::size_t>(count) + 1);
  for (int key = 0; key < count; ++key) {
    skip[static_cast<std::size_t>(key)] = skip_some && key % 3 == 1;
  }
  const int registers = (v_head_dim + width - 1) / width;
  constexpr float guard = 12345.0f;
  const auto size = static_cast<std::size_t>(registers * width * padded / Words::per_word);
  std::vector<float> out(size + width, guard);
  for (int low = padded - width; low >= 0; low -= width) {
    const bool finite = tessera::prim::pack_values<native_isa, Words, Vectors>(
        row_source<Element>{data.data(), v_head_dim + 5},
        {low, std::min(low + width, count), count}, v_head_dim, skip_some ? skip.get() : nullptr,
        out.data());
    EXPECT_TRUE(finite) << "nothing beyond a row's used elements may be looked at";
  }
  for (std::size_t n = size; n < out.size(); ++n) ASSERT_EQ(out[n], guard);
  for (int key = 0; key < padded; ++key) {
    for (int d = 0; d < registers * width; ++d) {
      const int panel = d / (Vectors * width);
      const int panel_columns = std::min(Vectors, registers - panel * Vectors) * width;
      const auto word =
          static_cast<std::size_t>(panel * Vectors * width * (padded / Words::per_word) +
                                   key / Words::per_word * panel_columns + d % (Vectors * width));
      const bool inside =
          key < count && d < v_head_dim && !(skip_some && skip[static_cast<std::size_t>(key)]);
      const float want =
          inside ? static_cast<float>(data[static_cast<std::size_t>(key * (v_head_dim + 5) + d)])
                 : 0.0f;
      ASSERT_EQ(element_of<Words>(out.data(), word, key % Words::per_word), want)
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
      expect_keys_pack<Words, 1, Element>(count, dim);
      expect_keys_pack<Words, 2, Element>(count, dim);
      expect_values_pack<Words, 2, Element>(count, dim, false);
      expect_values_pack<Words, 2, Element>(count, dim, true);
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
      const row_source<float> source{data.data(), dim};
      std::vector<float> out(static_cast<std::size_t>((count + vec::width) * 2 * 2 * vec::width));
      EXPECT_FALSE((tessera::prim::pack_values<native_isa, f32_words, 2>(
          source, {0, count, count}, dim, nullptr, out.data())));
      bool found[count];
      tessera::prim::find_nonfinite<native_isa>(source, count, dim, found);
      for (int key = 0; key < count; ++key) EXPECT_EQ(found[key], key == at / dim);
    }
  }
}

template <class Words, class Element>
void expect_value_words() {
  constexpr int vectors = 2 * Words::per_word;
  constexpr int columns = vectors * vec::width;
  const auto data = rows_of<Element>(Words::per_word, columns, columns);
  for (const int count : {columns, columns - 1, vec::width + 1, 1}) {
    const Element* rows[Words::per_word];
    for (int i = 0; i < Words::per_word; ++i) rows[i] = data.data() + i * columns;
    typename vec::reg words[vectors];
    tessera::prim::word_reader<Words>::template read_value_words<vectors>(rows, count, words);
    float memory[columns];
    for (int v = 0; v < vectors; ++v) vec::store(memory + v * vec::width, words[v]);
    for (int d = 0; d < columns; ++d) {
      for (int i = 0; i < Words::per_word; ++i) {
        const float want = d < count ? static_cast<float>(rows[i][d]) : 0.0f;
        const auto word = static_cast<std::size_t>(Words::value_column(d));
        ASSERT_EQ(element_of<Words>(memory, word, i), want) << "column " << d << " of " << count;
      }
    }
  }
}

TEST(pack, value_words_lie_where_value_column_says) {
  expect_value_words<f32_words, float>();
  expect_value_words<f32_words, f16>();
#if defined(__AVX512BF16__)
  expect_value_words<tessera::prim::bf16_words<tessera::isa::avx512_bf16>, bf16>();
#endif
}

TEST(pack, query_rows_are_padded_with_zeros) {
  for (int dim = 1; dim <= 2 * vec::width + 1; ++dim) {
    const auto row = rows_of<f16>(1, dim, dim);
    const int padded = (dim + vec::width - 1) / vec::width * vec::width;
    std::vector<float> out(static_cast<std::size_t>(padded + vec::width), 9.0f);
    tessera::prim::pack_query<native_isa, f32_words>(row.data(), dim, out.data());
    for (int d = 0; d < padded + vec::width; ++d) {
      const auto at = static_cast<std::size_t>(d);
      const float want = d < dim ? static_cast<float>(row[at]) : d < padded ? 0.0f : 9.0f;
      ASSERT_EQ(out[at], want) << d << " of " << dim;
    }
  }
}

}  // namespace
