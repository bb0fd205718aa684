// What holds between calls: batches and packing, splits and merges, dropout bits, empty sizes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::support {
namespace {

void expect_right(const flash_case& example, const context& context = {}) {
  flash_data data(example);
  const flash_expectation expectation(data.args(), data.options());
  const auto done = run(example.op, data.args(), data.options(), context);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(expectation.complaints(), "");
  EXPECT_TRUE(data.margins_intact());
}

void expect_right_on_every_row(const flash_case& example, flash_data& data) {
  const flash_expectation expectation(data.args(), data.options());
  for (const auto& row : rows_for(data.args(), data.options())) {
    SCOPED_TRACE(row.name);
    data.reset_outputs();
    ASSERT_TRUE(run(example.op, data.args(), data.options(), {.row = row.name}));
    EXPECT_EQ(expectation.complaints(), "");
  }
}

/// After a call was run in parts: the bits of the whole where the row promises them, and right.
void expect_like_the_whole(const instance& row, const flash_data& data,
                           const std::vector<double>& whole, const flash_expectation& truth) {
  if (row.properties.batch_invariant == batch_invariance::same_bits) {
    EXPECT_EQ(reference::to_doubles(data.args().out), whole);
  }
  const comparison found = truth.judge("out", data.args().out);
  EXPECT_TRUE(found.passed) << sentence_of(found, "out", data.args().out.shape());
}

/// `count` entries of axis 0, from `first` on.
tensor_view sliced(tensor_view view, std::int64_t first, std::int64_t count) {
  if (!view.present()) return view;
  view.data = static_cast<std::byte*>(view.data) +
              first * view.stride[0] * static_cast<std::int64_t>(size_of(view.type));
  view.extent[0] = count;
  return view;
}

flash_case two_by_two() {
  flash_case example;
  example.batch = 2;
  example.q_heads = 4;
  example.kv_heads = 2;
  example.q_len = 40;
  example.kv_len = 70;
  example.head_dim = example.v_head_dim = 64;
  example.options.causal = true;
  example.poison = false;
  example.seed = 3;
  return example;
}

TEST(batch, an_entry_has_the_same_bits_alone_and_among_others) {
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    flash_case example = two_by_two();
    example.type = type;
    flash_data data(example);
    const flash_expectation expectation(data.args(), data.options());
    for (const auto& row : rows_for(data.args(), data.options())) {
      SCOPED_TRACE(row.name);
      data.reset_outputs();
      ASSERT_TRUE(run(example.op, data.args(), data.options(), {.row = row.name}));
      const std::vector<double> together = reference::to_doubles(data.args().out);
      data.reset_outputs();
      for (std::int64_t b = 0; b < example.batch; ++b) {
        flash_attention_args entry = data.args();
        for (tensor_view* view : {&entry.q, &entry.k, &entry.v, &entry.out, &entry.lse}) {
          *view = sliced(*view, b, 1);
        }
        ASSERT_TRUE(run(example.op, entry, data.options(), {.row = row.name}));
      }
      expect_like_the_whole(row, data, together, expectation);
    }
  }
}

TEST(packed, a_sequence_has_the_bits_of_the_same_call_alone) {
  flash_case example = two_by_two();
  example.packed = true;
  example.batch = 4;
  example.q_lengths = {17, 0, 1, 40};
  example.k_lengths = {33, 5, 64, 40};
  example.q_len = 58;
  example.kv_len = 142;
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    example.type = type;
    flash_data data(example);
    const flash_expectation expectation(data.args(), data.options());
    for (const auto& row : rows_for(data.args(), data.options())) {
      SCOPED_TRACE(row.name);
      data.reset_outputs();
      ASSERT_TRUE(run(example.op, data.args(), data.options(), {.row = row.name}));
      const std::vector<double> together = reference::to_doubles(data.args().out);
      data.reset_outputs();
      for (std::int64_t n = 0; n < example.batch; ++n) {
        const auto used = reference::rows_of(data.args(), n);
        const auto dense = [](tensor_view view, std::int64_t first, std::int64_t count) {
          view = sliced(view, first, count);
          const tensor_view rows = view;
          view.rank = 4;
          view.extent = {1, rows.extent[0], rows.extent[1], rows.extent[2]};
          view.stride = {0, rows.stride[0], rows.stride[1], rows.stride[2]};
          return view;
        };
        const flash_attention_args alone{
            .q = dense(data.args().q, used.q_begin, used.q_length),
            .k = dense(data.args().k, used.k_begin, used.k_length),
            .v = dense(data.args().v, used.k_begin, used.k_length),
            .out = dense(data.args().out, used.q_begin, used.q_length)};
        ASSERT_TRUE(run(example.op, alone, data.options(), {.row = row.name}));
      }
      expect_like_the_whole(row, data, together, expectation);
    }
  }
}

TEST(split_kv, every_row_agrees_on_one_query_and_many_keys) {
  for (const std::int64_t kv_len : {4097, 9001}) {
    flash_case example;
    example.q_heads = 8;
    example.kv_heads = 2;
    example.head_dim = example.v_head_dim = 64;
    example.kv_len = kv_len;
    example.options.causal = true;
    example.sink_count = 1;
    example.seed = 17;
    flash_data data(example);
    expect_right_on_every_row(example, data);
  }
}

