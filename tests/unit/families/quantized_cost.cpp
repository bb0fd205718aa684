// Estimates of products on Hopper say that weights go through registers for calls that kernels
// serve so, and for no others: they have one launch, others two. On CPUs they say which row is the
// fastest.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <tessera/families/quantized/cost.hpp>
#include <tessera/families/quantized/family.hpp>
#include <tessera/runtime/cost.hpp>
#include <tessera/spec/names.hpp>

namespace {

using namespace tessera;

struct known_call {
  weight_mode mode;
  std::uint8_t bits;
  std::uint16_t group_size;
  std::int64_t batch;
  std::int64_t matrices;  ///< 0: one for all rows
  int launches;
};

TEST(quantized_cost, counts_weights_in_registers_where_kernels_have_them_there) {
  constexpr quantized_config row{
      .target = backend::cuda_sm90, .pass = quantized_pass::forward, .type = dtype::bf16};
  using enum weight_mode;
  for (const known_call& call : std::array{
           known_call{affine, 4, 32, 64, 0, 1},
           known_call{affine, 4, 16, 64, 0, 2},
           known_call{affine, 8, 16, 128, 0, 1},
           known_call{affine, 8, 16, 129, 0, 2},
           known_call{affine, 4, 64, 1280, 0, 1},
           known_call{affine, 4, 64, 1281, 0, 2},
           known_call{affine, 5, 64, 64, 0, 2},
           known_call{nf4, 4, 64, 128, 0, 1},
           known_call{nf4, 4, 64, 129, 0, 2},
           known_call{nf4, 4, 16, 64, 0, 2},
           known_call{nf4, 4, 64, 8 * 128, 8, 1},
           known_call{nf4, 4, 64, 8 * 128 + 1, 8, 2},
           known_call{mxfp8, 8, 32, 128, 0, 1},
           known_call{mxfp8, 8, 32, 256, 0, 2},
           known_call{nvfp4, 4, 16, 1024, 0, 1},
           known_call{mxfp4, 4, 32, 1024, 0, 1},
           known_call{mxfp4, 4, 32, 1 << 21, 1024, 2},
       }) {
    const quantized_demand demand{.pass = quantized_pass::forward,
                                  .mode = call.mode,
                                  .type = dtype::bf16,
                                  .bits = call.bits,
                                  .has_zeros = call.mode == affine,
                                  .group_size = call.group_size,
                                  .rows = 4096,
                                  .columns = 4096,
                                  .batch = call.batch,
                                  .matrices = call.matrices};
    EXPECT_EQ(estimate_of(row, facts_of(demand), 132).launches, call.launches)
        << name_in(weight_mode_names, call.mode) << " of " << int{call.bits}
        << " bits in groups of " << call.group_size << ", " << call.batch << " rows of x, "
        << call.matrices << " matrices";
  }
}

quantized_demand affine_call(weight_axis axis, std::int64_t batch, std::uint8_t bits = 4) {
  return {.pass = quantized_pass::forward,
          .mode = weight_mode::affine,
          .type = dtype::bf16,
          .axis = axis,
          .bits = bits,
          .has_zeros = true,
          .group_size = 64,
          .rows = 4096,
          .columns = 4096,
          .batch = batch};
}

/// A call copies them, which `explain` says.
TEST(quantized_cost, weights_that_lie_k_major_have_a_launch_more) {
  for (const backend target : {backend::cuda_sm80, backend::cuda_sm90}) {
    const quantized_config row{
        .target = target, .pass = quantized_pass::forward, .type = dtype::bf16};
    for (const std::int64_t batch : {1, 16, 64, 4096}) {
      const quantized_facts by_row = facts_of(affine_call(weight_axis::col, batch));
      const quantized_facts by_column = facts_of(affine_call(weight_axis::k_major, batch));
      EXPECT_EQ(estimate_of(row, by_column, 132).launches,
                estimate_of(row, by_row, 132).launches + 1)
          << batch;
    }
  }
}

/// What costs more than reading weights once is no secret.
TEST(quantized_cost, copies_and_decodings_are_told) {
  const quantized_config hopper{
      .target = backend::cuda_sm90, .pass = quantized_pass::forward, .type = dtype::bf16};
  const auto told = [&](weight_axis axis, std::int64_t batch, std::uint8_t bits = 4) {
    return quantized_family::subject_of(hopper, facts_of(affine_call(axis, batch, bits)));
  };
  const std::string weights = "forward, affine, 4096 x 4096 weights";
  EXPECT_EQ(told(weight_axis::col, 1), weights);
  EXPECT_EQ(told(weight_axis::col, 1280), weights);
  EXPECT_EQ(told(weight_axis::col, 1281), weights + ", decoded before the product");
  EXPECT_EQ(told(weight_axis::col, 1, 3), weights + ", decoded before the product");
  EXPECT_EQ(told(weight_axis::row, 1), weights + ", decoded before the product");
  EXPECT_EQ(told(weight_axis::k_major, 64), weights + ", copied into rows by each call");
  EXPECT_EQ(told(weight_axis::k_major, 4096),
            weights + ", copied into rows by each call, decoded before the product");
}

/// Seconds of a forward row for x of bf16 with that many rows, on a core.
double seconds_of(backend target, std::int64_t batch, int bf16_dot_percent) {
  const quantized_config row{.target = target, .pass = quantized_pass::forward};
  const quantized_demand demand{.pass = quantized_pass::forward,
                                .mode = weight_mode::affine,
                                .type = dtype::bf16,
                                .bits = 4,
                                .has_zeros = true,
                                .group_size = 64,
                                .rows = 4096,
                                .columns = 4096,
                                .batch = batch};
  device_facts device;
  device.highest = backend::cpu_amx_bf16;
  device.bf16_dot_percent = bf16_dot_percent;
  return predicted_seconds(estimate_of(row, facts_of(demand), 1), target, device, 1);
}

TEST(quantized_cost, knows_who_multiplies_codes_fastest_on_a_cpu) {
  using enum backend;
  constexpr int zen_4 = 100, sapphire_rapids = 25;
  for (const std::int64_t batch : {1, 2, 4, 8, 16, 64, 512}) {
    const double pairs = seconds_of(cpu_avx512_bf16, batch, zen_4);
    EXPECT_LT(pairs, seconds_of(cpu_avx512_vnni, batch, zen_4)) << batch;
    EXPECT_LT(pairs, seconds_of(cpu_avx512, batch, zen_4)) << batch;
    // The row that would be wanted where the table lacks it has the same limit.
    const double bytes = seconds_of(cpu_avx512_vnni, batch, sapphire_rapids);
    const double tiles = seconds_of(cpu_amx_bf16, batch, sapphire_rapids);
    EXPECT_EQ(bytes < tiles, batch <= 8) << batch << ": " << bytes << ", " << tiles;
    EXPECT_LT(std::min(bytes, tiles), seconds_of(cpu_avx512_bf16, batch, sapphire_rapids)) << batch;
  }
}

}  // namespace
