// The header path of the gradients: functors with derivatives, and the gradients of what they
// learned, against calls that say the same with tensors and options.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch.hpp>

#include "tests/op/attention_backward/functors.hpp"

namespace tessera::support {
namespace {

constexpr dtype type_of_rows =
    has_bf16_products(native_cpu_bf16_backend) ? dtype::bf16 : dtype::f32;

struct gradient_row {
  static constexpr attention_backward_config config{.target = native_cpu_bf16_backend,
                                                    .type = type_of_rows};
};

static_assert(prim::has_slope<learned_bias> && prim::has_parameters<learned_bias>);
static_assert(!prim::has_slope<prim::no_logit_modifier>);

/// Runs the call with these functors; the same bits with every number of threads. `d_table`:
/// where the functor's gradients go.
void run(functor_call& call, const learned_bias& logits, const learned_mask& mask,
         std::vector<float>& d_table) {
  std::vector<std::vector<std::byte>> first;
  std::vector<float> first_table;
  for (const int threads : {1, 2, 3}) {
    call.data().reset();
    std::fill(d_table.begin(), d_table.end(), HUGE_VALF);
    const status done =
        launch<gradient_row>(call.args_beside_functors(), call.options_beside_functors(),
                             cpu{.threads = threads}, flash_hooks(logits, mask));
    ASSERT_TRUE(done) << done.message();
    EXPECT_TRUE(call.data().intact());
    if (threads == 1) first = call.data().output_bytes(), first_table = d_table;
    EXPECT_EQ(call.data().output_bytes(), first) << threads << " threads";
    EXPECT_EQ(std::memcmp(d_table.data(), first_table.data(), d_table.size() * sizeof(float)), 0)
        << threads << " threads";
  }
}

learned_mask mask_of(const functor_call& call) {
  learned_mask mask;
  if (!call.args().mask.present()) return mask;
  mask.visible = static_cast<const std::uint8_t*>(call.args().mask.data);
  put_steps(call.args().mask, mask.steps);
  return mask;
}

TEST(header_path_backward, biases_that_learn_in_front_of_a_cap_with_every_option) {
  int ran = 0;
  for (std::uint64_t index = 0; index < 60; ++index) {
    SCOPED_TRACE("call " + std::to_string(index));
    const auto call = functor_call::drawn(index, type_of_rows, 0, 1e5);
    if (call == nullptr) continue;
    ++ran;
    const call_expectation expectation(call->data().call());
    const attention_backward_args& args = call->args();
    dense_scores table(args.bias_pre), gradients(args.d_bias_pre);
    table.fetch();
    learned_bias bias{.table = table.values.data(),
                      .d_table = gradients.values.data(),
                      .count = args.d_bias_pre.elements()};
    put_steps(table.form(), bias.steps);
    put_steps(gradients.form(), bias.d_steps);
    bias.cap = static_cast<float>(call->options().logits_soft_cap.value_or(0.0));
    run(*call, bias, mask_of(*call), gradients.values);
    gradients.put();
    EXPECT_EQ(expectation.complaints(call->data().tensors()), "") << call->data().text();
    if (HasFailure()) return;
  }
  EXPECT_GT(ran, 30);
}

TEST(header_path_backward, alibi_among_documents) {
  int ran = 0;
  for (std::uint64_t index = 0; index < 30; ++index) {
    SCOPED_TRACE("call " + std::to_string(index));
    const std::vector<int> documents = drawn_documents(index);
    const learned_bias alibi{.slope = 0.25f};
    const learned_mask same_document{.document = documents.data()};
    const auto call = functor_call::filled(
        index, type_of_rows, 0, 1e5, [&](const position& at, float& bias, std::uint8_t& visible) {
          bias = alibi(0.0f, at);
          visible = same_document(at) ? 1 : 0;
        });
    if (call == nullptr) continue;
    ++ran;
    const call_expectation expectation(call->data().call());
    std::vector<float> no_table;
    run(*call, alibi, same_document, no_table);
    expect_right(*call, expectation);
    if (HasFailure()) return;
  }
  EXPECT_GT(ran, 15);
}

// Its gradient is that of the biases, summed by distance.
TEST(header_path_backward, a_table_of_relative_positions_learns) {
  constexpr std::int64_t reach = 12;
  int ran = 0;
  for (std::uint64_t index = 0; index < 30; ++index) {
    SCOPED_TRACE("call " + std::to_string(index));
    random_source random = stream(34, index);
    std::vector<float> table(2 * reach + 1), d_table(table.size());
    for (float& bias : table) bias = random.bell();
    const learned_bias relative{
        .table = table.data(), .d_table = d_table.data(), .count = 2 * reach + 1, .reach = reach};
    const auto call = functor_call::filled(
        index, type_of_rows, 0, 1e5, [&](const position& at, float& bias, std::uint8_t& visible) {
          bias = relative(0.0f, at);
          visible = 1;
        });
    if (call == nullptr) continue;
    ++ran;
    const call_expectation expectation(call->data().call());
    run(*call, relative, {}, d_table);
    expect_right(*call, expectation);
    EXPECT_EQ(table_complaint(*call, relative, d_table), "") << call->data().text();
    if (HasFailure()) return;
  }
  EXPECT_GT(ran, 15);
}

}  // namespace
}  // namespace tessera::support
