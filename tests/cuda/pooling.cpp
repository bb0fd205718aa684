// Mean pooling where only a device has something to prove: offsets that no host looks at, numbers
// of means that do not follow from them, plans, agreement with the CPU, sums that do not depend on
// the batch.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/support/place.hpp"
#include "tests/support/pooling_data.hpp"

namespace tessera::device_test {
namespace {

using support::pooling_case;
using support::pooling_data;

constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();

std::vector<instance> rows_for(const pooling_case& one) {
  std::vector<instance> rows;
  for (const instance& row : mean_pooling_registry()) {
    const auto& config = row.config_as<mean_pooling_config>();
    const bool fits = config.type == one.type && config.pass == pass_of(one.op);
    if (fits && is_cuda(row.target)) rows.push_back(row);
  }
  EXPECT_FALSE(rows.empty());
  return rows;
}

pooling_case packed_call(mean_pooling_op op, dtype type) {
  pooling_case one;
  one.op = op;
  one.type = type;
  one.packed = true;
  one.tokens = 3000;
  one.heads = has_chunks(op) ? 2 : 1;
  one.columns = 264;
  if (has_chunks(op)) one.chunk_size = 7;
  one.lengths = {5, 1200, 0, 33, 1500};
  one.seed = 12;
  return one;
}

constexpr mean_pooling_op all_ops[] = {
    mean_pooling_op::mean_pooling, mean_pooling_op::mean_pooling_chunks,
    mean_pooling_op::mean_pooling_backward, mean_pooling_op::mean_pooling_chunks_backward};

TEST(pooling_offsets, that_are_wrong_stay_inside_the_tensors) {
  for (const mean_pooling_op op : all_ops) {
    const pooling_case one = packed_call(op, dtype::bf16);
    pooling_data data(one);
    const tensor_view& offsets = data.args().cu_seqlens;
    const std::vector<double> right = reference::to_doubles(offsets);
    for (const instance& row : rows_for(one)) {
      for (const std::int32_t wrong : {-1, least, most, most - 63, 3001, 1 << 30, -(1 << 30), 0}) {
        for (std::int64_t at = 0; at < offsets.extent[0]; ++at) {
          SCOPED_TRACE(std::string(row.name) + " entry " + std::to_string(at) + " is " +
                       std::to_string(wrong));
          support::store(offsets, at, wrong);
          const status done = support::run_here(op, data.args(), data.options(), {.row = row.name});
          EXPECT_TRUE(done) << done.message();
          EXPECT_TRUE(data.output().margins_intact());
          support::store(offsets, at, right[static_cast<std::size_t>(at)]);
          if (testing::Test::HasFailure()) return;
        }
      }
      const support::pooling_expectation expectation(op, data.args(), data.options());
      ASSERT_TRUE(support::run_here(op, data.args(), data.options(), {.row = row.name}));
      EXPECT_EQ(expectation.complaint(data.output().view()), "") << "with the right offsets";
    }
  }
}

/// out of `rows` means, of a call whose sequences have other numbers of chunks.
std::vector<float> means_in(std::int64_t rows, const std::vector<float>& x,
                            const std::vector<std::int32_t>& offsets, std::int64_t columns) {
  std::vector<float> out(static_cast<std::size_t>(rows * columns), -7.0f);
  const auto tokens = static_cast<std::int64_t>(x.size()) / columns;
  const mean_pooling_args args{
      .x = view(x.data(), {1, tokens, 1, columns}),
      .cu_seqlens = view(offsets.data(), {static_cast<std::int64_t>(offsets.size())}),
      .out = view(out.data(), {1, rows, 1, columns})};
  const status done =
      support::run_here(mean_pooling_op::mean_pooling_chunks, args, {.chunk_size = 4}, {});
  EXPECT_TRUE(done) << done.message();
  return out;
}

// The host does not know how many chunks there are.
TEST(pooling_chunks, fill_more_means_with_zeros_and_leave_out_what_has_no_room) {
  constexpr std::int64_t columns = 12;
  std::vector<float> x(static_cast<std::size_t>(30 * columns));
  support::random_source random(2);
  for (float& value : x) value = random.bell();
  const std::vector<std::int32_t> offsets{0, 9, 9, 22};  // 3 + 0 + 4 chunks
  const std::vector<float> exact = means_in(7, x, offsets, columns);
  for (const std::int64_t rows : {1, 6, 8, 100}) {
    SCOPED_TRACE(rows);
    const std::vector<float> out = means_in(rows, x, offsets, columns);
    for (std::int64_t at = 0; at < rows * columns; ++at) {
      const auto index = static_cast<std::size_t>(at);
      EXPECT_EQ(out[index], at < 7 * columns ? exact[index] : 0.0f) << at;
    }
  }
}

// Sequences have the bits they have alone: dense and packed, short, long, cut into pieces.
TEST(pooling_sequences, do_not_depend_on_the_batch) {
  constexpr std::int64_t columns = 520;
  const std::vector<std::int64_t> lengths{3, 31, 32, 33, 700, 1, 2900, 500};
  std::vector<std::int32_t> offsets{0};
  for (const std::int64_t length : lengths) {
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
  }
  const std::int64_t tokens = offsets.back();
  std::vector<float> x(static_cast<std::size_t>(tokens * columns));
  support::random_source random(3);
  for (float& value : x) value = random.bell();
  const auto count = static_cast<std::int64_t>(lengths.size());
  std::vector<float> together(static_cast<std::size_t>(count * columns));
  ASSERT_TRUE(support::run_here(mean_pooling_op::mean_pooling,
                                {.x = view(x.data(), {tokens, columns}),
                                 .cu_seqlens = view(offsets.data(), {count + 1}),
                                 .out = view(together.data(), {count, columns})},
                                {}, {}));
  for (std::int64_t n = 0; n < count; ++n) {
    SCOPED_TRACE(n);
    const auto at = static_cast<std::size_t>(n);
    std::vector<float> alone(static_cast<std::size_t>(columns));
    ASSERT_TRUE(
        support::run_here(mean_pooling_op::mean_pooling,
                          {.x = view(x.data() + offsets[at] * columns, {1, lengths[at], columns}),
                           .out = view(alone.data(), {1, columns})},
                          {}, {}));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + n * columns));
  }
}

