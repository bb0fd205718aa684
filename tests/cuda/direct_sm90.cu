// The header path with a row of cuda_sm90: what it computes, and what it refuses.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>
#include <tessera/prim/cuda/launch.hpp>

#include "tests/cuda/device_values.hpp"

namespace tessera::device_test {
namespace {

struct hopper_row {
  static constexpr attention_config config{
      .target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 128};
};

struct wide_values_row {
  static constexpr attention_config config{.target = backend::cuda_sm90,
                                           .type = dtype::bf16,
                                           .head_dim = 64,
                                           .v_head_dim = 192,
                                           .block_q = 128,
                                           .block_kv = 128,
                                           .tiling = {.warps = 12, .blocks_per_sm = 1}};
};

/// The first with every option but weights.
struct modifying_row {
  static constexpr attention_config config{
      .target = backend::cuda_sm90,
      .type = dtype::bf16,
      .head_dim = 128,
      .features = every_feature.without(attention_features{} | attention_feature::weights),
      .block_q = 128};
};

struct sparse_row {
  static constexpr sparse_attention_config config{
      .target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 128};
};
/// The dense row that it stands on with masks of whole blocks.
struct square_row {
  static constexpr attention_config config{.target = backend::cuda_sm90,
                                           .type = dtype::bf16,
                                           .head_dim = 128,
                                           .features = base_features,
                                           .block_q = 128,
                                           .block_kv = 128,
                                           .tiling = {.warps = 12, .blocks_per_sm = 1}};
};

/// Keys from `first` on.
struct hides_first_keys {
  std::int64_t first = 0;
  TESSERA_HD bool operator()(const position& at) const { return at.key >= first; }
  TESSERA_HD prim::tile_visibility classify(const prim::score_tile& tile) const {
    if (tile.key_begin >= first) return prim::tile_visibility::full;
    return tile.key_end > first ? prim::tile_visibility::partial : prim::tile_visibility::skip;
  }
};
struct doubles_logits {
  TESSERA_HD float operator()(float logit, const position&) const { return 2 * logit; }
};

constexpr std::int64_t rows = 300, keys = 700, heads = 4, kv_heads = 2, dim = 128;
constexpr device_id here{device_kind::cuda, 0};

/// Keys that are all the same see to equal weights, so that an output is the value that all tokens
/// have in its column: a small integer, which bf16 and every partial sum hold exactly.
class direct_sm90 : public testing::Test {
 protected:
  void SetUp() override {
    if (const int capability = prim::cuda::capability_of(0); capability != 90) {
      GTEST_SKIP() << "compute capability is " << capability << ", the row needs 90";
    }
  }

  static std::vector<bf16> tokens(std::int64_t count, int period) {
    std::vector<bf16> values;
    for (std::int64_t i = 0; i < count * dim; ++i) {
      values.emplace_back(static_cast<float>(i % dim % period));
    }
    return values;
  }
  flash_attention_args args() {
    return {.q = view(q_.data(), {1, rows, heads, dim}, {}, here),
            .k = view(k_.data(), {1, keys, kv_heads, dim}, {}, here),
            .v = view(v_.data(), {1, keys, kv_heads, dim}, {}, here),
            .out = view(out_.data(), {1, rows, heads, dim}, {}, here)};
  }

  device_values<bf16> q_{tokens(rows * heads, 3)}, k_{tokens(keys * kv_heads, 2)};
  device_values<bf16> v_{tokens(keys * kv_heads, 7)};
  device_values<bf16> out_{std::vector<bf16>(rows * heads * dim, bf16(-1.0f))};
};

TEST_F(direct_sm90, computes_means_of_values) {
  for (const bool causal : {false, true}) {
    const status done =
        launch<hopper_row>(args(), {.softmax_scale = 0.01, .causal = causal}, cuda{});
    ASSERT_TRUE(done) << done.message();
    const std::vector<bf16> found = out_.fetch();
    const std::vector<bf16> expected = tokens(rows * heads, 7);
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].bits, expected[i].bits) << i << ", causal " << causal;
    }
  }
}

