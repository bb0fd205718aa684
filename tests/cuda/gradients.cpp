// Gradients of attention. Rows whose blocks of keys add to the same sums of d_q, one after the
// other: over many tiles of keys, heads and runs the same bits. All rows: captured into graphs and
// replayed with other values, contents and lengths; in several streams at a time with memory of the
// caller's.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/operation.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/graph.hpp"
#include "tests/reference/elements.hpp"
#include "tests/reference/operations.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/call_run.hpp"

namespace tessera::support {
namespace {

std::vector<tested_row> rows_in_turns() {
  std::vector<tested_row> rows = tested_rows();
  std::erase_if(rows, [](const tested_row& row) {
    return row.row->name.find("attention_backward") != 0 ||
           row.row->name.find(".turns") == std::string_view::npos;
  });
  return rows;
}

class turns : public testing::TestWithParam<tested_row> {};

TEST_P(turns, have_the_same_bits_a_hundred_times) {
  const tested_row& row = GetParam();
  const operation& op = row.kind->operations[0];
  call_wishes wishes{.density = 0.15, .work = 4e10, .longest = 500};
  for (std::size_t dim = 0; dim < op.form->dims.size(); ++dim) {
    const std::string_view symbol = op.form->dims[dim].symbol;
    if (symbol == "Sq" || symbol == "Sk") wishes.extents[dim] = 500;
    if (symbol == "B") wishes.extents[dim] = 1;
    if (symbol == "Hq" || symbol == "Hkv") wishes.extents[dim] = 2;
  }
  int ran = 0;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    random_source random(seed);
    const auto data = call_for(row, op, random, wishes);
    if (data == nullptr) continue;
    ++ran;
    const call_expectation expectation(data->call());
    std::vector<std::vector<std::byte>> first;
    const context where{.row = row.row->name};
    ASSERT_EQ(complaints_of_call(*row.kind, *data, expectation, where, first), "") << data->text();
    for (int run = 1; run < 100; ++run) {
      data->reset();
      const status done = call_here(*row.kind, data->problem(), where);
      ASSERT_TRUE(done) << done.message();
      ASSERT_EQ(data->output_bytes(), first) << "run " << run << " of " << data->text();
    }
  }
  EXPECT_GT(ran, 0);
}

INSTANTIATE_TEST_SUITE_P(rows, turns, testing::ValuesIn(rows_in_turns()),
                         [](const auto& tested) { return test_name(tested.param.row->name); });

std::vector<tested_row> rows_of_gradients() {
  std::vector<tested_row> rows = tested_rows();
  std::erase_if(
      rows, [](const tested_row& row) { return row.row->name.find("attention_backward") != 0; });
  return rows;
}

/// Fills the inputs of a call with those of another of the same problem. False if they lie in
/// another way: extents may follow from contents.
bool copy_inputs(call_data& to, const call_data& from) {
  const auto& forms = to.op().form->tensors;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const tensor_view &a = to.tensors()[i], &b = from.tensors()[i];
    if (a.present() != b.present() || a.extent != b.extent || a.stride != b.stride) return false;
  }
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const device_test::byte_span there = device_test::span_of(to.tensors()[i]);
    if (!forms[i].is_output()) {
      std::memcpy(there.begin, device_test::span_of(from.tensors()[i]).begin, there.size);
    }
  }
  return true;
}

class replayed_gradients : public testing::TestWithParam<tested_row> {
 protected:
  /// Replays the plan of a call with other values; the number of replays with other lengths.
  static int replay(call_data& data, random_source& random) {
    const tested_row& row = GetParam();
    const device_test::stream stream;
    device_test::device_image image(data.op().form->tensors, data.tensors());
    context where = context_here({.row = row.row->name});
    where.stream = stream.handle();
    const result<operation_plan> plan =
        plan_operation(*row.kind, problem_here(data.problem()), where);
    EXPECT_TRUE(plan) << plan.message();
    if (!plan) return 0;
    const std::vector<tensor_view> tensors = image.tensors(device_test::first_device);
    status done;
    const device_test::graph recorded(stream.handle(),
                                      [&] { done = plan->run(tensors.data(), stream.handle()); });
    EXPECT_TRUE(done) << done.message();
    int with_lengths = 0;
    for (int round = 0; round < 3; ++round) {
      const call_data other(owned_problem(data.problem()), random, data.wishes());
      if (!other.refusal()) continue;
      data.reset();
      if (!copy_inputs(data, other)) continue;
      data.remember();
      for (std::size_t i = 0; i < data.op().form->tensors.size(); ++i) {
        const bool lengths = reference::decides_what_is_read(*data.op().form, i);
        with_lengths += data.call().has(i) && lengths ? 1 : 0;
      }
      const call_expectation expectation(data.call());
      image.send(stream.handle());
      recorded.launch(stream.handle());
      EXPECT_TRUE(image.fetch(stream.handle())) << "memory outside the outputs was written";
      EXPECT_EQ(expectation.complaints(data.tensors()), "") << data.text();
    }
    return with_lengths;
  }
};

