// Biases as masks are made of them, and as they should not be: finite numbers so low that nothing
// else counts, on some keys of a row or on all of them, slopes that part the keys of one tile from
// those of the next, infinity and NaN. On every row; keys are all alike, so that weights follow
// from biases.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/elements.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_data.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::support {
namespace {

/// Bias of a query and a key.
using bias_function = std::function<double(std::int64_t query, std::int64_t key)>;

/// Product of every query and key, times the scale.
constexpr double logit_of_products = 0.5;

/// Keys of several tiles, rows of two warpgroups of a Hopper row.
flash_case biased(dtype type, dtype bias_type, std::int64_t head_dim) {
  flash_case call;
  call.type = type;
  call.q_heads = 2;
  call.kv_heads = 1;
  call.q_len = 70;
  call.kv_len = head_dim == 128 ? 328 : 330;  // biases of a row begin at 16 bytes, and not
  call.head_dim = call.v_head_dim = head_dim;
  call.options.softmax_scale = logit_of_products / static_cast<double>(head_dim);
  call.poison = false;
  call.bias_pre = score_axes{.type = bias_type, .spread = {false, false, true, true}};
  return call;
}

/// Values of a key repeat after so many columns.
constexpr std::int64_t different_columns = 8;
constexpr double sink = 1.25;

/// The mean of values, and the log sum exp, of one query.
struct biased_answer {
  std::array<double, different_columns> out{};
  double lse = -HUGE_VAL;
};

double value_of(std::int64_t key, std::int64_t column) {
  return static_cast<double>((3 * key + column) % different_columns) - 3.0;
}

biased_answer answer_of(const flash_attention_args& args, std::int64_t query) {
  std::vector<double> logits;
  const double of_sink = args.sinks.present() ? sink : -HUGE_VAL;
  double most = of_sink;
  bool is_number = true;
  for (std::int64_t key = 0; key < args.k.extent[1]; ++key) {
    logits.push_back(logit_of_products + reference::at(args.bias_pre, 0, 0, query, key));
    is_number = is_number && logits.back() < HUGE_VAL;
    most = std::fmax(most, logits.back());
  }
  biased_answer answer;
  if (!is_number) answer.lse = std::nan("");
  if (!is_number || most == -HUGE_VAL) return answer;
  double sum = std::exp(of_sink - most);
  for (std::size_t key = 0; key < logits.size(); ++key) {
    const double weight = std::exp(logits[key] - most);
    sum += weight;
    for (std::size_t d = 0; d < answer.out.size(); ++d) {
      answer.out[d] +=
          weight * value_of(static_cast<std::int64_t>(key), static_cast<std::int64_t>(d));
    }
  }
  for (double& x : answer.out) x /= sum;
  answer.lse = most + std::log(sum);
  return answer;
}

/// Rows whose logits are all below may count as rows that see nothing.
constexpr double farthest_seen = -9e7;

void expect_row(const flash_attention_args& args, std::int64_t query, std::int64_t head,
                const biased_answer& wanted) {
  const double lse = reference::at(args.lse, 0, head, query);
  if (wanted.lse > -HUGE_VAL && wanted.lse < farthest_seen && lse == -HUGE_VAL) {
    return expect_row(args, query, head, biased_answer{});
  }
  if (std::isfinite(wanted.lse)) {
    ASSERT_NEAR(lse, wanted.lse, 1e-4 * std::fmax(1.0, std::fabs(wanted.lse)));
  } else {
    ASSERT_EQ(std::isnan(lse), std::isnan(wanted.lse)) << lse;
    if (std::isinf(wanted.lse)) {
      ASSERT_EQ(lse, wanted.lse);
    }
  }
  for (std::int64_t d = 0; d < args.v.extent[3]; ++d) {
    const double found = reference::at(args.out, 0, query, head, d);
    if (std::isnan(wanted.lse)) {
      ASSERT_TRUE(std::isnan(found)) << "column " << d << ": " << found;
    } else {
      ASSERT_NEAR(found, wanted.out[static_cast<std::size_t>(d % different_columns)], 0.04)
          << "column " << d;
    }
  }
}

void expect_answers(const flash_case& call, const bias_function& bias) {
  flash_data data(call);
  const flash_attention_args& args = data.args();
  const auto fill = [](const tensor_view& view, const auto& value_at) {
    for (std::int64_t row = 0; row < view.extent[1]; ++row) {
      for (std::int64_t head = 0; head < view.extent[2]; ++head) {
        for (std::int64_t d = 0; d < view.extent[3]; ++d) {
          store(view, row * view.stride[1] + head * view.stride[2] + d * view.stride[3],
                value_at(row, d));
        }
      }
    }
  };
  fill(args.q, [](auto, auto) { return 0.5; });
  fill(args.k, [](auto, auto) { return 2.0; });
  fill(args.v, value_of);
  std::vector<biased_answer> wanted;
  for (std::int64_t query = 0; query < args.q.extent[1]; ++query) {
    for (std::int64_t key = 0; key < args.k.extent[1]; ++key) {
      store(args.bias_pre, query * args.bias_pre.stride[2] + key * args.bias_pre.stride[3],
            bias(query, key));
    }
    if (args.sinks.present()) store(args.sinks, 0, sink);
    wanted.push_back(answer_of(args, query));
  }
  for (const instance& row : rows_for(args, data.options())) {
    SCOPED_TRACE(row.name);
    data.reset_outputs();
    const status done = run(call.op, args, data.options(), {.row = row.name});
    ASSERT_TRUE(done) << done.message();
    for (std::int64_t query = 0; query < args.q.extent[1]; ++query) {
      for (std::int64_t head = 0; head < args.q.extent[2]; ++head) {
        SCOPED_TRACE("query " + std::to_string(query) + ", head " + std::to_string(head));
        expect_row(args, query, head, wanted[static_cast<std::size_t>(query)]);
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

/// The lowest number of a type, and lower than what logits are otherwise.
double lowest_of(dtype type) {
  if (type == dtype::f16) return -65504.0;
  if (type == dtype::bf16) return -0x1.FEp127;
  return static_cast<double>(std::numeric_limits<float>::lowest());
}

/// Each element type, with biases of its own and of f32. `made(low)`: the biases of which `low` is
/// the lowest that is not infinite; `changes`: what else the call has.
void expect_with_all_types(
    const char* why, const std::vector<double>& lows,
    const std::function<bias_function(double low)>& made,
    const std::function<void(flash_case&)>& changes = [](flash_case&) {}) {
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (const dtype bias_type : {type, dtype::f32}) {
      for (const std::int64_t head_dim : {64, 128}) {
        for (const double low : lows) {
          SCOPED_TRACE(std::string(why) + ", " + std::string(name_of(type)) + ", bias of " +
                       std::string(name_of(bias_type)) + ", " + std::to_string(head_dim) +
                       " columns, " + std::to_string(low));
          flash_case call = biased(type, bias_type, head_dim);
          changes(call);
          expect_answers(call, made(low == -HUGE_VAL ? low : std::fmax(low, lowest_of(bias_type))));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(far_biases, hide_keys_where_others_count) {
  expect_with_all_types("behind a diagonal", {-1e4, -1e10, -1e39, -HUGE_VAL}, [](double low) {
    return [=](auto query, auto key) { return key > query + 5 ? low : 0.0; };
  });
  expect_with_all_types("but for the first key and some others", {-1e9}, [](double low) {
    return [=](auto query, auto key) { return key == 0 || key % 97 == query % 50 ? 0.0 : low; };
  });
}

TEST(far_biases, of_all_keys_of_a_row_are_none) {
  expect_with_all_types("padding", {-1e4, -1e6, -3e9, -1e10, -1e29, -1e39}, [](double low) {
    return [=](auto query, auto key) { return query % 3 == 1 || key > query ? low : 0.0; };
  });
}

TEST(far_biases, of_minus_infinity_leave_nothing_but_sinks) {
  const auto made = [](double) {
    return
        [](auto query, auto key) { return query % 3 == 1 || key > query + 100 ? -HUGE_VAL : 0.0; };
  };
  expect_with_all_types("without a sink", {0.0}, made);
  expect_with_all_types("with a sink", {0.0}, made, [](flash_case& call) {
    call.sink_count = 1;
    call.sinks_per_head = false;
  });
}

TEST(far_biases, may_part_the_keys_of_tiles) {
  for (const double slope : {0.3, 40.0}) {
    expect_with_all_types("rising", {0.0}, [=](double) {
      return [=](auto, auto key) { return slope * static_cast<double>(key); };
    });
    expect_with_all_types("falling", {0.0}, [=](double) {
      return [=](auto, auto key) { return -slope * static_cast<double>(key); };
    });
    expect_with_all_types("in steps", {0.0}, [=](double) {
      return [=](auto, auto key) { return slope * static_cast<double>(key / 100 % 2 * 50); };
    });
  }
}

TEST(far_biases, that_are_infinite_or_nan_reach_the_rows_that_see_them) {
  for (const double other : {HUGE_VAL, std::nan("")}) {
    expect_with_all_types("seen by every ninth row", {0.0}, [=](double) {
      return [=](auto query, auto key) { return query % 9 == 4 && key == 77 ? other : 0.0; };
    });
  }
}

}  // namespace
}  // namespace tessera::support
