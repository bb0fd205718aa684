// What the declaration of the operations on caches cannot say: hostile tables and pages in words,
// slots bit for bit, appending and then attending, the header path.
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/kv_cache.hpp>
#include <tessera/launch.hpp>
#include <tessera/page_attention.hpp>

namespace {

using namespace tessera;

/// Two sequences of 5 and 4 keys in pages of 4, of which the last 2 and 3 are new.
struct append_call {
  static constexpr std::int64_t heads = 2, dim = 3;
  std::vector<float> k = std::vector<float>(5 * heads * dim, 1.0f), v = k;
  std::vector<float> k_pool = std::vector<float>(4 * 4 * heads * dim, -7.0f), v_pool = k_pool;
  std::vector<std::int32_t> table{2, 0, 1, -1}, lengths{5, 4}, offsets{0, 2, 5};

  kv_cache_args args() {
    return {.k_new = view(k.data(), {5, heads, dim}),
            .v_new = view(v.data(), {5, heads, dim}),
            .k_pages = view(k_pool.data(), {4, 4, heads, dim}),
            .v_pages = view(v_pool.data(), {4, 4, heads, dim}),
            .block_table = view(table.data(), {2, 2}),
            .seqlens_k = view(lengths.data(), {2}),
            .cu_seqlens_q = view(offsets.data(), {3})};
  }
  static constexpr kv_cache_options options{.pool_layout = cache_layout::PTHD};
  /// What the call is refused with; nothing is written then.
  std::string refusal() {
    const std::vector<float> before = k_pool;
    const status done = kv_cache_append(args(), options);
    EXPECT_TRUE(done || k_pool == before);
    return done.message();
  }
};

TEST(kv_cache_append, refuses_hostile_tables_before_it_writes) {
  append_call call;
  EXPECT_EQ(call.refusal(), "");
  call.table = {2, 0, 0, -1};
  EXPECT_EQ(call.refusal(),
            "block_table: entry 1,0 is 0, as is entry 0,1; a page that is written is in use once");
  call.table = {1, 0, 1, -1};
  EXPECT_EQ(call.refusal(),
            "block_table: entry 1,0 is 1, as is entry 0,0; a page that is written is in use once");
  call.table = {2, 2, 1, -1};
  EXPECT_EQ(call.refusal(),
            "block_table: entry 0,1 is 2, as is entry 0,0; a page that is written is in use once");
  call.table = {2, 4, 1, -1};
  EXPECT_EQ(call.refusal(), "block_table: entry 0,1 is 4, must be 0 to 3: there are 4 pages");
  call.table = {2, 0, 1, -1};
  call.lengths = {1, 4};
  EXPECT_EQ(call.refusal(), "seqlens_k: entry 0 is 1, cu_seqlens_q gives the sequence 2 rows");
  call.lengths = {5, 9};
  EXPECT_EQ(call.refusal(),
            "seqlens_k: entry 1 is 9, must be 0 to 8: block_table has 2 pages of 4 tokens");
  call.lengths = {5, 4};
  call.offsets = {0, 3, 2};
  EXPECT_EQ(call.refusal(), "cu_seqlens_q: entry 2 is 2, entry 1 has 3; offsets never decrease");
}

TEST(kv_cache_append, refuses_batches_without_offsets_that_are_not_a_token_each) {
  append_call call;
  kv_cache_args args = call.args();
  args.cu_seqlens_q = {};
  EXPECT_EQ(kv_cache_append(args, append_call::options).message(),
            "k_new: new tokens is 5, seqlens_k has 2 sequences; without cu_seqlens_q each has one");
}

TEST(kv_cache_append, refuses_a_pool_that_the_layout_does_not_have) {
  append_call call;
  kv_cache_args args = call.args();
  std::vector<float> both(4 * 4 * 4 * 3);
  args.kv_pages = view(both.data(), {4, 4, 4, 3});
  EXPECT_EQ(kv_cache_append(args, append_call::options).message(),
            "kv_pages: is given, pools of keys and of values are k_pages and v_pages");
  EXPECT_EQ(kv_cache_append(args, {.pool_layout = cache_layout::PTCD}).message(),
            "k_pages: is given, pools of keys and values together have kv_pages");
  args.kv_pages = args.k_pages = {};
  EXPECT_EQ(kv_cache_append(args, append_call::options).message(),
            "k_pages: is absent, kv_cache_append needs k_new, v_new, k_pages, v_pages, seqlens_k "
            "and block_table");
}

/// Bits that no conversion would leave alone: payloads of NaN, in the tokens and around their
/// slots.
TEST(kv_cache_append, moves_bits_and_touches_no_other_slot) {
  constexpr std::int64_t pages = 3, page_size = 4, heads = 2, dim = 5;
  std::vector<f16> k(2 * heads * dim), v(k.size());
  for (std::size_t i = 0; i < k.size(); ++i) {
    k[i].bits = static_cast<std::uint16_t>(0x7d01 + i);
    v[i].bits = static_cast<std::uint16_t>(0xfd81 + i);
  }
  std::vector<f16> pool(pages * page_size * 2 * heads * dim);
  for (std::size_t i = 0; i < pool.size(); ++i) {
    pool[i].bits = static_cast<std::uint16_t>(0x7c01 + i % 1000);
  }
  std::vector<f16> wanted = pool;
  const std::vector<std::int32_t> table{2, 0}, lengths{5};
  const std::vector<std::int32_t> offsets{0, 2};
  const std::array<std::int64_t, 2> slots{2 * page_size + 3, 0 * page_size + 0};
  for (std::int64_t t = 0; t < 2; ++t) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto from = static_cast<std::size_t>((t * heads + h) * dim + d);
        const std::int64_t slot = slots[static_cast<std::size_t>(t)] * 2 * heads;
        wanted[static_cast<std::size_t>((slot + 2 * h) * dim + d)] = k[from];
        wanted[static_cast<std::size_t>((slot + 2 * h + 1) * dim + d)] = v[from];
      }
    }
  }
  const status done =
      kv_cache_append({.k_new = view(k.data(), {2, heads, dim}),
                       .v_new = view(v.data(), {2, heads, dim}),
                       .kv_pages = view(pool.data(), {pages, page_size, 2 * heads, dim}),
                       .block_table = view(table.data(), {1, 2}),
                       .seqlens_k = view(lengths.data(), {1}),
                       .cu_seqlens_q = view(offsets.data(), {2})},
                      {.pool_layout = cache_layout::PTCD});
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(std::memcmp(pool.data(), wanted.data(), pool.size() * sizeof(f16)), 0);
}

