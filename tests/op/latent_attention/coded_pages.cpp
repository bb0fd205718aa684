// Latents of 8 bits in pages: rows as FlashMLA has them, codes, scales and rope parts one behind
// the other, are attended to as the numbers they stand for, with the same bits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/latent_attention/registry.hpp>
#include <tessera/latent_attention.hpp>
#include <tessera/spec/float8.hpp>

#include "tests/reference/float8.hpp"
#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::coded_pages_test {
namespace {

constexpr std::int64_t latent = 512, rope = 64, groups = 4, heads = 5, rows = 2;
constexpr std::int64_t page = 16, pages = 9, keys = 131, width = latent + rope;
constexpr std::int64_t scales_at = latent, rope_at = scales_at + groups * 4;  // bytes in a row
constexpr std::int64_t row_bytes = rope_at + rope * 2;
static_assert(row_bytes == 656);
constexpr flash_mla_decode_options options{.softmax_scale = 0.02, .causal = true, .v_dim = latent};

/// The rows of a cache, and the same numbers as floats.
struct coded_cache {
  explicit coded_cache(dtype of) : type(of) {
    support::random_source random(5);
    for (std::int64_t row = 0; row < pages * page; ++row) {
      std::uint8_t* const to = bytes.data() + row * row_bytes;
      for (std::int64_t g = 0; g < groups; ++g) {
        const float scale = static_cast<float>(random.between(1, 300)) / 900;
        std::memcpy(to + scales_at + 4 * g, &scale, sizeof scale);
        for (std::int64_t d = g * latent / groups; d < (g + 1) * latent / groups; ++d) {
          const float x = 3 * random.bell();
          to[d] = type == dtype::f8_e4m3 ? f8_e4m3(x).bits : f8_e5m2(x).bits;
          numbers[static_cast<std::size_t>(row * width + d)] =
              static_cast<float>(reference::value_of_code(type, to[d])) * scale;
        }
      }
      for (std::int64_t d = 0; d < rope; ++d) {
        const bf16 x(random.bell());
        std::memcpy(to + rope_at + 2 * d, &x, sizeof x);
        numbers[static_cast<std::size_t>(row * width + latent + d)] = static_cast<float>(x);
      }
    }
  }
  void give(flash_mla_decode_args& to) {
    const auto part = [&](std::int64_t at, dtype of, std::int64_t columns) {
      const auto size = static_cast<std::int64_t>(size_of(of)), row = row_bytes / size;
      tensor_view view{.data = bytes.data() + at, .type = of, .rank = 4};
      view.extent = {pages, page, 1, columns};
      view.stride = {page * row, row, row, 1};
      return view;
    };
    to.kv_cache = part(0, type, latent);
    to.pe_cache = part(rope_at, dtype::bf16, rope);
    to.kv_scale = part(scales_at, dtype::f32, groups);
    to.kv_scale.rank = 3;
    to.kv_scale.extent = {pages, page, groups};
    to.kv_scale.stride[2] = 1;
  }

  dtype type;
  std::vector<std::uint8_t> bytes = std::vector<std::uint8_t>(pages * page * row_bytes);
  std::vector<float> numbers = std::vector<float>(pages * page * width);
};

class coded_pages : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    for (const instance& of : latent_attention_registry()) {
      if (of.name == row && support::runs_here(of.target)) return;
    }
    GTEST_SKIP() << "no such instructions here";
  }
  const std::string row = "latent_attention." + std::string(GetParam()) + ".absorbed.forward";
};

TEST_P(coded_pages, have_the_bits_of_the_numbers_they_stand_for) {
  support::random_source random(6);
  std::vector<bf16> q(rows * heads * width), out(rows * heads * latent);
  std::ranges::generate(q, [&] { return bf16(random.bell()); });
  std::vector<float> q_numbers(q.size()), expected(out.size());
  std::ranges::transform(q, q_numbers.begin(), [](bf16 x) { return static_cast<float>(x); });
  std::vector<std::int32_t> table(pages);
  std::iota(table.begin(), table.end(), 0);
  std::ranges::reverse(table);
  std::int32_t seen = keys;
  for (const dtype type : {dtype::f8_e4m3, dtype::f8_e5m2}) {
    coded_cache cache(type);
    flash_mla_decode_args args{.q = view(q.data(), {1, rows, heads, width}),
                               .block_table = view(table.data(), {1, pages}),
                               .seqlens_k = view(&seen, {1}),
                               .out = view(out.data(), {1, rows, heads, latent})};
    cache.give(args);
    const status done = flash_mla_decode(args, options, {.row = row});
    ASSERT_TRUE(done) << done.message();
    args = {.q = view(q_numbers.data(), {1, rows, heads, width}),
            .kv_cache = view(cache.numbers.data(), {pages, page, 1, width}),
            .block_table = args.block_table,
            .seqlens_k = args.seqlens_k,
            .out = view(expected.data(), {1, rows, heads, latent})};
    const status as_numbers = flash_mla_decode(args, options, {.row = row});
    ASSERT_TRUE(as_numbers) << as_numbers.message();
    for (std::size_t at = 0; at < out.size(); ++at) {
      ASSERT_EQ(out[at].bits, bf16(expected[at]).bits) << name_of(type) << " " << at;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(backends, coded_pages,
                         testing::Values("cpu_generic", "cpu_avx2", "cpu_avx512"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace tessera::coded_pages_test
