// The header path of mean pooling: rows compiled here with this unit's instructions, nothing looked
// up, against the definition.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/launch.hpp>

#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"

namespace {

using namespace tessera::support;
using tessera::mean_pooling_config;
using tessera::mean_pooling_op;
using tessera::pooling_pass;

template <tessera::dtype Type, pooling_pass Pass>
struct row {
  static constexpr mean_pooling_config config{
      .target = tessera::native_cpu_backend, .type = Type, .pass = Pass};
};

/// Calls of each operation that goes the row's way.
template <class Row>
void expect_right() {
  for (const tessera::operation& op : tessera::mean_pooling_table::operations) {
    const auto kind = static_cast<mean_pooling_op>(op.place);
    if (pass_of(kind) != Row::config.pass) continue;
    for (std::uint64_t index = 0; index < 75; ++index) {
      SCOPED_TRACE(std::string(op.name) + " " + std::to_string(index));
      random_source random = stream(77, index);
      const auto data = drawn_call(op, random, {.type = Row::config.type});
      ASSERT_NE(data, nullptr);
      const auto& args = *reinterpret_cast<const tessera::mean_pooling_args*>(data->tensors());
      const auto& options = *static_cast<const tessera::mean_pooling_options*>(data->options());
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
}

TEST(pooling_header_path, is_right_forward) {
  expect_right<row<tessera::dtype::f32, pooling_pass::forward>>();
  expect_right<row<tessera::dtype::f16, pooling_pass::forward>>();
  expect_right<row<tessera::dtype::bf16, pooling_pass::forward>>();
}

TEST(pooling_header_path, is_right_backward) {
  expect_right<row<tessera::dtype::f32, pooling_pass::backward>>();
  expect_right<row<tessera::dtype::f16, pooling_pass::backward>>();
  expect_right<row<tessera::dtype::bf16, pooling_pass::backward>>();
}

TEST(pooling_header_path, refuses_what_its_row_does_not_take) {
  const std::vector<float> x(6, 1.0f);
  std::vector<float> out(3);
  const tessera::mean_pooling_args args{.x = tessera::view(x.data(), {1, 2, 3}),
                                        .out = tessera::view(out.data(), {1, 3})};
  const auto done = tessera::launch<row<tessera::dtype::bf16, pooling_pass::forward>>(args);
  EXPECT_EQ(done.code(), tessera::status_code::ineligible_row);
  EXPECT_NE(done.message().find("f32"), std::string::npos) << done.message();
  EXPECT_NE(done.message().find("bf16"), std::string::npos) << done.message();
}

TEST(pooling_header_path, refuses_memory_that_is_too_small) {
  const std::vector<float> x(2 * 4096 * 8, 1.0f);
  std::vector<float> out(8);
  const tessera::mean_pooling_args args{.x = tessera::view(x.data(), {1, 2 * 4096, 8}),
                                        .out = tessera::view(out.data(), {1, 8})};
  alignas(64) std::array<std::byte, 64> memory{};
  using any_row = row<tessera::dtype::f32, pooling_pass::forward>;
  const auto done = tessera::launch<any_row>(args, tessera::cpu{.workspace = memory});
  EXPECT_EQ(done.code(), tessera::status_code::workspace) << done.message();
  EXPECT_TRUE(tessera::launch<any_row>(args));
  EXPECT_EQ(out, std::vector<float>(8, 1.0f));
}

}  // namespace
