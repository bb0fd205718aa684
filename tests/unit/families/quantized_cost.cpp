// Estimates of products on Hopper say that weights go through registers for calls that kernels
// serve so, and for no others: they have one launch, others two.
#include <array>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/families/quantized/cost.hpp>
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

}  // namespace
