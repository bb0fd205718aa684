// The scatter of new tokens that operations share, with this program's instructions: every pair of
// types, bit for bit, and every other slot as it was.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kernels/kv_cache/cpu/append.hpp>

#include "tests/unit/prim/native.hpp"

namespace {

using namespace tessera;

constexpr std::int64_t page_size = 3, pages = 7, heads = 3, columns = 70, width = 72;
constexpr std::array<std::int32_t, 4> offsets{0, 4, 4, 6};
constexpr std::array<std::int32_t, 3> lengths{5, 2, 9};
constexpr std::array<std::int32_t, 9> table{6, 2, -1, 0, -1, -1, 5, 4, 1};

/// A pool [pages, page_size, 2 * (heads + 1), width]: keys and values of a head side by side, a
/// head more than there are.
constexpr std::int64_t channels = 2 * (heads + 1);

struct slot {
  std::int64_t token, page, slot;
};
constexpr std::array<slot, 6> places{
    {{0, 6, 1}, {1, 6, 2}, {2, 2, 0}, {3, 2, 1}, {4, 1, 1}, {5, 1, 2}}};

template <class From, class To>
void expect_right(dtype from, dtype to, bool scaled, int threads) {
  SCOPED_TRACE(std::string(name_of(from)) + " to " + std::string(name_of(to)));
  std::mt19937 random(7);
  std::normal_distribution<float> bell(0.0f, 40.0f);
  constexpr std::int64_t tokens = 8;  // two belong to nobody
  std::vector<From> k(static_cast<std::size_t>(tokens * heads * columns)), v(k.size());
  for (From& x : k) x = From(bell(random));
  for (From& x : v) x = From(bell(random));
  std::vector<To> pool(static_cast<std::size_t>(pages * page_size * channels * width));
  std::memset(static_cast<void*>(pool.data()), 0xA5, pool.size() * sizeof(To));
  std::vector<To> wanted = pool;
  const std::array<float, heads> k_scales{0.5f, 3.0f, 1.0f};
  const float v_scale = scaled ? 0.7f : 1.0f;
  for (const slot& place : places) {
    To* const at = wanted.data() + (place.page * page_size + place.slot) * channels * width;
    std::memset(static_cast<void*>(at), 0, channels * width * sizeof(To));
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = 0; d < columns; ++d) {
        const auto source = static_cast<std::size_t>((place.token * heads + h) * columns + d);
        const auto put = [&](std::int64_t channel, From x, float scale) {
          volatile float value = prim::float_of(x);
          value = value / scale;
          at[channel * width + d] = prim::nearest<To>(value);
        };
        put(2 * h, k[source], scaled ? k_scales[static_cast<std::size_t>(h)] : 1.0f);
        put(2 * h + 1, v[source], v_scale);
      }
    }
  }
  const kv_append_args args{
      .k_new = k.data(),
      .v_new = v.data(),
      .new_type = from,
      .k_new_strides = {heads * columns, columns},
      .v_new_strides = {heads * columns, columns},
      .k = pool.data(),
      .v_offset = width,
      .pool_type = to,
      .k_strides = {page_size * channels * width, channels * width, 2 * width},
      .v_strides = {page_size * channels * width, channels * width, 2 * width},
      .page_size = page_size,
      .page_count = pages,
      .heads = heads,
      .pool_heads = heads + 1,
      .k_columns = columns,
      .v_columns = columns,
      .k_width = width,
      .v_width = width,
      .table = table.data(),
      .table_row = 3,
      .table_pages = 3,
      .seqlens_k = lengths.data(),
      .cu_seqlens_q = offsets.data(),
      .sequences = 3,
      .tokens = tokens,
      .v_scale = v_scale,
      .k_scales = scaled ? k_scales.data() : nullptr};
  kernels::kv_cache::cpu::append<test::native_isa>(args, threads);
  EXPECT_EQ(std::memcmp(pool.data(), wanted.data(), pool.size() * sizeof(To)), 0);
}

template <class From>
void expect_right_from(dtype from) {
  for (const bool scaled : {false, true}) {
    const int threads = scaled ? 2 : 1;
    expect_right<From, float>(from, dtype::f32, scaled, threads);
    expect_right<From, f16>(from, dtype::f16, scaled, threads);
    expect_right<From, bf16>(from, dtype::bf16, scaled, threads);
    expect_right<From, f8_e4m3>(from, dtype::f8_e4m3, scaled, threads);
    expect_right<From, f8_e5m2>(from, dtype::f8_e5m2, scaled, threads);
    expect_right<From, std::int8_t>(from, dtype::i8, scaled, threads);
  }
}

TEST(kv_append, writes_the_slots_of_the_new_tokens_and_nothing_else) {
  expect_right_from<float>(dtype::f32);
  expect_right_from<f16>(dtype::f16);
  expect_right_from<bf16>(dtype::bf16);
}

// One token a sequence; sequences behind num_seqs write nothing.
TEST(kv_append, without_offsets_each_sequence_in_use_has_a_token) {
  const std::array<float, 3> k{1, 2, 3}, v{4, 5, 6};
  std::array<float, pages * page_size> k_pool{}, v_pool{};
  const std::int32_t used = 2;
  const kv_append_args args{.k_new = k.data(),
                            .v_new = v.data(),
                            .new_type = dtype::f32,
                            .k_new_strides = {1, 0},
                            .v_new_strides = {1, 0},
                            .k = k_pool.data(),
                            .v = v_pool.data(),
                            .pool_type = dtype::f32,
                            .k_strides = {page_size, 1},
                            .v_strides = {1, pages},
                            .page_size = page_size,
                            .page_count = pages,
                            .heads = 1,
                            .pool_heads = 1,
                            .k_columns = 1,
                            .v_columns = 1,
                            .k_width = 1,
                            .v_width = 1,
                            .table = table.data(),
                            .table_row = 3,
                            .table_pages = 3,
                            .seqlens_k = lengths.data(),
                            .num_seqs = &used,
                            .sequences = 3,
                            .tokens = 3};
  kernels::kv_cache::cpu::append<test::native_isa>(args, 1);
  std::array<float, pages * page_size> k_wanted{}, v_wanted{};
  k_wanted[2 * page_size + 1] = 1;  // key 4 of sequence 0: page 2, slot 1
  k_wanted[0 * page_size + 1] = 2;  // key 1 of sequence 1: page 0, slot 1
  v_wanted[2 + 1 * pages] = 4;
  v_wanted[0 + 1 * pages] = 5;
  EXPECT_EQ(k_pool, k_wanted);
  EXPECT_EQ(v_pool, v_wanted);
}

}  // namespace
