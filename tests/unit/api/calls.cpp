// The free functions: results, refusals, circumstances.
#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/registry.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/tessera.hpp>

#include "small_call.hpp"

namespace tessera::testing {
namespace {

constexpr double tolerance = 1e-5;

TEST(Calls, ComputeAttention) {
  for (const std::int64_t head_dim : {32, 40, 64}) {
    small_call call(17, 33, 3, head_dim);
    const status done = flash_attention(call.args());
    ASSERT_TRUE(done) << done.message();
    EXPECT_LT(call.error(), tolerance) << head_dim;
    call.out.assign(call.out.size(), 0.0f);
    ASSERT_TRUE(attention(call.args()));
    EXPECT_LT(call.error(), tolerance) << head_dim;
    call.out.assign(call.out.size(), 0.0f);
    ASSERT_TRUE(scaled_dot_product_attention(call.args()));
    EXPECT_LT(call.error(), tolerance) << head_dim;
  }
}

TEST(Calls, EveryRowThatFitsComputesTheSame) {
  int ran = 0;
  for (const instance& row : attention_registry()) {
    small_call call(3, 65, 2, 64);
    const status done = flash_attention(call.args(), {}, {.row = row.name, .threads = 2});
    if (!done) {
      EXPECT_EQ(done.code(), status_code::ineligible_row) << done.message();
      EXPECT_EQ(call.out, std::vector<float>(call.out.size(), -7.0f));
      continue;
    }
    ++ran;
    EXPECT_LT(call.error(), tolerance) << row.name;
  }
  EXPECT_GE(ran, 1);
}

TEST(Calls, RefusalsLeaveOutputsAlone) {
  small_call call(4, 4, 2, 16);
  flash_attention_args args = call.args();
  args.k.extent[3] = 12;
  EXPECT_EQ(flash_attention(args).message(), "k: head_dim is 12, q has 16");
  EXPECT_EQ(flash_attention(call.args(), {}, {.row = "no.such.row"}).code(),
            status_code::unknown_row);
  EXPECT_EQ(flash_attention(call.args(), {}, {.threads = -2}).message(),
            "context.threads: is -2, must be 0 to 4096");
  EXPECT_EQ(flash_attention(call.args(), {}, {.threads = 1 << 30}).message(),
            "context.threads: is 1073741824, must be 0 to 4096");
  EXPECT_EQ(call.out, std::vector<float>(call.out.size(), -7.0f));
}

TEST(Calls, RefusalsAreThrownWithTheSameSentence) {
  small_call call(4, 4, 2, 16);
  throw_if_failed(flash_attention(call.args()));
  throw_if_failed(attention(call.args()));
  throw_if_failed(scaled_dot_product_attention(call.args()));
  EXPECT_LT(call.error(), tolerance);
  flash_attention_args args = call.args();
  args.v = {};
  try {
    throw_if_failed(flash_attention(args));
    FAIL() << "no exception";
  } catch (const error& thrown) {
    EXPECT_EQ(thrown.code(), status_code::invalid_argument);
    EXPECT_STREQ(thrown.what(), "v: is absent, flash_attention needs q, k, v and out");
  }
}

TEST(Calls, EmptyOutputsNeedNoRow) {
  small_call call(0, 4, 2, 16);
  EXPECT_TRUE(flash_attention(call.args(), {}, {.row = "no.such.row"}));
  small_call no_keys(4, 0, 2, 16);
  ASSERT_TRUE(flash_attention(no_keys.args()));
  EXPECT_EQ(no_keys.out, std::vector<float>(no_keys.out.size(), 0.0f));
}

TEST(Calls, UseTheCallersWorkspace) {
  small_call call(8, 8, 2, 16);
  const auto made = plan(problem_of(call.args()), {.threads = 1});
  ASSERT_TRUE(made) << made.message();
  const std::size_t needed = made->workspace_bytes();
  std::vector<std::byte> memory(needed + 128);
  const auto past = reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  std::byte* const aligned = memory.data() + (64 - past) % 64;
  EXPECT_TRUE(flash_attention(call.args(), {}, {.threads = 1, .workspace = {aligned, needed}}));
  EXPECT_LT(call.error(), tolerance);
  if (needed == 0) GTEST_SKIP() << "the row needs no workspace";
  EXPECT_EQ(flash_attention(call.args(), {}, {.threads = 1, .workspace = {aligned, needed - 1}})
                .message(),
            "workspace: has " + std::to_string(needed - 1) + " bytes, " + std::to_string(needed) +
                " are needed");
  EXPECT_EQ(flash_attention(call.args(), {}, {.threads = 1, .workspace = {aligned + 4, needed}})
                .message(),
            "workspace: address is 4 bytes past a multiple of 64");
}

TEST(Calls, WriteTheDropoutMask) {
  small_call call(5, 6, 2, 16);
  std::vector<std::uint8_t> kept(2 * 5 * 6, 9);
  flash_attention_args args = call.args();
  args.dropout_mask = view(kept.data(), {1, 2, 5, 6});
  const flash_attention_options options{
      .causal = true, .dropout_probability = 0.5, .dropout_seed = 42};
  const status done = flash_attention(args, options);
  ASSERT_TRUE(done) << done.message();
  std::size_t at = 0;
  for (int head = 0; head < 2; ++head) {
    for (int row = 0; row < 5; ++row) {
      for (int key = 0; key < 6; ++key) {
        EXPECT_EQ(kept[at++], prim::dropout_keeps(42, 1u << 31, 0, head, row, key) ? 1 : 0);
      }
    }
  }
}

#if defined(_OMP_H) || defined(BOOST_DESCRIBE_HPP_INCLUDED) || defined(__CUDA_RUNTIME_H__)
#error "the public headers include a header of OpenMP, Boost or CUDA"
#endif

}  // namespace
}  // namespace tessera::testing
