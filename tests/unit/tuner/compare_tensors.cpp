// Blocks of a tensor, compared by several threads, are judged as the tensor as a whole.
#include "tools/tuner/compare_tensors.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "tests/reference/elements.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera;
using support::error_scale;

/// [rows, width] of f32, some of them far off, one NaN or more.
std::vector<float> drawn(support::random_source& random, std::int64_t rows, std::int64_t width) {
  std::vector<float> values(static_cast<std::size_t>(rows * width));
  for (std::int64_t row = 0; row < rows; ++row) {
    const float size = random.below(4) == 0 ? 1e-3f : 1.0f;
    for (std::int64_t i = 0; i < width; ++i) {
      values[static_cast<std::size_t>(row * width + i)] = size * static_cast<float>(random.bell());
    }
  }
  return values;
}

TEST(CompareTensors, ABlockIsJudgedAsAPartOfTheWhole) {
  support::random_source random(5);
  for (int n = 0; n < 40; ++n) {
    const std::int64_t width = random.below(3) == 0 ? 1 + random.below(3) : 1 + random.below(3000);
    const std::int64_t rows = 1 + random.below(200000 / width);
    std::vector<float> theirs = drawn(random, rows, width);
    std::vector<float> ours = theirs;
    const auto anywhere = [&] {
      return static_cast<std::size_t>(random.below(static_cast<std::int64_t>(ours.size())));
    };
    for (int change = 0; change < n % 7; ++change) {
      ours[anywhere()] += 0.1f * static_cast<float>(random.bell());
    }
    if (n % 5 == 1) ours[anywhere()] = std::numeric_limits<float>::quiet_NaN();
    if (n % 5 == 2) theirs[anywhere()] = -std::numeric_limits<float>::infinity();
    const tensor_view have = view(ours.data(), {rows, width});
    const tensor_view want = view(theirs.data(), {rows, width});
    for (const error_scale scale : {error_scale::row, error_scale::unit, error_scale::tensor}) {
      const support::comparison found = tuner::compare_tensors(have, want, scale);
      const support::comparison whole =
          support::compare(reference::to_doubles(have), reference::to_doubles(want), width, scale);
      EXPECT_EQ(found.specials_agree, whole.specials_agree);
      EXPECT_EQ(found.specials_agree ? found.error : 0, whole.specials_agree ? whole.error : 0);
      EXPECT_EQ(found.worst, whole.worst) << rows << " x " << width;
      EXPECT_EQ(found.ours == found.ours, whole.ours == whole.ours);
    }
  }
}

TEST(CompareTensors, NothingIsAlike) {
  const tensor_view none = view<float>(nullptr, {0, 4});
  EXPECT_TRUE(tuner::compare_tensors(none, none, error_scale::row).specials_agree);
}

}  // namespace