TEST_P(replayed_gradients, follow_other_values_and_lengths) {
  const tested_row& row = GetParam();
  if (!runs_here(row.row->target)) GTEST_SKIP() << "the device does not run it";
  int with_lengths = 0;
  for (std::uint64_t index = 0; index < 12 && !HasFailure(); ++index) {
    random_source random = stream(91, index);
    const std::optional<owned_problem> problem = drawn_problem(
        row.kind->operations[0], random,
        {.work = 1e6, .longest = 200, .attempts = 300, .kind = row.kind, .row = row.row});
    if (!problem) continue;
    call_data data(*problem, random, {.row_major = true, .aligned = true});
    if (data.refusal()) with_lengths += replay(data, random);
  }
  EXPECT_GT(with_lengths, 0);
}

INSTANTIATE_TEST_SUITE_P(rows, replayed_gradients, testing::ValuesIn(rows_of_gradients()),
                         [](const auto& tested) { return test_name(tested.param.row->name); });

/// What the segments drawn for a call hide is NaN, others see it.
void make_finite(const tensor_view& tensor) {
  const std::vector<double> values = reference::to_doubles(tensor);
  for (std::size_t at = 0; at < values.size(); ++at) {
    if (!std::isfinite(values[at])) reference::store(tensor, static_cast<std::int64_t>(at), 0.25);
  }
}

/// A call on every row that takes it.
void expect_of_all_rows(const family& kind, call_data& data) {
  const call_expectation expectation(data.call());
  int ran = 0;
  for (const tested_row& row : rows_of_gradients()) {
    if (!runs_here(row.row->target)) continue;
    data.reset();
    if (!call_here(kind, data.problem(), {.row = row.row->name})) continue;  // another type
    ++ran;
    EXPECT_EQ(expectation.complaints(data.tensors()), "") << row.row->name;
  }
  EXPECT_GT(ran, 1);
}

// Tiles whose keys are of one segment but for padding: keys of padding, which have the id -1, get
// no gradient.
TEST(segments_of_gradients, leave_padding_out) {
  const found_operation known = operation_named("flash_attention_backward");
  random_source random(7);
  call_data data(whole_problem(*known.op,
                               "q=[1,256,2,128]bf16 k=[1,256,2,128] v=[1,256,2,128] "
                               "q_segment_ids=[1,256]i32 kv_segment_ids=[1,256]i32",
                               false)
                     .value(),
                 random, {.row_major = true, .aligned = true});
  ASSERT_TRUE(data.refusal()) << data.refusal().message();
  const auto& forms = data.op().form->tensors;
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const tensor_view& own = data.tensors()[i];
    if (!own.present() || forms[i].is_output()) continue;
    const bool of_keys = forms[i].name == "kv_segment_ids";
    if (!of_keys && forms[i].name != "q_segment_ids") {
      make_finite(own);
      continue;
    }
    for (int at = 0; at < 256; ++at) {
      static_cast<std::int32_t*>(own.data)[at] = of_keys && at >= 100 ? -1 : 0;
    }
  }
  data.remember();
  expect_of_all_rows(*known.kind, data);
}

