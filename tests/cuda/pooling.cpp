// Mean pooling where only a device has something to prove: numbers of means that do not follow from
// offsets, sums that do not depend on the batch.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/mean_pooling.hpp>

#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {
namespace {

status run(mean_pooling_op op, const mean_pooling_args& args,
           const mean_pooling_options& options = {}) {
  const found_operation known = operation_named(name_of(op));
  return support::call_here(*known.kind, {known.op, tensors_of(args), &options});
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
  const status done = run(mean_pooling_op::mean_pooling_chunks, args, {.chunk_size = 4});
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
  ASSERT_TRUE(run(mean_pooling_op::mean_pooling, {.x = view(x.data(), {tokens, columns}),
                                                  .cu_seqlens = view(offsets.data(), {count + 1}),
                                                  .out = view(together.data(), {count, columns})}));
  for (std::int64_t n = 0; n < count; ++n) {
    SCOPED_TRACE(n);
    const auto at = static_cast<std::size_t>(n);
    std::vector<float> alone(static_cast<std::size_t>(columns));
    ASSERT_TRUE(run(mean_pooling_op::mean_pooling,
                    {.x = view(x.data() + offsets[at] * columns, {1, lengths[at], columns}),
                     .out = view(alone.data(), {1, columns})}));
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + n * columns));
  }
}

}  // namespace
}  // namespace tessera::device_test
