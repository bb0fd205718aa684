// NaN and infinity where rows see them, on every row for a CPU that runs here: they reach those who
// see them, even by a weight too small for a float, and nobody else; and the bits of all others do
// not depend on how many threads there are.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/api/fp8_attention.hpp>
#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/registry.hpp>

#include "tests/reference/flash_attention.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::support {
namespace {

/// More keys than a tile has, and rows enough that threads cut them differently.
flash_case prompt() {
  flash_case call;
  call.q_heads = 4;
  call.kv_heads = 2;
  call.q_len = 300;
  call.kv_len = 600;
  call.head_dim = call.v_head_dim = 64;
  call.options.causal = true;
  call.seed = 29;
  return call;
}

/// Scores so far apart that most weights are 0 in f32.
flash_case sharp_prompt() {
  flash_case call = prompt();
  call.options.softmax_scale = 30.0;
  return call;
}

flash_case decode_of(flash_case call) {
  call.q_len = 3;
  return call;
}

void put(const tensor_view& view, std::int64_t row, std::int64_t head, std::int64_t d,
         double value) {
  store(view, row * view.stride[1] + head * view.stride[2] + d * view.stride[3], value);
}

/// Single columns: the others of such a key are numbers like any.
void put_nan_into_values(const tensor_view& v) {
  for (const std::int64_t key : {0, 3, 90, 256, 290, 511, 560, 599}) {
    put(v, key, key % 2, key % v.extent[3], std::nan(""));
  }
}

void put_nonfinite_everywhere(const flash_attention_args& args) {
  put_nan_into_values(args.v);
  put(args.v, 300, 0, 9, -HUGE_VAL);
  put(args.v, 200, 0, 9, HUGE_VAL);
  put(args.v, 130, 1, 8, HUGE_VAL);
  put(args.k, 570, 1, 5, std::nan(""));
  put(args.k, 400, 1, 6, HUGE_VAL);
  put(args.q, args.q.extent[1] - 3, 0, 7, std::nan(""));
  put(args.q, args.q.extent[1] - 2, 2, 7, HUGE_VAL);
}

/// Every row for a CPU against the oracle, with one, two, three and more threads.
void expect_right_with_any_threads(const flash_case& call, flash_data& data) {
  const flash_expectation expectation(data.args(), data.options());
  for (const instance& row : rows_for(data.args(), data.options(), call.op)) {
    if (is_cuda(row.config_as<attention_config>().target)) continue;
    std::vector<std::vector<std::byte>> alone;
    for (const int threads : {1, 2, 3, 16}) {
      SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(threads) + " threads");
      data.reset_outputs();
      const auto done =
          run(call.op, data.args(), data.options(), {.row = row.name, .threads = threads});
      ASSERT_TRUE(done) << done.message();
      EXPECT_EQ(expectation.complaints(), "");
      std::vector<std::vector<std::byte>> bits;
      for (const guarded_tensor* output : data.outputs()) bits.push_back(output->bytes());
      if (alone.empty()) alone = bits;
      EXPECT_TRUE(bits == alone) << "other bits than with one thread";
    }
  }
}

TEST(nonfinite, nan_in_values_is_seen_by_weights_that_vanish) {
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (flash_case call : {sharp_prompt(), decode_of(sharp_prompt())}) {
      call.type = type;
      flash_data data(call);
      put_nan_into_values(data.args().v);
      expect_right_with_any_threads(call, data);
    }
  }
}

TEST(nonfinite, queries_keys_and_values_change_no_bit_of_others) {
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    for (flash_case call : {prompt(), decode_of(prompt())}) {
      for (const bool causal : {false, true}) {
        call.options.causal = causal;
        call.type = type;
        flash_data data(call);
        put_nonfinite_everywhere(data.args());
        expect_right_with_any_threads(call, data);
      }
    }
  }
}

