// What latent attention is besides a formula: absorbed queries over latents in pages give what
// expanded latents give, entries of a batch have the bits of lone ones, and a prompt may come in
// pieces of any lengths.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/latent_attention/registry.hpp>
#include <tessera/latent_attention.hpp>

#include "tests/support/compare.hpp"
#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;
using tessera::view;

constexpr std::int64_t length = 150, heads = 3, latent = 40, nope = 24, rope = 8, value = 20;
constexpr std::int64_t width = nope + rope;

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = random.bell();
  return numbers;
}

/// Bits are compared on one back end: which row is chosen may depend on the sizes of a call.
class latent_attention : public testing::TestWithParam<std::string_view> {
 protected:
  static std::string row(std::string_view kind) {
    return "latent_attention." + std::string(GetParam()) + "." + std::string(kind);
  }
  /// Whether this machine has the instructions.
  static bool runs_here() {
    const std::string name = row("absorbed.forward");
    for (const tessera::instance& row : tessera::latent_attention_registry()) {
      if (row.name == name) return tessera::support::runs_here(row.target);
    }
    return false;
  }
};

/// A causal call of `entries` entries and its gradient.
struct expanded_call {
  explicit expanded_call(std::int64_t entries)
      : count(entries),
        ckv(bells(entries * length * latent, 1)),
        k_pe(bells(entries * length * rope, 2)),
        q(bells(entries * length * heads * width, 3)),
        d_out(bells(entries * length * heads * value, 4)),
        w_kc(bells(latent * heads * nope, 5)),
        w_vc(bells(latent * heads * value, 6)),
        out(d_out.size()),
        lse(static_cast<std::size_t>(entries * length * heads)),
        d_ckv(ckv.size()),
        d_k_pe(k_pe.size()),
        d_q(q.size()),
        d_w_kc(w_kc.size()),
        d_w_vc(w_vc.size()) {
    for (float& weight : w_kc) weight /= std::sqrt(static_cast<float>(latent));
  }

  /// Entries [begin, end).
  tessera::flash_mla_args slice(std::int64_t begin, std::int64_t end) {
    const auto tokens = [&](std::vector<float>& of, std::int64_t columns) {
      return view(of.data() + begin * length * columns, {end - begin, length, columns});
    };
    const auto rows = [&](std::vector<float>& of, std::int64_t columns) {
      return view(of.data() + begin * length * heads * columns,
                  {end - begin, length, heads, columns});
    };
    return {.ckv = tokens(ckv, latent),
            .w_kc = view(w_kc.data(), {latent, heads, nope}),
            .w_vc = view(w_vc.data(), {latent, heads, value}),
            .k_pe = tokens(k_pe, rope),
            .q = rows(q, width),
            .out = rows(out, value),
            .lse = view(lse.data() + begin * heads * length, {end - begin, heads, length})};
  }
  void run(std::int64_t begin, std::int64_t end, std::string_view forward = {},
           std::string_view backward = {}) {
    tessera::flash_mla_args args = slice(begin, end);
    const auto done = tessera::flash_mla(args, {.causal = true}, {.row = forward});
    ASSERT_TRUE(done) << done.message();
    const auto like = [](const tessera::tensor_view& operand, std::vector<float>& memory,
                         std::int64_t first) {
      tessera::tensor_view gradient = operand;
      gradient.data = memory.data() + first;
      return gradient;
    };
    args.d_out = like(args.out, d_out, begin * length * heads * value);
    args.d_ckv = like(args.ckv, d_ckv, begin * length * latent);
    args.d_k_pe = like(args.k_pe, d_k_pe, begin * length * rope);
    args.d_q = like(args.q, d_q, begin * length * heads * width);
    args.d_w_kc = like(args.w_kc, d_w_kc, 0);
    args.d_w_vc = like(args.w_vc, d_w_vc, 0);
    const auto back = tessera::flash_mla_backward(args, {.causal = true}, {.row = backward});
    ASSERT_TRUE(back) << back.message();
  }

  std::int64_t count;
  std::vector<float> ckv, k_pe, q, d_out, w_kc, w_vc, out, lse;
  std::vector<float> d_ckv, d_k_pe, d_q, d_w_kc, d_w_vc;
};

TEST_P(latent_attention, entries_of_a_batch_have_the_bits_of_lone_ones) {
  if (!runs_here()) GTEST_SKIP() << "no such instructions here";
  const std::string forward = row("expanded.forward"), backward = row("expanded.backward");
  expanded_call batch(3), alone(3);
  batch.run(0, 3, forward, backward);
  for (std::int64_t entry = 0; entry < 3; ++entry) {
    alone.run(entry, entry + 1, forward, backward);
  }
  EXPECT_EQ(batch.out, alone.out);
  EXPECT_EQ(batch.lse, alone.lse);
  EXPECT_EQ(batch.d_ckv, alone.d_ckv);
  EXPECT_EQ(batch.d_k_pe, alone.d_k_pe);
  EXPECT_EQ(batch.d_q, alone.d_q);
}

