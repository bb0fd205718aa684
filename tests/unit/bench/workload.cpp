// Workloads of any operation: the verdict on what the library computes, rounds, lengths, and the
// words of declarations that no operation of the library uses yet.
#include "bench/support/workload.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/operation.hpp>

#include "tests/reference/elements.hpp"
#include "tests/unit/spec/cache_operation.hpp"

namespace {

using namespace tessera;
using bench::length_profile;
using bench::workload;

/// Small calls, which are judged as a whole, and calls of which a sample is.
constexpr std::array<std::string_view, 14> problems{
    "flash_attention q=[2,20,4,32]f32 k=[2,30,2,32] causal=true",
    "flash_attention q=[60,4,32]f32 k=[60,2,32] cu_seqlens_q=[4]i32 cu_seqlens_k=[4]i32",
    "flash_attention q=[1,10,2,32]f32 k=[1,12,2,32] normalize=false mask=[1,1,10,12]u8",
    "attention q=[1,10,2,32]f32 k=[1,12,2,32] weights=[1,2,10,12]f32 q_segment_ids=[1,10]i32 "
    "kv_segment_ids=[1,12]i32",
    "scaled_dot_product_attention q=[2,9,2,32]f32 k=[2,11,2,32] seqlens_k=[2]i32",
    "page_attention q=[2,4,32]f32 k_pages=[6,2,4,32] block_table=[2,3]i32",
    "mean_pooling x=[3,50,96]f32 mask=[3,50]u8",
    "mean_pooling_chunks x=[1,90,2,32]f32 cu_seqlens=[4]i32 chunk_size=8",
    "mean_pooling_backward x=[100,64]f32 cu_seqlens=[4]i32",
    "mean_pooling_chunks_backward x=[1,90,2,32]f32 cu_seqlens=[4]i32 chunk_size=8",
    "flash_attention q=[1,200,8,64]bf16 k=[1,300,8,64] causal=true window_left=20",
    "page_attention q=[4,8,64]bf16 k_pages=[64,8,16,64] block_table=[4,16]i32",
    "mean_pooling x=[8,600,512]f32",
    "mean_pooling_chunks_backward x=[4,600,2,512]f32",
};

owned_problem problem_of_text(std::string_view text) {
  const family* kind = nullptr;
  const auto problem = parse_problem(text, kind);
  EXPECT_TRUE(problem) << problem.message();
  return *problem;
}

status run(const workload& work, std::size_t round = 0) {
  const operation& op = *work.problem().op;
  const family& kind = *operation_named(op.name).kind;
  return call_operation(kind, op, work.tensors(round).data(), work.problem().options,
                        {.threads = 1});
}

std::size_t named(const workload& work, std::string_view name) {
  const auto tensors = work.problem().op->form->tensors;
  return static_cast<std::size_t>(std::ranges::find(tensors, name, &tensor_form::name) -
                                  tensors.begin());
}

std::vector<double> numbers(const workload& work, std::string_view name) {
  return reference::to_doubles(work.tensors()[named(work, name)]);
}

class Workloads : public ::testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(All, Workloads, ::testing::ValuesIn(problems), [](const auto& problem) {
  return std::to_string(problem.index) + "_" +
         std::string(problem.param.substr(0, problem.param.find(' ')));
});

TEST_P(Workloads, AreLegalCallsAndJudgeTheirResults) {
  const owned_problem problem = problem_of_text(GetParam());
  for (const auto lengths : {length_profile::equal, length_profile::zipf, length_profile::ragged}) {
    const workload work(problem.view(), {.lengths = lengths});
    ASSERT_TRUE(work.refusal()) << work.refusal().message();
    EXPECT_NE(work.verdict().complaint(), "") << "nothing has been computed yet";
    ASSERT_TRUE(run(work)) << run(work).message();
    EXPECT_EQ(work.verdict().complaint(), "");
  }
}

TEST_P(Workloads, NoticeAWrongOutput) {
  const workload work(problem_of_text(GetParam()).view(), {.lengths = length_profile::ragged});
  ASSERT_TRUE(run(work));
  const std::vector<tensor_view> tensors = work.tensors();
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool first = work.problem().op->form->tensors[i].name == "out" ||
                       work.problem().op->form->tensors[i].name == "d_x";
    if (!first || !tensors[i].present()) continue;
    auto* const bytes = static_cast<std::byte*>(tensors[i].data);
    // The first row of the last head is in every sample, and so are the first columns.
    const std::size_t row =
        static_cast<std::size_t>(tensors[i].extent[tensors[i].rank - 1]) * size_of(tensors[i].type);
    const std::size_t heads = tensors[i].rank > 2 && tensors[i].extent[2] < 10
                                  ? static_cast<std::size_t>(tensors[i].extent[tensors[i].rank - 2])
                                  : 1;
    std::memset(bytes + row * (heads - 1), 0x41, 4);
    const std::string complaint = work.verdict().complaint();
    EXPECT_NE(complaint.find(work.problem().op->form->tensors[i].name), std::string::npos)
        << complaint;
    ++wrong;
  }
  EXPECT_EQ(wrong, 1u);
}