/// Values of hidden tokens are NaN: nothing of them reaches an output.
/// A tile that the table has not: queries stay in registers, and keys of a diagonal end in halves
/// of tiles where another number of warpgroups has it so.
TEST_F(direct_sm90, computes_means_of_wide_values) {
  constexpr std::int64_t narrow = 64, wide = 192;
  std::vector<bf16> values;
  for (std::int64_t i = 0; i < keys * kv_heads * wide; ++i) {
    values.emplace_back(static_cast<float>(i % wide % 7));
  }
  device_values<bf16> v{values};
  device_values<bf16> out{std::vector<bf16>(rows * heads * wide, bf16(-1.0f))};
  const flash_attention_args call{.q = view(q_.data(), {1, rows, heads, narrow}, {}, here),
                                  .k = view(k_.data(), {1, keys, kv_heads, narrow}, {}, here),
                                  .v = view(v.data(), {1, keys, kv_heads, wide}, {}, here),
                                  .out = view(out.data(), {1, rows, heads, wide}, {}, here)};
  const status done =
      launch<wide_values_row>(call, {.softmax_scale = 0.01, .causal = true}, cuda{});
  ASSERT_TRUE(done) << done.message();
  const std::vector<bf16> found = out.fetch();
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(static_cast<float>(found[i]), static_cast<float>(i % wide % 7)) << i;
  }
}

TEST_F(direct_sm90, functors_and_tensors_hide_tokens) {
  constexpr std::int64_t hidden = 150;
  std::vector<bf16> values = tokens(keys * kv_heads, 7);
  std::fill_n(values.begin(), hidden * kv_heads * dim, bf16(std::nanf("")));
  device_values<bf16> hidden_values{values};
  const std::vector<bf16> expected = tokens(rows * heads, 7);
  const auto hidden_args = [&] {
    flash_attention_args all = args();
    all.v = view(hidden_values.data(), {1, keys, kv_heads, dim}, {}, here);
    return all;
  };
  const auto expect_means = [&](const status& done, const char* what) {
    ASSERT_TRUE(done) << what << ": " << done.message();
    const std::vector<bf16> found = out_.fetch();
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].bits, expected[i].bits) << what << ", " << i;
    }
  };
  const flash_attention_options options{.softmax_scale = 0.01};
  expect_means(launch<hopper_row>(hidden_args(), options, cuda{},
                                  flash_hooks(doubles_logits{}, hides_first_keys{hidden})),
               "functors");

  std::vector<std::uint8_t> shown(rows * keys, 1);
  for (std::size_t i = 0; i < shown.size(); ++i) shown[i] = i % keys >= hidden ? 1 : 0;
  device_values<std::uint8_t> mask{shown};
  flash_attention_args masked = hidden_args();
  masked.mask = view(mask.data(), {1, 1, rows, keys}, {}, here);
  expect_means(launch<modifying_row>(masked, options, cuda{}), "mask");

  device_values<std::int32_t> of_queries{std::vector<std::int32_t>(rows, 3)};
  std::vector<std::int32_t> ids(keys, 3);
  std::fill_n(ids.begin(), hidden, 2);
  device_values<std::int32_t> of_keys{ids};
  flash_attention_args packed = hidden_args();
  packed.q_segment_ids = view(of_queries.data(), {1, rows}, {}, here);
  packed.kv_segment_ids = view(of_keys.data(), {1, keys}, {}, here);
  expect_means(launch<modifying_row>(packed, options, cuda{}), "segments");

  std::vector<float> added(rows * keys, 1.0f);
  for (std::size_t i = 0; i < added.size(); ++i) {
    if (i % keys < hidden) added[i] = -std::numeric_limits<float>::infinity();
  }
  device_values<float> bias{added};
  flash_attention_args biased = hidden_args();
  biased.bias_post = view(bias.data(), {1, 1, rows, keys}, {}, here);
  expect_means(launch<modifying_row>(biased, options, cuda{}), "bias");
}