/// A prompt over a cache whose pages lie in any order.
struct paged_prompt {
  static constexpr std::int64_t page = 16, pages = (length + page - 1) / page, padded = 256;

  explicit paged_prompt(expanded_call& of)
      : latents(of.ckv),
        ropes(of.k_pe),
        queries(static_cast<std::size_t>(length * heads * latent)),
        query_ropes(static_cast<std::size_t>(length * heads * rope)),
        cache(static_cast<std::size_t>(pages * page * padded), -1.0f),
        out(queries.size()),
        table(static_cast<std::size_t>(pages)) {
    random_source random(9);
    std::iota(table.begin(), table.end(), 0);
    shuffle(table, random);
    for (std::int64_t row = 0; row < length * heads; ++row) {
      const float* const from = of.q.data() + row * width;
      std::copy_n(from + nope, rope, query_ropes.data() + row * rope);
      for (std::int64_t r = 0; r < latent; ++r) {
        const float* const weights = of.w_kc.data() + (r * heads + row % heads) * nope;
        queries[static_cast<std::size_t>(row * latent + r)] =
            std::inner_product(from, from + nope, weights, 0.0f);
      }
    }
  }

  /// Tokens [begin, end), those before them being in the cache.
  void run(std::int64_t begin, std::int64_t end, std::string_view row = {}) {
    std::int32_t seen = static_cast<std::int32_t>(end);
    std::int32_t offsets[2] = {0, static_cast<std::int32_t>(end - begin)};
    const auto rows = [&](std::vector<float>& of, std::int64_t columns) {
      return view(of.data() + begin * heads * columns, {end - begin, heads, columns});
    };
    const auto done = tessera::multi_latent_ragged_page_attention(
        {.q_nope = rows(queries, latent),
         .q_pe = rows(query_ropes, rope),
         .ckv = view(latents.data() + begin * latent, {end - begin, latent}),
         .k_pe = view(ropes.data() + begin * rope, {end - begin, rope}),
         .kv_cache = view(cache.data(), {pages, page, 1, padded}),
         .block_tables = view(table.data(), {1, pages}),
         .kv_lens = view(&seen, {1}),
         .cu_seqlens_q = view(offsets, {2}),
         .out = rows(out, latent)},
        {.softmax_scale = 1.0 / std::sqrt(static_cast<double>(width))}, {.row = row});
    ASSERT_TRUE(done) << done.message();
  }

  std::vector<float> latents, ropes, queries, query_ropes, cache, out;
  std::vector<std::int32_t> table;
};

TEST_P(latent_attention, a_prompt_in_pieces_has_the_bits_of_the_whole) {
  expanded_call call(1);
  paged_prompt whole(call), pieces(call);
  if (!runs_here()) GTEST_SKIP() << "no such instructions here";
  const std::string absorbed = row("absorbed.forward");
  whole.run(0, length, absorbed);
  std::int64_t begin = 0;
  for (const std::int64_t end : {std::int64_t{1}, std::int64_t{18}, std::int64_t{82}, length}) {
    pieces.run(begin, end, absorbed);
    begin = end;
  }
  EXPECT_EQ(pieces.out, whole.out);
  EXPECT_EQ(pieces.cache, whole.cache);
}

/// A token over keys of three parts, in double.
std::vector<double> attended(const std::vector<float>& q, const std::vector<float>& cache,
                             std::int64_t keys, double scale) {
  std::vector<double> out;
  for (std::int64_t h = 0; h < heads; ++h) {
    std::vector<double> sums(static_cast<std::size_t>(latent));
    double total = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      const float* const key = cache.data() + j * (latent + rope);
      const float* const query = q.data() + h * (latent + rope);
      const double weight =
          std::exp(scale * std::inner_product(query, query + latent + rope, key, 0.0));
      total += weight;
      for (std::size_t d = 0; d < sums.size(); ++d) {
        sums[d] += weight * static_cast<double>(key[d]);
      }
    }
    for (const double sum : sums) out.push_back(sum / total);
  }
  return out;
}

