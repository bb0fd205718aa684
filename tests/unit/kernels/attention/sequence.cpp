// From the arguments of a launch to the numbers of one sequence.
#include <cstdint>

#include <gtest/gtest.h>

#include <tessera/kernels/attention/common/sequence.hpp>

namespace {

using tessera::kernels::attention::sequence_of;
using tessera::kernels::attention::visibility_of;

TEST(sequence_of, reads_lengths_and_starts) {
  const std::int32_t starts_q[] = {0, 3, 3, 7}, starts_k[] = {0, 5, 9, 9};
  tessera::attention_kernel_args packed;
  packed.batch = 3;
  packed.cu_seqlens_q = starts_q;
  packed.cu_seqlens_k = starts_k;
  const auto second = sequence_of(packed, 1);
  EXPECT_EQ(second.q_begin, 3);
  EXPECT_EQ(second.q_len, 0);
  EXPECT_EQ(second.k_begin, 5);
  EXPECT_EQ(second.k_len, 4);
  const std::int32_t used = 1;
  packed.num_seqs = &used;
  EXPECT_EQ(sequence_of(packed, 0).q_len, 3);
  EXPECT_EQ(sequence_of(packed, 1).k_len, 0);
  const std::int32_t lengths[] = {4, 2};
  tessera::attention_kernel_args dense;
  dense.q_len = 8;
  dense.kv_len = 9;
  EXPECT_EQ(sequence_of(dense, 1).k_len, 9);
  dense.seqlens_k = lengths;
  EXPECT_EQ(sequence_of(dense, 1).k_len, 2);
  EXPECT_EQ(sequence_of(dense, 1).q_len, 8);
  EXPECT_EQ(sequence_of(dense, 1).q_begin, 0);
}

TEST(visibility_of, aligns_the_diagonal_with_the_used_lengths) {
  tessera::attention_kernel_args args;
  args.causal = true;
  const tessera::prim::sequence seq{.q_len = 3, .k_len = 7};
  EXPECT_EQ(visibility_of<tessera::mask_mode::window>(args, seq).keys_of(2).end, 7);
  EXPECT_EQ(visibility_of<tessera::mask_mode::window>(args, seq).keys_of(0).end, 5);
  args.top_left = true;
  EXPECT_EQ(visibility_of<tessera::mask_mode::window>(args, seq).keys_of(0).end, 1);
  EXPECT_EQ(visibility_of<tessera::mask_mode::full>(args, seq).keys_of(0).end, 7);
}

}  // namespace
