// Host side of splits on GPUs: which workspace has which words, who combines.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/cost.hpp>
#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/families/attention/share_blocks_sm80.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>

#include "batch_over_pages.hpp"

namespace {

using namespace tessera::prim::cuda;
using namespace tessera::schedule_sm80;

const std::byte* address(std::uintptr_t number) {
  return reinterpret_cast<const std::byte*>(number * 64);
}

TEST(arrival_table, gives_a_workspace_and_number_of_splits_one_place_for_ever) {
  arrival_table table;
  const int first = table.place_of(address(100), 2);
  const int second = table.place_of(address(101), 2);
  const int third = table.place_of(address(100), most_splits);
  EXPECT_EQ((std::set{first, second, third}.size()), 3u);
  for (const int place : {first, second, third}) {
    EXPECT_GE(place, 0);
    EXPECT_LT(place, arrival_places);
  }
  for (std::uintptr_t n = 200; n < 1000; ++n) table.place_of(address(n), 3);
  EXPECT_EQ(table.place_of(address(100), 2), first);
  EXPECT_EQ(table.place_of(address(101), 2), second);
  EXPECT_EQ(table.place_of(address(100), most_splits), third);
}

TEST(arrival_table, gives_no_place_twice_and_then_none) {
  arrival_table table;
  std::set<int> places;
  int refused = 0;
  for (std::uintptr_t n = 1; n <= 4 * arrival_places; ++n) {
    const int place = table.place_of(address(n), 2);
    if (place < 0) {
      ++refused;
      continue;
    }
    EXPECT_TRUE(places.insert(place).second) << place;
  }
  EXPECT_EQ(places.size() + static_cast<std::size_t>(refused), 4u * arrival_places);
  EXPECT_GT(places.size(), static_cast<std::size_t>(arrival_places) * 9 / 10);
}

TEST(arrival_table, answers_threads_that_ask_at_once_alike) {
  constexpr std::uintptr_t workspaces = 60;
  for (int round = 0; round < 50; ++round) {
    arrival_table table;
    std::vector<std::vector<int>> found(4);
    std::vector<std::thread> threads;
    for (std::vector<int>& mine : found) {
      threads.emplace_back([&table, &mine] {
        for (std::uintptr_t n = 1; n <= workspaces; ++n) {
          mine.push_back(table.place_of(address(n * 7919), 5));
        }
      });
    }
    for (std::thread& first : threads) first.join();
    for (const std::vector<int>& mine : found) EXPECT_EQ(mine, found[0]);
    EXPECT_EQ(std::set<int>(found[0].begin(), found[0].end()).size(), workspaces);
  }
}

tessera::attention_kernel_args decode_args(int batch, int heads, std::int64_t keys, int head_dim) {
  tessera::attention_kernel_args args;
  args.batch = batch;
  args.q_len = 1;
  args.kv_len = keys;
  args.q_heads = heads;
  args.kv_heads = 8;
  args.head_dim = args.v_head_dim = head_dim;
  return args;
}

constexpr tessera::attention_config decode{.target = tessera::backend::cuda_sm80,
                                           .type = tessera::dtype::bf16,
                                           .phase = tessera::attention_phase::decode,
                                           .block_q = 16,
                                           .block_kv = 64,
                                           .tiling = {1, 3, false}};

schedule schedule_on_h200(const tessera::attention_kernel_args& args) {
  return schedule_of(decode, sizes_of(args), 132);
}

/// Every slice of a work tile is some block's to combine, and no block is without any.
void expect_shares_of(int slices, const schedule& cut) {
  EXPECT_GE(cut.combine_blocks, 1);
  EXPECT_LE(cut.combine_blocks, most_combine_blocks);
  EXPECT_LE(cut.combine_blocks, cut.splits);
  EXPECT_GE(cut.combine_blocks * cut.slices_of_block, slices);
  EXPECT_LT((cut.combine_blocks - 1) * cut.slices_of_block, slices);
}

TEST(combine_blocks, are_shared_if_all_blocks_run_at_the_same_time) {
  const schedule few = schedule_on_h200(decode_args(8, 64, 2048, 128));
  EXPECT_EQ(few.splits, 6);
  EXPECT_EQ(few.combine_blocks, 4);  // 8 rows, a warp takes two
  expect_shares_of(8, few);
  const schedule many = schedule_on_h200(decode_args(1, 64, 32768, 128));
  EXPECT_GT(many.splits, many_splits);
  EXPECT_EQ(many.combine_blocks, most_combine_blocks);  // 8 rows of 4 slices
  expect_shares_of(32, many);
  const schedule some = schedule_on_h200(decode_args(2, 64, 8192, 128));
  EXPECT_GT(some.splits, many_splits);
  EXPECT_LE(some.splits, splits_of_two_slices);
  EXPECT_EQ(some.combine_blocks, most_combine_blocks / 2);  // two slices each
  expect_shares_of(32, some);
}

TEST(combine_blocks, are_the_last_blocks_alone_if_blocks_wait_for_multiprocessors) {
  const schedule cut = schedule_on_h200(decode_args(32, 64, 8192, 128));
  EXPECT_GT(cut.work_tiles * cut.splits, 3 * 132);
  EXPECT_EQ(cut.combine_blocks, 1);
  expect_shares_of(8, cut);
}

TEST(splits_of_pages, fill_one_wave_of_blocks_at_most) {
  constexpr std::int64_t bytes = 16384;  // 32 keys and values of 16 bits, head dim 128
  const auto splits_of = [](std::int64_t tiles, std::int64_t key_tiles) {
    return paged_splits_for({tiles, key_tiles, bytes}, 132, 6);
  };
  EXPECT_EQ(splits_of(8, 256), 64);  // tiles of 32 keys, as many for each block
  EXPECT_EQ(splits_of(8, 32), 32);
  EXPECT_EQ(splits_of(8, 1), 1);
  EXPECT_EQ(splits_of(480, 64), 1);
  EXPECT_EQ(splits_of(5000, 64), 1);
  EXPECT_EQ(splits_of(0, 0), 1);
  for (const int tiles : {1, 7, 8, 64, 100, 256, 500, 792}) {
    for (const int key_tiles : {1, 2, 5, 63, 1000, 40000}) {
      const int splits = splits_of(tiles, key_tiles);
      SCOPED_TRACE(testing::Message() << tiles << ' ' << key_tiles << ' ' << splits);
      EXPECT_LE(tiles * splits, 132 * 6);
      EXPECT_LE(splits, std::min(most_splits, key_tiles));
    }
  }
}

/// A row of single tokens.
tessera::attention_config row_of_tokens(tessera::key_storage keys, int blocks_per_sm) {
  return {.target = tessera::backend::cuda_sm80,
          .type = tessera::dtype::bf16,
          .head_dim = 128,
          .phase = tessera::attention_phase::decode,
          .keys = keys,
          .block_q = 16,
          .block_kv = 32,
          .tiling = {1, blocks_per_sm, false}};
}

/// Single tokens of 64 query heads to 8 on an H200, whose blocks have `most_parts` warps at most.
schedule shared_blocks(int batch, std::int64_t keys, int most_parts = 4, int blocks_per_sm = 6) {
  const auto row = row_of_tokens(tessera::key_storage::paged, blocks_per_sm);
  call_sizes sizes = tessera::testing::batch_over_pages(batch, keys);
  sizes.packed = false;
  sizes.plain_tokens = true;
  return shared_schedule_of(row, sizes, 132, most_parts, most_parts);
}

TEST(blocks_of_groups, have_warps_that_share_keys_before_keys_are_split) {
  const auto parts_and_splits = [](int batch, std::int64_t keys, int most_parts = 4) {
    const schedule cut = shared_blocks(batch, keys, most_parts);
    return std::pair{cut.parts, cut.splits};
  };
  EXPECT_EQ(parts_and_splits(1, 32768), std::pair(4, 16));
  EXPECT_EQ(parts_and_splits(1, 131072), std::pair(4, 16)) << "no more than are combined at once";
  EXPECT_EQ(parts_and_splits(16, 2048), std::pair(4, 1)) << "nothing is left to be combined";
  EXPECT_EQ(parts_and_splits(32, 2048), std::pair(3, 1));
  EXPECT_EQ(parts_and_splits(8, 256), std::pair(4, 1)) << "combining takes longer than reading";
  EXPECT_EQ(parts_and_splits(27, 2048), std::pair(3, 1)) << "uneven, but nobody waits for it";
  EXPECT_EQ(parts_and_splits(40, 512), std::pair(2, 1));
  EXPECT_EQ(parts_and_splits(40, 8192), std::pair(1, 2)) << "uneven for long";
  EXPECT_EQ(parts_and_splits(128, 512), std::pair(2, 1)) << "more than a wave";
  EXPECT_EQ(parts_and_splits(100, 4096), std::pair(3, 1));
  EXPECT_EQ(parts_and_splits(200, 1024), std::pair(1, 1)) << "two waves";
  EXPECT_EQ(parts_and_splits(100, 4096, 1), std::pair(1, 1));
  EXPECT_EQ(parts_and_splits(1, 128), std::pair(4, 1));
  EXPECT_EQ(parts_and_splits(1, 32), std::pair(1, 1)) << "one tile of keys";
  EXPECT_EQ(parts_and_splits(16, 2048, 1).first, 1) << "no room for two warps";
  for (const int batch : {1, 3, 5, 9, 12, 20, 31, 50, 66, 99, 200}) {
    for (const std::int64_t keys : {1, 64, 500, 2048, 6000}) {
      for (const int most_parts : {1, 2, 3, 4}) {
        SCOPED_TRACE(testing::Message() << batch << ' ' << keys << ' ' << most_parts);
        const schedule cut = shared_blocks(batch, keys, most_parts);
        EXPECT_GE(cut.splits, 1);
        EXPECT_LE(cut.parts, most_parts);
        EXPECT_LE(cut.parts * cut.splits, (keys + 31) / 32);
        if (cut.splits == 1) continue;
        EXPECT_LE(cut.work_tiles * cut.splits, 132 * (6 / cut.parts)) << "one wave";
        expect_shares_of(8 * slices_of_row(128, groups_for(cut.splits)), cut);
        EXPECT_LE(cut.rows * cut.splits, cut.partial_rows) << "what the workspace has room for";
      }
    }
  }
}

/// The same over a pool of 8 bits, whose kernels have room for twice as many warps.
schedule shared_blocks_of_codes(int batch, std::int64_t keys) {
  const auto row = row_of_tokens(tessera::key_storage::coded, 8);
  call_sizes sizes = tessera::testing::batch_over_pages(batch, keys);
  sizes.packed = false;
  sizes.plain_tokens = sizes.pool_codes = true;
  sizes.bytes_of_key = 256;
  EXPECT_TRUE(are_grouped(row, sizes));
  EXPECT_FALSE(are_grouped(row_of_tokens(tessera::key_storage::paged, 8), sizes))
      << "a row of 16 bits has no kernel for them";
  return shared_schedule_of(row, sizes, 132, 4, 4);
}

TEST(blocks_of_groups, of_8_bits_are_twice_as_many) {
  const auto parts_and_splits = [](int batch, std::int64_t keys) {
    const schedule cut = shared_blocks_of_codes(batch, keys);
    EXPECT_LE(cut.work_tiles * cut.splits, 132 * (8 / cut.parts)) << "one wave";
    EXPECT_LE(cut.rows * cut.splits, cut.partial_rows + cut.rows);
    return std::pair{cut.parts, cut.splits};
  };
  EXPECT_EQ(parts_and_splits(1, 32768), std::pair(4, 32));
  EXPECT_EQ(parts_and_splits(8, 2048), std::pair(2, 8));
  EXPECT_EQ(parts_and_splits(50, 2048), std::pair(2, 1)) << "nothing is left to be combined";
  EXPECT_EQ(parts_and_splits(32, 8192), std::pair(4, 1));
  EXPECT_EQ(parts_and_splits(100, 8192), std::pair(1, 1));
  const schedule found = shared_blocks_of_codes(128, 8192);
  EXPECT_EQ(found.list.planned, planned_items_for(128, 8, 528));
  EXPECT_EQ(std::pair(found.parts, found.list.slots), std::pair(2, 528));
  EXPECT_GE(found.list.places, found.list.planned);
}

TEST(planned_items, are_no_more_than_a_launch_has_blocks_for) {
  std::mt19937 random(7);
  const auto draw = [&random](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  for (int batch = 2; batch <= most_planned_sequences; batch += 1 + batch / 3) {
    for (int kind = 0; kind < 6; ++kind) {
      std::vector<int> tiles(static_cast<std::size_t>(batch));
      for (std::size_t i = 0; i < tiles.size(); ++i) {
        const int sorted = 1 + 40000 / (1 + static_cast<int>(i));
        tiles[i] = kind == 0   ? 256
                   : kind == 1 ? draw(3000)
                   : kind == 2 ? sorted
                   : kind == 3 ? draw(2)
                   : kind == 4 ? (1 << 25)  // as far as lengths go
                               : (draw(20) == 0 ? 100000 : draw(9));
      }
      if (batch % 2 == 0) std::ranges::reverse(tiles);
      for (const auto& [heads, slots] :
           {std::pair{1, 528}, {2, 132}, {8, 528}, {8, 264}, {40, 132}}) {
        SCOPED_TRACE(testing::Message() << batch << ' ' << kind << ' ' << heads << ' ' << slots);
        const float share = static_cast<float>(heads) / static_cast<float>(slots);
        float left = 0.0f;
        for (const int of : tiles) left += static_cast<float>(of);
        const float least = least_of_part(left, share, 16);
        std::int64_t items = 0;
        for (const int of : tiles) {
          items += planned_parts(of, left, share, least);
          left -= static_cast<float>(of);
        }
        EXPECT_GE(items, batch);
        EXPECT_LE(items, planned_items_for(batch, heads, slots));
      }
    }
  }
  schedule listed = shared_blocks(128, 8192);
  EXPECT_TRUE(listed.list.used);
  EXPECT_EQ(listed.list.planned, planned_items_for(128, 8, 264));
  EXPECT_EQ(std::pair(listed.parts, listed.list.slots), std::pair(2, 264)) << "two warps a block";
  EXPECT_EQ(shared_blocks(128, 8192, 2).parts, 1) << "no room for two blocks";
  EXPECT_EQ(shared_blocks(128, 8192, 1).list.slots, 528);
  EXPECT_GE(listed.list.places, listed.list.planned);
  EXPECT_EQ(shared_blocks(2000, 8192).list.planned, 0) << "a list is read sooner";
  EXPECT_EQ(shared_blocks(2000, 8192).parts, 1);
  for (const int blocks : {1, 3, 6}) {  // the items of a list are counted for these
    EXPECT_LE(shared_blocks(1100, 8192, 4, blocks).list.slots, 132 * blocks);
  }
}

TEST(estimates, of_single_tokens_over_pages_have_the_kernels_of_the_launch) {
  const tessera::attention_config row{
      .target = tessera::backend::cuda_sm80,
      .type = tessera::dtype::bf16,
      .head_dim = 128,
      .phase = tessera::attention_phase::decode,
      .keys = tessera::key_storage::paged,
      .features = tessera::base_features | tessera::attention_feature::soft_cap,
      .block_q = 16,
      .block_kv = 32,
      .tiling = {1, 6, false}};
  const auto tokens = [](std::int64_t sequences, std::int64_t keys) {
    tessera::attention_demand demand{.type = tessera::dtype::bf16};
    demand.features = demand.features | tessera::attention_feature::lengths;
    demand.sizes = {sequences, 1, keys, 64, 8, 128, 128};
    demand.page_size = 16;
    return demand;
  };
  const auto work_of = [&](const tessera::attention_demand& demand) {
    return tessera::estimate_of(row, tessera::facts_of(demand), 132);
  };
  tessera::attention_demand many = tokens(128, 8192);
  EXPECT_EQ(work_of(many).launches, 2) << "blocks find their items, and a kernel combines them";
  many.sizes.batch = 2000;
  EXPECT_EQ(work_of(many).launches, 3) << "more lengths than every block looks at";
  using tessera::attention_demand, tessera::attention_feature;
  for (const auto& change : std::vector<void (*)(attention_demand&)>{
           [](attention_demand& of) { of.features = of.features | attention_feature::soft_cap; },
           [](attention_demand& of) { of.features = of.features | attention_feature::varlen; },
           [](attention_demand& of) { of.prefix_groups = 1; },
           [](attention_demand& of) { of.sizes.q_len = 2; },
           [](attention_demand& of) { of.top_left = true; },
           [](attention_demand& of) { of.sizes.q_heads = 128; }}) {
    attention_demand changed = tokens(128, 8192);
    change(changed);
    EXPECT_EQ(work_of(changed).launches, 3) << "a list, the work, what combines it";
  }
  EXPECT_EQ(work_of(without_batch(tokens(128, 8192))).launches, 3) << "split by their own length";
  EXPECT_EQ(work_of(tokens(1, 32768)).splits, 16 * 4) << "blocks, and warps of each";
  EXPECT_EQ(work_of(tokens(16, 2048)).launches, 1) << "warps of a block have all keys";
  EXPECT_EQ(work_of(tokens(16, 2048)).splits, 4);
}

TEST(splits_of_pages, are_more_where_tiles_have_fewer_bytes) {
  // Blocks that wait for what they compute leave room for others; those that wait for memory not.
  EXPECT_EQ(paged_splits_for({8, 1024, 16384}, 132, 6), 64);
  EXPECT_EQ(paged_splits_for({8, 1024, 8192}, 132, 8), 128);
  EXPECT_EQ(paged_splits_for({256, 256, 16384}, 132, 6), 3);
  EXPECT_EQ(paged_splits_for({256, 256, 8192}, 132, 8), 4);
}

TEST(lists_of_work, part_single_queries_from_the_keys_that_groups_share) {
  const tessera::attention_config row{.target = tessera::backend::cuda_sm80,
                                      .type = tessera::dtype::bf16,
                                      .head_dim = 128,
                                      .keys = tessera::key_storage::paged,
                                      .block_q = 128,
                                      .block_kv = 48,
                                      .tiling = {4, 2, false}};
  call_sizes sizes = tessera::testing::batch_over_pages(64, 9216);
  sizes.packed = false;
  sizes.prefixes = 2;
  const schedule cut = schedule_of(row, sizes, 132);
  EXPECT_TRUE(cut.list.apart);
  EXPECT_EQ(cut.launches, 4);
  EXPECT_GE(cut.list.group_items, 64 * 8 / 128 + 2);
  EXPECT_GT(cut.list.items - cut.list.group_items, 64);
  EXPECT_EQ(cut.partial_rows, cut.list.places * 8 * 16);
  // Chunks of several tokens, and calls without groups, are the row's own kernel's.
  sizes.packed = true;
  EXPECT_FALSE(schedule_of(row, sizes, 132).list.apart);
  sizes.packed = false;
  sizes.prefixes = 0;
  EXPECT_FALSE(schedule_of(row, sizes, 132).list.apart);
}

TEST(combine_blocks, hold_every_row_of_any_call) {
  for (const int batch : {1, 2, 5, 16}) {
    for (const int heads : {8, 24, 64, 136}) {
      for (const int head_dim : {1, 64, 100, 128, 192, 256}) {
        for (const std::int64_t keys : {300, 1000, 5000, 100000}) {
          SCOPED_TRACE(testing::Message()
                       << batch << ' ' << heads << ' ' << head_dim << ' ' << keys);
          tessera::attention_kernel_args args = decode_args(batch, heads, keys, head_dim);
          const schedule cut = schedule_on_h200(args);
          if (cut.splits == 1) continue;
          const int slices = slices_of_row(head_dim, groups_for(cut.splits));
          expect_shares_of(std::min(16, heads / 8) * slices, cut);
          const std::int32_t lengths[2] = {0, 1};
          args.cu_seqlens_q = lengths;  // packed: a block may be full
          const schedule packed = schedule_on_h200(args);
          if (packed.splits == 1) continue;
          expect_shares_of(16 * slices_of_row(head_dim, groups_for(packed.splits)), packed);
        }
      }
    }
  }
}

}  // namespace
