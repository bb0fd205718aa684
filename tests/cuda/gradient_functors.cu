// The gradients of attention on the GPU through the header path: rows compiled here, plain and with
// the functors that the CPU's tests use.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/op/attention_backward/functors.hpp"

namespace tessera::device_test {
namespace {

using support::dense_scores;
using support::functor_call;
using support::learned_bias;
using support::learned_mask;

/// Gradients of queries are added up in memory.
struct added_row {
  static constexpr attention_backward_config config{
      .target = backend::cuda_sm80, .type = dtype::bf16, .head_dim = 64, .d_q_atomics = true};
};
/// They have a pass of their own.
struct ordered_row {
  static constexpr attention_backward_config config{
      .target = backend::cuda_sm80, .type = dtype::f16, .head_dim = 64};
};
struct any_row {
  static constexpr attention_backward_config config{.target = backend::cuda_sm80,
                                                    .type = dtype::f32};
};

/// Values in device memory.
template <class Value>
class on_device {
 public:
  explicit on_device(const Value* from, std::size_t count)
      : count_(count), memory_(allocate_on_device(count * sizeof(Value))) {
    require(cudaMemcpy(memory_.get(), from, count * sizeof(Value), cudaMemcpyHostToDevice),
            "cudaMemcpy");
  }
  Value* data() const { return reinterpret_cast<Value*>(memory_.get()); }
  void fetch(Value* to) const {
    require(cudaMemcpy(to, data(), count_ * sizeof(Value), cudaMemcpyDeviceToHost), "cudaMemcpy");
  }

