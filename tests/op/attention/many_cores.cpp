// What more cores than this machine has would meet: more threads than work, scratch memory per
// thread, and whose rows are whose. Threads outnumber the cores here, which changes their pace, not
// what they may do.
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention/schedule_cpu.hpp>
#include <tessera/launch.hpp>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_data.hpp"
#include "tests/support/flash_run.hpp"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace {

using namespace tessera::support;

flash_case grouped_prompt() {
  flash_case example;
  example.batch = 2;
  example.q_heads = 6;
  example.kv_heads = 2;
  example.q_len = 333;
  example.kv_len = 1500;
  example.head_dim = example.v_head_dim = 64;
  example.options.causal = true;
  example.poison = false;
  example.seed = 5;
  return example;
}

flash_case grouped_decode() {
  flash_case example = grouped_prompt();
  example.q_len = 1;
  example.kv_len = 5000;
  return example;
}

using all_bits = std::vector<std::vector<std::byte>>;

all_bits bits_with(const flash_case& example, flash_data& data, std::string_view row, int threads) {
  data.reset_outputs();
  const auto done = run(example.op, data.args(), data.options(), {.row = row, .threads = threads});
  EXPECT_TRUE(done) << row << ": " << done.message();
  all_bits bits;
  for (const guarded_tensor* output : data.outputs()) bits.push_back(output->bytes());
  return bits;
}

TEST(many_cores, threads_beyond_the_work_change_no_bit) {
  for (flash_case example : {grouped_prompt(), grouped_decode()}) {
    for (const auto type : {tessera::dtype::f32, tessera::dtype::bf16}) {
      example.type = type;
      flash_data data(example);
      for (const auto& row : rows_for(data.args(), data.options())) {
        const all_bits alone = bits_with(example, data, row.name, 1);
        for (const int threads : {3, 64}) {
          EXPECT_TRUE(bits_with(example, data, row.name, threads) == alone)
              << row.name << " with " << threads << " threads";
        }
      }
    }
  }
}

/// Few heads of many keys, so that threads share what they pack, and values that are not finite
/// where some rows see them and others do not.
flash_case shared_prompt() {
  flash_case example = grouped_prompt();
  example.batch = 1;
  example.q_len = 400;
  example.kv_len = 1100;
  example.poison = true;
  return example;
}

/// Whole tokens, so that the order of sums cannot show in a row that sees them.
void store_nonfinite_values(const tessera::tensor_view& v) {
  for (const std::int64_t token : {0, 255, 256, 700, 1080, 1099}) {
    const double value = token % 2 == 0 ? HUGE_VAL : std::numeric_limits<double>::quiet_NaN();
    for (std::int64_t d = 0; d < v.extent[3]; ++d) {
      store(v, token * v.stride[1] + v.stride[2] + d * v.stride[3], value);
    }
  }
}

// A panel that threads share keeps what is not finite, for the rows that see it; rows that do not
// must read their own copy. Every row of the table on this machine, with as many threads as share.
TEST(many_cores, shared_keys_change_no_bit_where_values_are_not_finite) {
  flash_case example = shared_prompt();
  for (const auto type : {tessera::dtype::f32, tessera::dtype::bf16}) {
    example.type = type;
    flash_data data(example);
    store_nonfinite_values(data.args().v);
    for (const auto& row : rows_for(data.args(), data.options())) {
      const all_bits alone = bits_with(example, data, row.name, 1);
      for (const int threads : {4, 16, 256}) {
        EXPECT_TRUE(bits_with(example, data, row.name, threads) == alone)
            << row.name << " with " << threads << " threads";
      }
    }
  }
}

// What threads add to the workspace is whole cache lines from a base that is one, a slice each and
// what they share: no line belongs to two threads.
TEST(many_cores, each_thread_has_cache_lines_of_its_own) {
  constexpr std::size_t line = 64;
  for (const flash_case& example : {grouped_prompt(), grouped_decode()}) {
    flash_data data(example);
    const auto problem = tessera::problem_of(data.args(), data.options(), example.op);
    for (const auto& row : rows_for(data.args(), data.options())) {
      const auto bytes = [&](int threads) {
        const auto made = tessera::plan(problem, {.row = row.name, .threads = threads});
        EXPECT_TRUE(made) << made.message();
        return made ? made->workspace_bytes() : 0;
      };
      const std::size_t one_thread = bytes(1);
      for (const int threads : {2, 3, 64}) {
        const std::size_t more = bytes(threads);
        EXPECT_GE(more, one_thread) << row.name;
        EXPECT_EQ((more - one_thread) % line, 0u) << row.name << ", " << threads << " threads";
        EXPECT_LE(more,
                  static_cast<std::size_t>(threads) * one_thread +
                      static_cast<std::size_t>(tessera::schedule_cpu::shared_keys::most_bytes))
            << row.name;
      }
    }
  }
}

#if defined(_OPENMP)

constexpr int row_heads = 6;
constexpr std::int64_t row_queries = 333;

/// Notes which thread works on a row of scores; -1: none yet.
struct owners {
  std::vector<std::atomic<int>> of_row;
  std::atomic<int> second_owners{0};
  owners() : of_row(2 * row_heads * row_queries) {
    for (auto& owner : of_row) owner.store(-1);
  }
};

struct note_owner {
  owners* all = nullptr;
  float operator()(float score, const tessera::position& at) const {
    const std::int64_t row = (at.batch * row_heads + at.head) * row_queries + at.query;
    const int me = omp_get_thread_num();
    int before = -1;
    auto& owner = all->of_row[static_cast<std::size_t>(row)];
    if (!owner.compare_exchange_strong(before, me) && before != me) {
      all->second_owners.fetch_add(1);
    }
    return score;
  }
};

struct prompt_row {
  static constexpr tessera::attention_config config{.target = tessera::native_cpu_backend,
                                                    .head_dim = 64};
};

TEST(many_cores, a_row_of_a_prompt_has_one_writer) {
  const flash_case example = grouped_prompt();
  ASSERT_EQ(example.q_heads, row_heads);
  ASSERT_EQ(example.q_len, row_queries);
  flash_data data(example);
  owners seen;
  const auto done =
      tessera::launch<prompt_row>(data.args(), data.options(), tessera::cpu{.threads = 5},
                                  tessera::with_logits(note_owner{&seen}));
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(seen.second_owners.load(), 0) << "calls of the functor by a row's second thread";
  int workers = 0;
  for (int thread = 0; thread < 5; ++thread) {
    for (const auto& owner : seen.of_row) {
      if (owner.load() == thread) {
        ++workers;
        break;
      }
    }
  }
  EXPECT_GT(workers, 1) << "one thread did all the work";
  for (const auto& owner : seen.of_row) EXPECT_NE(owner.load(), -1);
}

#endif

}  // namespace