// More sequences than a warp has lanes, than its lanes have times lanes, many of them empty: a
// block finds the one that its tile belongs to.
TEST(packed_gradients, find_their_sequences) {
  const found_operation known = operation_named("flash_attention_backward");
  for (const std::string_view offsets : {"[41]", "[1301]"}) {
    random_source random(11);
    const std::string text =
        "q=[700,2,128]bf16 k=[700,2,128] v=[700,2,128] cu_seqlens_q=" + std::string(offsets) +
        "i32 cu_seqlens_k=" + std::string(offsets) + "i32";
    call_data data(whole_problem(*known.op, text, false).value(), random,
                   {.row_major = true, .aligned = true});
    ASSERT_TRUE(data.refusal()) << data.refusal().message();
    expect_of_all_rows(*known.kind, data);
  }
}

/// A stream with a call, its plan, and scratch memory that nobody else has.
class lane {
 public:
  lane(const tested_row& row, const owned_problem& problem, random_source& random)
      : row_(row), data_(owned_problem(problem), random, {.row_major = true, .aligned = true}) {}

  /// False if the draw made no call.
  bool make_ready() {
    if (!data_.refusal()) return false;
    image_.emplace(data_.op().form->tensors, data_.tensors());
    expected_.emplace(data_.call());
    context where = context_here({.row = row_.row->name});
    where.stream = own_.handle();
    result<operation_plan> plan = plan_operation(*row_.kind, problem_here(data_.problem()), where);
    EXPECT_TRUE(plan) << plan.message();
    if (!plan) return false;
    plan_.emplace(*std::move(plan));
    memory_ = device_test::allocate_on_device(plan_->workspace_bytes() + margin);
    return true;
  }
  void send() {
    data_.reset();
    image_->send(own_.handle());
    device_test::require(cudaMemsetAsync(memory_.get(), margin_value,
                                         plan_->workspace_bytes() + margin, own_.handle()),
                         "cudaMemsetAsync");
  }
  /// Returns before the work is done.
  void start() {
    const std::vector<tensor_view> tensors = image_->tensors(device_test::first_device);
    const status done = plan_->run(
        tensors.data(), std::span(memory_.get(), plan_->workspace_bytes()), own_.handle());
    ASSERT_TRUE(done) << done.message();
  }
  void judge() {
    EXPECT_TRUE(image_->fetch(own_.handle())) << "memory outside the outputs was written";
    EXPECT_EQ(expected_->complaints(data_.tensors()), "") << data_.text();
    std::vector<unsigned char> behind(margin);
    device_test::require(cudaMemcpy(behind.data(), memory_.get() + plan_->workspace_bytes(), margin,
                                    cudaMemcpyDeviceToHost),
                         "cudaMemcpy");
    EXPECT_EQ(behind, std::vector<unsigned char>(margin, margin_value))
        << "memory behind the workspace was written";
  }

 private:
  static constexpr std::size_t margin = 4096;
  static constexpr unsigned char margin_value = 0xFF;
  const tested_row& row_;
  device_test::stream own_{};
  call_data data_;
  std::optional<device_test::device_image> image_{};
  std::optional<call_expectation> expected_{};
  std::optional<operation_plan> plan_{};
  device_test::device_bytes memory_{};
};

class gradients_in_streams : public testing::TestWithParam<tested_row> {};

TEST_P(gradients_in_streams, do_not_disturb_each_other) {
  const tested_row& row = GetParam();
  if (!runs_here(row.row->target)) GTEST_SKIP() << "the device does not run it";
  constexpr std::size_t lanes = 4;
  std::vector<std::unique_ptr<lane>> all;
  for (std::uint64_t index = 0; index < 40 && all.size() < lanes; ++index) {
    random_source random = stream(92, index);
    const std::optional<owned_problem> problem = drawn_problem(
        row.kind->operations[0], random,
        {.work = 1e6, .longest = 200, .attempts = 300, .kind = row.kind, .row = row.row});
    if (!problem) continue;
    auto drawn = std::make_unique<lane>(row, *problem, random);
    if (drawn->make_ready()) all.push_back(std::move(drawn));
  }
  ASSERT_EQ(all.size(), lanes);
  for (int round = 0; round < 3 && !HasFailure(); ++round) {
    for (const auto& one : all) one->send();
    for (const auto& one : all) one->start();
    for (const auto& one : all) one->judge();
  }
}

INSTANTIATE_TEST_SUITE_P(rows, gradients_in_streams, testing::ValuesIn(rows_of_gradients()),
                         [](const auto& tested) { return test_name(tested.param.row->name); });

}  // namespace
}  // namespace tessera::support
