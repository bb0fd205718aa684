// CUDA rows: names, shared memory, and which tensors a row of fixed head dims takes.
#include <array>
#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/spec/problem_text.hpp>

namespace {

using tessera::attention_config;
using tessera::attention_feature;
using tessera::attention_phase;
using tessera::backend;
using tessera::cuda_tiling;
using tessera::device_id;
using tessera::device_kind;
using tessera::dtype;
using tessera::flash_attention_args;
using tessera::flash_problem;
using tessera::mask_mode;

constexpr attention_config d128{.target = backend::cuda_sm80,
                                .type = dtype::bf16,
                                .head_dim = 128,
                                .block_q = 128,
                                .block_kv = 64,
                                .tiling = {.warps = 4, .blocks_per_sm = 2}};

TEST(flash_cuda, names_say_how_warps_share_a_tile) {
  EXPECT_EQ(name_of(d128).view(), "attention.cuda_sm80.bf16.d128.128x64.w4b2");
  attention_config other = d128;
  other.tiling.q_in_registers = true;
  EXPECT_EQ(name_of(other).view(), "attention.cuda_sm80.bf16.d128.128x64.w4b2r");
  other = d128;
  other.mask = mask_mode::causal;
  other.features = other.features | attention_feature::soft_cap;
  other.tiling.blocks_per_sm = 1;
  EXPECT_EQ(name_of(other).view(), "attention.cuda_sm80.bf16.d128.soft_cap.128x64.w4b1")
      << "the mask is no part of it";
  const attention_config decode{.target = backend::cuda_sm80,
                                .type = dtype::f16,
                                .head_dim = 192,
                                .v_head_dim = 128,
                                .phase = attention_phase::decode,
                                .block_q = 16,
                                .block_kv = 64,
                                .tiling = {.warps = 1, .blocks_per_sm = 2}};
  EXPECT_EQ(name_of(decode).view(), "attention.cuda_sm80.f16.d192v128.decode.16x64.w1b2");
  EXPECT_EQ(name_of(attention_config{.block_q = 128, .block_kv = 64}).view(),
            "attention.cpu_generic.f32.dany.128x64");
}

TEST(flash_cuda, shared_memory_counts_whole_lines) {
  EXPECT_EQ(shared_memory_bytes(d128), 128 * 256 + 2 * 64 * (256 + 256));
  attention_config row = d128;
  row.head_dim = 96;  // 192 bytes a token take two lines
  row.v_head_dim = 40;
  EXPECT_EQ(shared_memory_bytes(row), 128 * 256 + 2 * 64 * (256 + 128));
  row.head_dim = row.v_head_dim = 0;  // the largest head dim
  row.block_q = 64;
  row.block_kv = 32;
  EXPECT_EQ(shared_memory_bytes(row), 64 * 512 + 2 * 32 * (512 + 512));
}

TEST(flash_cuda, biases_lie_beside_keys_where_there_is_room) {
  attention_config row{.target = backend::cuda_sm90,
                       .type = dtype::bf16,
                       .head_dim = 128,
                       .v_head_dim = 128,
                       .features = tessera::base_features,
                       .block_q = 128,
                       .block_kv = 64,
                       .tiling = {.warps = 12, .blocks_per_sm = 1}};
  const int without = shared_memory_bytes(row);
  row.features = row.features | attention_feature::bias;
  EXPECT_TRUE(tessera::sm90_stages::of(row).biases);
  EXPECT_EQ(shared_memory_bytes(row), without + 3 * 128 * 64 * 2);  // 64 keys of each row
  row.head_dim = row.v_head_dim = 256;                              // two places of keys
  EXPECT_FALSE(tessera::sm90_stages::of(row).biases);
  EXPECT_LE(shared_memory_bytes(row), tessera::most_shared_memory_bytes_sm90);
}

flash_problem problem(bool unaligned) {
  return {.tensors = {.q = tessera::shaped(dtype::bf16, {1, 64, 8, 128}),
                      .k = tessera::shaped(dtype::bf16, {1, 64, 2, 128}),
                      .v = tessera::shaped(dtype::bf16, {1, 64, 2, 128})},
          .unaligned = unaligned};
}

TEST(flash_cuda, only_rows_of_fixed_head_dims_need_aligned_tokens) {
  EXPECT_TRUE(runs(d128, problem(false)));
  EXPECT_FALSE(runs(d128, problem(true)));
  EXPECT_EQ(obstacle_of(d128, problem(true)),
            "q, k, v: not every row starts at a multiple of 16 bytes, which the row needs");
  attention_config row = d128;
  row.head_dim = 0;
  EXPECT_TRUE(runs(row, problem(true)));
  row = {.target = backend::cpu_avx2, .type = dtype::bf16, .head_dim = 128};
  EXPECT_TRUE(runs(row, problem(true)));
}

TEST(flash_cuda, alignment_is_part_of_key_and_text) {
  EXPECT_FALSE(demand_of(problem(false)) == demand_of(problem(true)));
  for (const tessera::demand_field& field : tessera::attention_fields::table) {
    const std::int64_t aligned = field.value(tessera::demand(demand_of(problem(false))));
    const std::int64_t unaligned = field.value(tessera::demand(demand_of(problem(true))));
    EXPECT_EQ(aligned != unaligned, field.name == "aligned16") << field.name;
    if (aligned != unaligned) {
      EXPECT_EQ(field.part, tessera::key_part::identity);
    }
  }
  EXPECT_EQ(to_text(problem(true)),
            "flash_attention q=[1,64,8,128]bf16 k=[1,64,2,128] unaligned=true");
  const auto read = tessera::parse_problem<tessera::flash_problem>(to_text(problem(true)));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->unaligned);
  EXPECT_EQ(to_text(*read), to_text(problem(true)));
  EXPECT_EQ(to_text(problem(false)).find("unaligned"), std::string::npos);
  EXPECT_FALSE(tessera::parse_problem<tessera::flash_problem>(
      "flash_attention q=[1,4,2,8]f32 k=[1,4,2,8] unaligned=1"));
}

