// The header path on the GPU: rows compiled here, with the functors that the CPU's tests use.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/op/attention/functors.hpp"
#include "tests/support/flash_judge.hpp"

namespace tessera::device_test {
namespace {

/// A row without an option beside what costs nothing.
struct plain_row {
  static constexpr attention_config config{.target = backend::cuda_sm80,
                                           .type = dtype::bf16,
                                           .head_dim = 64,
                                           .features = base_features,
                                           .block_q = 128,
                                           .block_kv = 64,
                                           .tiling = {.warps = 4, .blocks_per_sm = 2}};
};
/// Queries and keys are one step of the products wide.
struct narrow_row {
  static constexpr attention_config config{.target = backend::cuda_sm80,
                                           .type = dtype::bf16,
                                           .head_dim = 16,
                                           .features = base_features,
                                           .block_q = 64,
                                           .block_kv = 32,
                                           .tiling = {.warps = 4, .blocks_per_sm = 2}};
};
/// Every option but weights, any head dimension.
struct every_row {
  static constexpr attention_config config{
      .target = backend::cuda_sm80,
      .type = dtype::f16,
      .features = every_feature.without(attention_features{} | attention_feature::weights),
      .block_q = 64,
      .block_kv = 32,
      .tiling = {.warps = 4, .blocks_per_sm = 2}};
};

/// What a functor points to, in device memory.
class carried_mask {
 public:
  template <class Mask>
  const Mask& of(const Mask& mask) {
    return mask;
  }
  support::document_mask of(const support::document_mask& mask) {
    const std::size_t bytes = mask.count * sizeof(int);
    memory_ = allocate_on_device(bytes);
    require(cudaMemcpy(memory_.get(), mask.document, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    return {reinterpret_cast<const int*>(memory_.get()), mask.count};
  }

 private:
  device_bytes memory_{};
};

/// Runs the call on the row with the functors, poison in what the mask hides, and judges it.
template <class Row, class Logits, class Mask>
void expect_right(const support::flash_case& example, const Logits& logits, const Mask& mask) {
  const support::oracle_hooks<Logits, Mask> truth{logits, mask, support::offsets_of(example)};
  support::flash_data data(
      example, [&](auto b, auto h, auto i, auto j) { return truth.visible(b, h, i, j); });
  const support::flash_expectation expectation(data.args(), data.options(), truth);
  const stream stream;
  carried_mask carried;
  const flash_hooks hooks(logits, carried.of(mask));
  device_image image(attention_table::form.tensors, tensors_of(data.args()));
  image.send(stream.handle());
  const status done = launch<Row>(image.args<flash_attention_args>(first_device), data.options(),
                                  cuda{.stream = stream.handle()}, hooks);
  ASSERT_TRUE(done) << done.message();
  EXPECT_TRUE(image.fetch(stream.handle())) << "device memory outside the outputs was written";
  EXPECT_EQ(expectation.complaints(), "");
  EXPECT_TRUE(data.margins_intact());
}

template <class Row>
support::functor_calls calls_of() {
  support::functor_calls some{.limits = support::limits_of(resolved(Row::config))};
  some.limits.work = 1e5;
  return some;
}

/// Judges each call that it is given.
template <class Row>
constexpr auto right = [](const auto& problem, const auto& logits, const auto& mask) {
  expect_right<Row>(problem, logits, mask);
};

TEST(functors, alibi) {
  calls_of<plain_row>().with_alibi(right<plain_row>);
}

TEST(functors, alibi_of_narrow_heads) {
  calls_of<narrow_row>().with_alibi(right<narrow_row>);
}

TEST(functors, document_mask) {
  calls_of<plain_row>().with_documents(right<plain_row>);
}

TEST(functors, prefix_lm_with_tile_classes) {
  calls_of<plain_row>().with_prefix(right<plain_row>);
}

TEST(functors, logits_and_mask_together_and_with_every_option) {
  calls_of<every_row>().with_both(right<every_row>);
}

TEST(direct_launch, refuses_what_the_row_does_not_take_and_tensors_of_the_host) {
  support::flash_case example;
  example.type = dtype::bf16;
  example.head_dim = example.v_head_dim = 96;
  support::flash_data data(example);
  const status other_dim =
      launch<plain_row>(said_to_be_on(first_device, data.args()), data.options(), cuda{});
  EXPECT_EQ(other_dim.code(), status_code::ineligible_row);
  EXPECT_NE(other_dim.message().find("96"), std::string::npos) << other_dim.message();
  const status on_host = launch<plain_row>(data.args(), data.options(), cuda{});
  EXPECT_EQ(on_host.code(), status_code::invalid_argument);
  EXPECT_NE(on_host.message().find("cpu"), std::string::npos) << on_host.message();
  EXPECT_TRUE(data.outputs_untouched());
}

}  // namespace
}  // namespace tessera::device_test
