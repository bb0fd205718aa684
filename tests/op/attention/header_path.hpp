// The header path: rows and functors compiled here, nothing looked up. User functors against the
// oracle, which applies the same functors in double.
//
// A kernel is compiled for each row and each pair of functors, so the units beside this header
// share them: the large tile with every pair, in two units, and the rows full of boundaries with
// one pair that is any of them when it runs.
#pragma once

#include <gtest/gtest.h>

#include <tessera/launch.hpp>

#include "tests/op/attention/functors.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"

namespace tessera::support {

/// Where bf16 has instructions of its own, rows of bf16: those of f32 are the ones of the back end
/// before.
constexpr backend header_path_target =
    isa::of<backend::cpu_amx_bf16>::compiled ? backend::cpu_amx_bf16 : native_cpu_bf16_backend;
constexpr dtype header_path_type = has_bf16_products(header_path_target) ? dtype::bf16 : dtype::f32;

struct prefill_row {
  static constexpr attention_config config{
      .target = header_path_target, .type = header_path_type, .features = every_feature};
};

/// Runs the case on the row with the functors, poison in what the mask hides, and judges it.
template <class Row, class Logits, class Mask>
void expect_right(const flash_case& call, const Logits& logits, const Mask& mask) {
  const oracle_hooks<Logits, Mask> truth{logits, mask, offsets_of(call)};
  flash_data data(call, [&](auto b, auto h, auto i, auto j) { return truth.visible(b, h, i, j); });
  const flash_expectation expectation(data.args(), data.options(), truth);
  for (const int threads : {1, 2}) {
    data.reset_outputs();
    const flash_hooks hooks(logits, mask);
    const auto done = launch<Row>(data.args(), data.options(), cpu{.threads = threads}, hooks);
    ASSERT_TRUE(done) << done.message();
    EXPECT_EQ(expectation.complaints(), "") << threads << " threads";
    EXPECT_TRUE(data.margins_intact());
  }
}

/// Calls that the row takes.
template <class Row>
functor_calls calls_of() {
  functor_calls some{.limits = limits_of(resolved(Row::config))};
  some.limits.work = 1e5;
  if (Row::config.phase == attention_phase::decode)
    some.limits.decode_rows = most_decode_rows(Row::config.target);
  return some;
}

/// Judges each call that it is given.
template <class Row>
inline constexpr auto right_on = [](const auto& call, const auto& logits, const auto& mask) {
  expect_right<Row>(call, logits, mask);
};

}  // namespace tessera::support
