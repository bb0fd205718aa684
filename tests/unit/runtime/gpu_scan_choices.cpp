// Which rows of linear attention in chunks run on GPUs that are not there, and which are taken for
// the faster ones.
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/families/chunked_scan/family.hpp>

#include "tests/support/gpu_facts.hpp"

namespace tessera::testing {
namespace {

TEST(GpuScanChoices, ChunksOfLinearAttentionNeedSharedMemory) {
  using family = chunked_scan_family;
  constexpr auto forward = chunked_scan_pass::forward, backward = chunked_scan_pass::backward;
  const auto row = [](dtype type, chunked_scan_pass pass, int key_dim) {
    return chunked_scan_config{.target = backend::cuda_sm80,
                               .type = type,
                               .pass = pass,
                               .form = chunked_scan_form::chunk,
                               .key_dim = key_dim};
  };
  const chunked_scan_config largest = row(dtype::bf16, backward, 128);
  for (const auto& config : {row(dtype::bf16, forward, 128), row(dtype::f16, forward, 128),
                             row(dtype::bf16, backward, 64), largest}) {
    EXPECT_TRUE(family::runs_on(config, support::h200()));
    EXPECT_TRUE(family::runs_on(config, support::a100()));
    EXPECT_FALSE(family::runs_on(config, support::a10()));
  }
  for (const auto& config : {row(dtype::bf16, forward, 64), row(dtype::f16, forward, 64),
                             row(dtype::f16, backward, 64), row(dtype::f16, backward, 128)}) {
    EXPECT_TRUE(family::runs_on(config, support::a10()));
  }
  chunked_scan_config step = largest;
  step.form = chunked_scan_form::step;
  EXPECT_TRUE(family::runs_on(step, support::a10()));
  EXPECT_EQ(family::missing_on(largest, support::a10()),
            "the row needs 153600 bytes of shared memory for a block, this device has 101376");
}

// Keys of 64 channels, whose scans on Hopper began to win at few sequences and long ones
// (measured).
TEST(GpuScanChoices, GradientsOfShortRowsGoByTheFasterChunks) {
  const struct {
    std::int64_t sequences, tokens_of_each, heads;
    bool decays_of_channels, on_hopper;
  } measured[] = {
      {4, 4096, 64, true, false}, {8, 64, 32, true, false},   {8, 256, 32, true, false},
      {4, 4096, 32, true, true},  {1, 8192, 64, true, true},  {2, 2048, 32, true, true},
      {1, 4096, 32, true, true},  {1, 4096, 16, true, true},  {1, 4096, 4, true, true},
      {2, 512, 8, true, true},    {8, 64, 32, false, false},  {8, 256, 32, false, false},
      {4, 4096, 64, false, true}, {1, 8192, 64, false, true}, {2, 2048, 32, false, true},
      {1, 4096, 4, false, true},  {2, 512, 8, false, true}};
  const device_facts device = support::h200();
  for (const auto& [sequences, tokens_of_each, heads, channels, on_hopper] : measured) {
    const chunked_scan_facts facts = facts_of({.type = dtype::bf16,
                                               .pass = chunked_scan_pass::backward,
                                               .decay = chunked_scan_decay::keys,
                                               .channels = channels,
                                               .decay_gradients = channels,
                                               .sequences = sequences,
                                               .tokens = sequences * tokens_of_each,
                                               .heads = heads,
                                               .keys = 64,
                                               .values = 64});
    const auto seconds = [&](backend target, chunked_scan_form form) {
      const chunked_scan_config config{.target = target,
                                       .type = dtype::bf16,
                                       .pass = chunked_scan_pass::backward,
                                       .form = form,
                                       .key_dim = form == chunked_scan_form::step ? 128 : 64};
      return predicted_seconds(estimate_of(config, facts, device.multiprocessors), target, device,
                               device.multiprocessors);
    };
    const double hopper = seconds(backend::cuda_sm90, chunked_scan_form::chunk);
    EXPECT_EQ(hopper < seconds(backend::cuda_sm80, chunked_scan_form::chunk), on_hopper)
        << sequences << " x " << tokens_of_each << ", " << heads << " heads";
    if (on_hopper) {
      EXPECT_LT(hopper, seconds(backend::cuda_sm80, chunked_scan_form::step));
    }
  }
}

}  // namespace
}  // namespace tessera::testing