TEST(lse, merges_partial_results_into_the_whole) {
  flash_case example = two_by_two();
  example.options.causal = false;
  example.batch = 1;
  example.kv_len = 150;
  flash_data data(example);
  const flash_expectation expectation(data.args(), data.options());

  // Keys [0, cut) and [cut, 150), each with its own out and lse; then the rule of partial results.
  for (const std::int64_t cut : {0, 1, 64, 149, 150}) {
    SCOPED_TRACE(cut);
    flash_data low(example), high(example);
    flash_attention_args first = low.args(), second = high.args();
    first.k.extent[1] = first.v.extent[1] = cut;
    for (auto [view, whole] : {std::pair{&second.k, data.args().k}, {&second.v, data.args().v}}) {
      view->data = static_cast<std::byte*>(view->data) + cut * whole.stride[1] * 4;
      view->extent[1] = example.kv_len - cut;
    }
    ASSERT_TRUE(run(example.op, first, example.options));
    ASSERT_TRUE(run(example.op, second, example.options));
    for (std::int64_t h = 0; h < example.q_heads; ++h) {
      for (std::int64_t i = 0; i < example.q_len; ++i) {
        const double a = reference::at(first.lse, std::int64_t{0}, h, i);
        const double b = reference::at(second.lse, std::int64_t{0}, h, i);
        const double most = std::max(a, b);
        const double lse = most + std::log(std::exp(a - most) + std::exp(b - most));
        store(data.args().lse, reference::offset_of<3>(data.args().lse, {0, h, i}), lse);
        for (std::int64_t d = 0; d < example.v_head_dim; ++d) {
          const std::array<std::int64_t, 4> at{0, i, h, d};
          const double out =
              std::exp(a - lse) * reference::at(first.out, std::int64_t{0}, i, h, d) +
              std::exp(b - lse) * reference::at(second.out, std::int64_t{0}, i, h, d);
          store(data.args().out, reference::offset_of(data.args().out, at), out);
        }
      }
    }
    EXPECT_EQ(expectation.complaints(), "");
  }
}

TEST(unnormalized, divides_into_the_normalized_result_by_lse_and_row_max) {
  flash_case example = two_by_two();
  example.sink_count = 2;
  flash_data whole(example);
  ASSERT_TRUE(run(example.op, whole.args(), example.options));
  example.options.normalize = false;
  example.wants_row_max = true;
  flash_data raw(example);
  ASSERT_TRUE(run(example.op, raw.args(), example.options));
  flash_attention_options normalized = example.options;
  normalized.normalize = true;
  const flash_expectation expectation(whole.args(), normalized);
  reference::for_each_element(raw.args().out, [&](std::int64_t flat, std::int64_t offset) {
    const std::int64_t h = flat / example.v_head_dim % example.q_heads;
    const std::int64_t i = flat / example.v_head_dim / example.q_heads % example.q_len;
    const std::int64_t b = flat / example.v_head_dim / example.q_heads / example.q_len;
    const double denominator = std::exp(reference::at(raw.args().lse, b, h, i) -
                                        reference::at(raw.args().row_max, b, h, i));
    store(raw.args().out, offset, reference::read(raw.args().out, offset) / denominator);
  });
  const comparison found = expectation.judge("out", raw.args().out);
  EXPECT_TRUE(found.passed) << sentence_of(found, "out", raw.args().out.shape());
}

TEST(dropout, every_row_drops_the_same_elements) {
  flash_case example = two_by_two();
  example.op = flash_op::attention;
  example.weights = dtype::f32;
  example.wants_dropout_mask = true;
  example.options.causal = false;
  example.options.dropout_probability = 0.4;
  example.options.dropout_seed = 0xDEADBEEF12345678u;
  flash_data data(example);
  for (const auto& row : rows_for(data.args(), data.options(), example.op)) {
    SCOPED_TRACE(row.name);
    data.reset_outputs();
    ASSERT_TRUE(run(example.op, data.args(), data.options(), {.row = row.name}));
    const std::vector<double> kept = reference::to_doubles(data.args().dropout_mask);
    const std::vector<double> weights = reference::to_doubles(data.args().weights);
    for (std::size_t n = 0; n < kept.size(); ++n) {
      const auto index = static_cast<std::int64_t>(n);
      const std::int64_t j = index % example.kv_len, i = index / example.kv_len % example.q_len;
      const std::int64_t h = index / example.kv_len / example.q_len % example.q_heads;
      const std::int64_t b = index / example.kv_len / example.q_len / example.q_heads;
      ASSERT_EQ(kept[n] != 0.0,
                reference::dropout_keeps(0.4, example.options.dropout_seed, b, h, i, j));
      ASSERT_EQ(weights[n] != 0.0, kept[n] != 0.0) << "no weight of this call underflows";
    }
  }
}