/// Tokens appended one after the other are what attention over the pages sees.
TEST(kv_cache_append, is_what_page_attention_attends_to) {
  constexpr std::int64_t dim = 8, page_size = 2, tokens = 5;
  std::vector<float> k_pool(4 * page_size * dim), v_pool(k_pool.size());
  const std::vector<std::int32_t> table{3, 1, 0};
  const tensor_view k_pages = view(k_pool.data(), {4, 1, page_size, dim});
  const tensor_view v_pages = view(v_pool.data(), {4, 1, page_size, dim});
  std::vector<float> zero(dim), out(dim);
  for (std::int32_t length = 1; length <= tokens; ++length) {
    const std::vector<float> value(dim, static_cast<float>(length));
    const tensor_view lengths = view(&length, {1});
    ASSERT_TRUE(kv_cache_append({.k_new = view(zero.data(), {1, 1, dim}),
                                 .v_new = view(value.data(), {1, 1, dim}),
                                 .k_pages = k_pages,
                                 .v_pages = v_pages,
                                 .block_table = view(table.data(), {1, 3}),
                                 .seqlens_k = lengths}));
    ASSERT_TRUE(page_attention({.q = view(zero.data(), {1, 1, dim}),
                                .k_pages = k_pages,
                                .v_pages = v_pages,
                                .block_table = view(table.data(), {1, 3}),
                                .seqlens_k = lengths,
                                .out = view(out.data(), {1, 1, dim})}));
    EXPECT_FLOAT_EQ(out[0], static_cast<float>(length + 1) / 2);  // the mean of 1 to length
  }
}

struct copy_call {
  std::vector<float> pool{0, 1, 10, 11, 20, 21, 30, 31};
  std::vector<std::int32_t> sources, targets;

  status run() {
    const auto count = static_cast<std::int64_t>(sources.size());
    return kv_cache_copy({.kv_pages = view(pool.data(), {4, 1, 2, 1}),
                          .source_pages = view(sources.data(), {count}),
                          .target_pages = view(targets.data(), {count})},
                         {.pool_layout = cache_layout::PTCD});
  }
};

TEST(kv_cache_copy, copies_pages_and_refuses_those_that_hang_together) {
  copy_call call{.sources = {0, 0}, .targets = {3, 1}};
  ASSERT_TRUE(call.run());
  EXPECT_EQ(call.pool, (std::vector<float>{0, 1, 0, 1, 20, 21, 0, 1}));
  const auto refusal = [](std::vector<std::int32_t> sources, std::vector<std::int32_t> targets) {
    copy_call refused{.sources = std::move(sources), .targets = std::move(targets)};
    const std::vector<float> before = refused.pool;
    const status done = refused.run();
    EXPECT_EQ(refused.pool, before);
    return done.message();
  };
  EXPECT_EQ(refusal({0, 0}, {3, 3}), "target_pages: entry 1 is 3, as is entry 0 of target_pages");
  EXPECT_EQ(refusal({0, 1}, {1, 2}), "target_pages: entry 0 is 1, as is entry 1 of source_pages");
  EXPECT_EQ(refusal({0}, {4}), "target_pages: entry 0 is 4, must be 0 to 3: there are 4 pages");
  EXPECT_EQ(refusal({-1}, {2}), "source_pages: entry 0 is -1, must be 0 to 3: there are 4 pages");
}

struct my_append {
  static constexpr kv_cache_config config{.target = native_cpu_backend};
};
struct my_copy {
  static constexpr kv_cache_config config{.target = native_cpu_backend,
                                          .pass = kv_cache_pass::copy};
};

TEST(kv_cache_header_path, appends_and_copies_without_a_table) {
  append_call looked_up, direct;
  ASSERT_TRUE(kv_cache_append(looked_up.args(), append_call::options));
  ASSERT_TRUE(launch<my_append>(direct.args(), append_call::options, cpu{.threads = 2}));
  EXPECT_EQ(looked_up.k_pool, direct.k_pool);
  EXPECT_EQ(looked_up.v_pool, direct.v_pool);
  copy_call call{.sources = {2}, .targets = {0}};
  ASSERT_TRUE(launch<my_copy>(kv_cache_args{.kv_pages = view(call.pool.data(), {4, 1, 2, 1}),
                                            .source_pages = view(call.sources.data(), {1}),
                                            .target_pages = view(call.targets.data(), {1})},
                              {.pool_layout = cache_layout::PTCD}));
  EXPECT_EQ(call.pool, (std::vector<float>{20, 21, 10, 11, 20, 21, 30, 31}));
}

}  // namespace
