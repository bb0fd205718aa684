// Refusals of an attention call for its operands, their memory and its options, with their
// sentences.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "refusal.hpp"

namespace tessera::testing {
namespace {

TEST_P(Refusal, IsOneSentenceAndWritesNothing) {
  attention_call call;
  GetParam().bend(call);
  const std::vector<float> before = call.out;
  const status done = call.lower();
  EXPECT_EQ(done.code(), status_code::invalid_argument);
  EXPECT_EQ(done.message(), GetParam().sentence);
  EXPECT_EQ(call.out, before);
}

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

const std::vector<refusal> operands{
    {"q_absent", [](auto& c) { c.args.q = {}; },
     "q: is absent, flash_attention needs q, k, v and out"},
    {"out_absent", [](auto& c) { c.args.out = {}; },
     "out: is absent, flash_attention needs q, k, v and out"},
    {"q_rank", [](auto& c) { c.args.q.rank = 3; },
     "q: rank is 3, dense tensors have 4 [B,Sq,Hq,D]"},
    {"q_rank_negative", [](auto& c) { c.args.q.rank = -1; },
     "q: rank is -1, dense tensors have 4 [B,Sq,Hq,D]"},
    {"k_rank_beyond_the_arrays", [](auto& c) { c.args.k.rank = 120; },
     "k: rank is 120, dense tensors have 4 [B,Sk,Hkv,D]"},
    {"q_dtype", [](auto& c) { c.args.q.type = dtype::f64; },
     "q: dtype is f64, must be f32, f16 or bf16"},
    {"q_dtype_is_no_enumerator", [](auto& c) { c.args.q.type = static_cast<dtype>(200); },
     "q: dtype is invalid, must be f32, f16 or bf16"},
    {"k_dtype", [](auto& c) { c.args.k.type = dtype::f16; }, "k: dtype is f16, q has f32"},
    {"v_device",
     [](auto& c) {
       c.args.v.device = {device_kind::cuda, 1};
     },
     "v: device is cuda:1, must be cpu:0"},
    {"k_device_is_no_enumerator",
     [](auto& c) {
       c.args.k.device = {static_cast<device_kind>(9), 0};
     },
     "k: device is kind 9:0, must be cpu:0"},
    {"k_head_dim", [](auto& c) { c.args.k.extent[3] = 6; }, "k: head_dim is 6, q has 8"},
    {"v_heads", [](auto& c) { c.args.v.extent[2] = 1; }, "v: heads is 1, k has 2"},
    {"v_length", [](auto& c) { c.args.v.extent[1] = 6; }, "v: length is 6, k has 7"},
    {"k_batch", [](auto& c) { c.args.k.extent[0] = 1; }, "k: batch is 1, q has 2"},
    {"out_head_dim", [](auto& c) { c.args.out.extent[3] = 7; }, "out: head_dim is 7, v has 8"},
    {"out_length", [](auto& c) { c.args.out.extent[1] = 4; }, "out: length is 4, q has 5"},
    {"heads_do_not_divide",
     [](auto& c) {
       c.args.q.extent[2] = 3;
       c.args.out.extent[2] = 3;
     },
     "q: heads is 3, not a multiple of the 2 of k"},
    {"no_heads", [](auto& c) { c.args.q.extent[2] = 0; }, "q: heads is 0, must be 1 to 2147483647"},
    {"head_dim_zero", [](auto& c) { c.args.q.extent[3] = 0; },
     "q: head_dim is 0, must be 1 to 256"},
    {"head_dim_too_large", [](auto& c) { c.args.q.extent[3] = 257; },
     "q: head_dim is 257, must be 1 to 256"},
    {"v_head_dim_too_large", [](auto& c) { c.args.v.extent[3] = 300; },
     "v: head_dim is 300, must be 1 to 256"},
    {"negative_extent", [](auto& c) { c.args.k.extent[1] = -7; },
     "k: extent of axis 1 is -7, must be at least 0"},
    {"too_many_elements", [](auto& c) { c.args.q.extent[0] = huge; },
     "q: extent of axis 1 is 5, which makes more than 2^63 - 1 elements"},
    {"sdpa_head_dims",
     [](auto& c) {
       c.op = flash_op::scaled_dot_product_attention;
       c.args.v.extent[3] = 4;
       c.args.out.extent[3] = 4;
     },
     "v: head_dim is 4, q has 8 and scaled_dot_product_attention needs them equal"},
};
INSTANTIATE_TEST_SUITE_P(Operands, Refusal, ::testing::ValuesIn(operands), name_of_test);

const std::vector<refusal> overlapping_memory{
    {"null", [](auto& c) { c.args.k.data = nullptr; },
     "k: data is null, the shape has 224 elements"},
    {"misaligned", [](auto& c) { c.args.v.data = reinterpret_cast<std::byte*>(c.v.data()) + 2; },
     "v: address is 2 bytes past a multiple of 4, the size of f32"},
    {"last_stride", [](auto& c) { c.args.q.stride[3] = 2; },
     "q: stride of the last axis is 2, must be 1"},
    {"stride_overflows", [](auto& c) { c.args.k.stride[1] = huge; },
     "k: axis 1 has extent 7 and stride 9223372036854775807, which span more than "
     "18014398509481984 elements"},
    {"stride_lowest",
     [](auto& c) { c.args.k.stride[0] = std::numeric_limits<std::int64_t>::min(); },
     "k: axis 0 has extent 2 and stride -9223372036854775808, which span more than "
     "18014398509481984 elements"},
    {"below_the_address_space",
     [](auto& c) {
       c.args.k.data = reinterpret_cast<void*>(std::uintptr_t{64});
       c.args.k.stride[0] = -4096;
     },
     "k: extents and strides reach from -4096 to 111 elements around the address, beyond the "
     "address space"},
    {"out_read_only", [](auto& c) { c.args.out.read_only = true; },
     "out: is read-only, and an output"},
    {"out_folded", [](auto& c) { c.args.out.stride[0] = 0; },
     "out: a stride is 0, the axes with smaller strides span 1 elements; elements of an output "
     "must not share memory"},
    {"out_rows_overlap", [](auto& c) { c.args.out.stride[1] = 30; },
     "out: a stride is 30, the axes with smaller strides span 32 elements; elements of an output "
     "must not share memory"},
    {"out_is_q", [](auto& c) { c.args.out.data = c.q.data(); },
     "out: shares memory with q, 1280 of its 1280 bytes lie between the first and last of it"},
    {"out_touches_the_end_of_v",
     [](auto& c) {
       c.v.resize(c.v.size() + 400);
       c.args.v.data = c.v.data();
       c.args.out.data = c.v.data() + 223;
     },
     "out: shares memory with v, 4 of its 1280 bytes lie between the first and last of it"},
    {"lse_is_out",
     [](auto& c) {
       c.args.lse = view(c.out.data(), {batch, q_heads, q_len});
     },
     "out: shares memory with lse, 160 of its 1280 bytes lie between the first and last of it"},
    {"lse_is_an_input",
     [](auto& c) {
       c.args.sinks = view(c.floats.data(), {1, 2});
       c.args.lse = view(c.floats.data(), {batch, q_heads, q_len});
     },
     "lse: shares memory with sinks, 8 of its 160 bytes lie between the first and last of it"},
};
INSTANTIATE_TEST_SUITE_P(Memory, Refusal, ::testing::ValuesIn(overlapping_memory), name_of_test);

const std::vector<refusal> wrong_options{
    {"op", [](auto& c) { c.op = static_cast<flash_op>(17); }, "op: is 17, the last operation is 2"},
    {"alignment", [](auto& c) { c.options.causal_alignment = static_cast<alignment>(4); },
     "causal_alignment: is 4, the last one is 1 (top_left)"},
    {"scale_infinite",
     [](auto& c) { c.options.softmax_scale = std::numeric_limits<double>::infinity(); },
     "softmax_scale: is inf, must be finite as a float (at most 3.4e38)"},
    {"scale_beyond_float", [](auto& c) { c.options.softmax_scale = 1e39; },
     "softmax_scale: is 9.9999999999999994e+38, must be finite as a float (at most 3.4e38)"},
    {"scale_nan", [](auto& c) { c.options.softmax_scale = std::nan(""); },
     "softmax_scale: is nan, must be finite as a float (at most 3.4e38)"},
    {"window_left", [](auto& c) { c.options.window_left = -1; },
     "window_left: is -1, must be at least 0 (unset is unbounded)"},
    {"window_right", [](auto& c) { c.options.window_right = -5; },
     "window_right: is -5, must be at least 0 (unset is unbounded)"},
    {"cap_zero", [](auto& c) { c.options.logits_soft_cap = 0.0; },
     "logits_soft_cap: is 0, must be above 0 and finite as a float"},
    {"cap_vanishes_as_float", [](auto& c) { c.options.logits_soft_cap = 0x1p-200; },
     "logits_soft_cap: is 6.2230152778611417e-61, must be above 0 and finite as a float"},
    {"cap_nan", [](auto& c) { c.options.logits_soft_cap = std::nan(""); },
     "logits_soft_cap: is nan, must be above 0 and finite as a float"},
    {"dropout_one", [](auto& c) { c.options.dropout_probability = 1.0; },
     "dropout_probability: is 1, must be at least 0 and below 1"},
    {"dropout_negative", [](auto& c) { c.options.dropout_probability = -0.25; },
     "dropout_probability: is -0.25, must be at least 0 and below 1"},
    {"dropout_nan", [](auto& c) { c.options.dropout_probability = std::nan(""); },
     "dropout_probability: is nan, must be at least 0 and below 1"},
    {"sdpa_cap",
     [](auto& c) {
       c.op = flash_op::scaled_dot_product_attention;
       c.options.logits_soft_cap = 30.0;
     },
     "logits_soft_cap: is 30, scaled_dot_product_attention has no such option"},
    {"sdpa_dropout",
     [](auto& c) {
       c.op = flash_op::scaled_dot_product_attention;
       c.options.dropout_probability = 0.5;
     },
     "dropout_probability: is 0.5, scaled_dot_product_attention has no such option"},
    {"sdpa_unnormalized",
     [](auto& c) {
       c.op = flash_op::scaled_dot_product_attention;
       c.options.normalize = false;
     },
     "normalize: is false, scaled_dot_product_attention has no such option"},
};
INSTANTIATE_TEST_SUITE_P(Options, Refusal, ::testing::ValuesIn(wrong_options), name_of_test);

}  // namespace
}  // namespace tessera::testing
