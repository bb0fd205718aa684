// The judge judged: the comparator, the guards and the verdict on calls of every operation against
// what is known.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/family.hpp>

#include "tests/support/call_data.hpp"
#include "tests/support/call_judge.hpp"

namespace {

using namespace tessera::support;
using tessera::dtype;

TEST(comparator, finds_nan_and_infinity_in_the_wrong_place) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> want{1.0, nan, -HUGE_VAL, 2.0};
  EXPECT_TRUE(judged(compare(want, want, 2, error_scale::row), 0.0, 0.0).passed);
  for (std::size_t at = 0; at < want.size(); ++at) {
    for (const double wrong : {nan, HUGE_VAL, -HUGE_VAL, 5.0}) {
      std::vector<double> ours = want;
      ours[at] = wrong;
      if ((std::isnan(want[at]) && std::isnan(wrong)) || want[at] == wrong) continue;
      const comparison found = judged(compare(ours, want, 2, error_scale::row), 0.25, 0.5);
      EXPECT_FALSE(found.passed) << at << " " << wrong;
      EXPECT_EQ(found.worst, static_cast<std::int64_t>(at));
    }
  }
}

TEST(comparator, scales_errors_as_documented) {
  // Rows of two; the tensor's largest is 100, so the second row's scale is 1, not 0.5.
  const std::vector<double> want{100.0, 50.0, 0.5, 0.25}, ours{100.0, 52.0, 0.5, 0.26};
  EXPECT_NEAR(compare(ours, want, 2, error_scale::row).error, 2.0 / 100.0, 1e-12);
  EXPECT_EQ(compare(ours, want, 2, error_scale::row).worst, 1);
  EXPECT_NEAR(compare(ours, want, 2, error_scale::unit).error, 2.0 / 50.0, 1e-12);
  EXPECT_NEAR(compare(ours, want, 2, error_scale::tensor).error, 2.0 / 100.0, 1e-12);
  const std::vector<double> last{100.0, 50.0, 0.5, 0.29};
  EXPECT_NEAR(compare(last, want, 2, error_scale::row).error, 0.04, 1e-12);
  EXPECT_FALSE(compare({}, want, 2, error_scale::row).specials_agree);
  const std::vector<double> zero{0.0}, small{1e-30};
  EXPECT_EQ(compare(small, zero, 1, error_scale::row).error, HUGE_VAL);
}

TEST(comparator, bound_is_the_larger_of_twice_the_peer_and_the_floor) {
  comparison found;
  found.error = 3e-6;
  EXPECT_TRUE(judged(found, 0.0, 5e-6).passed);
  EXPECT_FALSE(judged(found, 1e-6, 1e-6).passed);
  EXPECT_TRUE(judged(found, 1.6e-6, 1e-6).passed);
  EXPECT_EQ(floor_of("lse", dtype::bf16), floor_of("out", dtype::f32));
  EXPECT_LT(floor_of("out", dtype::f16), floor_of("out", dtype::bf16));
}

TEST(guards, notice_a_byte_beside_the_tensor) {
  tensor_layout layout;
  layout.padding = {0, 0, 0, 3, 0};
  guarded_tensor tensor(dtype::f32, 4, {1, 2, 2, 5}, layout);
  EXPECT_TRUE(tensor.untouched());
  tensor.fill([](auto flat) { return static_cast<double>(flat); });
  EXPECT_FALSE(tensor.untouched());
  EXPECT_TRUE(tensor.margins_intact());
  for (const std::int64_t beside : {-1, 5, 6, 7, 13, 29}) {
    const float before = tessera::reference::load<float>(tensor.view().data, beside);
    store(tensor.view(), beside, 1.0);
    EXPECT_FALSE(tensor.margins_intact()) << beside;
    std::memcpy(static_cast<float*>(tensor.view().data) + beside, &before, sizeof before);
    EXPECT_TRUE(tensor.margins_intact()) << beside;
  }
  tensor.reset();
  EXPECT_TRUE(tensor.untouched());
}

/// The truth written to the outputs as a perfect kernel would; `wrong`: with one element far off.
void write_truth(const call_data& data, const call_expectation& truth, std::int64_t wrong = -1) {
  for (const tessera::reference::expected_tensor& output : truth.truth()) {
    const tessera::tensor_view& view = data.tensors()[output.tensor];
    const std::int64_t place = wrong < 0 ? -1 : wrong % std::max<std::int64_t>(view.elements(), 1);
    tessera::reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      const double right = output.values[static_cast<std::size_t>(flat)];
      const bool off = flat == place && std::isfinite(right);
      store(view, offset, off ? right + 0.25 * std::max(1.0, std::fabs(right)) : right);
    });
  }
}

TEST(judge, accepts_the_truth_of_every_operation_and_rejects_wrong_elements) {
  for (const tessera::family* kind : tessera::families()) {
    for (const tessera::operation& op : kind->operations) {
      int unwritten = 0, rejected = 0;
      for (std::uint64_t index = 0; index < 40; ++index) {
        SCOPED_TRACE(std::string(op.name) + " " + std::to_string(index));
        random_source random = stream(17, index);
        const std::unique_ptr<call_data> data = drawn_call(op, random, {.work = 2e4});
        ASSERT_NE(data, nullptr);
        const call_expectation expectation(data->call());
        if (!data->has_output_elements()) continue;
        // A call that writes nothing into memory of its caller's is right before it is made.
        unwritten += expectation.complaints(data->tensors()).empty() ? 0 : 1;
        write_truth(*data, expectation);
        EXPECT_EQ(expectation.complaints(data->tensors()), "") << data->text();
        write_truth(*data, expectation, random.below(8));
        rejected += expectation.complaints(data->tensors()).empty() ? 0 : 1;
      }
      EXPECT_GT(unwritten, 10) << op.name;
      EXPECT_GT(rejected, 10) << op.name;
    }
  }
}

}  // namespace
