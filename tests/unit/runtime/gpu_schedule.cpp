// A launch on a GPU, its workspace, its estimate and its words are cut by one schedule.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/families/attention/schedule_sm90.hpp>

#include "pretended.hpp"
#include "tests/unit/gpu/batch_over_pages.hpp"

namespace tessera::testing {
namespace {

constexpr attention_config prefill{.target = backend::cuda_sm80,
                                   .type = dtype::bf16,
                                   .head_dim = 128,
                                   .block_q = 128,
                                   .block_kv = 64,
                                   .tiling = {4, 2, false}};
constexpr attention_config decode{.target = backend::cuda_sm80,
                                  .type = dtype::bf16,
                                  .head_dim = 128,
                                  .phase = attention_phase::decode,
                                  .block_q = 16,
                                  .block_kv = 64,
                                  .tiling = {1, 3, false}};

struct call {
  std::int64_t batch = 1, q_len = 1, kv_len = 1, q_heads = 8, kv_heads = 8;
  std::int64_t window_left = -1;
  bool causal = false;
  bool packed = false;

  attention_demand demand() const {
    attention_demand demand{.type = dtype::bf16, .causal = causal, .window_left = window_left};
    demand.mask = window_left >= 0 ? mask_mode::window
                  : causal         ? mask_mode::causal
                                   : mask_mode::full;
    if (packed) demand.features = demand.features | attention_feature::varlen;
    demand.sizes = {batch, q_len, kv_len, q_heads, kv_heads, 128, 128};
    return demand;
  }

