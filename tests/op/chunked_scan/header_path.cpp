// The header path of linear attention with decay: rows compiled here with this unit's instructions,
// nothing looked up, against the definition.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/chunked_scan/operations.hpp>
#include <tessera/launch.hpp>

#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"

namespace {

using namespace tessera::support;
using tessera::chunked_scan_pass;
using tessera::recurrent_op;

template <tessera::dtype Type, chunked_scan_pass Pass>
struct row {
  static constexpr tessera::chunked_scan_config config{
      .target = tessera::native_cpu_backend, .type = Type, .pass = Pass};
};

/// Calls of the operations with these args that the header path runs in the row's direction.
template <class Row, class Args, class Options>
void expect_right(const tessera::operation& op) {
  for (std::uint64_t index = 0; index < 60; ++index) {
    SCOPED_TRACE(std::string(op.name) + " " + std::to_string(index));
    random_source random = stream(77, index);
    const auto data = drawn_call(op, random, {.type = Row::config.type});
    ASSERT_NE(data, nullptr);
    const auto& args = *reinterpret_cast<const Args*>(data->tensors());
    const auto& options = *static_cast<const Options*>(data->options());
    const call_expectation expectation(data->call());
    for (const int threads : {1, 2}) {
      data->reset();
      const auto done = tessera::launch<Row>(args, options, tessera::cpu{.threads = threads});
      ASSERT_TRUE(done) << done.message();
      EXPECT_EQ(expectation.complaints(data->tensors()), "");
      EXPECT_TRUE(data->intact()) << "bytes outside the output were written";
    }
    if (testing::Test::HasFailure()) return;
  }
}

template <tessera::dtype Type, chunked_scan_pass Pass>
void expect_right() {
  constexpr bool backward = Pass == chunked_scan_pass::backward;
  expect_right<row<Type, Pass>, tessera::recurrent_args, tessera::recurrent_options>(
      tessera::recurrent_table::operations[static_cast<std::size_t>(
          backward ? recurrent_op::recurrent_backward : recurrent_op::recurrent)]);
  expect_right<row<Type, Pass>, tessera::rwkv6_args, tessera::rwkv6_options>(
      tessera::rwkv6_table::operations[backward ? 1 : 0]);
}

TEST(linear_attention_header_path, is_right_forward) {
  expect_right<tessera::dtype::f32, chunked_scan_pass::forward>();
  expect_right<tessera::dtype::f16, chunked_scan_pass::forward>();
  expect_right<tessera::dtype::bf16, chunked_scan_pass::forward>();
}

TEST(linear_attention_header_path, is_right_backward) {
  expect_right<tessera::dtype::f32, chunked_scan_pass::backward>();
  expect_right<tessera::dtype::f16, chunked_scan_pass::backward>();
  expect_right<tessera::dtype::bf16, chunked_scan_pass::backward>();
}

TEST(linear_attention_header_path, refuses_what_its_row_does_not_take_and_too_little_memory) {
  const std::vector<float> x(6, 1.0f);
  std::vector<float> out(6);
  const auto rows = tessera::view(x.data(), {1, 2, 1, 3});
  const tessera::recurrent_args args{
      .q = rows, .k = rows, .v = rows, .out = tessera::view(out.data(), {1, 2, 1, 3})};
  const auto other = tessera::launch<row<tessera::dtype::bf16, chunked_scan_pass::forward>>(args);
  EXPECT_EQ(other.code(), tessera::status_code::ineligible_row);
  EXPECT_NE(other.message().find("f32"), std::string::npos) << other.message();
  EXPECT_NE(other.message().find("bf16"), std::string::npos) << other.message();
  alignas(64) std::array<std::byte, 64> memory{};
  const auto done = tessera::launch<row<tessera::dtype::f32, chunked_scan_pass::forward>>(
      args, tessera::cpu{.workspace = memory});
  EXPECT_EQ(done.code(), tessera::status_code::workspace) << done.message();
}

}  // namespace
