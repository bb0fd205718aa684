// Masks of blocks: what functions, bitmaps and lists make of them, what calls make of those, and
// what is refused.
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/sparse_attention.hpp>

#include "tests/op/sparse_attention/functors.hpp"

namespace {

using namespace tessera::support;
using tessera::block_mask;
using tessera::block_shown;
using tessera::status;

constexpr tessera::block_grid small{
    .heads = 2, .q_len = 5, .kv_len = 7, .block_q = 2, .block_k = 3};

TEST(block_mask, says_none_part_or_whole_of_each_block) {
  const auto mask = block_mask::from_function(
      small, [](const tessera::position& at) { return at.key <= at.query + at.head; });
  ASSERT_TRUE(mask) << mask.message();
  using enum block_shown;
  constexpr std::array<block_shown, 18> wanted{
      part, none, none, whole, part, none, whole, part,  none,   // head 0
      part, none, none, whole, part, none, whole, whole, none};  // head 1
  for (std::int64_t block = 0; block < 18; ++block) {
    EXPECT_EQ(mask->shown({.head = block / 9, .row = block / 3 % 3, .column = block % 3}),
              wanted[static_cast<std::size_t>(block)])
        << block;
  }
  EXPECT_EQ(mask->count(none) + mask->count(part) + mask->count(whole), 18);
  ASSERT_EQ(mask->blocks().rank, 4);
  EXPECT_EQ(mask->blocks().extent[2], 3);
  ASSERT_TRUE(mask->pairs().present());
  EXPECT_EQ(mask->pairs().extent[3], 7);
}

TEST(block_mask, of_a_bitmap_with_any_strides_is_that_of_a_function) {
  const auto shows = [](std::int64_t i, std::int64_t j) { return i * j % 3 != 1; };
  std::vector<std::uint8_t> columns(static_cast<std::size_t>(small.q_len * small.kv_len));
  for (std::int64_t i = 0; i < small.q_len; ++i) {
    for (std::int64_t j = 0; j < small.kv_len; ++j) {
      columns[static_cast<std::size_t>(j * small.q_len + i)] = shows(i, j) ? 7 : 0;
    }
  }
  const auto of_bits = block_mask::from_bitmap(
      small,
      tessera::view(columns.data(), {1, 2, small.q_len, small.kv_len}, {0, 0, 1, small.q_len}));
  ASSERT_TRUE(of_bits) << of_bits.message();
  const auto of_function = block_mask::from_function(
      small, [&](const tessera::position& at) { return shows(at.query, at.key); });
  for (std::int64_t row = 0; row < small.rows(); ++row) {
    for (std::int64_t column = 0; column < small.columns(); ++column) {
      const tessera::block_place at{.head = 1, .row = row, .column = column};
      EXPECT_EQ(of_bits->shown(at), of_function->shown(at)) << row << ' ' << column;
    }
  }
}

TEST(block_mask, of_a_list_needs_no_pairs) {
  const std::array<tessera::block_place, 3> places{
      {{.head = 1, .row = 2, .column = 0}, {.row = 0, .column = 2}, {.row = 0, .column = 2}}};
  const auto mask = block_mask::from_list(small, places);
  ASSERT_TRUE(mask) << mask.message();
  EXPECT_EQ(mask->count(block_shown::whole), 2);
  EXPECT_EQ(mask->count(block_shown::part), 0);
  EXPECT_EQ(mask->shown(places[0]), block_shown::whole);
  EXPECT_FALSE(mask->pairs().present());
}

TEST(block_mask, in_a_call_has_the_bits_of_its_pairs) {
  sparse_call<> call(150, 190, 24, 16);
  const std::vector<std::int32_t> documents = documents_of(190);
  const auto run = [&](const auto& prepare) {
    call.clear();
    tessera::blocksparse_attention_options options;
    auto args = call.args();
    auto backward = call.backward_args();
    prepare(args, options);
    prepare(backward, options);
    EXPECT_TRUE(tessera::blocksparse_attention(args, options));
    EXPECT_TRUE(tessera::blocksparse_attention_backward(backward, options));
    return call.results();
  };
  const auto mask = block_mask::from_function(call.grid(48, 32), same_document{documents.data()});
  ASSERT_TRUE(mask) << mask.message();
  EXPECT_GT(mask->count(block_shown::none), 0);
  EXPECT_GT(mask->count(block_shown::whole), 0);
  const auto every_pair =
      block_mask::from_function(call.grid(150, 190), same_document{documents.data()});
  EXPECT_EQ(run([&](auto& args, auto& options) { EXPECT_TRUE(mask->apply_to(args, options)); }),
            run([&](auto& args, auto&) { args.mask = every_pair->pairs(); }));
}

void expect_refusal(const status& done, std::string_view sentence) {
  EXPECT_EQ(done.code(), tessera::status_code::invalid_argument);
  EXPECT_EQ(done.message(), sentence);
}

TEST(block_mask, refuses_what_makes_no_mask) {
  const auto all = [](const tessera::position&) { return true; };
  const auto with = [&](auto change) {
    tessera::block_grid grid = small;
    change(grid);
    return block_mask::from_function(grid, all).failure();
  };
  expect_refusal(with([](auto& grid) { grid.block_k = 0; }),
                 "block_mask: block_k is 0, it is 1 to 2147483647");
  expect_refusal(with([](auto& grid) { grid.kv_len = -1; }),
                 "block_mask: kv_len is -1, it is 0 to 2147483647");
  expect_refusal(with([](auto& grid) {
                   grid.batch = grid.q_len = grid.kv_len = std::numeric_limits<int>::max();
                 }),
                 "block_mask: has 1.9807040600895968e+28 pairs of rows and keys, there may be "
                 "4.6116860184273879e+18");
  const std::array<tessera::block_place, 1> outside{{{.head = 1, .row = 3}}};
  expect_refusal(block_mask::from_list(small, outside).failure(),
                 "shown: row of a block is 3, there are 3");
  const std::vector<std::uint8_t> bytes(70);
  expect_refusal(
      block_mask::from_bitmap(small, tessera::view(bytes.data(), {1, 2, 5, 6})).failure(),
      "shown: axis 3 is 6, the mask of blocks has 7");
  expect_refusal(block_mask::from_bitmap(small, tessera::view(bytes.data(), {2, 5, 7})).failure(),
                 "shown: is u8 of rank 3, a bitmap of pairs is u8 of rank 4");

  const auto mask = block_mask::from_function(
      small, [](const tessera::position& at) { return at.key <= at.query; });
  tessera::blocksparse_attention_args args;
  tessera::blocksparse_attention_options options;
  args.mask = tessera::view(bytes.data(), {1, 2, 5, 7});
  expect_refusal(mask->apply_to(args, options),
                 "mask: is given, and the mask of blocks has one of its own");
  EXPECT_FALSE(args.block_mask.present());
}

}  // namespace