  /// What `lower` makes of it.
  attention_kernel_args args() const {
    static constexpr std::int32_t offsets[2] = {};
    attention_kernel_args args;
    args.batch = batch;
    args.q_len = packed ? batch * q_len : q_len;
    args.kv_len = packed ? batch * kv_len : kv_len;
    args.q_heads = static_cast<int>(q_heads);
    args.kv_heads = static_cast<int>(kv_heads);
    args.head_dim = args.v_head_dim = 128;
    args.causal = causal;
    if (window_left >= 0) args.window_left = window_left;
    if (packed) args.cu_seqlens_q = args.cu_seqlens_k = offsets;
    return args;
  }
};

schedule_sm80::schedule schedule_of(const attention_config& config, const call& sizes,
                                    int multiprocessors = 132) {
  return schedule_sm80::schedule_of(config, schedule_sm80::sizes_of(sizes.args()), multiprocessors);
}

work_estimate estimate_of(const attention_config& config, const call& sizes,
                          int multiprocessors = 132) {
  return estimate_of(config, facts_of(sizes.demand()), multiprocessors);
}

std::vector<call> calls() {
  std::vector<call> all;
  for (const std::int64_t batch : {0, 1, 3, 25, 64}) {
    for (const std::int64_t q_len : {0, 1, 2, 77, 500, 4096}) {
      for (const std::int64_t kv_len : {0, 1, 255, 256, 1000, 8192, 100000}) {
        for (const auto& [q_heads, kv_heads] :
             {std::pair{0, 0}, std::pair{8, 8}, std::pair{32, 8}, std::pair{64, 1}}) {
          for (const int form : {0, 1, 2, 3}) {
            all.push_back({.batch = batch,
                           .q_len = q_len,
                           .kv_len = kv_len,
                           .q_heads = q_heads,
                           .kv_heads = kv_heads,
                           .window_left = form == 2 ? 511 : -1,
                           .causal = form == 1 || form == 2,
                           .packed = form == 3});
          }
        }
      }
    }
  }
  return all;
}

TEST(GpuSchedule, EstimateAndWordsHaveTheNumbersOfTheLaunch) {
  for (const attention_config& config : {prefill, decode}) {
    for (const call& sizes : calls()) {
      SCOPED_TRACE(::testing::Message()
                   << sizes.batch << ' ' << sizes.q_len << ' ' << sizes.kv_len << ' '
                   << sizes.q_heads << '/' << sizes.kv_heads << " window " << sizes.window_left
                   << " causal " << sizes.causal << " packed " << sizes.packed);
      const auto cut = schedule_of(config, sizes);
      const work_estimate work = estimate_of(config, sizes);
      ASSERT_EQ(work.splits, cut.splits);
      ASSERT_EQ(work.items, cut.busy_tiles);
      ASSERT_EQ(work.launches, cut.launches);
      ASSERT_LE(cut.busy_tiles, cut.work_tiles);
      ASSERT_EQ(schedule_sm80::workspace_of(cut, 128),
                cut.splits == 1 ? 0u : static_cast<std::size_t>(cut.rows * cut.splits * 130 * 4));
      const std::string words = attention_family::reason_of(config, facts_of(sizes.demand()), 132);
      const std::string parts = "keys in " + std::to_string(cut.splits) + " parts";
      ASSERT_EQ(words.find(parts) != std::string::npos, cut.splits > 1) << words;
      ASSERT_NE(words.find(" " + std::to_string(cut.busy_tiles) + " block"), std::string::npos)
          << words;
      ASSERT_GT(predicted_seconds(work, config.target, support::h200(), 132), 0.0);
    }
  }
}

TEST(GpuSchedule, HalfAWaveOfWorkTilesIsCutUntilTheLastWaveIsFull) {
  // 200 work tiles for 396 places: one split leaves half of them idle, two take a wave and a bit.
  const call sizes{.batch = 25, .kv_len = 8192, .q_heads = 8, .kv_heads = 8};
  EXPECT_EQ(schedule_of(decode, sizes).work_tiles, 200);
  EXPECT_EQ(schedule_of(decode, sizes).splits, 15);
  EXPECT_EQ(estimate_of(decode, sizes).splits, 15);
}

TEST(GpuSchedule, BatchesThatTakeLongToReadAreListed) {
  const auto is_listed = [](const schedule_sm80::call_sizes& sizes) {
    return schedule_sm80::schedule_of(decode, sizes, 132).list.used;
  };
  EXPECT_TRUE(is_listed(batch_over_pages(128, 8192)));
  EXPECT_FALSE(is_listed(batch_over_pages(128, 64)));
  EXPECT_FALSE(is_listed(batch_over_pages(1, 1 << 20))) << "parts of equal size are known";
  schedule_sm80::call_sizes sizes = batch_over_pages(4, 512);
  sizes.prefixes = 1;
  EXPECT_TRUE(is_listed(sizes));
  sizes.prefixes = 0;
  sizes.batch_invariant = true;
  EXPECT_TRUE(is_listed(sizes));
  sizes.bytes_of_key = 0;
  EXPECT_FALSE(is_listed(sizes)) << "keys in one piece";
  EXPECT_TRUE(is_listed(batch_over_pages(schedule_sm80::most_listed_tiles / 4, 8192)));
  EXPECT_FALSE(is_listed(batch_over_pages(schedule_sm80::most_listed_tiles, 8192)))
      << "sums over a thousand sequences of that many tiles of rows would overflow";
}

TEST(GpuSchedule, RowsOfWgmmaTakeListsOfWholeTokens) {
  constexpr attention_config row{.target = backend::cuda_sm90,
                                 .type = dtype::bf16,
                                 .head_dim = 128,
                                 .keys = key_storage::paged,
                                 .block_q = 128,
                                 .block_kv = 128};
  const auto listed = [&](const schedule_sm80::call_sizes& sizes) {
    return schedule_sm90::listed_of(row, sizes, 132).list;
  };
  schedule_sm80::call_sizes sizes = batch_over_pages(128, 8192);
  EXPECT_TRUE(listed(sizes).used);
  EXPECT_FALSE(listed(sizes).apart);
  sizes.q_heads = 24;
  EXPECT_FALSE(listed(sizes).used) << "three heads do not fill 128 rows with whole tokens";
  sizes.q_heads = 64;
  sizes.batch_invariant = true;
  EXPECT_FALSE(listed(sizes).used) << "the bits of a row follow from its own sequence";
  sizes.batch_invariant = false;
  sizes.packed = false;
  sizes.prefixes = 1;
  EXPECT_TRUE(listed(sizes).apart);
  EXPECT_EQ(listed(sizes).place_rows, 16) << "what its kernel beside leaves";
  sizes.q_len = 2;
  EXPECT_FALSE(listed(sizes).used) << "entries of several tokens are not rows of one group";
  sizes.prefixes = 0;
  sizes.q_tokens = 2 * sizes.batch;
  EXPECT_TRUE(listed(sizes).used) << "several tokens in entries";
  EXPECT_FALSE(listed(sizes).apart);
}

TEST(GpuSchedule, ListsHaveRoomForTheirItems) {
  for (const std::int64_t sequences : {2, 64, 1000}) {
    for (const std::int64_t keys : {64, 8192, 131072}) {
      for (const std::int64_t prefixes : {0, 1, 7}) {
        schedule_sm80::call_sizes sizes = batch_over_pages(sequences, keys);
        sizes.prefixes = prefixes;
        const auto cut = schedule_sm80::schedule_of(decode, sizes, 132);
        if (!cut.list.used) continue;
        // A tile of rows for each sequence and group at least, an item for each of these, and a
        // place for what the items of sequences with a prefix leave.
        EXPECT_GE(cut.list.tiles, sequences + prefixes);
        EXPECT_GE(cut.list.items, cut.list.tiles);
        EXPECT_GE(cut.list.places, prefixes > 0 ? sequences : 0);
        EXPECT_EQ(schedule_sm80::workspace_of(cut, 128),
                  schedule_sm80::list_bytes(cut.list) +
                      static_cast<std::size_t>(cut.list.places) * 8 * 16 * 130 * 4);
        EXPECT_EQ(cut.launches, 3);
      }
    }
  }
}

TEST(GpuSchedule, NothingToDoIsCutIntoNothing) {
  for (const call& none : {call{.batch = 0}, call{.q_len = 0}, call{.q_heads = 0, .kv_heads = 0}}) {
    const auto cut = schedule_of(decode, none);
    EXPECT_EQ(cut.work_tiles, 0);
    EXPECT_EQ(cut.splits, 1);
  }
  EXPECT_EQ(schedule_of(decode, {.kv_len = 0}).splits, 1);
  EXPECT_EQ(schedule_of(decode, {.kv_len = 0}).work_tiles, 8)
      << "rows that see nothing are written";
}

TEST(GpuSchedule, SizesThatNoDeviceHoldsAreCutToo) {
  constexpr std::int64_t huge = INT64_MAX;
  for (const std::int64_t batch : {std::int64_t{0}, std::int64_t{1}, huge}) {
    for (const std::int64_t rows : {std::int64_t{1}, huge}) {
      for (const std::int64_t heads : {std::int64_t{1}, huge}) {
        for (const bool packed : {false, true}) {
          attention_demand demand = call{.packed = packed}.demand();
          demand.sizes = {batch, rows, huge, heads, heads, 128, 128};
          const auto cut = schedule_sm80::schedule_of(decode, schedule_sm80::sizes_of(demand), 132);
          EXPECT_GE(cut.splits, 1);
          EXPECT_LE(cut.splits, schedule_sm80::most_splits);
          EXPECT_GE(cut.busy_tiles, 0);
          EXPECT_LE(cut.busy_tiles, cut.work_tiles);
          EXPECT_GE(cut.section, 1);
        }
      }
    }
  }
}

TEST(GpuSchedule, IsConstexpr) {
  constexpr schedule_sm80::call_sizes sizes{.batch = 1,
                                            .q_tokens = 1,
                                            .q_len = 1,
                                            .kv_len = 8192,
                                            .q_heads = 32,
                                            .kv_heads = 8,
                                            .head_dim = 128,
                                            .v_head_dim = 128};
  static_assert(schedule_sm80::schedule_of(decode, sizes, 132).splits > 1);
}

constexpr attention_config hopper{
    .target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 128};

schedule_sm90::schedule hopper_schedule_of(const call& sizes) {
  return schedule_sm90::schedule_of(hopper, schedule_sm90::sizes_of(sizes.args()));
}

TEST(GpuSchedule, HopperTilesHoldEveryRow) {
  for (const call& sizes : calls()) {
    const auto cut = hopper_schedule_of(sizes);
    ASSERT_GE(cut.heads_of_tile, 1);
    ASSERT_EQ(sizes.q_heads % cut.heads_of_tile, 0) << "tiles do not cross key heads";
    ASSERT_GT(cut.tokens_of_tile, 0);
    ASSERT_LE(cut.heads_of_tile * cut.tokens_of_tile, resolved(hopper).block_q);
    ASSERT_GE(cut.section, 1);
    const std::int64_t heads = sizes.q_heads / cut.heads_of_tile;
    if (sizes.packed) {
      // Sequences may have any lengths: each ends with a tile that is not full.
      const std::int64_t blocks = sizes.batch * sizes.q_len / cut.tokens_of_tile + sizes.batch;
      EXPECT_GE(cut.work_tiles, blocks * heads);
    } else {
      EXPECT_GE(std::int64_t{cut.row_blocks} * cut.tokens_of_tile, sizes.q_len);
      EXPECT_EQ(cut.work_tiles, sizes.batch * heads * cut.row_blocks);
      EXPECT_LE(cut.section, std::max<std::int64_t>(1, sizes.batch * heads));
    }
  }
}

TEST(GpuSchedule, HopperTilesShareHeadsOfShortQueries) {
  const auto chunk = hopper_schedule_of({.q_len = 256, .kv_len = 8192, .q_heads = 64});
  EXPECT_EQ(chunk.heads_of_tile, 8);
  EXPECT_EQ(chunk.tokens_of_tile, 24);
  EXPECT_EQ(chunk.work_tiles, 8 * 11);
  const auto own_keys = hopper_schedule_of({.q_len = 256, .kv_len = 8192});
  EXPECT_EQ(own_keys.heads_of_tile, 1);
  EXPECT_EQ(own_keys.work_tiles, 8 * 2);
}

TEST(GpuSchedule, HopperTakesSomeHeadsOfShortSequencesAtATime) {
  const auto section_of = [](std::int64_t length, bool causal, std::int64_t kv_heads) {
    schedule_sm90::call_sizes sizes{.batch = 32,
                                    .q_tokens = 32 * length,
                                    .q_len = length,
                                    .kv_len = length,
                                    .q_heads = 16,
                                    .kv_heads = kv_heads,
                                    .head_dim = 128,
                                    .v_head_dim = 128};
    if (causal) sizes.keys_right = 0;
    return schedule_sm90::schedule_of(hopper, sizes).section;
  };
  EXPECT_EQ(section_of(512, true, 16), 32) << "of 256 KB of keys and values";
  EXPECT_EQ(section_of(512, true, 8), 64);
  EXPECT_EQ(section_of(1024, true, 16), 64) << "of 512 KB, by the L2 cache";
  EXPECT_EQ(section_of(512, false, 16), 1);
}

TEST(GpuSchedule, HopperLooksForRunsOfSegmentsInLargeCalls) {
  schedule_sm90::call_sizes sizes{.batch = 2,
                                  .q_tokens = 8192,
                                  .q_len = 4096,
                                  .kv_len = 4096,
                                  .q_heads = 8,
                                  .kv_heads = 8,
                                  .head_dim = 64,
                                  .v_head_dim = 64};
  EXPECT_TRUE(schedule_sm90::gains_by_runs(sizes));
  sizes.batch_invariant = true;
  EXPECT_FALSE(schedule_sm90::gains_by_runs(sizes));
  sizes.batch_invariant = false;
  sizes.q_tokens = 1024;
  EXPECT_FALSE(schedule_sm90::gains_by_runs(sizes));
  sizes.q_tokens = 1 << 20;  // many short entries
  sizes.q_len = sizes.kv_len = 128;
  EXPECT_FALSE(schedule_sm90::gains_by_runs(sizes));
}

TEST(GpuSchedule, HopperClassifiesTilesOfEveryBlockOfRows) {
  for (const call& sizes : calls()) {
    const auto cut = hopper_schedule_of(sizes);
    for (const bool by_head : {false, true}) {
      const auto classes =
          schedule_sm90::classes_of(hopper, schedule_sm90::sizes_of(sizes.args()), cut, by_head);
      const std::int64_t head_blocks = sizes.q_heads / cut.heads_of_tile;
      if (classes.words() == 0) continue;
      EXPECT_EQ(std::int64_t{classes.blocks} * head_blocks, cut.work_tiles);
      EXPECT_EQ(classes.heads, by_head ? head_blocks : 1);
      EXPECT_LE(classes.words(), schedule_sm90::room_for_classes(
                                     hopper, schedule_sm90::sizes_of(sizes.args()), cut));
      EXPECT_EQ(schedule_sm90::workspace_of(classes.words()),
                schedule_sm90::counter_bytes +
                    static_cast<std::size_t>(classes.words()) * schedule_sm90::class_word_bytes);
    }
  }
  EXPECT_EQ(schedule_sm90::workspace_of(0), schedule_sm90::counter_bytes);
}

schedule_sm90::split_schedule hopper_splits_of(const call& sizes, bool top_left = false) {
  return schedule_sm90::splits_of(hopper, schedule_sm90::sizes_of(sizes.args()),
                                  hopper_schedule_of(sizes), top_left, 132);
}

TEST(GpuSchedule, HopperSharesTheKeysOfTheLastTiles) {
  for (const call& sizes : calls()) {
    const auto cut = hopper_schedule_of(sizes);
    const auto split = hopper_splits_of(sizes);
    EXPECT_LE(split.tiles, cut.work_tiles);
    EXPECT_LT(split.tiles, 132) << "less than a wave";
    EXPECT_TRUE(!sizes.packed || split.tiles == 0) << "bits do not depend on other sequences";
    EXPECT_EQ(split.tiles == 0, split.parts == 1);
    EXPECT_LT(split.units_of_part * (split.parts - 1), split.units) << "the last part has keys";
    EXPECT_LE(split.units, split.units_of_part * split.parts) << "but not more than others";
    EXPECT_EQ(
        schedule_sm90::part_bytes(hopper, split),
        static_cast<std::size_t>(split.tiles * split.parts * (split.tiles > 0)) * 192 * 136 * 4);
    const bool all = split.tiles == cut.work_tiles;
    EXPECT_EQ(estimate_of(hopper, sizes).splits, all ? split.parts : 1);
    const attention_facts alone = facts_of(without_batch(sizes.demand()));
    EXPECT_EQ(estimate_of(hopper, alone, 132).splits, 1) << "bits do not depend on the batch";
  }
  // 32 heads of 43 tiles: 1320 fill ten waves, and 56 are left.
  const auto last_wave =
      hopper_splits_of({.batch = 2, .q_len = 8192, .kv_len = 8192, .q_heads = 16, .kv_heads = 16});
  EXPECT_EQ(last_wave.tiles, 56);
  EXPECT_EQ(last_wave.parts, 3) << "two have multiprocessors, the third is of the twenty left";
  EXPECT_NEAR(last_wave.units_of_part, 28, 1) << "three of the third end with one of these";
  // 16 heads of 64 tiles: 924 fill seven waves, and 32 multiprocessors have four parts each.
  const attention_config wide{.target = backend::cuda_sm90, .type = dtype::bf16, .head_dim = 256};
  auto sizes = schedule_sm90::sizes_of(call{.batch = 2, .q_len = 8192, .kv_len = 8192}.args());
  sizes.head_dim = sizes.v_head_dim = 256;
  const auto unlike =
      schedule_sm90::splits_of(wide, sizes, schedule_sm90::schedule_of(wide, sizes), false, 132);
  EXPECT_EQ(unlike.parts, 2);
  EXPECT_NEAR(unlike.units_of_part, 52, 1);
  EXPECT_EQ(hopper_splits_of({.batch = 2,
                              .q_len = 8192,
                              .kv_len = 8192,
                              .q_heads = 16,
                              .kv_heads = 16,
                              .causal = true})
                .tiles,
            0)
      << "the last tiles are the shortest";
  const call few{.q_len = 64, .kv_len = 8192};
  EXPECT_EQ(hopper_splits_of(few).tiles, 8);
  EXPECT_GE(hopper_splits_of(few).parts, 4);
  call first_rows = few;
  first_rows.causal = true;
  EXPECT_EQ(hopper_splits_of(first_rows, true).tiles, 0) << "rows see 64 keys at most";
}

}  // namespace
}  // namespace tessera::testing