TEST_P(Workloads, RoundsReadAndComputeTheSameInOtherMemory) {
  const owned_problem problem = problem_of_text(GetParam());
  constexpr std::size_t cold = std::size_t{16} << 20;
  const workload work(problem.view(), {.cold_bytes = cold, .outputs = true});
  std::size_t bytes = 0;
  for (const bench::memory_block& block : work.blocks()) bytes += block.bytes.size();
  EXPECT_GE(bytes, cold);
  const auto first = work.tensors(0), second = work.tensors(1);
  EXPECT_NE(std::ranges::mismatch(first, second, {}, &tensor_view::data, &tensor_view::data).in1,
            first.end());
  ASSERT_TRUE(run(work));
  EXPECT_EQ(work.verdict().complaint(), "");
  if (GetParam().find("window_left") == std::string_view::npos) {
    ASSERT_TRUE(run(work, 1));
    EXPECT_EQ(work.verdict(second.data()).complaint(), "");
  }
}

TEST(Workload, SeedsDecideValuesAndLengths) {
  const owned_problem problem = problem_of_text(problems[1]);
  const auto of_seed = [&](std::uint64_t seed) {
    return workload(problem.view(), {.lengths = length_profile::ragged, .seed = seed});
  };
  EXPECT_EQ(numbers(of_seed(1), "q"), numbers(of_seed(1), "q"));
  EXPECT_NE(numbers(of_seed(1), "q"), numbers(of_seed(2), "q"));
  EXPECT_NE(numbers(of_seed(1), "cu_seqlens_q"), numbers(of_seed(2), "cu_seqlens_q"));
  EXPECT_EQ(numbers(of_seed(1), "cu_seqlens_q"), numbers(of_seed(1), "cu_seqlens_k"));
}

TEST(Workload, WindowsMoveByWhatACallReads) {
  const workload work(
      problem_of_text("flash_attention q=[2,1,2,32]f32 k=[2,1000,2,32] causal=true window_left=9")
          .view(),
      {.cold_bytes = std::size_t{1} << 20});
  const tensor_view k = work.tensors()[named(work, "k")];
  // Each round is 10 tokens further on, in both entries.
  EXPECT_GE(k.stride[0], 1000 * k.stride[1]);
  const auto* const begin = static_cast<const std::byte*>(k.data);
  const auto* const other = static_cast<const std::byte*>(work.tensors(1)[named(work, "k")].data);
  EXPECT_EQ((other - begin) % (10 * 2 * 32 * 4), 0);
  EXPECT_LT(other - begin, k.stride[0] * 4);
}

TEST(Workload, AValueIsFarFromZeroWhereMeansAreTaken) {
  const workload work(problem_of_text("mean_pooling x=[4,100,64]f32").view());
  const std::vector<double> x = numbers(work, "x");
  EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()), 0.5, 0.05);
}

TEST(Workload, OutputsWithoutMemoryHaveShapes) {
  const workload work(problem_of_text(problems[7]).view(),
                      {.lengths = length_profile::ragged, .outputs = false});
  const tensor_view out = work.tensors()[named(work, "out")];
  EXPECT_EQ(out.data, nullptr);
  const std::vector<double> offsets = numbers(work, "cu_seqlens");
  std::int64_t chunks = 0;
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    chunks += (static_cast<std::int64_t>(offsets[n + 1] - offsets[n]) + 7) / 8;
  }
  EXPECT_EQ(out.extent[1], chunks);
}

TEST(Workload, PagesGroupsAndTensorsInPlaceFollowFromTheDeclaration) {
  const operation& op = tessera::testing::cache_table::operations[0];
  const auto problem = parse_problem(op,
                                     "tokens=[6,8]i8 cache=[12,4,8]i8 scales=[6,2]f8_e8m0 "
                                     "pages=[2,4]i32 lengths=[2]i32 groups=[2]i32 table=[1,3]f32");
  ASSERT_TRUE(problem) << problem.message();
  const workload work(problem->view(), {.lengths = length_profile::ragged});
  ASSERT_TRUE(work.refusal()) << work.refusal().message();
  std::vector<double> pages = numbers(work, "pages");
  std::ranges::sort(pages);
  EXPECT_EQ(std::ranges::adjacent_find(pages), pages.end()) << "no page has two owners";
  EXPECT_EQ(numbers(work, "lengths")[0], 16);
  const std::vector<double> groups = numbers(work, "groups");
  EXPECT_EQ(groups[0] + groups[1], 6);
  EXPECT_EQ(work.tensors()[named(work, "table")].extent[0], 6);
  const bool in_place = std::ranges::any_of(work.blocks(), [](const bench::memory_block& block) {
    return block.is_read && block.is_written;
  });
  EXPECT_TRUE(in_place);
}

TEST(Workload, WhatIsNoProblemIsRefusedInWords) {
  const workload work(problem_of_text("flash_attention q=[1,4,3,32]f32 k=[1,4,2,32]").view());
  EXPECT_FALSE(work.refusal());
  EXPECT_NE(work.refusal().message().find('3'), std::string::npos) << work.refusal().message();
}

}  // namespace
