// Every refusal of an attention call, with its sentence.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "attention_call.hpp"

namespace tessera::testing {
namespace {

struct refusal {
  std::string name;
  std::function<void(attention_call&)> bend;
  std::string sentence;
};

void PrintTo(const refusal& one, std::ostream* out) {
  *out << one.name;
}

class Refusal : public ::testing::TestWithParam<refusal> {};

TEST_P(Refusal, IsOneSentenceAndWritesNothing) {
  attention_call call;
  GetParam().bend(call);
  const std::vector<float> before = call.out;
  const status done = call.lower();
  EXPECT_EQ(done.code(), status_code::invalid_argument);
  EXPECT_EQ(done.message(), GetParam().sentence);
  EXPECT_EQ(call.out, before);
}

std::string name_of_test(const ::testing::TestParamInfo<refusal>& info) {
  return info.param.name;
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
    {"k_rank_beyond_the_arrays", [](auto& c) { c.args.k.rank = 120; }, "k: rank is 120, q has 4"},
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

const std::vector<refusal> memory{
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
INSTANTIATE_TEST_SUITE_P(Memory, Refusal, ::testing::ValuesIn(memory), name_of_test);

const std::vector<refusal> optional_tensors{
    {"bias_dtype",
     [](auto& c) {
       c.args.bias_pre = view(c.integers.data(), {2, 4, 5, 7});
     },
     "bias_pre: dtype is i32, must be f32, f16 or bf16"},
    {"bias_rank",
     [](auto& c) {
       c.args.bias_post = view(c.floats.data(), {4, 5, 7});
     },
     "bias_post: rank is 3, must be 4"},
    {"bias_rows",
     [](auto& c) {
       c.args.bias_pre = view(c.floats.data(), {2, 4, 3, 7});
     },
     "bias_pre: rows is 3, q has 5 (1 broadcasts)"},
    {"bias_keys",
     [](auto& c) {
       c.args.bias_pre = view(c.floats.data(), {1, 1, 1, 5});
     },
     "bias_pre: keys is 5, k has 7 (1 broadcasts)"},
    {"mask_heads",
     [](auto& c) {
       c.args.mask = view(c.bytes.data(), {2, 2, 5, 7});
     },
     "mask: heads is 2, q has 4 (1 broadcasts)"},
    {"mask_dtype",
     [](auto& c) {
       c.args.mask = view(c.floats.data(), {2, 4, 5, 7});
     },
     "mask: dtype is f32, must be u8"},
    {"mask_batch",
     [](auto& c) {
       c.args.mask = view(c.bytes.data(), {3, 4, 5, 7});
     },
     "mask: batch is 3, q has 2 (1 broadcasts)"},
    {"kv_segments_alone",
     [](auto& c) {
       c.args.kv_segment_ids = view(c.integers.data(), {2, 7});
     },
     "kv_segment_ids: is given, q_segment_ids is absent"},
    {"q_segments_alone",
     [](auto& c) {
       c.args.q_segment_ids = view(c.integers.data(), {2, 5});
     },
     "kv_segment_ids: is absent, and q_segment_ids serve for keys only where lengths are equal: "
     "q has 5, k has 7"},
    {"segments_length",
     [](auto& c) {
       c.args.q_segment_ids = view(c.integers.data(), {2, 5});
       c.args.kv_segment_ids = view(c.integers.data(), {2, 6});
     },
     "kv_segment_ids: length is 6, k has 7"},
    {"segments_dtype",
     [](auto& c) {
       c.args.q_segment_ids = view(c.floats.data(), {2, 5});
       c.args.kv_segment_ids = view(c.integers.data(), {2, 7});
     },
     "q_segment_ids: dtype is f32, must be i32"},
    {"sinks_rank", [](auto& c) { c.args.sinks = view(c.floats.data(), {4}); },
     "sinks: rank is 1, must be 2"},
    {"sinks_heads",
     [](auto& c) {
       c.args.sinks = view(c.floats.data(), {2, 3});
     },
     "sinks: heads is 2, q has 4 (1 broadcasts)"},
    {"sinks_dtype",
     [](auto& c) {
       c.args.sinks = view(c.integers.data(), {4, 1});
     },
     "sinks: dtype is i32, must be f32"},
    {"sinks_of_sdpa",
     [](auto& c) {
       c.op = flash_op::scaled_dot_product_attention;
       c.args.sinks = view(c.floats.data(), {4, 1});
     },
     "sinks: is given, scaled_dot_product_attention has no sinks"},
    {"lse_shape",
     [](auto& c) {
       c.args.lse = view(c.statistics.data(), {2, 5, 4});
     },
     "lse: heads is 5, q has 4"},
    {"lse_dtype",
     [](auto& c) {
       c.args.lse = view(c.integers.data(), {2, 4, 5});
     },
     "lse: dtype is i32, must be f32"},
    {"row_max_of_normalized",
     [](auto& c) {
       c.args.row_max = view(c.statistics.data(), {2, 4, 5});
     },
     "row_max: is given, normalize is true; it belongs to unnormalized outputs"},
    {"weights_of_flash_attention",
     [](auto& c) {
       c.args.weights = view(c.statistics.data(), {2, 4, 5, 7});
     },
     "weights: is given, flash_attention does not write it; attention does"},
    {"weights_dtype",
     [](auto& c) {
       c.op = flash_op::attention;
       c.args.weights = view(c.integers.data(), {2, 4, 5, 7});
     },
     "weights: dtype is i32, must be f32 or that of q, f32"},
    {"weights_shape",
     [](auto& c) {
       c.op = flash_op::attention;
       c.args.weights = view(c.statistics.data(), {2, 4, 5, 8});
     },
     "weights: keys is 8, k has 7"},
    {"weights_unnormalized",
     [](auto& c) {
       c.op = flash_op::attention;
       c.options.normalize = false;
       c.args.weights = view(c.statistics.data(), {2, 4, 5, 7});
     },
     "weights: is given, normalize is false; weights are normalized"},
    {"weights_columns",
     [](auto& c) {
       c.op = flash_op::attention;
       c.args.weights = view(c.statistics.data(), {2, 4, 5, 7}, {280, 70, 14, 2});
     },
     "weights: stride of the last axis is 2, must be 1"},
    {"dropout_mask_without_dropout",
     [](auto& c) {
       c.args.dropout_mask = view(c.kept.data(), {2, 4, 5, 7});
     },
     "dropout_mask: is given, dropout_probability is 0"},
    {"dropout_mask_dtype",
     [](auto& c) {
       c.options.dropout_probability = 0.5;
       c.args.dropout_mask = view(c.statistics.data(), {2, 4, 5, 7});
     },
     "dropout_mask: dtype is f32, must be u8"},
};
INSTANTIATE_TEST_SUITE_P(OptionalTensors, Refusal, ::testing::ValuesIn(optional_tensors),
                         name_of_test);

const std::vector<refusal> lengths{
    {"offsets_of_q_only",
     [](auto& c) {
       c.args = c.packed();
       c.args.cu_seqlens_k = {};
     },
     "cu_seqlens_k: is absent, cu_seqlens_q is given; packed tensors need both"},
    {"packed_with_batch",
     [](auto& c) {
       c.args.cu_seqlens_q = view(c.offsets_q.data(), {3});
       c.args.cu_seqlens_k = view(c.offsets_k.data(), {3});
     },
     "q: rank is 4, packed tensors have 3 [Tq,Hq,D]"},
    {"offsets_dtype",
     [](auto& c) {
       c.args = c.packed();
       c.args.cu_seqlens_k = view(c.floats.data(), {3});
     },
     "cu_seqlens_k: dtype is f32, must be i32"},
    {"offsets_rank",
     [](auto& c) {
       c.args = c.packed();
       c.args.cu_seqlens_q = view(c.integers.data(), {1, 3});
     },
     "cu_seqlens_q: rank is 2, must be 1"},
    {"offsets_empty",
     [](auto& c) {
       c.args = c.packed();
       c.args.cu_seqlens_q.extent[0] = 0;
     },
     "cu_seqlens_q: length is 0, must be at least 1 (sequences + 1)"},
    {"offsets_differ",
     [](auto& c) {
       c.args = c.packed();
       c.args.cu_seqlens_k.extent[0] = 2;
     },
     "cu_seqlens_k: length is 2, cu_seqlens_q has 3"},
    {"offsets_start",
     [](auto& c) {
       c.args = c.packed();
       c.offsets_q[0] = 1;
     },
     "cu_seqlens_q: entry 0 is 1, must be 0"},
    {"offsets_decrease",
     [](auto& c) {
       c.args = c.packed();
       c.offsets_k = {0, 5, 4};
     },
     "cu_seqlens_k: entry 2 is 4, entry 1 has 5; offsets never decrease"},
    {"offsets_extreme",
     [](auto& c) {
       c.args = c.packed();
       c.offsets_k = {0, 2147483647, std::numeric_limits<std::int32_t>::min()};
     },
     "cu_seqlens_k: entry 2 is -2147483648, entry 1 has 2147483647; offsets never decrease"},
    {"offsets_beyond",
     [](auto& c) {
       c.args = c.packed();
       c.offsets_k[2] = 8;
     },
     "cu_seqlens_k: the last entry is 8, k has 7 rows"},
    {"offsets_with_gaps",
     [](auto& c) {
       c.args = c.packed();
       c.args.cu_seqlens_q = view(c.integers.data(), {3}, {2});
     },
     "cu_seqlens_q: stride of the last axis is 2, must be 1"},
    {"lengths_of_packed",
     [](auto& c) {
       c.args = c.packed();
       c.args.seqlens_k = view(c.integers.data(), {2});
     },
     "seqlens_k: is given with cu_seqlens_q; lengths belong to dense tensors, packed ones have "
     "offsets"},
    {"segments_of_packed",
     [](auto& c) {
       c.args = c.packed();
       c.args.q_segment_ids = view(c.integers.data(), {1, 5});
     },
     "q_segment_ids: is given with cu_seqlens_q; packed sequences are apart already, give "
     "segments to dense tensors"},
    {"weights_of_packed",
     [](auto& c) {
       c.args = c.packed();
       c.op = flash_op::attention;
       c.args.weights = view(c.statistics.data(), {2, 4, 5, 7});
     },
     "weights: is given with cu_seqlens_q; packed tensors have no such output"},
    {"packed_bias_rows",
     [](auto& c) {
       c.args = c.packed();
       c.args.bias_pre = view(c.floats.data(), {2, 4, 2, 4});
     },
     "bias_pre: rows is 2, the longest sequence of cu_seqlens_q has 3 (1 broadcasts)"},
    {"packed_mask_keys",
     [](auto& c) {
       c.args = c.packed();
       c.args.mask = view(c.bytes.data(), {2, 1, 1, 3});
     },
     "mask: keys is 3, the longest sequence of cu_seqlens_k has 4 (1 broadcasts)"},
    {"packed_bias_batch",
     [](auto& c) {
       c.args = c.packed();
       c.args.bias_post = view(c.floats.data(), {3, 1, 5, 7});
     },
     "bias_post: batch is 3, cu_seqlens_q has 2 (1 broadcasts)"},
    {"seqlens_length", [](auto& c) { c.args.seqlens_q = view(c.integers.data(), {3}); },
     "seqlens_q: length is 3, the batch of q has 2"},
    {"seqlens_dtype", [](auto& c) { c.args.seqlens_q = view(c.floats.data(), {2}); },
     "seqlens_q: dtype is f32, must be i32"},
    {"seqlens_beyond",
     [](auto& c) {
       c.integers = {5, 6};
       c.args.seqlens_q = view(c.integers.data(), {2});
     },
     "seqlens_q: entry 1 is 6, must be 0 to the 5 rows of q"},
    {"seqlens_negative",
     [](auto& c) {
       c.integers = {-1, 6};
       c.args.seqlens_k = view(c.integers.data(), {2});
     },
     "seqlens_k: entry 0 is -1, must be 0 to the 7 rows of k"},
};
INSTANTIATE_TEST_SUITE_P(Lengths, Refusal, ::testing::ValuesIn(lengths), name_of_test);

const std::vector<refusal> options{
    {"op", [](auto& c) { c.op = static_cast<flash_op>(17); }, "op: is 17, the last operation is 2"},
    {"alignment", [](auto& c) { c.options.causal_alignment = static_cast<alignment>(4); },
     "causal_alignment: is 4, the last alignment is 1"},
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
     "logits_soft_cap: is 30, scaled_dot_product_attention has no soft cap"},
    {"sdpa_dropout",
     [](auto& c) {
       c.op = flash_op::scaled_dot_product_attention;
       c.options.dropout_probability = 0.5;
     },
     "dropout_probability: is 0.5, scaled_dot_product_attention has no dropout"},
    {"sdpa_unnormalized",
     [](auto& c) {
       c.op = flash_op::scaled_dot_product_attention;
       c.options.normalize = false;
     },
     "normalize: is false, scaled_dot_product_attention always normalizes"},
};
INSTANTIATE_TEST_SUITE_P(Options, Refusal, ::testing::ValuesIn(options), name_of_test);

}  // namespace
}  // namespace tessera::testing