 private:
  std::size_t count_;
  device_bytes memory_;
};

/// Runs the call with these functors, whose addresses are the device's.
template <class Row>
void run(functor_call& call, const learned_bias& logits, const learned_mask& mask) {
  const stream stream;
  call.data().reset();
  const attention_backward_args left = call.args_beside_functors();
  device_image image(attention_backward_table::form.tensors, tensors_of(left));
  image.send(stream.handle());
  const status done =
      launch<Row>(image.args<attention_backward_args>(first_device), call.options_beside_functors(),
                  cuda{.stream = stream.handle()}, flash_hooks(logits, mask));
  ASSERT_TRUE(done) << done.message();
  EXPECT_TRUE(image.fetch(stream.handle())) << "device memory outside the outputs was written";
  EXPECT_TRUE(call.data().intact());
}

template <class Row>
void expect_biases_learn(std::uint64_t calls) {
  std::uint64_t ran = 0;
  for (std::uint64_t index = 0; index < calls; ++index) {
    SCOPED_TRACE("call " + std::to_string(index));
    const auto call = functor_call::drawn(index, Row::config.type, Row::config.head_dim, 1e5);
    if (call == nullptr) continue;
    ++ran;
    const support::call_expectation expectation(call->data().call());
    const attention_backward_args& args = call->args();
    dense_scores table(args.bias_pre), gradients(args.d_bias_pre);
    table.fetch();
    std::fill(gradients.values.begin(), gradients.values.end(), HUGE_VALF);
    const on_device<float> biases(table.values.data(), table.values.size());
    const on_device<float> d_biases(gradients.values.data(), gradients.values.size());
    learned_bias bias{
        .table = biases.data(), .d_table = d_biases.data(), .count = args.d_bias_pre.elements()};
    support::put_steps(table.form(), bias.steps);
    support::put_steps(gradients.form(), bias.d_steps);
    bias.cap = static_cast<float>(call->options().logits_soft_cap.value_or(0.0));
    const auto span = span_of(args.mask);
    const on_device<std::byte> bytes(span.begin, span.size);
    learned_mask mask;
    if (args.mask.present()) {
      const auto first = static_cast<std::byte*>(args.mask.data) - span.begin;
      mask.visible = reinterpret_cast<const std::uint8_t*>(bytes.data() + first);
      support::put_steps(args.mask, mask.steps);
    }
    run<Row>(*call, bias, mask);
    d_biases.fetch(gradients.values.data());
    gradients.put();
    EXPECT_EQ(expectation.complaints(call->data().tensors()), "") << call->data().text();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(ran, calls / 2);
}

/// Linear biases and a mask of documents, which lie in device memory.
template <class Row>
void expect_documents_are_apart(std::uint64_t calls) {
  std::uint64_t ran = 0;
  for (std::uint64_t index = 0; index < calls && !testing::Test::HasFailure(); ++index) {
    SCOPED_TRACE("call " + std::to_string(index));
    const std::vector<int> documents = support::drawn_documents(index);
    const learned_bias alibi{.slope = 0.25f};
    learned_mask same_document{.document = documents.data()};
    const auto call =
        functor_call::filled(index, Row::config.type, Row::config.head_dim, 1e5,
                             [&](const position& at, float& bias, std::uint8_t& visible) {
                               bias = alibi(0.0f, at);
                               visible = same_document(at) ? 1 : 0;
                             });
    if (call == nullptr) continue;
    ++ran;
    const support::call_expectation expectation(call->data().call());
    const on_device<int> there(documents.data(), documents.size());
    same_document.document = there.data();
    run<Row>(*call, alibi, same_document);
    support::expect_right(*call, expectation);
  }
  EXPECT_GT(ran, calls / 2);
}

template <class Row>
void expect_relative_positions_learn(std::uint64_t calls) {
  constexpr std::int64_t reach = 12;
  std::uint64_t ran = 0;
  for (std::uint64_t index = 0; index < calls && !testing::Test::HasFailure(); ++index) {
    SCOPED_TRACE("call " + std::to_string(index));
    support::random_source random = support::stream(34, index);
    std::vector<float> table(2 * reach + 1), d_table(table.size(), HUGE_VALF);
    for (float& bias : table) bias = random.bell();
    learned_bias relative{.table = table.data(), .count = 2 * reach + 1, .reach = reach};
    const auto call =
        functor_call::filled(index, Row::config.type, Row::config.head_dim, 1e5,
                             [&](const position& at, float& bias, std::uint8_t& visible) {
                               bias = relative(0.0f, at);
                               visible = 1;
                             });
    if (call == nullptr) continue;
    ++ran;
    const support::call_expectation expectation(call->data().call());
    const on_device<float> biases(table.data(), table.size());
    const on_device<float> d_biases(d_table.data(), d_table.size());
    learned_bias there = relative;
    there.table = biases.data(), there.d_table = d_biases.data();
    run<Row>(*call, there, {});
    d_biases.fetch(d_table.data());
    support::expect_right(*call, expectation);
    EXPECT_EQ(support::table_complaint(*call, relative, d_table), "") << call->data().text();
  }
  EXPECT_GT(ran, calls / 2);
}

TEST(gradient_functors, alibi_among_documents_beside_sums_in_memory) {
  expect_documents_are_apart<added_row>(30);
}
TEST(gradient_functors, alibi_among_documents_beside_a_pass_for_queries) {
  expect_documents_are_apart<ordered_row>(30);
}
TEST(gradient_functors, alibi_among_documents_with_any_head_dim) {
  expect_documents_are_apart<any_row>(30);
}
TEST(gradient_functors, a_table_of_relative_positions_learns_beside_sums_in_memory) {
  expect_relative_positions_learn<added_row>(30);
}
TEST(gradient_functors, a_table_of_relative_positions_learns_beside_a_pass_for_queries) {
  expect_relative_positions_learn<ordered_row>(30);
}
TEST(gradient_functors, a_table_of_relative_positions_learns_with_any_head_dim) {
  expect_relative_positions_learn<any_row>(30);
}

TEST(gradient_functors, biases_that_learn_beside_sums_in_memory) {
  expect_biases_learn<added_row>(40);
}
TEST(gradient_functors, biases_that_learn_beside_a_pass_for_queries) {
  expect_biases_learn<ordered_row>(40);
}
TEST(gradient_functors, biases_that_learn_with_any_head_dim) {
  expect_biases_learn<any_row>(40);
}

TEST(gradient_functors, refuse_tensors_of_the_host) {
  const auto call = functor_call::drawn(0, dtype::f32, 0, 1e4);
  ASSERT_NE(call, nullptr);
  const status done = launch<any_row>(call->args(), call->options(), cuda{});
  EXPECT_EQ(done.code(), status_code::invalid_argument);
  EXPECT_NE(done.message().find("cpu"), std::string::npos) << done.message();
  EXPECT_TRUE(call->data().outputs_untouched());
}

}  // namespace
}  // namespace tessera::device_test