TEST(dropout, extreme_probabilities_keep_all_and_nothing) {
  for (const double p : {1.0 - 0x1p-32, 1.0 - 0x1p-33, 1.0 - 0x1p-40, 1.0 - 0x1p-53}) {
    SCOPED_TRACE(p);
    flash_case example = two_by_two();
    example.options.dropout_probability = p;
    flash_data data(example);
    ASSERT_TRUE(run(example.op, data.args(), data.options()));
    for (const double value : reference::to_doubles(data.args().out)) {
      ASSERT_EQ(value, 0.0);
    }
  }
  for (const double p : {0x1p-33, 0x1p-60}) {
    SCOPED_TRACE(p);
    flash_case example = two_by_two();
    example.options.dropout_probability = p;
    expect_right(example);
  }
}

TEST(nan, in_a_visible_slot_reaches_exactly_the_rows_that_see_it) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  flash_case example = two_by_two();
  flash_data data(example);
  // Key 60 of the first entry and kv head 1: heads 2 and 3, rows from 30 on (70 - 40 keys ahead).
  store(data.args().k, 60 * data.args().k.stride[1] + data.args().k.stride[2] + 5,
        static_cast<double>(nan));
  for (const auto& row : rows_for(data.args(), data.options())) {
    SCOPED_TRACE(row.name);
    data.reset_outputs();
    ASSERT_TRUE(run(example.op, data.args(), data.options(), {.row = row.name}));
    for (std::int64_t b = 0; b < example.batch; ++b) {
      for (std::int64_t h = 0; h < example.q_heads; ++h) {
        for (std::int64_t i = 0; i < example.q_len; ++i) {
          const bool sees = b == 0 && h >= 2 && i + 30 >= 60;
          ASSERT_EQ(std::isnan(reference::at(data.args().lse, b, h, i)), sees) << i;
          ASSERT_EQ(std::isnan(reference::at(data.args().out, b, i, h, std::int64_t{7})), sees)
              << i;
        }
      }
    }
  }
}

TEST(nan, and_infinity_in_values_reach_exactly_the_rows_that_see_them) {
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (const std::int64_t head_dim : {64, 96, 128, 256}) {
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(head_dim));
      flash_case example = two_by_two();
      example.type = type;
      example.batch = 1;
      example.q_len = 150;
      example.kv_len = 170;
      example.head_dim = example.v_head_dim = head_dim;
      flash_data data(example);
      const tensor_view& v = data.args().v;
      const auto put = [&](std::int64_t key, std::int64_t head, std::int64_t d, double value) {
        store(v, key * v.stride[1] + head * v.stride[2] + d, value);
      };
      put(90, 0, 3, std::nan(""));
      put(100, 1, head_dim - 1, HUGE_VAL);
      put(169, 0, 8, -HUGE_VAL);
      expect_right_on_every_row(example, data);
    }
  }
}

TEST(infinity, a_sink_of_plus_infinity_takes_everything) {
  flash_case example = two_by_two();
  example.sink_count = 1;
  example.sinks_per_head = false;
  flash_data data(example);
  store(data.args().sinks, 0, HUGE_VAL);
  expect_right_on_every_row(example, data);
}

TEST(empty_sizes, are_legal_and_give_zero_and_minus_infinity) {
  for (const int which : {0, 1, 2, 3}) {
    SCOPED_TRACE(which);
    flash_case example = two_by_two();
    if (which == 0) example.batch = 0;
    if (which == 1) example.q_len = 0;
    if (which == 2) example.kv_len = 0;
    if (which == 3) {
      example.packed = true;
      example.batch = 0;
      example.q_len = 3;  // rows that belong to no sequence
      example.kv_len = 2;
    }
    flash_data data(example);
    for (const auto& row : rows_for(data.args(), data.options())) {
      SCOPED_TRACE(row.name);
      data.reset_outputs();
      ASSERT_TRUE(run(example.op, data.args(), data.options(), {.row = row.name}));
      for (const double value : reference::to_doubles(data.args().out)) {
        EXPECT_EQ(value, 0.0);
      }
      for (const double value : reference::to_doubles(data.args().lse)) {
        EXPECT_EQ(value, -HUGE_VAL);
      }
    }
    expect_right(example);
  }
}

TEST(throw_if_failed, throws_what_a_call_returns) {
  flash_data data(two_by_two());
  flash_attention_args args = data.args();
  args.k = {};
  try {
    throw_if_failed(flash_attention(args, data.options()));
    FAIL() << "nothing thrown";
  } catch (const error& thrown) {
    EXPECT_EQ(thrown.code(), status_code::invalid_argument);
    EXPECT_EQ(thrown.what(), flash_attention(args, data.options()).message());
  }
  EXPECT_TRUE(data.outputs_untouched());
}

TEST(sinks, none_of_them_is_the_same_as_no_tensor) {
  flash_case example = two_by_two();
  flash_data data(example);
  flash_attention_args args = data.args();
  float nothing = 0.0f;
  args.sinks = view(&nothing, {4, 0});
  ASSERT_TRUE(run(example.op, args, example.options));
  const flash_expectation expectation(data.args(), data.options());
  EXPECT_EQ(expectation.complaints(), "");
}

}  // namespace
}  // namespace tessera::support