/// Views of [1, 4, 2, 64] tokens in memory that no test touches.
class call {
 public:
  explicit call(device_kind kind, std::int64_t head_stride = 64, std::size_t offset = 0) {
    for (tessera::tensor_view* tensor : {&args_.q, &args_.k, &args_.v, &args_.out}) {
      *tensor =
          tessera::view(memory_.data(), {1, 4, 2, 64},
                        {8 * head_stride, 2 * head_stride, head_stride, 1}, device_id{kind, 0});
    }
    args_.v.data = memory_.data() + offset;
  }
  flash_attention_args& args() { return args_; }
  bool unaligned() const { return tessera::problem_of(args_).unaligned; }

 private:
  alignas(16) std::array<tessera::bf16, 1024> memory_{};
  flash_attention_args args_;
};

TEST(flash_cuda, alignment_is_read_off_pointers_and_strides_of_device_tensors) {
  EXPECT_FALSE(call(device_kind::cuda).unaligned());
  EXPECT_FALSE(call(device_kind::cuda, 72).unaligned());
  EXPECT_TRUE(call(device_kind::cuda, 68).unaligned());
  EXPECT_TRUE(call(device_kind::cuda, 64, 4).unaligned());
  EXPECT_FALSE(call(device_kind::cuda, 64, 8).unaligned());
  EXPECT_FALSE(call(device_kind::cpu, 68, 4).unaligned());
  call one_head(device_kind::cuda, 64);
  one_head.args().q.extent[2] = 1;
  one_head.args().q.stride[2] = 3;  // of one head: not looked at
  EXPECT_FALSE(one_head.unaligned());
  call absurd(device_kind::cuda, 64);
  absurd.args().k.rank = 100;
  absurd.args().k.stride[0] = INT64_MIN;
  EXPECT_TRUE(absurd.unaligned()) << "reads the strides there are, among them the last axis' 1";
  EXPECT_FALSE(tessera::problem_of(tessera::flash_attention_args{}).unaligned);
}

}  // namespace
