// Where scratch memory lies: a page is placed beside the thread that touches it first, so a slice
// of scratch must be touched by its own thread before any other. Pages of the workspace are out of
// reach at first, and the fault of each tells whose it is.
#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/launch.hpp>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_data.hpp"

#if defined(_OPENMP) && defined(__linux__)
#include <omp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using namespace tessera::support;
namespace cpu_kernels = tessera::kernels::attention::cpu;

constexpr std::size_t page = 4096;
constexpr int team = 5;

int this_thread() {
  return static_cast<int>(syscall(SYS_gettid));
}

/// Pages that nobody has touched, and who does.
class watched_pages {
 public:
  explicit watched_pages(std::size_t bytes)
      : bytes_((bytes + page - 1) / page * page), toucher_(bytes_ / page) {
    void* const mapped = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    begin_ = static_cast<std::byte*>(mapped);
    watched() = this;
    struct sigaction noting {};
    noting.sa_sigaction = note;
    noting.sa_flags = SA_SIGINFO;
    EXPECT_EQ(sigaction(SIGSEGV, &noting, &before_), 0);
  }
  ~watched_pages() {
    sigaction(SIGSEGV, &before_, nullptr);
    watched() = nullptr;
    munmap(begin_, bytes_);
  }
  watched_pages(const watched_pages&) = delete;
  watched_pages& operator=(const watched_pages&) = delete;

  std::byte* begin() const { return begin_; }
  /// Threads that were first on the whole pages of [from, to).
  std::set<int> touchers(std::size_t from, std::size_t to) const {
    std::set<int> found;
    for (std::size_t at = (from + page - 1) / page; at < to / page; ++at) {
      if (toucher_[at].load() != 0) found.insert(toucher_[at].load());
    }
    return found;
  }

 private:
  static watched_pages*& watched() {
    static watched_pages* one = nullptr;
    return one;
  }
  static void note(int, siginfo_t* fault, void*) {
    watched_pages* const all = watched();
    const auto at = static_cast<std::size_t>(static_cast<std::byte*>(fault->si_addr) - all->begin_);
    if (at >= all->bytes_) {  // a fault that is none of ours ends the program, as it should
      sigaction(SIGSEGV, &all->before_, nullptr);
      return;
    }
    int nobody = 0;
    all->toucher_[at / page].compare_exchange_strong(nobody, this_thread());
    mprotect(all->begin_ + at / page * page, page, PROT_READ | PROT_WRITE);
  }

  std::size_t bytes_;
  std::vector<std::atomic<int>> toucher_;  ///< 0: nobody
  std::byte* begin_ = nullptr;
  struct sigaction before_ {};
};

template <tessera::attention_phase Phase>
struct row {
  static constexpr tessera::attention_config config{
      .target = tessera::native_cpu_backend, .head_dim = 64, .phase = Phase};
};

/// The threads of a team, by their numbers.
std::array<int, team> threads_of_team() {
  std::array<int, team> ids{};
#pragma omp parallel num_threads(team)
  ids[static_cast<std::size_t>(omp_get_thread_num())] = this_thread();
  return ids;
}

/// `slice_of(args)`: bytes of a thread's slice, the first of which begin the workspace.
template <class Row, class SliceOf>
void expect_own_slices(std::int64_t q_len, const SliceOf& slice_of) {
  flash_case call;
  call.batch = 2;
  call.q_heads = 6;
  call.kv_heads = 2;
  call.q_len = q_len;
  call.kv_len = 3000;
  call.head_dim = call.v_head_dim = 64;
  call.poison = false;
  flash_data data(call);
  tessera::attention_kernel_args lowered;
  ASSERT_TRUE(tessera::lower(call.op, data.args(), data.options(), lowered));
  const std::size_t slice = slice_of(lowered);
  ASSERT_GT(slice, 2 * page) << "no page lies in a slice";
  const watched_pages pages(cpu_kernels::workspace_bytes<Row>(lowered, team));
  const std::array<int, team> ids = threads_of_team();
  const auto done = cpu_kernels::launch<Row>(
      lowered, {team, pages.begin(), cpu_kernels::workspace_bytes<Row>(lowered, team)});
  ASSERT_TRUE(done) << done.message();
  int used = 0;
  for (std::size_t thread = 0; thread < team; ++thread) {
    const std::set<int> found = pages.touchers(thread * slice, (thread + 1) * slice);
    if (found.empty()) continue;
    ++used;
    EXPECT_EQ(found, std::set<int>{ids[thread]}) << "slice " << thread;
  }
  EXPECT_GT(used, 0) << "no slice was used";
}

TEST(first_touch, slices_of_a_prompt_are_their_threads) {
  using prompt = row<tessera::attention_phase::prefill>;
  expect_own_slices<prompt>(400, [](const tessera::attention_kernel_args& args) {
    return cpu_kernels::prefill_workspace<prompt>::of(args, team).slice;
  });
}

TEST(first_touch, slices_of_decoding_are_their_threads) {
  using decode = row<tessera::attention_phase::decode>;
  expect_own_slices<decode>(1, [](const tessera::attention_kernel_args& args) {
    return cpu_kernels::decode_workspace<decode>::at(nullptr, args, team).slice;
  });
}

// Two nodes are pretended: the threads with even numbers run beside one of them, the others beside
// the other. A page of a copy of packed keys lies beside those who read it.
TEST(first_touch, copies_of_keys_are_their_nodes) {
  using prompt = row<tessera::attention_phase::prefill>;
  flash_case call;
  call.q_heads = call.kv_heads = 3;
  call.q_len = 700;
  call.kv_len = 3000;
  call.head_dim = call.v_head_dim = 64;
  call.poison = false;
  flash_data data(call);
  tessera::attention_kernel_args lowered;
  ASSERT_TRUE(tessera::lower(call.op, data.args(), data.options(), lowered));
  tessera::prim::memory_nodes nodes;
  nodes.count = 2;
  nodes.numbers[1] = 1;
  nodes.number_here = []() noexcept { return omp_get_thread_num() % 2; };
  const auto space = cpu_kernels::prefill_workspace<prompt>::of(lowered, team, nodes);
  ASSERT_EQ(space.schedule.shared.copies, 2);
  const watched_pages pages(space.bytes());
  const std::array<int, team> ids = threads_of_team();
  cpu_kernels::run_prefill<prompt, tessera::kernels::attention::strided_source<float>>(
      lowered, tessera::flash_hooks<>{}, {team, pages.begin(), space.bytes()}, nodes);
  const auto& keys = space.schedule.shared;
  const auto bytes = static_cast<std::size_t>(keys.slots * keys.tiles * keys.tile_bytes);
  int used = 0;
  for (const std::size_t node : {0, 1}) {
    const auto copy =
        space.shared(pages.begin())
            .of_head(0, space.schedule.blocks(call.q_len), static_cast<std::int64_t>(node));
    const auto begin = static_cast<std::size_t>(copy.panels - pages.begin());
    const std::set<int> found = pages.touchers(begin, begin + bytes);
    used += found.empty() ? 0 : 1;
    for (std::size_t thread = 0; thread < team; ++thread) {
      EXPECT_TRUE(thread % 2 == node || !found.contains(ids[thread]))
          << "thread " << thread << " in the copy of node " << node;
    }
  }
  EXPECT_GT(used, 0) << "no copy was used";
}

}  // namespace
#endif
