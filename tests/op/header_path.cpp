// The header path: rows and functors compiled here, nothing looked up. User functors against the
// oracle, which applies the same functors in double.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch.hpp>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"

namespace {

using namespace tessera::support;
using tessera::flash_config;
using tessera::flash_phase;
using tessera::position;

constexpr tessera::backend target = tessera::native_cpu_backend;
constexpr auto all_but_weights =
    tessera::every_feature.without(tessera::flash_features{} | tessera::flash_feature::weights);

struct prefill_row {
  static constexpr flash_config config{.target = target, .features = tessera::every_feature};
};
/// One register tile of rows and keys: every boundary there can be.
struct small_tile_row {
  static constexpr flash_config config{.target = target,
                                       .features = tessera::every_feature,
                                       .block_q = tessera::register_rows(target),
                                       .block_kv = tessera::register_columns(target)};
};
struct decode_row {
  static constexpr flash_config config{
      .target = target, .phase = flash_phase::decode, .features = all_but_weights};
};
struct causal_d64_row {
  static constexpr flash_config config{
      .target = target, .head_dim = 64, .mask = tessera::mask_mode::causal};
};

// Attention with linear biases: a slope per head times the distance from the aligned position.
struct alibi {
  std::array<float, 16> slopes{};
  template <class Real>
  Real operator()(Real s, const position& at) const {
    const auto distance = static_cast<Real>(at.query_position - at.key);
    return s - static_cast<Real>(slopes[static_cast<std::size_t>(at.head)]) * distance;
  }
};

// A learned table of biases by distance, clipped at its ends.
struct relative_table {
  static constexpr std::int64_t reach = 8;
  std::array<float, 2 * reach + 1> bias{};
  template <class Real>
  Real operator()(Real s, const position& at) const {
    const std::int64_t distance =
        std::min(std::max(at.key - at.query_position, -reach), reach) + reach;
    return s + static_cast<Real>(bias[static_cast<std::size_t>(distance)]);
  }
};

// Keys of the same document only.
struct document_mask {
  const std::vector<int>* document;
  bool operator()(const position& at) const {
    return (*document)[static_cast<std::size_t>(at.query)] ==
           (*document)[static_cast<std::size_t>(at.key)];
  }
};

// A prefix that every row sees, causal behind it. Says for whole tiles what it says for elements.
struct prefix_lm {
  std::int64_t prefix = 0;
  std::int64_t offset = 0;  // aligned position of row 0
  bool operator()(const position& at) const {
    return at.key < prefix || at.key <= at.query + offset;
  }
  tessera::prim::tile_visibility classify(const tessera::prim::score_tile& tile) const {
    using tessera::prim::tile_visibility;
    if (tile.key_end <= prefix || tile.key_end - 1 <= tile.query_begin + offset) {
      return tile_visibility::full;
    }
    const bool some = tile.key_begin < prefix || tile.key_begin <= tile.query_end - 1 + offset;
    return some ? tile_visibility::partial : tile_visibility::skip;
  }
};

struct keeps_all {
  bool operator()(const position&) const { return true; }
};
struct keeps_logits {
  template <class Real>
  Real operator()(Real s, const position&) const {
    return s;
  }
};

/// The functors as the oracle calls them.
template <class Logits, class Mask>
struct oracle_hooks {
  Logits logits_functor;
  Mask mask_functor;
  std::vector<std::int64_t> offsets;  // aligned position of row 0, by entry

  position at(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return {b, static_cast<int>(h), i, j, i + offsets[static_cast<std::size_t>(b)]};
  }
  template <class Real>
  Real logits(Real s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return logits_functor(s, at(b, h, i, j));
  }
  bool visible(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    return mask_functor(at(b, h, i, j));
  }
};

std::vector<std::int64_t> offsets_of(const flash_case& one) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t b = 0; b < one.batch; ++b) {
    const auto entry = static_cast<std::size_t>(b);
    const std::int64_t q = one.q_lengths.empty() ? one.q_len : one.q_lengths[entry];
    const std::int64_t k = one.k_lengths.empty() ? one.kv_len : one.k_lengths[entry];
    const bool bottom_right = one.options.causal_alignment == tessera::alignment::bottom_right;
    offsets.push_back(bottom_right ? k - q : 0);
  }
  return offsets;
}

/// Runs the case on the row with the functors, poison in what the mask hides, and judges it.
template <class Row, class Logits, class Mask>
void expect_right(const flash_case& one, const Logits& logits, const Mask& mask) {
  const oracle_hooks<Logits, Mask> truth{logits, mask, offsets_of(one)};
  flash_data data(one, [&](auto b, auto h, auto i, auto j) { return truth.visible(b, h, i, j); });
  const flash_expectation expectation(data.args(), data.options(), truth);
  for (const int threads : {1, 2}) {
    data.reset_outputs();
    const tessera::flash_hooks hooks(logits, mask);
    const auto done =
        tessera::launch<Row>(data.args(), data.options(), tessera::cpu{.threads = threads}, hooks);
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(expectation.complaints(), "") << threads << " threads";
    EXPECT_TRUE(data.margins_intact());
  }
}

template <class Row>
case_limits limits_of() {
  const flash_config& config = Row::config;
  return {.type = config.type,
          .head_dim = config.head_dim,
          .v_head_dim = config.head_dim,
          .features = config.features,
          .decode_rows = config.phase == flash_phase::decode ? tessera::max_decode_rows : 0,
          .work = 1e5};
}

template <class Row>
class header_path : public testing::Test {};
using kernel_rows = testing::Types<prefill_row, small_tile_row, decode_row>;
TYPED_TEST_SUITE(header_path, kernel_rows);

