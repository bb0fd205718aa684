// Lengths in device memory are not looked at by the host, so they may hold anything when a kernel
// reads them: it stays inside the tensors, ends, and leaves the device in order.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/device_data.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::device_test {
namespace {

support::flash_case padded_call() {
  support::flash_case one;
  one.batch = 3;
  one.q_len = 70;
  one.kv_len = 300;
  one.q_heads = 4;
  one.kv_heads = 2;
  one.head_dim = one.v_head_dim = 64;
  one.q_lengths = {70, 30, 1};
  one.k_lengths = {300, 0, 150};
  one.options.causal = true;
  one.poison = false;
  one.seed = 8;
  return one;
}

support::flash_case packed_call() {
  support::flash_case one = padded_call();
  one.packed = true;
  one.q_len = 101;
  one.kv_len = 450;
  return one;
}

std::vector<std::int64_t> wrong_numbers(const tensor_view& rows, std::size_t axis) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  constexpr std::int64_t least = std::numeric_limits<std::int32_t>::min();
  const std::int64_t length = rows.extent[axis];
  return {-1, least, most, most - 63, length + 1, length + 1000, 1 << 30, -(1 << 30)};
}

/// Runs the call with `wrong` at each place of `lengths` on every row, behind margins.
void expect_contained(const support::flash_case& one, tensor_view flash_attention_args::*lengths,
                      tensor_view flash_attention_args::*owner, std::size_t axis) {
  const stream stream;
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    support::flash_case typed = one;
    typed.type = type;
    device_data data(typed);
    const tensor_view& values = data.host().args().*lengths;
    const std::vector<double> right = reference::to_doubles(values);
    for (const instance& row : support::rows_for(data.host().args(), data.options())) {
      for (const std::int64_t wrong : wrong_numbers(data.host().args().*owner, axis)) {
        for (std::int64_t at = 0; at < values.extent[0]; ++at) {
          SCOPED_TRACE(std::string(row.name) + " entry " + std::to_string(at) + " is " +
                       std::to_string(wrong));
          support::store(values, at, static_cast<double>(wrong));
          data.send(stream.handle());
          const status done = flash_attention(data.args(), data.options(),
                                              {.row = row.name, .stream = stream.handle()});
          EXPECT_TRUE(done) << done.message();
          EXPECT_TRUE(data.fetch(stream.handle())) << "memory outside the outputs was written";
          support::store(values, at, right[static_cast<std::size_t>(at)]);
          if (testing::Test::HasFailure()) return;
        }
      }
      data.send(stream.handle());
      ASSERT_TRUE(flash_attention(data.args(), data.options(),
                                  {.row = row.name, .stream = stream.handle()}));
      EXPECT_EQ(data.complaints(stream.handle()), "") << row.name << " with the right lengths";
    }
  }
}

using args = flash_attention_args;

TEST(wrong_lengths, of_queries_stay_inside_the_tensors) {
  expect_contained(padded_call(), &args::seqlens_q, &args::q, 1);
}
TEST(wrong_lengths, of_keys_stay_inside_the_tensors) {
  expect_contained(padded_call(), &args::seqlens_k, &args::k, 1);
}
TEST(wrong_lengths, of_packed_queries_stay_inside_the_tensors) {
  expect_contained(packed_call(), &args::cu_seqlens_q, &args::q, 0);
}
TEST(wrong_lengths, of_packed_keys_stay_inside_the_tensors) {
  expect_contained(packed_call(), &args::cu_seqlens_k, &args::k, 0);
}

}  // namespace
}  // namespace tessera::device_test