TEST(pooling_cpu_and_gpu, agree) {
  for (std::uint64_t index = 0; index < 100; ++index) {
    SCOPED_TRACE(index);
    support::random_source random = support::stream(37, index);
    const pooling_case one = support::random_pooling_case(random);
    pooling_data on_gpu(one), on_cpu(one);
    const status there = support::run_here(one.op, on_gpu.args(), on_gpu.options(), {});
    ASSERT_TRUE(there) << there.message();
    const status here = support::run(one.op, on_cpu.args(), on_cpu.options());
    ASSERT_TRUE(here) << here.message();
    const support::pooling_expectation expectation(one.op, on_cpu.args(), on_cpu.options());
    EXPECT_EQ(expectation.complaint(on_gpu.output().view()), "");
    EXPECT_EQ(expectation.complaint(on_cpu.output().view()), "");
    if (testing::Test::HasFailure()) return;
  }
}

TEST(pooling_plans, run_on_their_device_with_other_offsets_each_time) {
  const stream stream;
  for (const mean_pooling_op op : all_ops) {
    pooling_case one = packed_call(op, dtype::f16);
    pooling_data first(one);
    const auto made = plan(problem_of(first.args(), first.options(), op),
                           {.device = first_device, .stream = stream.handle()});
    ASSERT_TRUE(made) << made.message();
    const std::vector<std::vector<std::int64_t>> cuts{
        one.lengths, {2500}, {1, 1, 1, 1}, {400, 600, 800}};
    for (const std::vector<std::int64_t>& lengths : cuts) {
      pooling_case other = one;
      other.lengths = lengths;
      other.lengths.resize(one.lengths.size());
      pooling_data data(other);
      const support::pooling_expectation expectation(op, data.args(), data.options());
      device_image image(data.args());
      image.send(stream.handle());
      const status done = made->run(image.args(first_device));
      ASSERT_TRUE(done) << done.message();
      EXPECT_TRUE(image.fetch(stream.handle()));
      EXPECT_EQ(expectation.complaint(data.output().view()), "");
    }
    const status elsewhere = made->run(first.args());
    EXPECT_EQ(elsewhere.code(), status_code::invalid_argument);
    EXPECT_NE(elsewhere.message().find("device is cpu:0, the plan has cuda:0"), std::string::npos)
        << elsewhere.message();
  }
}

}  // namespace
}  // namespace tessera::device_test