/// The same of blocksparse attention, whose heads lie in front of tokens.
TEST_F(direct_sm90, functors_hide_tokens_of_blocksparse_attention) {
  constexpr std::int64_t hidden = 150;
  std::vector<bf16> values = tokens(keys * kv_heads, 7);
  for (std::int64_t head = 0; head < kv_heads; ++head) {
    std::fill_n(values.begin() + head * keys * dim, hidden * dim, bf16(std::nanf("")));
  }
  device_values<bf16> hidden_values{values};
  const blocksparse_attention_args sparse{
      .q = view(q_.data(), {1, heads, rows, dim}, {}, here),
      .k = view(k_.data(), {1, kv_heads, keys, dim}, {}, here),
      .v = view(hidden_values.data(), {1, kv_heads, keys, dim}, {}, here),
      .out = view(out_.data(), {1, heads, rows, dim}, {}, here)};
  const status done = launch<sparse_row>(sparse, {.softmax_scale = 0.01, .causal = false}, cuda{},
                                         with_mask(hides_first_keys{hidden}));
  ASSERT_TRUE(done) << done.message();
  const std::vector<bf16> found = out_.fetch(), expected = tokens(rows * heads, 7);
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i].bits, expected[i].bits) << i;
  }
}

/// Up to roundings: it goes through keys from the last, dense attention from the first.
TEST_F(direct_sm90, blocksparse_attention_is_dense_attention_where_nothing_is_hidden) {
  constexpr std::int64_t length = 300;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto numbers = [&] {
    std::vector<bf16> all;
    for (std::int64_t i = 0; i < heads * length * dim; ++i) all.emplace_back(normal(random));
    return all;
  };
  device_values<bf16> q{numbers()}, k{numbers()}, v{numbers()};
  device_values<bf16> dense_out{numbers()}, sparse_out{numbers()};
  device_values<std::uint8_t> shown{std::vector<std::uint8_t>(9, 2)};
  const auto heads_first = [](auto& of) {
    return view(of.data(), {1, heads, length, dim}, {}, here);
  };
  const auto tokens_first = [](auto& of) {
    return view(of.data(), {1, length, heads, dim}, {heads * length * dim, dim, length * dim, 1},
                here);
  };
  for (const bool causal : {false, true}) {
    const status dense = launch<square_row>(flash_attention_args{.q = tokens_first(q),
                                                                 .k = tokens_first(k),
                                                                 .v = tokens_first(v),
                                                                 .out = tokens_first(dense_out)},
                                            {.causal = causal}, cuda{});
    ASSERT_TRUE(dense) << dense.message();
    const status sparse = launch<sparse_row>(
        blocksparse_attention_args{.q = heads_first(q),
                                   .k = heads_first(k),
                                   .v = heads_first(v),
                                   .block_mask = view(shown.data(), {1, 1, 3, 3}, {}, here),
                                   .out = heads_first(sparse_out)},
        {.causal = causal, .block_q = 128, .block_k = 128}, cuda{});
    ASSERT_TRUE(sparse) << sparse.message();
    const std::vector<bf16> expected = dense_out.fetch(), found = sparse_out.fetch();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto dense_value = static_cast<float>(expected[i]);
      ASSERT_NEAR(static_cast<float>(found[i]), dense_value, 0.015f + 0.01f * std::abs(dense_value))
          << i << ", causal " << causal;
    }
  }
}

