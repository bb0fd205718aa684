// Products with packed weights whose codes are read 16 bytes at a time, and losses over rows that
// are longer than what a block keeps of them, over several chunks of classes, or of logits that are
// far from 0.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/quantized.hpp>

#include "aligned_call.hpp"
#include "tests/support/far_logits.hpp"

namespace tessera::support {
namespace {

class weights : public testing::TestWithParam<const char*> {};

TEST_P(weights, of_aligned_rows_are_right) {
  expect_right_when_aligned(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    packed, weights,
    testing::Values(
        "quantized_matmul x=[1,2304]bf16 out=[1,70]bf16 w_q=[70,288]u32 scales=[70,36]bf16 "
        "zeros=[70,36]",
        "quantized_matmul x=[16,384]f16 out=[16,70]f16 w_q=[70,48]u32 scales=[70,24]f32 "
        "zeros=[70,24] "
        "group_size=16",
        "quantized_matmul x=[9,256]f16 out=[9,33]f16 w_q=[33,32]u32 scales=[33,32]f16 "
        "zeros=[33,32] "
        "group_size=8 affine_form=bias",
        "quantized_matmul x=[3,1152]bf16 out=[3,40]bf16 w_q=[40,288]u32 scales=[40,9]f32 "
        "zeros=[40,9] bits=8 "
        "group_size=128",
        "quantized_matmul x=[5,1024]f16 out=[5,32]f16 w_q=[32,128]u32 scales=[32,16]f16 mode=nf4",
        "quantized_matmul x=[12,256]bf16 out=[12,64]bf16 w_q=[64,32]u32 scales=[64,8]u8 mode=mxfp4",
        "quantized_matmul x=[2,256]bf16 out=[2,64]bf16 w_q=[64,64]u32 scales=[64,8]u8 mode=mxfp8",
        "quantized_matmul x=[8,256]f16 out=[8,64]f16 w_q=[64,32]u32 scales=[64,16]u8 mode=nvfp4",
        "quantized_matmul x=[7,256]bf16 out=[7,64]bf16 w_q=[64,64]u32 scales=[64,16]u8 mode=nvfp8",
        // Tiles that several blocks share; stages that end beyond the columns; a group of several.
        "quantized_matmul x=[1,8224]bf16 out=[1,200]bf16 w_q=[200,1028]u32 scales=[200,257]f32 "
        "zeros=[200,257] group_size=32",
        "quantized_matmul x=[16,8192]f16 out=[16,300]f32 w_q=[300,1024]u32 scales=[300,8]f16 "
        "zeros=[300,8] group_size=1024",
        "quantized_matmul x=[8,4096]bf16 out=[8,130]bf16 w_q=[130,1024]u32 scales=[130,128]u8 "
        "mode=mxfp8 scale_encoding=int8",
        "quantized_matmul x=[10,4096]f16 out=[10,130]f16 w_q=[130,512]u32 scales=[130,256]u8 "
        "tensor_scale=[1]f32 mode=nvfp4",
        "quantized_matmul x=[40,256]bf16 out=[40,150]bf16 w_q=[150,32]u32 scales=[150,4]bf16 "
        "zeros=[150,4]",
        // Codes as they are, sums of groups scaled (sm_90): 1, 2, 8, 16 and 64 rows of x and fewer,
        // both forms, a group for several stages, tiles that several blocks share and lines that
        // end beyond the columns.
        "quantized_matmul x=[2,8192]bf16 out=[2,300]bf16 w_q=[300,1024]u32 scales=[300,128]bf16 "
        "zeros=[300,128]",
        "quantized_matmul x=[5,3584]f16 out=[5,520]f16 w_q=[520,448]u32 scales=[520,56]f16 "
        "zeros=[520,56] affine_form=bias",
        "quantized_matmul x=[13,1152]bf16 out=[13,257]f32 w_q=[257,144]u32 scales=[257,9]bf16 "
        "zeros=[257,9] group_size=128",
        "quantized_matmul x=[16,3072]bf16 out=[16,40]bf16 w_q=[40,384]u32 scales=[40,6]bf16 "
        "zeros=[40,6] group_size=512",
        "quantized_matmul x=[61,4160]f16 out=[61,264]f16 w_q=[264,520]u32 scales=[264,65]f16 "
        "zeros=[264,65] affine_form=bias",
        "quantized_matmul x=[1,4096]bf16 out=[1,300]bf16 w_q=[300,512]u32 scales=[300,256]u8 "
        "tensor_scale=[1]f32 mode=nvfp4",
        "quantized_matmul x=[2,2176]bf16 out=[2,264]bf16 w_q=[264,272]u32 scales=[264,68]u8 "
        "mode=mxfp4 scale_encoding=int8",
        // Weights in registers (sm_90): lines that end beyond the columns, tiles that several
        // blocks share, several tiles of rows, each code and both forms; numbers of one line for
        // one stage and for many.
        "quantized_matmul x=[1,2048]bf16 out=[1,70]bf16 w_q=[70,256]u32 scales=[70,32]bf16 "
        "zeros=[70,32]",
        "quantized_matmul x=[64,3584]bf16 out=[64,300]bf16 w_q=[300,448]u32 scales=[300,56]bf16 "
        "zeros=[300,56] affine_form=bias",
        "quantized_matmul x=[40,2560]f16 out=[40,260]f32 w_q=[260,640]u32 scales=[260,40]f16 "
        "zeros=[260,40] bits=8 group_size=64",
        "quantized_matmul x=[33,2048]f16 out=[33,257]f16 w_q=[257,256]u32 scales=[257,16]f16 "
        "zeros=[257,16] group_size=128",
        "quantized_matmul x=[270,1280]bf16 out=[270,520]bf16 w_q=[520,160]u32 scales=[520,40]bf16 "
        "zeros=[520,40] group_size=32",
        "quantized_matmul x=[17,1152]bf16 out=[17,600]bf16 w_q=[600,288]u32 scales=[600,72]bf16 "
        "zeros=[600,72] bits=8 group_size=16",
        "quantized_matmul x=[64,1024]bf16 out=[64,264]bf16 w_q=[264,128]u32 scales=[264,16]bf16 "
        "mode=nf4",
        "quantized_matmul x=[50,2560]bf16 out=[50,264]bf16 w_q=[264,320]u32 scales=[264,80]u8 "
        "mode=mxfp4 scale_encoding=int8",
        "quantized_matmul x=[24,1536]bf16 out=[24,264]bf16 w_q=[264,384]u32 scales=[264,48]u8 "
        "mode=mxfp8",
        "quantized_matmul x=[100,1280]f16 out=[100,264]f16 w_q=[264,160]u32 scales=[264,80]u8 "
        "tensor_scale=[1]f32 mode=nvfp4",
        "quantized_matmul x=[30,1280]bf16 out=[30,264]bf16 w_q=[264,320]u32 scales=[264,80]u8 "
        "mode=nvfp8",
        // Many rows: weights decoded on their way, in tiles of 128 and 256 rows, and before.
        "quantized_matmul x=[200,1056]bf16 out=[200,328]bf16 w_q=[328,132]u32 scales=[328,66]f32 "
        "zeros=[328,66] group_size=16",
        "quantized_matmul x=[130,1024]f16 out=[130,264]f32 w_q=[264,256]u32 scales=[264,16]f16 "
        "zeros=[264,16] bits=8",
        "quantized_matmul x=[700,512]bf16 out=[700,4232]bf16 w_q=[4232,64]u32 scales=[4232,16]u8 "
        "mode=mxfp4",
        "quantized_matmul x=[65,256]f16 out=[65,136]f16 w_q=[136,32]u32 scales=[136,16]u8 "
        "mode=nvfp4",
        "quantized_matmul x=[1540,256]bf16 out=[1540,136]bf16 w_q=[136,32]u32 scales=[136,4]bf16 "
        "mode=nf4",
        "quantized_matmul_backward x=[40,256]bf16 w_q=[150,32]u32 scales=[150,4]bf16 "
        "zeros=[150,4] d_out=[40,150]bf16",
        // Weights of groups: few rows of each, whose tiles blocks share, and many.
        "quantized_grouped_matmul x=[24,2048]bf16 out=[24,264]bf16 w_q=[5,264,256]u32 "
        "scales=[5,264,32]bf16 zeros=[5,264,32] group_sizes=[6]i32 group_offset=1",
        "quantized_grouped_matmul x=[40,1024]f16 out=[40,130]f32 w_q=[2,130,128]u32 "
        "scales=[2,130,64]u8 tensor_scale=[2]f32 group_sizes=[2]i32 mode=nvfp4",
        "quantized_grouped_matmul x=[400,256]bf16 out=[400,264]bf16 w_q=[3,264,32]u32 "
        "scales=[3,264,8]u8 group_sizes=[3]i32 mode=mxfp4 x_rows=local",
        // Scales of two bytes a piece, where mma.sync takes no row however few there are.
        "quantized_matmul x=[3,480]bf16 out=[3,264]bf16 w_q=[264,60]u32 scales=[264,15]bf16 "
        "zeros=[264,15] group_size=32",
        "quantized_grouped_matmul x=[4,576]bf16 out=[4,264]bf16 w_q=[4,264,72]u32 "
        "scales=[4,264,18]u8 group_sizes=[4]i32 mode=mxfp4",
        // Rows of groups by weights in registers (sm_90): few, more and many rows of each, rows of
        // no group in front and behind, each kind of numbers, lines that end beyond the columns.
        "quantized_grouped_matmul x=[60,1280]bf16 out=[60,264]bf16 w_q=[4,264,160]u32 "
        "scales=[4,264,20]bf16 zeros=[4,264,20] group_sizes=[6]i32 group_offset=1",
        "quantized_grouped_matmul x=[200,2176]f16 out=[200,260]f32 w_q=[5,260,272]u32 "
        "scales=[5,260,68]f16 zeros=[5,260,68] group_sizes=[5]i32 group_size=32",
        "quantized_grouped_matmul x=[700,1024]bf16 out=[700,520]bf16 w_q=[3,520,128]u32 "
        "scales=[3,520,16]bf16 zeros=[3,520,16] group_sizes=[4]i32 affine_form=bias",
        "quantized_grouped_matmul x=[300,1280]bf16 out=[300,264]bf16 w_q=[2,264,160]u32 "
        "scales=[2,264,40]u8 group_sizes=[2]i32 mode=mxfp4 scale_encoding=int8",
        "quantized_grouped_matmul x=[130,1280]f16 out=[130,264]f16 w_q=[3,264,160]u32 "
        "scales=[3,264,80]u8 tensor_scale=[3]f32 group_sizes=[3]i32 mode=nvfp4",
        "quantized_grouped_matmul x=[90,1536]bf16 out=[90,264]bf16 w_q=[3,264,384]u32 "
        "scales=[3,264,48]u8 group_sizes=[5]i32 mode=mxfp8 x_rows=local group_offset=2",
        "quantized_grouped_matmul x=[150,1152]bf16 out=[150,300]bf16 w_q=[4,300,288]u32 "
        "scales=[4,300,72]bf16 zeros=[4,300,72] group_sizes=[4]i32 bits=8 group_size=16",
        "quantized_grouped_matmul x=[80,1024]bf16 out=[80,264]bf16 w_q=[2,264,128]u32 "
        "scales=[2,264,16]bf16 group_sizes=[2]i32 mode=nf4",
        "quantized_grouped_matmul_backward x=[90,256]bf16 w_q=[3,150,32]u32 "
        "scales=[3,150,4]bf16 zeros=[3,150,4] group_sizes=[3]i32 d_out=[90,150]bf16"));

// So many tiles that two blocks of a cluster have each of them together, on 132 multiprocessors:
// few rows of x and tiles of 16, 64, 128 and 256, stages that halve and such as do not, outputs and
// rows that end within a tile.
INSTANTIATE_TEST_SUITE_P(
    pairs, weights,
    testing::Values(
        "quantized_matmul x=[1,512]f16 out=[1,13900]f16 w_q=[13900,64]u32 scales=[13900,8]f16 "
        "zeros=[13900,8] affine_form=bias",
        "quantized_matmul x=[7,576]bf16 out=[7,16300]f32 w_q=[16300,72]u32 scales=[16300,9]bf16 "
        "zeros=[16300,9]",
        "quantized_matmul x=[16,576]bf16 out=[16,16384]bf16 w_q=[16384,72]u32 "
        "scales=[16384,9]bf16 zeros=[16384,9]",
        "quantized_matmul x=[16,768]f16 out=[16,15000]f32 w_q=[15000,96]u32 scales=[15000,6]f16 "
        "zeros=[15000,6] group_size=128 affine_form=bias",
        "quantized_matmul x=[2,768]bf16 out=[2,15000]bf16 w_q=[15000,96]u32 scales=[15000,48]u8 "
        "mode=nvfp4",
        "quantized_matmul x=[12,768]bf16 out=[12,15000]bf16 w_q=[15000,192]u32 "
        "scales=[15000,24]u8 mode=mxfp8",
        "quantized_matmul x=[50,768]f16 out=[50,16300]f16 w_q=[16300,96]u32 scales=[16300,12]f16 "
        "mode=nf4",
        "quantized_matmul x=[33,576]bf16 out=[33,16384]f32 w_q=[16384,72]u32 "
        "scales=[16384,9]bf16 zeros=[16384,9]",
        "quantized_matmul x=[100,320]f16 out=[100,16200]f16 w_q=[16200,40]u32 "
        "scales=[16200,5]f16 zeros=[16200,5]",
        "quantized_matmul x=[300,384]bf16 out=[300,4090]bf16 w_q=[4090,48]u32 "
        "scales=[4090,6]bf16 zeros=[4090,6]",
        "quantized_matmul x=[512,256]bf16 out=[512,4096]f32 w_q=[4096,32]u32 "
        "scales=[4096,8]bf16 zeros=[4096,8] group_size=32 affine_form=bias",
        // More tiles: a wave of whole ones, and pairs behind it.
        "quantized_matmul x=[3,512]bf16 out=[3,50000]f32 w_q=[50000,64]u32 scales=[50000,8]bf16 "
        "zeros=[50000,8]",
        "quantized_matmul x=[20,512]bf16 out=[20,50000]bf16 w_q=[50000,64]u32 "
        "scales=[50000,8]bf16 mode=nf4",
        // A wave, and shares of others.
        "quantized_matmul x=[3,512]bf16 out=[3,60000]f32 w_q=[60000,64]u32 scales=[60000,8]bf16 "
        "zeros=[60000,8]",
        "quantized_matmul x=[20,512]bf16 out=[20,60000]bf16 w_q=[60000,64]u32 "
        "scales=[60000,8]bf16 mode=nf4"));

// Codes and numbers of groups that lie k-major: brought into rows before, and back behind.
INSTANTIATE_TEST_SUITE_P(
    k_major, weights,
    testing::Values(
        "quantize w=[300,448]bf16 scales=[7,300]bf16 zeros=[7,300] axis=k_major",
        "quantize w=[70,96]f32 scales=[12,70]f32 zeros=[12,70] bits=3 group_size=8 "
        "axis=k_major",
        "prepack_quantized_weights w=[70,512]f16 scales=[32,70]u8 mode=nvfp4 "
        "axis=k_major",
        "dequantize w=[130,512]bf16 w_q=[128,130]u32 scales=[16,130]u8 mode=mxfp8 axis=k_major",
        "dequantize w=[37,1024]f32 w_q=[160,37]u32 scales=[1,37]f32 zeros=[1,37] bits=5 "
        "group_size=1024 axis=k_major",
        "quantized_matmul x=[1,2304]bf16 out=[1,70]bf16 w_q=[288,70]u32 scales=[36,70]bf16 "
        "zeros=[36,70] axis=k_major",
        "quantized_matmul x=[16,3072]f16 out=[16,300]f16 w_q=[384,300]u32 scales=[48,300]f16 "
        "zeros=[48,300] axis=k_major",
        "quantized_matmul x=[64,3584]bf16 out=[64,300]bf16 w_q=[448,300]u32 scales=[56,300]bf16 "
        "zeros=[56,300] axis=k_major",
        "quantized_matmul x=[40,1280]bf16 out=[40,264]bf16 w_q=[160,264]u32 scales=[40,264]u8 "
        "mode=mxfp4 axis=k_major",
        "quantized_matmul x=[1540,256]bf16 out=[1540,136]bf16 w_q=[32,136]u32 scales=[4,136]bf16 "
        "zeros=[4,136] axis=k_major",
        "quantized_matmul x=[5,192]f32 out=[5,70]f32 w_q=[36,70]u32 scales=[6,70]f32 zeros=[6,70] "
        "bits=6 group_size=32 axis=k_major",
        "quantized_matmul_backward x=[40,256]bf16 w_q=[32,150]u32 scales=[4,150]bf16 "
        "zeros=[4,150] d_out=[40,150]bf16 axis=k_major",
        "quantized_grouped_matmul x=[24,2048]bf16 out=[24,264]bf16 w_q=[5,256,264]u32 "
        "scales=[5,32,264]bf16 zeros=[5,32,264] group_sizes=[5]i32 axis=k_major",
        "quantized_grouped_matmul x=[300,1280]bf16 out=[300,264]bf16 w_q=[4,160,264]u32 "
        "scales=[4,40,264]u8 group_sizes=[6]i32 group_offset=1 mode=mxfp4 axis=k_major",
        "quantized_grouped_matmul_backward x=[90,256]bf16 w_q=[3,32,150]u32 "
        "scales=[3,4,150]bf16 zeros=[3,4,150] group_sizes=[3]i32 d_out=[90,150]bf16 "
        "axis=k_major"));

INSTANTIATE_TEST_SUITE_P(
    losses, weights,
    testing::Values(
        "fused_cross_entropy logits=[5,60000]bf16 targets=[5]i32 label_smoothing=0.1",
        "fused_cross_entropy_backward logits=[5,60000]bf16 targets=[5]i32",
        "fused_cross_entropy_backward logits=[3,40008]f32 soft_targets=[3,40008]f32",
        // Rows that blocks of a cluster share; with parts of 16 bytes at either end.
        "fused_cross_entropy_backward logits=[3,150000]f32 targets=[3]i32 z_loss=0.001",
        "fused_cross_entropy_backward logits=[4,140001]bf16 targets=[4]i32 label_smoothing=0.1",
        "fused_kl_divergence student_logits=[3,30000]bf16 teacher_logits=[3,30000]f32 "
        "direction=jsd",
        "fused_kl_divergence_backward student_logits=[3,30000]f16 teacher_logits=[3,30000]f16 "
        "direction=reverse",
        "fused_linear_cross_entropy hidden=[300,72]bf16 lm_head_weight=[72,1000] "
        "targets=[300]i32",
        "fused_linear_cross_entropy hidden=[40000,8]f16 lm_head_weight=[8,600] "
        "targets=[40000]i32",
        "fused_linear_cross_entropy_backward hidden=[40000,8]f16 lm_head_weight=[8,600] "
        "lm_head_bias=[600] targets=[40000]i32",
        "fused_linear_cross_entropy_backward hidden=[300,72]bf16 lm_head_weight=[72,1000] "
        "targets=[300]i32 logits_soft_cap=5",
        "fused_linear_cross_entropy_backward hidden=[90000,8]bf16 lm_head_weight=[8,600] "
        "lm_head_bias=[600] targets=[90000]i32 label_smoothing=0.1",
        // Gradients that are given sums.
        "fused_linear_cross_entropy_backward hidden=[300,72]bf16 lm_head_weight=[72,1000] "
        "targets=[300]i32 logit_sums=[300,2]f32 label_smoothing=0.1 z_loss=0.001",
        "fused_linear_cross_entropy_backward hidden=[2,130,72]bf16 lm_head_weight=[72,1000] "
        "targets=[2,130]i32 logit_sums=[2,130,2]f32 logits_soft_cap=5"));

constexpr std::int64_t outputs_of_ones = 264, inputs_of_ones = 512, groups_of_ones = 8;

/// Rows of ones times codes of 9 with scales 1 and offsets 3, but for what change(scales, zeros)
/// makes others: is_right(output, sum, a sum of what is not changed, biased) of all sums, by a few
/// and by many rows, in both forms.
template <class Change, class IsRight>
void expect_products_of_ones(const Change& change, const IsRight& is_right) {
  constexpr std::int64_t outputs = outputs_of_ones, in = inputs_of_ones, groups = groups_of_ones;
  const found_operation known = operation_named("quantized_matmul");
  if (const std::string why = why_not_here(*known.kind); !why.empty()) GTEST_SKIP() << why;
  for (const affine_weight_form form : {affine_weight_form::zero, affine_weight_form::bias}) {
    const bool biased = form == affine_weight_form::bias;
    const quantized_options options{.bits = 4, .group_size = in / groups, .affine_form = form};
    for (const std::int64_t rows : {1, 2, 3, 8, 9, 16, 40, 130}) {
      SCOPED_TRACE(std::to_string(rows) + (biased ? " rows, bias" : " rows, zero"));
      std::vector<bf16> x(static_cast<std::size_t>(rows * in), bf16(1.0f));
      std::vector<bf16> scales(outputs * groups, bf16(1.0f)), zeros(scales.size(), bf16(3.0f));
      std::vector<bf16> y(static_cast<std::size_t>(rows * outputs));
      std::vector<std::uint32_t> words(outputs * in / 8, 0x99999999u);
      change(scales, zeros);
      const quantized_matmul_args args{.x = view(x.data(), {rows, in}),
                                       .w_q = view(words.data(), {outputs, in / 8}),
                                       .scales = view(scales.data(), {outputs, groups}),
                                       .zeros = view(zeros.data(), {outputs, groups}),
                                       .out = view(y.data(), {rows, outputs})};
      const status done = call_here(*known.kind, {known.op, tensors_of(args), &options});
      ASSERT_TRUE(done) << done.message();
      const float ordinary = static_cast<float>(in) * (biased ? 12.0f : 6.0f);
      std::int64_t wrong = 0;
      for (std::int64_t at = 0; at < rows * outputs; ++at) {
        const auto sum = static_cast<float>(y[static_cast<std::size_t>(at)]);
        if (!is_right(at % outputs, sum, ordinary, biased)) ++wrong;
      }
      EXPECT_EQ(wrong, 0);
    }
  }
}

/// Whatever multiplies offsets with sums of x, infinity is not multiplied with a part that is 0.
TEST(weights, with_an_infinite_offset_make_infinite_sums) {
  expect_products_of_ones(
      [](std::vector<bf16>&, std::vector<bf16>& zeros) {
        zeros[5 * groups_of_ones + 2] = bf16(INFINITY);
        zeros[200 * groups_of_ones + 7] = bf16(-INFINITY);
      },
      [](std::int64_t output, float sum, float ordinary, bool biased) {
        const float of_five = biased ? INFINITY : -INFINITY;
        return sum == (output == 5 ? of_five : output == 200 ? -of_five : ordinary);
      });
}

/// Terms that are infinite, or 0 times infinity: sums of groups with an infinite scale are not
/// finite, others are what they were.
TEST(weights, with_an_infinite_scale_make_no_finite_sums) {
  expect_products_of_ones(
      [](std::vector<bf16>& scales, std::vector<bf16>&) {
        scales[5 * groups_of_ones + 2] = bf16(INFINITY);
        scales[200 * groups_of_ones + 7] = bf16(-INFINITY);
      },
      [](std::int64_t output, float sum, float ordinary, bool) {
        return output == 5 || output == 200 ? !std::isfinite(sum) : sum == ordinary;
      });
}

TEST(losses, of_far_and_masked_logits_are_right) {
  expect_right_far_logits();
}

}  // namespace
}  // namespace tessera::support