TEST_P(latent_attention, threads_share_the_keys_of_a_long_sequence_and_change_no_bit) {
  if (!runs_here()) GTEST_SKIP() << "no such instructions here";
  constexpr std::int64_t keys = 4999, page = 16, pages = (keys + page - 1) / page;
  constexpr double scale = 0.2;
  std::vector<float> q = bells(2 * heads * (latent + rope), 11);
  std::vector<float> cache = bells(pages * page * (latent + rope), 12);
  // The second sequence has no keys.
  std::vector<std::int32_t> table(static_cast<std::size_t>(2 * pages));
  std::iota(table.begin(), table.begin() + pages, 0);
  std::vector<std::int32_t> seen{keys, 0};
  const auto out_of = [&](int threads) {
    std::vector<float> out(static_cast<std::size_t>(2 * heads * latent), 9.0f);
    const auto done =
        tessera::flash_mla_decode({.q = view(q.data(), {2, 1, heads, latent + rope}),
                                   .kv_cache = view(cache.data(), {pages, page, 1, latent + rope}),
                                   .block_table = view(table.data(), {2, pages}),
                                   .seqlens_k = view(seen.data(), {2}),
                                   .out = view(out.data(), {2, 1, heads, latent})},
                                  {.softmax_scale = scale, .v_dim = latent},
                                  {.row = row("absorbed.forward"), .threads = threads});
    EXPECT_TRUE(done) << done.message();
    return out;
  };
  const std::vector<float> out = out_of(1);
  EXPECT_EQ(out_of(2), out);
  EXPECT_EQ(out_of(9), out);
  const std::vector<double> expected = attended(q, cache, keys, scale);
  for (std::size_t at = 0; at < expected.size(); ++at) {
    EXPECT_NEAR(static_cast<double>(out[at]), expected[at], 1e-5) << at;
    EXPECT_EQ(out[expected.size() + at], 0.0f) << at;
  }
}

TEST_P(latent_attention, latents_of_one_number_and_tiles_of_one_key_are_attended_to) {
  if (!runs_here()) GTEST_SKIP() << "no such instructions here";
  for (const std::int32_t keys : {1, 65}) {
    std::vector<float> q{0.5f}, out{9.0f};
    std::vector<float> cache(static_cast<std::size_t>(keys), 2.0f);
    std::int32_t table = 0, seen = keys;
    const auto done = tessera::flash_mla_decode({.q = view(q.data(), {1, 1, 1, 1}),
                                                 .kv_cache = view(cache.data(), {1, keys, 1, 1}),
                                                 .block_table = view(&table, {1, 1}),
                                                 .seqlens_k = view(&seen, {1}),
                                                 .out = view(out.data(), {1, 1, 1, 1})},
                                                {.softmax_scale = 1.0, .v_dim = 1},
                                                {.row = row("absorbed.forward")});
    EXPECT_TRUE(done) << done.message();
    EXPECT_NEAR(out[0], 2.0f, 1e-5f) << keys;
  }
}

INSTANTIATE_TEST_SUITE_P(backends, latent_attention,
                         testing::Values("cpu_generic", "cpu_avx2", "cpu_avx512"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(latent_attention_forms, absorbed_queries_give_what_expanded_latents_give) {
  expanded_call call(1);
  call.run(0, 1);
  paged_prompt prompt(call);
  prompt.run(0, length);
  double largest_value = 0, largest_error = 0;
  for (std::int64_t row = 0; row < length * heads; ++row) {
    for (std::int64_t d = 0; d < value; ++d) {
      double sum = 0;
      for (std::int64_t r = 0; r < latent; ++r) {
        const auto weight = static_cast<std::size_t>((r * heads + row % heads) * value + d);
        sum += static_cast<double>(prompt.out[static_cast<std::size_t>(row * latent + r)]) *
               static_cast<double>(call.w_vc[weight]);
      }
      const auto expanded =
          static_cast<double>(call.out[static_cast<std::size_t>(row * value + d)]);
      largest_value = std::max(largest_value, std::fabs(sum));
      largest_error = std::max(largest_error, std::fabs(sum - expanded));
    }
  }
  EXPECT_GT(largest_value, 0);
  EXPECT_LE(largest_error, floor_of("out", tessera::dtype::f32) * largest_value);
}

TEST(multi_head_latent_attention, is_flash_mla_by_its_other_name) {
  expanded_call one(1), other(1);
  ASSERT_TRUE(tessera::flash_mla(one.slice(0, 1), {.causal = true}));
  ASSERT_TRUE(tessera::multi_head_latent_attention(other.slice(0, 1), {.causal = true}));
  EXPECT_EQ(one.out, other.out);
  EXPECT_EQ(one.lse, other.lse);
  EXPECT_EQ(tessera::multi_head_latent_attention_backward(one.slice(0, 1)).message(),
            tessera::flash_mla_backward(one.slice(0, 1)).message());
  EXPECT_EQ(tessera::multi_head_latent_attention_decode({}, {}).message(),
            tessera::flash_mla_decode({}, {}).message());
}

}  // namespace
