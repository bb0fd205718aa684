// The structs of C read as a declaration says: options of every type, structs that have grown.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include <tessera/interop/impl/c_operation.hpp>

#include "tests/unit/spec/cache_operation.hpp"

namespace tessera::testing {
namespace {

struct c_options {
  std::uint32_t size = sizeof(c_options);
  std::uint32_t given = 0;
  std::int64_t block = 0, mode = 0;
  double gain = 0;
  std::int64_t wide = 0;
};
struct c_args {
  std::uint32_t size = sizeof(c_args);
  std::uint32_t reserved = 0;
  std::array<const tessera_tensor*, 9> tensors{};
};

/// The operation, whose structs had 3 tensors and 2 options in their first release.
struct grown_operation {
  signature form = cache_table::form;
  operation op = cache_table::operations[0];

  grown_operation() {
    form.first_tensors = 3;
    form.first_options = 2;
    op.form = &form;
  }
};

std::string refusal(const c_options& from, cache_options& to,
                    const operation& op = cache_table::operations[0]) {
  return std::string(c::read_options(&from, op, &to).message());
}

TEST(COptions, OfEveryTypeCountIfTheyAreNotZero) {
  cache_options read;
  EXPECT_EQ(refusal({.block = 7, .mode = 1, .gain = 0.25, .wide = 1}, read), "");
  EXPECT_EQ(read.block, 7);
  EXPECT_EQ(read.mode, rounding::down);
  EXPECT_EQ(read.gain, 0.25);
  EXPECT_TRUE(read.wide);
  EXPECT_EQ(refusal({.block = -7, .gain = -0.0}, read), "");  // judged by the checks of calls
  EXPECT_EQ(read.block, -7);
  EXPECT_EQ(read.gain, 0.0);
  EXPECT_EQ(refusal({}, read), "");
  EXPECT_EQ(read.block, 4);
  EXPECT_EQ(read.mode, rounding::nearest);
  EXPECT_EQ(read.gain, std::nullopt);
  EXPECT_FALSE(read.wide);
}

TEST(COptions, OfValueZeroCountIfTheirBitIsSet) {
  cache_options read;
  EXPECT_EQ(refusal({.given = 15}, read), "");
  EXPECT_EQ(read.block, 0);
  EXPECT_EQ(read.gain, 0.0);
  EXPECT_EQ(refusal({.given = 4}, read), "");
  EXPECT_EQ(read.block, 4);
  EXPECT_EQ(refusal({.given = 16}, read), "options of fill_cache: given is 16, known bits are 15");
}

TEST(COptions, ChoicesAndFlagsAreEnumerators) {
  cache_options read;
  EXPECT_EQ(refusal({.mode = 2}, read), "mode: is 2, must be 0 to 1");
  EXPECT_EQ(refusal({.mode = 256}, read), "mode: is 256, must be 0 to 1");
  EXPECT_EQ(refusal({.mode = -1}, read), "mode: is -1, must be 0 to 1");
  EXPECT_EQ(refusal({.wide = std::numeric_limits<std::int64_t>::min()}, read),
            "wide: is -9223372036854775808, must be 0 to 1");
}

TEST(CStructs, OfTheFirstReleaseStayGood) {
  const grown_operation grown;
  cache_options read;
  c_options options{.size = 24, .block = 9, .gain = 0.5};  // what is behind `size` is not looked at
  EXPECT_EQ(refusal(options, read, grown.op), "");
  EXPECT_EQ(read.block, 9);
  EXPECT_EQ(read.gain, std::nullopt);
  for (const std::uint32_t size : {0u, 8u, 16u, 28u, 4104u}) {
    options.size = size;
    EXPECT_EQ(refusal(options, read, grown.op),
              "options of fill_cache: size is " + std::to_string(size) +
                  ", must be the sizeof of the struct, which is 40");
  }
  options.size = 24;
  EXPECT_EQ(refusal(options, read),
            "options of fill_cache: size is 24, must be the sizeof of the struct, which is 40");

  std::array<tensor_view, max_tensors> views;
  const tessera_tensor tensor{.size = sizeof(tessera_tensor),
                              .dtype = TESSERA_I8,
                              .data = nullptr,
                              .extent = {6, 8},
                              .stride = {},
                              .rank = 2,
                              .device_kind = TESSERA_CPU,
                              .device_ordinal = 0,
                              .flags = TESSERA_CONTIGUOUS};
  c_args args{.size = 32, .tensors = {&tensor, nullptr, &tensor, &tensor}};
  EXPECT_EQ(c::read_args(&args, grown.op, views.data()).message(), "");
  EXPECT_EQ(views[2].type, dtype::i8);
  EXPECT_EQ(views[2].extent[1], 8);
  EXPECT_FALSE(views[3].present());
  args.size = 24;
  EXPECT_EQ(c::read_args(&args, grown.op, views.data()).message(),
            "args of fill_cache: size is 24, must be the sizeof of the struct, which is 88");
  args = {.reserved = 3, .tensors = {}};
  EXPECT_EQ(c::read_args(&args, grown.op, views.data()).message(),
            "args of fill_cache: reserved is 3, known bits are 0");
}

}  // namespace
}  // namespace tessera::testing
