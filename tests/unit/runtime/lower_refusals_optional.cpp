// Refusals of an attention call for its optional tensors, lengths and offsets, with their
// sentences.
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "refusal.hpp"

namespace tessera::testing {
namespace {

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
     "bias_post: rank is 3, dense tensors have 4 [B or 1,Hq or 1,Sq or 1,Sk or 1]"},
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
     "sinks: rank is 1, dense tensors have 2 [Hq or 1,n]"},
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
     "sinks: is given, scaled_dot_product_attention has no such tensor"},
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
     "weights: is given, flash_attention does not write it"},
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
     "q: rank is 4, packed tensors have 3 [Sq,Hq,D]"},
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
     "cu_seqlens_q: rank is 2, packed tensors have 1 [N+1]"},
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
     "seqlens_q: batch is 3, q has 2"},
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

}  // namespace
}  // namespace tessera::testing