/// Few rows against many keys: blocks share the keys of a tile, and those of the second half weigh
/// more, so that the parts' references differ. Of many entries tiles have two parts, the second of
/// which is the shorter (on 132 multiprocessors).
TEST_F(direct_sm90, shares_the_keys_of_few_tiles) {
  constexpr std::int64_t few = 20;
  constexpr struct { std::int64_t entries, keys; } calls[] = {{1, 5000}, {44, 1500}};
  for (const auto& [entries, many] : calls) {
    const auto logit_of = [many](std::int64_t key) {
      return static_cast<float>(key < many / 2 ? key % 7 : 8 + key % 5);
    };
    const auto value_of = [](std::int64_t key, std::int64_t column) {
      return static_cast<float>((key / 3 + column) % 7);
    };
    std::vector<bf16> q(entries * few * heads * dim, bf16(0.0f));
    std::vector<bf16> k(entries * many * kv_heads * dim, bf16(0.0f)), v(k);
    for (std::size_t row = 0; row < q.size() / dim; ++row) q[row * dim] = bf16(1.0f);
    for (std::int64_t row = 0; row < entries * many * kv_heads; ++row) {
      const std::int64_t key = row / kv_heads % many;
      k[row * dim] = bf16(logit_of(key));
      for (std::int64_t c = 0; c < dim; ++c) v[row * dim + c] = bf16(value_of(key, c));
    }
    device_values<bf16> queries{q}, keys_there{k}, values{v};
    device_values<bf16> out{std::vector<bf16>(q.size(), bf16(-1.0f))};
    const flash_attention_args call{
        .q = view(queries.data(), {entries, few, heads, dim}, {}, here),
        .k = view(keys_there.data(), {entries, many, kv_heads, dim}, {}, here),
        .v = view(values.data(), {entries, many, kv_heads, dim}, {}, here),
        .out = view(out.data(), {entries, few, heads, dim}, {}, here)};
    for (const bool causal : {false, true}) {
      const flash_attention_options options{.softmax_scale = 0.5, .causal = causal};
      const status done = launch<hopper_row>(call, options, cuda{});
      ASSERT_TRUE(done) << done.message();
      const std::vector<bf16> found = out.fetch();
      for (std::int64_t row = 0; row < few; ++row) {
        const std::int64_t end = causal ? row + 1 + many - few : many;
        for (std::int64_t c = 0; c < dim; c += 5) {
          double sum = 0, weights = 0;
          for (std::int64_t key = 0; key < end; ++key) {
            const double weight = std::exp(0.5 * static_cast<double>(logit_of(key)));
            weights += weight;
            sum += weight * static_cast<double>(value_of(key, c));
          }
          for (std::int64_t n = 0; n < entries * heads; ++n) {
            const std::int64_t at = (n / heads * few + row) * heads + n % heads;
            ASSERT_NEAR(static_cast<float>(found[at * dim + c]), sum / weights, 0.02)
                << "entry " << n / heads << ", row " << row << ", head " << n % heads << ", column "
                << c;
          }
        }
      }
      for (int run = 0; run < 5; ++run) {
        ASSERT_TRUE(launch<hopper_row>(call, options, cuda{}));
        const std::vector<bf16> again = out.fetch();
        for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].bits, again[i].bits) << i;
      }
    }
  }
}

TEST_F(direct_sm90, refuses_what_the_row_does_not_take) {
  flash_attention_args masked = args();
  device_values<std::uint8_t> mask{std::vector<std::uint8_t>(rows * keys, 1)};
  masked.mask = view(mask.data(), {1, 1, rows, keys}, {}, here);
  const status lacks = launch<hopper_row>(masked, {}, cuda{});
  EXPECT_EQ(lacks.code(), status_code::ineligible_row);
  EXPECT_NE(std::string(lacks.message()).find("the row lacks mask"), std::string::npos)
      << lacks.message();

  flash_attention_args moved = args();
  moved.k = view(k_.data() + 1, {1, keys - 1, kv_heads, dim}, {}, here);
  moved.v = view(v_.data(), {1, keys - 1, kv_heads, dim}, {}, here);
  const status unaligned = launch<hopper_row>(moved, {}, cuda{});
  EXPECT_EQ(unaligned.code(), status_code::ineligible_row);
  EXPECT_NE(std::string(unaligned.message()).find("multiple of 16 bytes"), std::string::npos)
      << unaligned.message();
}

}  // namespace
}  // namespace tessera::device_test
