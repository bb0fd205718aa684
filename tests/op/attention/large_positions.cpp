// Positions, counts and offsets beyond 32 bits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::support {
namespace {

// 70000 x 70000 scores: their count does not fit 32 bits, nor does the index of a dropout element.
// All rows share one q, all keys one k (stride 0), and a window keeps the work small.
TEST(large_positions, dropout_is_right_where_the_number_of_scores_exceeds_32_bits) {
  constexpr std::int64_t length = 70000;
  std::vector<float> q{0.5f}, k{0.25f}, v(length), out(length);
  for (std::int64_t j = 0; j < length; ++j) {
    v[static_cast<std::size_t>(j)] = static_cast<float>(j % 1001);
  }
  const flash_attention_args args{.q = view(q.data(), {1, length, 1, 1}, {0, 0, 0, 1}),
                                  .k = view(k.data(), {1, length, 1, 1}, {0, 0, 0, 1}),
                                  .v = view(v.data(), {1, length, 1, 1}),
                                  .out = view(out.data(), {1, length, 1, 1})};
  flash_attention_options options{.causal = true, .window_left = 7};
  options.dropout_probability = 0.5;
  options.dropout_seed = 77;
  for (const auto& row : rows_for(args, options)) {
    SCOPED_TRACE(row.name);
    std::fill(out.begin(), out.end(), -1.0f);
    ASSERT_TRUE(run(flash_op::flash_attention, args, options, {.row = row.name}));
    const reference::flash_head<reference::exact> truth(args, options, 0, 0);
    for (const std::int64_t i : {0, 6, 7, 8, 30678, 30679, 61355, 65535, 65536, 69999}) {
      // Equal logits: a row is the mean of what it keeps, exact to a few roundings.
      ASSERT_NEAR(static_cast<double>(out[static_cast<std::size_t>(i)]), truth.row(i).out[0],
                  floor_of("out", dtype::f32) * 2000.0)
          << i;
    }
  }
}

// Strides of 2^28 elements: offsets pass 2^31 elements, and the bytes 2^33. The pages in between
// are reserved and never touched.
TEST(large_positions, offsets_beyond_32_bits_are_right) {
  constexpr std::int64_t step = std::int64_t{1} << 28, length = 20, width = 8;
  const auto bytes = static_cast<std::size_t>(step * length * 4);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "the system does not reserve " << bytes << " bytes";
  auto* const base = static_cast<float*>(memory);
  const auto far = [&](std::int64_t shift) {
    return view(base + shift, {1, length, 1, width}, {0, step, 0, 1});
  };
  const flash_attention_args args{
      .q = far(0), .k = far(width), .v = far(2 * width), .out = far(3 * width)};
  random_source random(8);
  for (const tensor_view* input : {&args.q, &args.k, &args.v}) {
    reference::for_each_element(*input, [&](std::int64_t, std::int64_t offset) {
      store(*input, offset, static_cast<double>(random.bell()));
    });
  }
  const flash_attention_options options{.causal = true};
  const flash_expectation expectation(args, options);
  for (const auto& row : rows_for(args, options)) {
    SCOPED_TRACE(row.name);
    ASSERT_TRUE(run(flash_op::flash_attention, args, options, {.row = row.name}));
    EXPECT_EQ(expectation.complaints(), "");
  }
  munmap(memory, bytes);
}

}  // namespace
}  // namespace tessera::support
