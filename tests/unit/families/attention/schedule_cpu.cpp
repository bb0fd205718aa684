// The CPU schedule: work is handed out completely, nothing divides by a size that is zero, and the
// estimate, the workspace and the kernels' items come from it.
#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/cost.hpp>
#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/kernels/attention/cpu/launch.hpp>

namespace {

using namespace tessera;
using namespace tessera::schedule_cpu;

struct prefill_kernel {
  static constexpr attention_config config{};
};
struct decode_kernel {
  static constexpr attention_config config{.phase = attention_phase::decode};
};

attention_kernel_args args_of(const attention_sizes& sizes) {
  attention_kernel_args args;
  args.batch = sizes.batch;
  args.q_len = sizes.q_len;
  args.kv_len = sizes.kv_len;
  args.q_heads = static_cast<int>(sizes.q_heads);
  args.kv_heads = static_cast<int>(sizes.kv_heads);
  args.head_dim = sizes.head_dim;
  args.v_head_dim = sizes.v_head_dim;
  return args;
}

template <class Check>
void for_each_size(const Check& check) {
  for (const std::int64_t batch : {0, 1, 3}) {
    for (const std::int64_t q_len : {0, 1, 5, 57, 2048}) {
      for (const std::int64_t kv_len : {0, 1, 511, 513, 8192, 100000}) {
        for (const std::int64_t kv_heads : {0, 1, 8, 33}) {
          for (const std::int64_t group : {0, 1, 7}) {
            for (const int head_dim : {0, 1, 128, 256}) {
              check(attention_sizes{batch, q_len, kv_len, kv_heads * group, kv_heads, head_dim,
                                    head_dim});
            }
          }
        }
      }
    }
  }
}

constexpr int thread_counts[] = {0, 1, 2, 7, 64, 1 << 30};

template <class Kernel>
void expect_workspace(const attention_kernel_args& args) {
  for (const int threads : {0, 1, 2, 7}) {
    EXPECT_GT(kernels::attention::cpu::workspace_bytes<Kernel>(args, threads), 0u);
  }
}

TEST(schedule_cpu, every_size_may_be_zero) {
  for_each_size([](const attention_sizes& sizes) {
    const attention_kernel_args args = args_of(sizes);
    expect_workspace<prefill_kernel>(args);
    expect_workspace<decode_kernel>(args);
    const std::int32_t starts[] = {0, 0, 0, 0};
    attention_kernel_args packed = args;
    packed.cu_seqlens_q = packed.cu_seqlens_k = starts;
    expect_workspace<prefill_kernel>(packed);
    expect_workspace<decode_kernel>(packed);
  });
}

TEST(schedule_cpu, the_estimate_counts_the_items_that_the_kernel_hands_out) {
  for (const backend target : {backend::cpu_generic, backend::cpu_avx2, backend::cpu_avx512}) {
    for (const auto phase : {attention_phase::prefill, attention_phase::decode}) {
      const attention_config config = resolved({.target = target, .phase = phase});
      for_each_size([&](const attention_sizes& sizes) {
        for (const bool causal : {false, true}) {
          attention_demand demand;
          demand.sizes = sizes;
          demand.causal = causal;
          attention_kernel_args args = args_of(sizes);
          args.causal = causal;
          const auto facts = tessera::facts_of(demand);
          for (const int threads : thread_counts) {
            // What run_prefill and run_decode take their items from.
            const std::int64_t handed_out = items_of(config, sizes_of(args), threads);
            EXPECT_GE(handed_out, 0);
            EXPECT_EQ(estimate_of(config, facts, threads).items, handed_out > 1 ? handed_out : 1);
          }
        }
      });
    }
  }
}

TEST(schedule_cpu, prefill_items_cover_every_row_in_whole_register_tiles) {
  const attention_config config = resolved({.target = backend::cpu_avx512});
  for_each_size([&](const attention_sizes& sizes) {
    const auto sized = sizes_of(sizes, false);
    for (const int threads : thread_counts) {
      const auto cut = prefill_schedule::of(config, sized, threads);
      EXPECT_GT(cut.item_rows, 0);
      EXPECT_LE(cut.item_rows, config.block_q);
      EXPECT_EQ(cut.item_rows % register_rows(config.target), 0);
      const std::int64_t rows = sizes.q_len * sized.group;
      const std::int64_t blocks = cut.blocks(sizes.q_len);
      EXPECT_GE(cut.first_row(blocks), rows);
      for (std::int64_t block = 0; block < blocks; ++block) {
        EXPECT_LT(cut.first_row(block), rows);
        EXPECT_EQ(cut.first_row(block) % register_rows(config.target), 0);
        EXPECT_GT(cut.first_row(block + 1), cut.first_row(block));
        EXPECT_LE(cut.first_row(block + 1) - cut.first_row(block), cut.item_rows);
      }
    }
  });
}

TEST(schedule_cpu, prefill_items_are_whole_rounds_where_rows_suffice) {
  const attention_config config = resolved({.target = backend::cpu_avx512});
  const auto sized = sizes_of(attention_sizes{1, 2048, 2048, 8, 8, 128, 128}, false);
  for (const int threads : {2, 3, 4, 6, 16}) {
    EXPECT_EQ(prefill_schedule::of(config, sized, threads).items(2048) % threads, 0) << threads;
  }
}

// Threads are seldom equally fast: what is handed out last is half as long, in whole rounds too.
TEST(schedule_cpu, the_last_items_of_heads_that_share_keys_are_short) {
  const attention_config config = resolved({.target = backend::cpu_amx_bf16,
                                            .type = dtype::bf16,
                                            .head_dim = 128,
                                            .block_q = 1024,
                                            .block_kv = 512});
  const auto cut_of = [&](std::int64_t heads, std::int64_t rows, int threads, bool causal = false) {
    auto sizes = sizes_of(attention_sizes{1, rows, rows, heads, heads, 128, 128}, false);
    sizes.causal = causal;
    return prefill_schedule::of(config, sizes, threads);
  };
  const auto rows_of = [](const prefill_schedule& cut, std::int64_t block) {
    return cut.first_row(block + 1) - cut.first_row(block);
  };
  for (const auto& [heads, rows] : {std::pair{4, 2048}, {32, 2048}, {1, 16384}}) {
    const auto cut = cut_of(heads, rows, 16);
    const std::int64_t blocks = cut.blocks(rows);
    EXPECT_EQ(cut.items(rows) % 16, 0) << heads;
    EXPECT_EQ(rows_of(cut, 0) * 2, rows_of(cut, blocks - 1)) << heads;
    EXPECT_EQ(rows_of(cut, blocks - 1), cut.item_rows) << heads;
    EXPECT_EQ(cut.first_row(cut.short_blocks) * 4, rows) << heads;
  }
  const auto alone = cut_of(4, 4096, 1);
  EXPECT_TRUE(alone.shared.any());
  EXPECT_EQ(rows_of(alone, 0), alone.item_rows) << "one thread waits for nobody";
  const auto causal = cut_of(4, 2048, 16, true);
  EXPECT_TRUE(causal.shared.any());
  EXPECT_EQ(rows_of(causal, 0), causal.item_rows) << "the first rows see few keys";
}

/// What the items of a launch say about the heads in flight.
void expect_partition(const prefill_schedule& cut, std::int64_t blocks) {
  const std::int64_t items = blocks * cut.heads;
  std::vector<std::int64_t> left(static_cast<std::size_t>(cut.heads), blocks);
  std::vector<bool> handed_out(static_cast<std::size_t>(items), false);
  std::int64_t busy_begin = 0;  // all items of the heads below are handed out
  for (std::int64_t index = 0; index < items; ++index) {
    const auto [head, block] = cut.item_at(index, blocks);
    ASSERT_TRUE(head >= 0 && head < cut.heads && block >= 0 && block < blocks) << index;
    const auto item = static_cast<std::size_t>(head * blocks + block);
    ASSERT_FALSE(handed_out[item]) << "head " << head << ", block " << block << " twice";
    handed_out[item] = true;
    // Later blocks, which see more keys, come first.
    ASSERT_EQ(block, --left[static_cast<std::size_t>(head)]);
    // An item waits for the head that had its slot: all of that head's items came before it, so
    // that a thread which runs them needs nothing of this one.
    while (busy_begin < cut.heads && left[static_cast<std::size_t>(busy_begin)] == 0) ++busy_begin;
    if (cut.shared.any()) {
      ASSERT_LT(head - cut.shared.slots, busy_begin) << index;
    }
  }
}

TEST(schedule_cpu, prefill_is_handed_out_whole_to_1_to_256_threads) {
  const attention_sizes shapes[] = {
      {1, 2048, 2048, 4, 4, 128, 128},    {1, 2048, 2048, 32, 32, 128, 128},
      {1, 16384, 16384, 1, 1, 128, 128},  {1, 512, 32768, 32, 8, 128, 128},
      {2, 700, 300000, 12, 2, 64, 96},    {3, 57, 8192, 33, 33, 256, 256},
      {1, 4096, 40000, 24, 24, 256, 256}, {1, 1, 1, 1, 1, 1, 1}};
  int shared = 0;
  int in_turn = 0;
  for (const backend target : {backend::cpu_generic, backend::cpu_avx512, backend::cpu_amx_bf16}) {
    const attention_config config =
        resolved({.target = target, .type = has_bf16_products(target) ? dtype::bf16 : dtype::f32});
    for (const attention_sizes& sizes : shapes) {
      for (int threads = 1; threads <= 256; ++threads) {
        const auto cut = prefill_schedule::of(config, sizes_of(sizes, false), threads);
        const std::int64_t rows = sizes.q_len * cut.group;
        const std::int64_t blocks = cut.blocks(sizes.q_len);
        ASSERT_GE(cut.first_row(blocks), rows);
        ASSERT_LT(cut.first_row(blocks - 1), rows);
        ASSERT_LE(cut.shared.slots * cut.shared.tiles * cut.shared.tile_bytes,
                  shared_keys::most_bytes);
        ASSERT_LE(cut.shared.slots, cut.heads);
        ASSERT_TRUE(blocks > 1 || !cut.shared.any());
        shared += cut.shared.any();
        in_turn += cut.shared.any() && cut.shared.slots < cut.heads;
        expect_partition(cut, blocks);
      }
    }
  }
  EXPECT_GT(shared, 0) << "no launch shares its keys";
  EXPECT_GT(in_turn, 0) << "heads take turns in no launch";
}

// One thread too packs the keys of a long head once, and keeps room for two heads of many. Where a
// head does not fit, items make up for packing it with as many rows as they may have.
TEST(schedule_cpu, one_thread_shares_the_keys_of_a_head_between_its_items) {
  const attention_config config = resolved({.target = backend::cpu_avx512});
  const auto cut_of = [&](std::int64_t rows, std::int64_t keys) {
    return prefill_schedule::of(config,
                                sizes_of(attention_sizes{1, rows, keys, 8, 8, 128, 128}, false), 1);
  };
  const auto many_rows = cut_of(2048, 2048);
  EXPECT_EQ(many_rows.shared.slots, 2);
  EXPECT_LE(many_rows.item_rows * 2, config.block_q);
  EXPECT_FALSE(cut_of(config.block_q, 2048).shared.any());
  EXPECT_EQ(cut_of(config.block_q, 2048).item_rows, config.block_q);
  const auto many_keys = cut_of(4 * config.block_q, 1000000);
  EXPECT_FALSE(many_keys.shared.any());
  EXPECT_EQ(many_keys.item_rows, config.block_q);
}

// 16 query positions of four heads each are five register tiles of AVX-512.
TEST(schedule_cpu, short_heads_are_cut_only_where_threads_would_idle) {
  const attention_config config =
      resolved({.target = backend::cpu_avx512, .head_dim = 128, .block_q = 896, .block_kv = 256});
  const auto items = [&](std::int64_t kv_heads, std::int64_t q_len, int threads) {
    const attention_sizes sizes{1, q_len, 8192, 4 * kv_heads, kv_heads, 128, 128};
    return prefill_schedule::of(config, sizes_of(sizes, false), threads).items(q_len);
  };
  EXPECT_EQ(items(2, 16, 2), 2);
  EXPECT_EQ(items(8, 16, 2), 8);
  EXPECT_EQ(items(8, 16, 8), 8);
  EXPECT_EQ(items(2, 56, 2), 2);
  EXPECT_GT(items(2, 16, 4), 2) << "two of four threads would have nothing";
  EXPECT_GT(items(3, 16, 2), 3) << "one thread would have two heads, the other one";
  EXPECT_GT(items(2, 128, 2), 2) << "long enough for several items";
}

TEST(schedule_cpu, lengths_that_differ_share_no_keys) {
  const attention_config config = resolved({.target = backend::cpu_avx512});
  const attention_sizes sizes{4, 512, 4096, 8, 8, 128, 128};
  EXPECT_TRUE(prefill_schedule::of(config, sizes_of(sizes, false), 64).shared.any());
  EXPECT_FALSE(prefill_schedule::of(config, sizes_of(sizes, true), 64).shared.any());
}

TEST(schedule_cpu, decode_items_cover_every_head_and_stay_in_the_cache) {
  const attention_config vectors =
      resolved({.target = backend::cpu_avx512, .phase = attention_phase::decode});
  const attention_config tiles = resolved({.target = backend::cpu_amx_bf16,
                                           .type = dtype::bf16,
                                           .head_dim = 128,
                                           .phase = attention_phase::decode});
  for (const attention_config& config : {vectors, tiles}) {
    for_each_size([&](const attention_sizes& sizes) {
      for (const int threads : thread_counts) {
        const auto cut = decode_schedule::of(config, sizes_of(sizes, false), threads);
        EXPECT_GE(cut.heads, 1);
        EXPECT_LE(cut.heads, decode_schedule::most_heads);
        EXPECT_GE(std::int64_t{cut.heads} * cut.head_groups, sizes.kv_heads);
        EXPECT_TRUE(cut.heads == 1 || cut.item_bytes() <= decode_schedule::most_item_bytes);
        EXPECT_EQ(cut.splits, key_splits::room_for(sizes.kv_len, has_tile_products(config.target)));
        EXPECT_LE(cut.rows, config.block_q);
        EXPECT_TRUE(cut.rows <= 16 || cut.rows % 16 == 0) << "whole tiles of rows";
      }
    });
  }
}

TEST(key_splits, cover_the_keys_and_fit_the_room) {
  for (const bool tiles : {false, true}) {
    for (std::int64_t keys = 0; keys < 1000000; keys = keys * 9 / 8 + 1) {
      const key_splits cut = key_splits::of(keys, tiles);
      EXPECT_LE(cut.count, key_splits::room_for(keys, tiles)) << keys;
      EXPECT_GE(cut.count * cut.keys, keys) << keys;
      EXPECT_TRUE(cut.count == 1 || (cut.count - 1) * cut.keys < keys) << keys;
      EXPECT_EQ(cut.keys % 64, 0) << keys;
      EXPECT_LE(key_splits::room_for(keys, tiles), key_splits::room_for(keys + 1, tiles)) << keys;
    }
  }
}

}  // namespace
