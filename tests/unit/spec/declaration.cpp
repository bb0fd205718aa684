// The vocabulary of declarations, on an operation that there is not: what is accepted and lowered,
// and the whole sentence of each refusal.
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include <tessera/spec/problem_text.hpp>

#include "cache_operation.hpp"

namespace tessera::testing {
namespace {

using cache_table::how;
using cache_table::operations;

/// The sentence for a legal call that was bent.
template <class Bend>
std::string refusal(const Bend& bend) {
  cache_call call;
  bend(call);
  return call.refusal();
}

TEST(Declaration, LegalCallsAreAcceptedAndLowered) {
  cache_call call;
  cache_kernel_args lowered;
  EXPECT_EQ(call.refusal(&lowered), "");
  EXPECT_EQ(lowered.tokens, call.tokens.data());
  EXPECT_EQ(lowered.cache, call.cache.data());
  EXPECT_EQ(lowered.rows, 6);
  EXPECT_EQ(lowered.row_stride, 8);
  EXPECT_EQ(lowered.page_stride, 0) << "plain caches have no pages";
  EXPECT_EQ(lowered.columns, 8);
  EXPECT_EQ(lowered.total, 8) << "neither sequences nor groups";
  EXPECT_EQ(lowered.scale_type, dtype::none);
  call.in_pages();
  call.args.scales = cache_call::of(call.scales, dtype::f8_e8m0, {1, 2});
  call.args.codes = cache_call::of(call.codes, dtype::u4x2, {6, 8});
  call.args.groups = cache_call::of(call.groups, dtype::i32, {2});
  call.args.table = cache_call::of(call.table, dtype::f32, {5, 3});
  EXPECT_EQ(call.refusal(&lowered), "");
  EXPECT_EQ(lowered.page_stride, 24);
  EXPECT_EQ(lowered.total, 2);
  EXPECT_EQ(lowered.scale_type, dtype::f8_e8m0);
}

TEST(Declaration, LayoutsAreUpToEight) {
  cache_call call;
  call.args.tokens = cache_call::of(call.tokens, dtype::f8_e5m2, {2, 6, 8});
  call.args.cache = cache_call::of(call.cache, dtype::f8_e5m2, {2, 7, 8});
  EXPECT_EQ(call.refusal(), "");
  call.args.tokens.extent[0] = 3;
  EXPECT_EQ(call.refusal(), "tokens: extent is 3, stacked tensors have 2");
  call.args.tokens.extent[0] = 2;
  call.args.cache = cache_call::of(call.cache, dtype::f8_e5m2, {7, 8});
  EXPECT_EQ(call.refusal(), "cache: rank is 2, stacked tensors have 3 [2,R,D]");
}

TEST(Declaration, TypesAreThoseOfTheList) {
  EXPECT_EQ(refusal([](auto& call) { call.args.tokens.type = dtype::u4x2; }),
            "tokens: dtype is u4x2, must be f8_e4m3, f8_e5m2 or i8");
  EXPECT_EQ(refusal([](auto& call) { call.args.cache.type = dtype::f8_e4m3; }),
            "cache: dtype is f8_e4m3, tokens has i8");
  EXPECT_EQ(refusal([](auto& call) {
              call.args.scales = cache_call::of(call.scales, dtype::u8, {6, 2});
            }),
            "scales: dtype is u8, must be f32 or f8_e8m0");
}

TEST(Declaration, ExtentsFollowTheWordsOfTheirShapes) {
  EXPECT_EQ(refusal([](auto& call) { call.args.cache.extent[0] = 60; }), "") << "R+";
  EXPECT_EQ(refusal([](auto& call) { call.args.cache.extent[0] = 5; }),
            "cache: rows is 5, tokens has 6 (more is legal)");
  EXPECT_EQ(refusal([](auto& call) { call.args.cache.extent[1] = 9; }),
            "cache: columns is 9, tokens has 8");
  EXPECT_EQ(refusal([](auto& call) { call.args.tokens.extent[1] = 65; }),
            "tokens: columns is 65, must be 1 to 64");
  const auto scales = [](std::int64_t rows, std::int64_t blocks, std::int64_t block) {
    return refusal([&](auto& call) {
      call.args.scales = cache_call::of(call.scales, dtype::f8_e8m0, {rows, blocks});
      call.options.block = block;
    });
  };
  EXPECT_EQ(scales(1, 2, 4), "");
  EXPECT_EQ(scales(6, 3, 3), "");
  EXPECT_EQ(scales(6, 3, 4), "scales: number of blocks is 3, tokens has 2");
  EXPECT_EQ(scales(2, 2, 4), "scales: rows is 2, tokens has 6 (1 broadcasts)");
  EXPECT_EQ(
      refusal([](auto& call) { call.args.groups = cache_call::of(call.groups, dtype::i32, {4}); }),
      "tokens: rows is 6, not a multiple of the 4 of groups");
}

TEST(Declaration, PageNumbersCountAsFarAsTheLengthsReach) {
  const auto paged = [](auto bend) {
    return refusal([&](cache_call& call) {
      call.in_pages();
      bend(call);
    });
  };
  EXPECT_EQ(paged([](auto&) {}), "") << "pages behind the lengths may be any numbers";
  EXPECT_EQ(paged([](auto& call) { call.lengths[0] = 6; }), "");
  EXPECT_EQ(paged([](auto& call) { call.lengths[1] = 4; }),
            "pages: entry 1,1 is -5, must be 0 to 2: there are 3 pages");
  EXPECT_EQ(paged([](auto& call) { call.pages[1] = -1; }),
            "pages: entry 0,1 is -1, must be 0 to 2: there are 3 pages");
  EXPECT_EQ(paged([](auto& call) { call.lengths[0] = 10; }),
            "lengths: entry 0 is 10, must be 0 to 9: pages has 3 pages of 3 tokens");
  EXPECT_EQ(paged([](auto& call) { call.lengths[1] = -1; }),
            "lengths: entry 1 is -1, must be 0 to 9: pages has 3 pages of 3 tokens");
  EXPECT_EQ(paged([](auto& call) { call.args.lengths = {}; }),
            "lengths: is absent, pages is not; caches in pages have both");
  EXPECT_EQ(refusal([](auto& call) {
              call.args.tokens = cache_call::of(call.tokens, dtype::i8, {2, 6, 8});
              call.args.pages = cache_call::of(call.pages, dtype::i32, {2, 3});
            }),
            "tokens: rank is 3, paged tensors have 2 [R,D]");
}

TEST(Declaration, GroupSizesAreNotNegativeAndNotTooMany) {
  const auto grouped = [](std::int32_t first, std::int32_t second, std::int64_t entries) {
    return refusal([&](cache_call& call) {
      call.groups = {first, second};
      call.args.groups = cache_call::of(call.groups, dtype::i32, {2});
      call.args.table = cache_call::of(call.table, dtype::f32, {entries, 3});
    });
  };
  EXPECT_EQ(grouped(2, 3, 5), "");
  EXPECT_EQ(grouped(0, 6, 6), "");
  EXPECT_EQ(grouped(2, -3, 5), "groups: entry 1 is -3, must be at least 0");
  EXPECT_EQ(grouped(4, 3, 7), "groups: the sum of the entries is 7, tokens has 6 rows");
  EXPECT_EQ(grouped(2, 3, 6), "table: entries is 6, the sum of groups has 5");
  EXPECT_EQ(grouped(2147483647, 2147483647, 6),
            "groups: the sum of the entries is 4294967294, tokens has 6 rows");
}

TEST(Declaration, NumbersThatHaveToBePositiveAreFiniteToo) {
  const auto with = [](float second) {
    return refusal([&](cache_call& call) {
      call.factors[1] = second;
      call.args.factors = cache_call::of(call.factors, dtype::f32, {2});
    });
  };
  using limits = std::numeric_limits<float>;
  EXPECT_EQ(with(limits::denorm_min()), "");
  EXPECT_EQ(with(limits::max()), "");
  EXPECT_EQ(with(0.0f), "factors: entry 1 is 0, must be above 0 and finite");
  EXPECT_EQ(with(-0.5f), "factors: entry 1 is -0.5, must be above 0 and finite");
  EXPECT_EQ(with(limits::infinity()), "factors: entry 1 is inf, must be above 0 and finite");
  EXPECT_EQ(with(limits::quiet_NaN()), "factors: entry 1 is nan, must be above 0 and finite");
}

TEST(Declaration, LiteralExtentsAreExact) {
  EXPECT_EQ(refusal([](cache_call& call) {
              call.args.groups = cache_call::of(call.groups, dtype::i32, {2});
              call.args.table = cache_call::of(call.table, dtype::f32, {5, 4});
            }),
            "table: extent is 4, plain tensors have 3");
}

TEST(Declaration, OutputsMayShareMemoryOnlyInPlace) {
  const auto updated = [](std::int8_t* at(cache_call&), std::int64_t stride) {
    return refusal([&](cache_call& call) {
      call.args.updated = cache_call::of(call.updated, dtype::i8, {6, 8});
      call.args.updated.data = at(call);
      call.args.updated.stride[0] = stride;
    });
  };
  EXPECT_EQ(updated([](cache_call& call) { return call.updated.data(); }, 8), "");
  EXPECT_EQ(updated([](cache_call& call) { return call.tokens.data(); }, 8), "") << "in place";
  EXPECT_EQ(updated([](cache_call& call) { return call.tokens.data() + 8; }, 8),
            "updated: shares memory with tokens, 40 of its 48 bytes lie between the first and last "
            "of it");
  EXPECT_EQ(updated([](cache_call& call) { return call.tokens.data(); }, 16),
            "updated: shares memory with tokens, 48 of its 88 bytes lie between the first and last "
            "of it");
  EXPECT_EQ(updated([](cache_call& call) { return call.cache.data(); }, 8),
            "cache: shares memory with updated, 48 of its 48 bytes lie between the first and last "
            "of it");
  EXPECT_EQ(refusal([](auto& call) { call.args.cache.read_only = true; }),
            "cache: is read-only, and an output");
  EXPECT_EQ(refusal([](auto& call) { call.args.cache.data = call.tokens.data(); }),
            "cache: shares memory with tokens, 48 of its 48 bytes lie between the first and last "
            "of it");
}

TEST(Declaration, OptionsAndPresenceAreThoseOfTheOperation) {
  EXPECT_EQ(refusal([](auto& call) { call.options.block = 0; }), "block: is 0, must be at least 1");
  EXPECT_EQ(refusal([](auto& call) { call.options.mode = static_cast<rounding>(7); }),
            "mode: is 7, the last one is 1 (down)");
  EXPECT_EQ(refusal([](auto& call) { call.options.gain = -0.5; }),
            "gain: is -0.5, must be above 0 and finite as a float");
  EXPECT_EQ(refusal([](auto& call) { call.args.cache = {}; }),
            "cache: is absent, fill_cache needs tokens and cache");
  EXPECT_EQ(refusal([](auto& call) {
              call.op = &operations[1];
              call.options.wide = true;
            }),
            "wide: is true, fill_plainly has no such option");
  EXPECT_EQ(refusal([](auto& call) {
              call.op = &operations[1];
              call.args.updated = cache_call::of(call.updated, dtype::i8, {6, 8});
            }),
            "updated: is given, fill_plainly does not write it");
  EXPECT_EQ(refusal([](auto& call) {
              call.op = &operations[1];
              call.in_pages();
            }),
            "pages: is given, fill_plainly has no such tensor");
  EXPECT_EQ(refusal([](auto& call) {
              call.options.wide = true;
              call.args.updated = cache_call::of(call.updated, dtype::i8, {6, 8});
            }),
            "updated: is given, wide is true; wide caches are written in place");
}

TEST(Declaration, ProblemTextGoesBothWays) {
  for (const std::string fields :
       {"tokens=[6,8]i8 cache=[6,8] codes=[6,8]u4x2", "tokens=[6,8]i8 cache=[6,8] codes=[6,8]i8",
        "tokens=[6,8]f8_e4m3 scales=[1,2]f8_e8m0 cache=[3,3,8] pages=[2,3]i32 lengths=[2]i32 "
        "block=8 mode=down gain=0.5 wide=true",
        "tokens=[2,6,8]i8 cache=[2,6,8] groups=[2]i32 table=[5,3]f32 unaligned=true"}) {
    const result<owned_problem> problem = parse_problem(operations[0], fields);
    ASSERT_TRUE(problem) << problem.message();
    EXPECT_EQ(text_of(problem->view()), "fill_cache " + fields);
  }
  const auto refused = [](std::string_view fields) {
    return parse_problem(operations[0], fields).message();
  };
  EXPECT_EQ(refused("tokens=[6,8]u4"),
            "problem: tokens is '[6,8]u4', must be a shape of at most 5 extents and a dtype, "
            "[1,2]f32");
  EXPECT_EQ(refused("mode=up"), "problem: mode is 'up', must be one of nearest, down");
  EXPECT_EQ(refused("updated=[6,8]"),
            "problem: fill_cache has no field 'updated', the fields are tokens, scales, cache, "
            "pages, lengths, groups, table, codes, factors, unaligned, block, mode, gain, wide");
  EXPECT_EQ(refused("tokens=[6,8]i8 groups=[2]"), "problem: groups has no dtype");
}

TEST(Declaration, ProblemsAreCheckedWithoutMemory) {
  const auto check = [](std::string_view fields) {
    result<owned_problem> problem = parse_problem(operations[0], fields);
    if (!problem) return problem.message();
    cache_kernel_args lowered;
    bound_call call{.op = &operations[0],
                    .tensors = problem->tensors.data(),
                    .options = problem->options.data()};
    return lower_problem(call, problem->tensors.data(), how, &lowered).message();
  };
  EXPECT_EQ(check("tokens=[6,8]i8 cache=[6,8]"), "");
  EXPECT_EQ(check("tokens=[6,8]i8 cache=[3,3,8] pages=[2,3]i32 lengths=[2]i32"), "");
  EXPECT_EQ(check("tokens=[6,8]i8 cache=[6,8] groups=[2]i32 table=[5,3]f32"), "")
      << "what the sizes sum up to is not known";
  EXPECT_EQ(check("tokens=[6,8]i8 cache=[3,3,8] pages=[2,3]i32 lengths=[3]i32"),
            "pages: sequences is 2, lengths has 3");
}

}  // namespace
}  // namespace tessera::testing
