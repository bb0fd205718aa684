// Threads beside several memory nodes, on a machine that need not have them: nodes are pretended.
// Which thread has which item, and whose copy of packed keys it reads, changes no bit.
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch.hpp>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_data.hpp"

#if defined(_OPENMP)
#include <omp.h>

namespace {

using namespace tessera::support;
namespace nodes_of_cpu = tessera::kernels::attention::cpu;
using tessera::prim::memory_nodes;

struct prompt_of_floats {
  static constexpr tessera::attention_config config{.target = tessera::native_cpu_backend,
                                                    .head_dim = 64};
};
using prompt_shape = nodes_of_cpu::traits<prompt_of_floats>;

/// Threads take turns; the system gives its nodes numbers with gaps.
template <int Nodes>
memory_nodes pretended_nodes() {
  memory_nodes nodes;
  nodes.count = Nodes;
  for (int i = 0; i < Nodes; ++i) nodes.numbers[i] = 3 * i + 1;
  nodes.number_here = []() noexcept { return omp_get_thread_num() % Nodes * 3 + 1; };
  return nodes;
}

const std::array<memory_nodes, 3> machines{pretended_nodes<1>(), pretended_nodes<2>(),
                                           pretended_nodes<4>()};

/// Heads of two blocks and more, and an odd number of them.
flash_case prompt_of(std::int64_t heads, std::int64_t rows, std::int64_t keys) {
  flash_case example;
  example.batch = 1;
  example.q_heads = example.kv_heads = heads;
  example.q_len = rows;
  example.kv_len = keys;
  example.head_dim = example.v_head_dim = 64;
  example.options.causal = true;
  example.poison = false;
  return example;
}

struct launched {
  std::vector<std::vector<std::byte>> bits;
  bool shares = false;  ///< its items share keys
  bool turns = false;   ///< and heads their places
};

launched launch_beside(const memory_nodes& nodes, flash_data& data, int threads) {
  data.reset_outputs();
  tessera::attention_kernel_args args;
  EXPECT_TRUE(tessera::lower(data.shape().op, data.args(), data.options(), args));
  const auto space = nodes_of_cpu::prefill_workspace<prompt_of_floats>::of(args, threads, nodes);
  std::vector<std::byte> memory(space.bytes() + 64, std::byte{0xff});
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  const tessera::launch_context where{threads, memory.data() + (64 - at % 64), space.bytes()};
  nodes_of_cpu::run_prefill<prompt_of_floats, tessera::kernels::attention::strided_source<float>>(
      args, tessera::flash_hooks<>{}, where, nodes);
  launched done{
      {}, space.schedule.shared.any(), space.schedule.shared.slots < space.schedule.heads};
  for (const guarded_tensor* output : data.outputs()) done.bits.push_back(output->bytes());
  return done;
}

TEST(memory_nodes, copies_of_keys_change_no_bit) {
  int shared = 0, in_turn = 0;
  for (const flash_case& example :
       {prompt_of(3, 700, 900), prompt_of(1, 1500, 600), prompt_of(24, 1000, 300)}) {
    flash_data data(example);
    const launched alone = launch_beside(machines[0], data, 1);
    for (const memory_nodes& nodes : machines) {
      for (const int threads : {1, 2, 3, 4, 5, 16, 61, 256}) {
        const launched here = launch_beside(nodes, data, threads);
        shared += here.shares;
        in_turn += here.shares && here.turns;
        EXPECT_TRUE(here.bits == alone.bits) << threads << " threads, " << nodes.count << " nodes";
      }
    }
  }
  EXPECT_GT(shared, 0) << "no launch shares its keys";
  EXPECT_GT(in_turn, 0) << "heads take turns in no launch";
}

/// Items handed out to threads that come in random order, each beside the node of its number.
void expect_whole(const tessera::schedule_cpu::prefill_schedule& cut, std::int64_t blocks,
                  int threads, int nodes) {
  const auto counted = nodes_of_cpu::shared_tiles<prompt_of_floats>(nullptr, cut);
  // Panels are not written here: the words of progress stand behind them.
  std::vector<std::byte> memory(counted.bytes() + 64);
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  const nodes_of_cpu::shared_tiles<prompt_of_floats> tiles(memory.data() + (64 - at % 64), cut);
  tiles.clear();
  std::mt19937 random(static_cast<unsigned>(threads * 8 + nodes));
  std::vector<std::int64_t> left(static_cast<std::size_t>(cut.heads), blocks);
  std::vector<bool> begun(static_cast<std::size_t>(cut.heads * blocks), false);
  std::set<const std::byte*> panels;
  for (std::int64_t index = 0; index < cut.heads * blocks; ++index) {
    const int thread = static_cast<int>(random() % static_cast<unsigned>(threads));
    const std::int64_t copy = tiles.copy_of(thread % nodes);
    const auto [head, block] = tiles.next_item(index, blocks, copy);
    ASSERT_TRUE(head >= 0 && head < cut.heads && block >= 0 && block < blocks) << index;
    const auto item = static_cast<std::size_t>(head * blocks + block);
    ASSERT_FALSE(begun[item]) << "head " << head << ", block " << block << " twice";
    begun[item] = true;
    --left[static_cast<std::size_t>(head)];
    const std::int64_t before = head - cut.shared.slots;
    // Else the item waits for one that no thread has begun.
    ASSERT_TRUE(before < 0 || left[static_cast<std::size_t>(before)] == 0) << index;
    const auto own = tiles.of_head(head, blocks, copy);
    const std::byte* const begin = own.panels;
    ASSERT_TRUE(begin >= memory.data() &&
                begin + own.tile_bytes * cut.shared.tiles <= memory.data() + memory.size());
    panels.insert(begin);
    tiles.finish_item(head);
  }
  EXPECT_LE(panels.size(), static_cast<std::size_t>(cut.shared.slots * cut.shared.copies));
}

TEST(memory_nodes, items_are_handed_out_whole_to_1_to_256_threads) {
  int shared = 0, in_turn = 0;
  for (const tessera::attention_sizes& sizes :
       {tessera::attention_sizes{1, 1200, 300, 3, 3, 64, 64},
        tessera::attention_sizes{1, 3000, 200, 1, 1, 64, 64},
        tessera::attention_sizes{1, 1000, 260, 37, 37, 64, 64},
        tessera::attention_sizes{1, 1000, 140000, 5, 5, 64, 64}}) {  // no room for two heads
    const auto sized = tessera::schedule_cpu::sizes_of(sizes, false);
    for (int threads = 1; threads <= 256; ++threads) {
      const auto one =
          tessera::schedule_cpu::prefill_schedule::of(prompt_shape::config, sized, threads);
      for (const int nodes : {1, 2, 4}) {
        const auto cut = tessera::schedule_cpu::prefill_schedule::of(prompt_shape::config, sized,
                                                                     threads, nodes);
        ASSERT_EQ(cut.shared.any(), one.shared.any());
        ASSERT_EQ(cut.items(sizes.q_len), one.items(sizes.q_len));
        if (!cut.shared.any()) {
          ASSERT_EQ(cut.shared.copies, 1);
          continue;
        }
        ASSERT_EQ(cut.shared.copies, nodes < threads ? nodes : threads);
        ASSERT_LE(cut.shared.slots * cut.shared.tiles * cut.shared.tile_bytes,
                  tessera::schedule_cpu::shared_keys::most_bytes);
        ++shared;
        in_turn += cut.shared.slots < cut.heads;
        ASSERT_NO_FATAL_FAILURE(expect_whole(cut, cut.blocks(sizes.q_len), threads, nodes))
            << threads << " threads, " << nodes << " nodes";
      }
    }
  }
  EXPECT_GT(shared, 0) << "no launch shares its keys";
  EXPECT_GT(in_turn, 0) << "heads take turns in no launch";
}

// The workspace of a plan grows by the copies, and by nothing where there is one node.
TEST(memory_nodes, memory_grows_by_a_copy_for_each_node) {
  flash_data data(prompt_of(3, 700, 900));
  tessera::attention_kernel_args args;
  ASSERT_TRUE(tessera::lower(data.shape().op, data.args(), data.options(), args));
  const auto space_of = [&](const memory_nodes& nodes) {
    return nodes_of_cpu::prefill_workspace<prompt_of_floats>::of(args, 16, nodes);
  };
  const auto one = space_of(machines[0]);
  ASSERT_TRUE(one.schedule.shared.any());
  const auto& keys = one.schedule.shared;
  for (const memory_nodes& nodes : machines) {
    const auto more = static_cast<std::int64_t>(space_of(nodes).bytes() - one.bytes());
    EXPECT_GE(more, (nodes.count - 1) * keys.slots * keys.tiles * keys.tile_bytes);
    EXPECT_EQ(more == 0, nodes.count == 1);
  }
}

}  // namespace
#endif
