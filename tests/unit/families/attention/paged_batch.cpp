// What batches of sequences over pages may say, and what kernels are told of their pools.
#include <array>
#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/spec/float8.hpp>

namespace tessera {
namespace {

/// Two sequences of 3 and 2 rows and 5 and 6 keys, in pages of 4 tokens of 6 there are.
struct batch_call {
  std::array<float, 4096> q{}, k_new{}, v_new{}, pool{}, out{};
  std::array<std::int32_t, 6> table{3, 0, -1, 2, 5, 99};
  std::array<std::int32_t, 2> lengths{5, 6};
  std::array<std::int32_t, 3> offsets{0, 3, 5};
  std::int32_t count = 2;
  ragged_page_options options{};
  ragged_page_args args{.q = view(q.data(), {6, 4, 8}),
                        .kv_pages = view(pool.data(), {6, 4, 4, 8}),
                        .block_table = view(table.data(), {2, 3}),
                        .seqlens_k = view(lengths.data(), {2}),
                        .cu_seqlens_q = view(offsets.data(), {3}),
                        .num_seqs = view(&count, {1}),
                        .k_new = view(k_new.data(), {6, 2, 8}),
                        .v_new = view(v_new.data(), {6, 2, 8}),
                        .out = view(out.data(), {6, 4, 8})};
  attention_kernel_args lowered{};

