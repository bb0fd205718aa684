// The header path: rows and functors compiled here, nothing looked up. User functors against the
// oracle, which applies the same functors in double.
#include <array>
#include <cstddef>
#include <string>

#include <gtest/gtest.h>

#include <tessera/launch.hpp>

#include "tests/op/functors.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"

namespace {

using namespace tessera::support;
using tessera::attention_config;
using tessera::attention_phase;

constexpr tessera::backend target = tessera::native_cpu_backend;
constexpr auto all_but_weights = tessera::every_feature.without(
    tessera::attention_features{} | tessera::attention_feature::weights);

struct prefill_row {
  static constexpr attention_config config{.target = target, .features = tessera::every_feature};
};
/// One register tile of rows and keys: every boundary there can be.
struct small_tile_row {
  static constexpr attention_config config{.target = target,
                                           .features = tessera::every_feature,
                                           .block_q = tessera::register_rows(target),
                                           .block_kv = tessera::register_columns(target)};
};
struct decode_row {
  static constexpr attention_config config{
      .target = target, .phase = attention_phase::decode, .features = all_but_weights};
};
struct causal_d64_row {
  static constexpr attention_config config{
      .target = target, .head_dim = 64, .mask = tessera::mask_mode::causal};
};

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
class header_path : public testing::Test {
 protected:
  static functor_calls calls() {
    functor_calls some{.limits = limits_of(resolved(Row::config))};
    some.limits.work = 1e5;
    if (Row::config.phase == attention_phase::decode) {
      some.limits.decode_rows = tessera::max_decode_rows;
    }
    return some;
  }
  /// Judges each call that it is given.
  static constexpr auto right = [](const auto& one, const auto& logits, const auto& mask) {
    expect_right<Row>(one, logits, mask);
  };
};
using kernel_rows = testing::Types<prefill_row, small_tile_row, decode_row>;
TYPED_TEST_SUITE(header_path, kernel_rows);

TYPED_TEST(header_path, plain_calls_are_right) {
  this->calls().plain(this->right);
}

TYPED_TEST(header_path, alibi) {
  this->calls().with_alibi(this->right);
}

TYPED_TEST(header_path, relative_position_table) {
  this->calls().with_relative_table(this->right);
}

TYPED_TEST(header_path, document_mask) {
  this->calls().with_documents(this->right);
}

TYPED_TEST(header_path, prefix_lm_with_tile_classes) {
  this->calls().with_prefix(this->right);
}

TYPED_TEST(header_path, logits_and_mask_together) {
  this->calls().with_both(this->right);
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