constexpr std::uint64_t repeats = 15;

TYPED_TEST(header_path, plain_calls_are_right) {
  for (std::uint64_t index = 0; index < 2 * repeats; ++index) {
    SCOPED_TRACE(index);
    random_source random = stream(21, index);
    expect_right<TypeParam>(random_case(random, limits_of<TypeParam>()), keeps_logits{},
                            keeps_all{});
  }
}

TYPED_TEST(header_path, alibi) {
  for (std::uint64_t index = 0; index < repeats; ++index) {
    SCOPED_TRACE(index);
    random_source random = stream(22, index);
    flash_case one = random_case(random, limits_of<TypeParam>());
    while (one.q_heads > 16) one = random_case(random, limits_of<TypeParam>());
    alibi modifier;
    for (std::size_t h = 0; h < modifier.slopes.size(); ++h) {
      modifier.slopes[h] = std::exp2(-0.5f * static_cast<float>(h + 1));
    }
    expect_right<TypeParam>(one, modifier, keeps_all{});
  }
}

TYPED_TEST(header_path, relative_position_table) {
  for (std::uint64_t index = 0; index < repeats; ++index) {
    SCOPED_TRACE(index);
    random_source random = stream(23, index);
    const flash_case one = random_case(random, limits_of<TypeParam>());
    relative_table modifier;
    for (float& bias : modifier.bias) bias = random.bell();
    expect_right<TypeParam>(one, modifier, keeps_all{});
  }
}

TYPED_TEST(header_path, document_mask) {
  for (std::uint64_t index = 0; index < repeats; ++index) {
    SCOPED_TRACE(index);
    random_source random = stream(24, index);
    const flash_case one = random_case(random, limits_of<TypeParam>());
    std::vector<int> documents(static_cast<std::size_t>(std::max(one.q_len, one.kv_len)));
    int document = 0;
    for (int& own : documents) own = document += random.chance(0.1) ? 1 : 0;
    expect_right<TypeParam>(one, keeps_logits{}, ::document_mask{&documents});
  }
}

TYPED_TEST(header_path, prefix_lm_with_tile_classes) {
  for (std::uint64_t index = 0; index < repeats; ++index) {
    SCOPED_TRACE(index);
    random_source random = stream(25, index);
    case_limits limits = limits_of<TypeParam>();
    limits.features =
        limits.features.without(tessera::flash_feature::varlen | tessera::flash_feature::lengths);
    const flash_case one = random_case(random, limits);
    const ::prefix_lm mask{random.between(0, 40), offsets_of(one).empty() ? 0 : offsets_of(one)[0]};
    expect_right<TypeParam>(one, keeps_logits{}, mask);
  }
}

TYPED_TEST(header_path, logits_and_mask_together) {
  for (std::uint64_t index = 0; index < repeats; ++index) {
    SCOPED_TRACE(index);
    random_source random = stream(26, index);
    const flash_case one = random_case(random, limits_of<TypeParam>());
    std::vector<int> documents(static_cast<std::size_t>(std::max(one.q_len, one.kv_len)));
    for (std::size_t n = 0; n < documents.size(); ++n) documents[n] = static_cast<int>(n / 20);
    relative_table modifier;
    for (float& bias : modifier.bias) bias = random.bell();
    expect_right<TypeParam>(one, modifier, ::document_mask{&documents});
  }
}

TEST(header_path_row, runs_what_its_config_says_and_refuses_the_rest) {
  flash_case one;
  one.head_dim = one.v_head_dim = 64;
  one.q_len = one.kv_len = 70;
  one.options.causal = true;
  expect_right<causal_d64_row>(one, keeps_logits{}, keeps_all{});

  const auto refusal = [](const flash_case& wrong) {
    flash_data data(wrong);
    const auto done = tessera::launch<causal_d64_row>(data.args(), data.options());
    EXPECT_EQ(done.code(), tessera::status_code::ineligible_row) << done.message();
    EXPECT_TRUE(data.outputs_untouched());
    return done.message();
  };
  flash_case dim = one;
  dim.head_dim = dim.v_head_dim = 32;
  EXPECT_NE(refusal(dim).find("32"), std::string::npos);
  flash_case window = one;
  window.options.window_left = 3;
  EXPECT_NE(refusal(window).find("window"), std::string::npos);
  flash_case cap = one;
  cap.options.logits_soft_cap = 3.0;
  EXPECT_NE(refusal(cap).find("soft_cap"), std::string::npos);
}

TEST(header_path_row, checks_arguments_like_the_library) {
  flash_case one;
  one.head_dim = one.v_head_dim = 64;
  flash_data data(one);
  tessera::flash_attention_args args = data.args();
  args.k.extent[3] = 63;
  const auto done = tessera::launch<causal_d64_row>(args);
  EXPECT_EQ(done.code(), tessera::status_code::invalid_argument);
  EXPECT_NE(done.message().find("k: head_dim is 63"), std::string::npos) << done.message();
  EXPECT_TRUE(data.outputs_untouched());
}

TEST(header_path_row, a_workspace_too_small_is_refused_before_anything_is_written) {
  flash_case one;
  one.head_dim = one.v_head_dim = 64;
  flash_data data(one);
  alignas(64) std::array<std::byte, 64> small{};
  const auto done = tessera::launch<causal_d64_row>(data.args(), tessera::flash_attention_options{},
                                                    tessera::cpu{.threads = 1, .workspace = small});
  EXPECT_EQ(done.code(), tessera::status_code::workspace);
  EXPECT_NE(done.message().find("64"), std::string::npos) << done.message();
  EXPECT_TRUE(data.outputs_untouched());
}

}  // namespace
