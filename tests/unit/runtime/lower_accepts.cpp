// Calls that look odd and are legal, and what they are lowered to.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "attention_call.hpp"

namespace tessera::testing {
namespace {

TEST(Lower, FillsSizesStridesAndScalars) {
  attention_call call;
  call.options = {.causal = true,
                  .causal_alignment = alignment::top_left,
                  .window_left = 3,
                  .logits_soft_cap = 20.0,
                  .dropout_probability = 0.75,
                  .dropout_seed = 11};
  call.args.lse = view(call.statistics.data(), {batch, q_heads, q_len}, {100, 20, 2});
  call.args.sinks = view(call.floats.data(), {1, 3});
  attention_kernel_args lowered;
  const status done = lower(call.op, call.args, call.options, lowered);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(lowered.batch, 2);
  EXPECT_EQ(lowered.q_len, 5);
  EXPECT_EQ(lowered.kv_len, 7);
  EXPECT_EQ(lowered.q_heads, 4);
  EXPECT_EQ(lowered.kv_heads, 2);
  EXPECT_EQ(lowered.head_dim, 8);
  EXPECT_EQ(lowered.v_head_dim, 8);
  EXPECT_EQ(lowered.q_strides.batch, 160);
  EXPECT_EQ(lowered.q_strides.row, 32);
  EXPECT_EQ(lowered.q_strides.head, 8);
  EXPECT_EQ(lowered.lse.batch, 100);
  EXPECT_EQ(lowered.lse.head, 20);
  EXPECT_EQ(lowered.lse.row, 2);
  EXPECT_EQ(lowered.sink_count, 3);
  EXPECT_EQ(lowered.sink_head_stride, 0);
  EXPECT_EQ(lowered.softmax_scale, static_cast<float>(1.0 / std::sqrt(8.0)));
  EXPECT_TRUE(lowered.causal);
  EXPECT_TRUE(lowered.top_left);
  EXPECT_EQ(lowered.window_left, 3);
  EXPECT_EQ(lowered.window_right, unbounded);
  EXPECT_EQ(lowered.soft_cap, 20.0f);
  EXPECT_TRUE(lowered.dropout);
  EXPECT_EQ(lowered.dropout_threshold, 3u << 30);
  EXPECT_EQ(lowered.dropout_scale, 4.0f);
}

TEST(Lower, DropoutThresholdIsTheCeiling) {
  EXPECT_EQ(attention_table::dropout_threshold(0.0), 0u);
  EXPECT_EQ(attention_table::dropout_threshold(0x1p-60), 1u);
  EXPECT_EQ(attention_table::dropout_threshold(0.1), 429496730u);
  EXPECT_EQ(attention_table::dropout_threshold(1 - 0x1p-40), std::uint64_t{1} << 32);
}

TEST(Lower, ZeroSizesAreLegal) {
  for (const int axis : {0, 1}) {
    attention_call call;
    call.args.q.extent[static_cast<std::size_t>(axis)] = 0;
    call.args.out.extent = call.args.q.extent;
    if (axis == 0) call.args.k.extent[0] = call.args.v.extent[0] = 0;
    call.args.q.data = call.args.out.data = nullptr;
    EXPECT_TRUE(call.lower()) << call.lower().message();
  }
  attention_call no_keys;
  no_keys.args.k.extent[1] = no_keys.args.v.extent[1] = 0;
  no_keys.args.k.data = no_keys.args.v.data = nullptr;
  no_keys.args.bias_pre = view(no_keys.floats.data(), {2, 4, 5, 0});
  EXPECT_TRUE(no_keys.lower()) << no_keys.lower().message();
  attention_call no_sequences;
  no_sequences.args = no_sequences.packed();
  no_sequences.args.cu_seqlens_q.extent[0] = no_sequences.args.cu_seqlens_k.extent[0] = 1;
  EXPECT_TRUE(no_sequences.lower()) << no_sequences.lower().message();
}

TEST(Lower, StridesOfSingleElementsAreIrrelevant) {
  attention_call call;
  call.args.q.extent[1] = call.args.out.extent[1] = 1;
  call.args.q.stride[1] = INT64_MIN;
  call.args.out.stride[1] = INT64_MAX;
  attention_kernel_args lowered;
  const status done = lower(call.op, call.args, call.options, lowered);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(lowered.q_strides.row, 0);
  EXPECT_EQ(lowered.out_strides.row, 0);
}

TEST(Lower, StridesOfTensorsWithoutElementsAreIrrelevant) {
  tensor_view nothing{.type = dtype::f32, .rank = 3, .extent = {2, 0, 3}};
  nothing.stride.fill(INT64_MAX);
  for (int axis = 0; axis < 3; ++axis) EXPECT_EQ(stride_of(nothing, axis), 0);
  nothing.extent[1] = 1;
  EXPECT_EQ(stride_of(nothing, 0), INT64_MAX);
  EXPECT_EQ(stride_of(nothing, 1), 0);
}

TEST(Lower, InputsMayBroadcastAndRunBackwards) {
  attention_call call;
  call.args.k.stride[0] = 0;
  call.args.v.data = call.v.data() + 6 * 16;
  call.args.v.stride[1] = -16;
  call.args.v.stride[0] = 0;
  call.args.bias_pre = view(call.floats.data(), {2, 4, 5, 7}, {0, 1, 0, 4});
  attention_kernel_args lowered;
  const status done = lower(call.op, call.args, call.options, lowered);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(lowered.v_strides.row, -16);
  EXPECT_EQ(lowered.bias_pre.head, 1);
  EXPECT_EQ(lowered.bias_pre.row, 0);
  EXPECT_EQ(lowered.bias_pre.column, 4);
}

TEST(Lower, OutputMayBeASliceBetweenItsInputs) {
  // One buffer [batch, length, 4 roles, heads, head_dim] holds q, k, v and out.
  std::vector<float> all(2 * 5 * 4 * 2 * 8);
  const auto slice = [&](std::int64_t role) {
    return view(all.data() + role * 16, {2, 5, 2, 8}, {320, 64, 8, 1});
  };
  const flash_attention_args args{.q = slice(0), .k = slice(1), .v = slice(2), .out = slice(3)};
  attention_kernel_args lowered;
  const status done = lower(flash_op::flash_attention, args, {}, lowered);
  EXPECT_TRUE(done) << done.message();
}

TEST(Lower, OutputMayBeTransposed) {
  attention_call call;
  call.args.out.stride = {160, 8, 40, 1};  // [batch, heads, rows, head_dim] in memory
  EXPECT_TRUE(call.lower()) << call.lower().message();
}

TEST(Lower, PackedBiasesAreIndexedInsideTheSequence) {
  attention_call call;
  call.args = call.packed();
  call.args.bias_pre = view(call.floats.data(), {2, 4, 3, 4});
  call.args.bias_post = view(call.floats.data(), {1, 1, 1, 100});
  call.args.mask = view(call.bytes.data(), {2, 1, 9, 1});
  attention_kernel_args lowered;
  const status done = lower(call.op, call.args, call.options, lowered);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(lowered.batch, 2);
  EXPECT_EQ(lowered.q_len, 5);
  EXPECT_EQ(lowered.q_strides.batch, 0);
  EXPECT_EQ(lowered.q_strides.row, 32);
  EXPECT_EQ(lowered.bias_pre.batch, 48);
}

TEST(Lower, QuerySegmentsServeForKeys) {
  attention_call call;
  call.args.k.extent[1] = call.args.v.extent[1] = q_len;
  call.args.q_segment_ids = view(call.integers.data(), {batch, q_len});
  attention_kernel_args lowered;
  const status done = lower(call.op, call.args, call.options, lowered);
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(lowered.kv_segments.data, call.integers.data());
  EXPECT_EQ(lowered.kv_segments.batch, q_len);
}

TEST(Lower, ProblemsAreCheckedWithoutTensors) {
  attention_call call;
  call.args.mask = view(call.bytes.data(), {2, 1, 1, 7});
  flash_problem problem = problem_of(call.args, {.causal = true});
  attention_kernel_args lowered;
  ASSERT_TRUE(lower(problem, lowered));
  EXPECT_EQ(lowered.v_head_dim, 8);
  EXPECT_NE(lowered.mask.data, nullptr);
  problem.tensors.k.extent[3] = 6;
  EXPECT_EQ(lower(problem, lowered).message(), "k: head_dim is 6, q has 8");
  problem = {};
  EXPECT_EQ(lower(problem, lowered).message(),
            "q: is absent, flash_attention needs q, k, v and out");
}

}  // namespace
}  // namespace tessera::testing