// A NaN among the logits is the maximum of its row, beside +inf too.
TEST(nonfinite, logits_reach_the_maximum_of_a_row) {
  for (flash_case call : {prompt(), decode_of(prompt())}) {
    call.options.normalize = false;
    call.wants_row_max = true;
    flash_data data(call);
    put_nonfinite_everywhere(data.args());
    expect_right_with_any_threads(call, data);
  }
}

TEST(nonfinite, hidden_and_dropped_keys_are_left_out_one_by_one) {
  flash_case call = sharp_prompt();
  call.mask = score_axes{.type = dtype::u8, .hidden = 0.3};
  call.bias_post = score_axes{.hidden = 0.2};
  call.segments = segment_kind::separate;
  call.options.dropout_probability = 0.4;
  for (const flash_case& form : {call, decode_of(call)}) {
    flash_data data(form);
    put_nan_into_values(data.args().v);
    expect_right_with_any_threads(form, data);
  }
}

TEST(nonfinite, written_weights_are_zero_where_a_row_of_nan_sees_nothing) {
  flash_case call = prompt();
  call.op = flash_op::attention;
  call.weights = dtype::f32;
  call.options.dropout_probability = 0.25;
  flash_data data(call);
  put(data.args().k, 480, 1, 5, std::nan(""));
  put(data.args().q, 17, 0, 7, std::nan(""));
  expect_right_with_any_threads(call, data);
}

/// Codes of f8_e4m3: any, or any number.
std::vector<std::uint8_t> random_codes(std::int64_t count, bool numbers, random_source& random) {
  std::vector<std::uint8_t> codes;
  for (std::int64_t i = 0; i < count; ++i) {
    auto code = static_cast<std::uint8_t>(random.bits());
    if (numbers && (code & 0x7f) == 0x7f) code = static_cast<std::uint8_t>(code - 1);
    codes.push_back(code);
  }
  return codes;
}

// Any bytes are elements of f8_e4m3; two of 256 are NaN, and numbers up to 448 make sharp weights.
TEST(nonfinite, any_codes_of_eight_bits_give_the_same_bits_with_any_threads) {
  constexpr std::int64_t q_len = 200, kv_len = 520, q_heads = 4, kv_heads = 2, head_dim = 64;
  random_source random(31);
  auto q = random_codes(q_len * q_heads * head_dim, true, random);
  auto k = random_codes(kv_len * kv_heads * head_dim, true, random);
  auto v = random_codes(kv_len * kv_heads * head_dim, false, random);
  const auto view = [](void* data, dtype type, std::int64_t rows, std::int64_t heads) {
    tensor_view tensor;
    tensor.data = data;
    tensor.type = type;
    tensor.rank = 4;
    tensor.extent = {1, rows, heads, head_dim};
    tensor.stride = {rows * heads * head_dim, heads * head_dim, head_dim, 1};
    return tensor;
  };
  for (const bool causal : {false, true}) {
    std::vector<std::uint16_t> alone;
    for (const int threads : {1, 2, 3, 16}) {
      SCOPED_TRACE(threads);
      std::vector<std::uint16_t> out(static_cast<std::size_t>(q_len * q_heads * head_dim));
      const fp8_attention_args args{.q = view(q.data(), dtype::f8_e4m3, q_len, q_heads),
                                    .k = view(k.data(), dtype::f8_e4m3, kv_len, kv_heads),
                                    .v = view(v.data(), dtype::f8_e4m3, kv_len, kv_heads),
                                    .out = view(out.data(), dtype::bf16, q_len, q_heads)};
      const auto done = fp8_attention(args, {.causal = causal}, {.threads = threads});
      ASSERT_TRUE(done) << done.message();
      const flash_attention_args same{.q = args.q, .k = args.k, .v = args.v, .out = args.out};
      const auto truth = reference::flash_attention(same, {.causal = causal});
      const std::vector<double> found = reference::to_doubles(args.out);
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(std::isnan(found[i]), std::isnan(truth.out[i])) << i;
      }
      if (alone.empty()) alone = out;
      EXPECT_TRUE(out == alone) << "other bits than with one thread";
    }
  }
}

}  // namespace
}  // namespace tessera::support