  std::string refusal() {
    return lower(ragged_page_op::ragged_page_attention_v3, args, options, lowered).message();
  }
  std::string refusal_of_reading() {
    ragged_page_args read = args;
    read.k_new = read.v_new = {};
    return lower(ragged_page_op::ragged_page_attention_v2, read, options, lowered).message();
  }
};

TEST(PagedBatch, CountsSayHowManySequencesAreLookedAt) {
  batch_call call;
  EXPECT_EQ(call.refusal(), "");
  call.count = 3;
  EXPECT_EQ(call.refusal(), "num_seqs: is 3, must be 0 to the 2 sequences of cu_seqlens_q");
  call.count = -1;
  EXPECT_EQ(call.refusal(), "num_seqs: is -1, must be 0 to the 2 sequences of cu_seqlens_q");
  call.lengths[1] = 1000;
  call.table[3] = -7;
  call.offsets[2] = 1;
  call.count = 1;
  EXPECT_EQ(call.refusal(), "") << "entries behind the count are anything";
  call.count = 2;
  EXPECT_EQ(call.refusal(), "cu_seqlens_q: entry 2 is 1, entry 1 has 3; offsets never decrease");
}

TEST(PagedBatch, WhatIsWrittenIsInUseOnce) {
  batch_call call;
  call.lengths[0] = 2;
  EXPECT_EQ(call.refusal(), "seqlens_k: entry 0 is 2, cu_seqlens_q gives the sequence 3 rows");
  EXPECT_EQ(call.refusal_of_reading(), "") << "rows before key 0 see nothing";
  call.lengths[0] = 5;
  call.table[4] = 0;  // both sequences write it
  EXPECT_EQ(call.refusal(),
            "block_table: entry 1,1 is 0, as is entry 0,1; a page that is written is in use once");
  EXPECT_EQ(call.refusal_of_reading(), "");
  call.table[4] = 5;
  call.table[3] = 3;  // the first sequence writes what the second reads
  EXPECT_EQ(call.refusal(),
            "block_table: entry 1,0 is 3, as is entry 0,0; a page that is written is in use once");
  call.offsets = {0, 1, 3};
  EXPECT_EQ(call.refusal(), "") << "page 3 holds keys 0 to 3, which nobody writes";
}

TEST(PagedBatch, ManyPagesAreToldApart) {
  batch_call call;
  constexpr std::int64_t pages = 100000;
  std::vector<float> pool(pages * 4 * 4 * 8);
  call.args.kv_pages = view(pool.data(), {pages, 4, 4, 8});
  call.table = {70000, 99999, -1, 2, 99998, -1};
  EXPECT_EQ(call.refusal(), "");
  call.table[4] = 99999;
  EXPECT_EQ(
      call.refusal(),
      "block_table: entry 1,1 is 99999, as is entry 0,1; a page that is written is in use once");
}

TEST(PagedBatch, ChannelsAreKeysAndValuesInTurn) {
  batch_call call;
  ASSERT_EQ(call.refusal(), "");
  EXPECT_EQ(call.lowered.kv_heads, 2);
  EXPECT_EQ(call.lowered.v_head_dim, 8);
  EXPECT_EQ(call.lowered.kv_len, 12);
  EXPECT_EQ(call.lowered.k_strides.head, 16);
  EXPECT_EQ(call.lowered.v, call.pool.data() + 8);
  call.args.kv_pages = view(call.pool.data(), {6, 4, 3, 8});
  EXPECT_EQ(call.refusal_of_reading(), "kv_pages: channels is 3, not a multiple of 2");
  EXPECT_EQ(call.refusal(), "kv_pages: channels is 3, k_new has 4");
  call.options.pool_layout = page_layout::PTHD;
  EXPECT_EQ(call.refusal(),
            "kv_pages: is given, PHTD, HPTD, PTHD and (PT)HD are layouts of two pools; kv_pages "
            "has PTCD or PTCLD");
}

TEST(PagedBatch, LanesOfChannelGroupsFollowFromTheType) {
  batch_call call;
  call.options.pool_layout = page_layout::PTCLD;
  std::vector<bf16> memory(6 * 4 * 2 * 2 * 128);
  call.args.kv_pages = view(memory.data(), {6, 4, 2, 2, 128});
  const auto halves = [&](tensor_view& tensor) { tensor.type = dtype::bf16; };
  halves(call.args.q), halves(call.args.k_new), halves(call.args.v_new), halves(call.args.out);
  ASSERT_EQ(call.refusal(), "");
  EXPECT_EQ(call.lowered.k_strides.head, 256) << "a head is a group of two lanes";
  EXPECT_EQ(call.lowered.v, memory.data() + 128);
  EXPECT_EQ(call.lowered.written.columns, 128);
  call.args.kv_pages.extent[3] = 1;
  EXPECT_EQ(call.refusal(), "kv_pages: lanes is 1, q has 2");
  call.args.kv_pages.extent[3] = 2;
  call.args.kv_pages.extent[4] = 64;
  EXPECT_EQ(call.refusal(), "kv_pages: columns is 64, q has 128");
  call.args.kv_pages.extent[4] = 128;
  EXPECT_EQ(call.refusal_of_reading(),
            "pool_layout: is PTCLD, ragged_page_attention_v2 takes PTCD");
}

TEST(PagedBatch, StridesOfAPoolWithoutPagesAreNotLookedAt) {
  for (const std::int64_t lanes : {2, 4}) {
    batch_call call;
    call.options.pool_layout = page_layout::PTCLD;
    call.count = 0;
    call.args.kv_pages = view(call.pool.data(), {0, 4, 4 / lanes * 2, lanes, 128});
    call.args.kv_pages.type = lanes == 2 ? dtype::bf16 : dtype::i8;
    call.args.k_new = view(call.k_new.data(), {6, 4, 8});
    call.args.v_new = view(call.v_new.data(), {6, 4, 8});
    if (lanes == 2) {
      for (tensor_view* tensor :
           {&call.args.q, &call.args.k_new, &call.args.v_new, &call.args.out}) {
        tensor->type = dtype::bf16;
      }
    }
    call.args.kv_pages.stride.fill(INT64_MAX);
    call.args.kv_pages.stride[4] = 1;
    ASSERT_EQ(call.refusal(), "") << lanes;
    EXPECT_EQ(call.lowered.written.heads, 4) << lanes;
    EXPECT_EQ(call.lowered.k_strides.head, 0) << lanes;
    EXPECT_EQ(call.lowered.k_strides.row, 0) << lanes;
    EXPECT_EQ(call.lowered.v, call.pool.data()) << lanes;
  }
}

TEST(PagedBatch, FourLanesHoldTwoHeads) {
  batch_call call;
  call.options.pool_layout = page_layout::PTCLD;
  std::vector<std::int8_t> memory(6 * 4 * 2 * 4 * 128);
  call.args.kv_pages = view(memory.data(), {6, 4, 1, 4, 128});
  ASSERT_EQ(call.refusal(), "");
  EXPECT_EQ(call.lowered.pool_type, dtype::i8);
  EXPECT_EQ(call.lowered.written.type, dtype::f32);
  EXPECT_EQ(call.lowered.k_strides.head, 256);
  EXPECT_EQ(call.lowered.v, memory.data() + 128);
  EXPECT_EQ(call.lowered.written.heads, 2);
  call.args.kv_pages.extent[3] = 2;
  EXPECT_EQ(call.refusal(), "kv_pages: lanes is 2, q has 4");
  // Three heads: the fourth place of two groups is nobody's, and becomes 0.
  call.args.q.extent[1] = call.args.out.extent[1] = 3;
  call.args.k_new = view(call.k_new.data(), {6, 3, 8});
  call.args.v_new = view(call.v_new.data(), {6, 3, 8});
  call.args.kv_pages = view(memory.data(), {6, 4, 2, 4, 128});
  ASSERT_EQ(call.refusal(), "");
  EXPECT_EQ(call.lowered.written.heads, 4);
  EXPECT_EQ(call.lowered.k_strides.head, 256);
  call.args.kv_pages.stride[2] = 600;
  EXPECT_EQ(call.refusal(),
            "kv_pages: stride of channel groups is 600, must be 512, that of 4 lanes, where heads "
            "lie in several groups");
}

TEST(PagedBatch, QueriesAreRoundedToCodesIfTheyAreScaled) {
  batch_call call;
  std::vector<f8_e4m3> memory(6 * 4 * 4 * 8);
  call.args.kv_pages = view(memory.data(), {6, 4, 4, 8});
  ASSERT_EQ(call.refusal(), "");
  EXPECT_FALSE(call.lowered.q_as_codes);
  call.options.q_scale = 1.0;
  ASSERT_EQ(call.refusal(), "");
  EXPECT_TRUE(call.lowered.q_as_codes);
}

TEST(PagedBatch, ScalesAreThoseOfScoresAndOutputs) {
  batch_call call;
  call.options.softmax_scale = 0.5;
  call.options.q_scale = 4.0;
  call.options.k_scale = 0.25;
  call.options.v_scale = 3.0;
  ASSERT_EQ(call.refusal(), "");
  EXPECT_EQ(call.lowered.softmax_scale, 0.5f);
  EXPECT_EQ(call.lowered.q_divisor, 4.0f);
  EXPECT_EQ(call.lowered.out_factor, 3.0f);
  EXPECT_EQ(call.refusal_of_reading(),
            "q_scale: is 4, ragged_page_attention_v2 has no such option");
}

}  // namespace
}  // namespace tessera
