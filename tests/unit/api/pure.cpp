// What a run must not do, shown by taking it away.
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/tables.hpp>
#include <tessera/tessera.hpp>

#include "small_call.hpp"

#if defined(__linux__)
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TESSERA_SANITIZED 1
#else
#define TESSERA_SANITIZED 0
#endif

namespace tessera::testing {
namespace {

#if defined(__linux__)

/// Runs `work` in a child that is killed at its first system call but read, write and exit.
template <class Work>
bool runs_without_system_calls(const Work& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) != 0) ::syscall(SYS_exit, 77);
    ::syscall(SYS_exit, work() ? 0 : 1);
  }
  int state = 0;
  ::waitpid(child, &state, 0);
  return WIFEXITED(state) && (WEXITSTATUS(state) == 0 || WEXITSTATUS(state) == 77);
}

TEST(Properties, SelectionIsPureAndARunMakesNoSystemCall) {
  if (TESSERA_SANITIZED != 0) GTEST_SKIP() << "sanitizers make system calls of their own";
  small_call call(9, 65, 2, 64);
  const flash_attention_args args = call.args();
  const auto planned = plan(problem_of(args), {.threads = 1});
  ASSERT_TRUE(planned) << planned.message();
  ASSERT_TRUE(planned->run(args));
  EXPECT_FALSE(runs_without_system_calls([] { return ::getppid() > 0; })) << "the trap works";
  EXPECT_TRUE(runs_without_system_calls([&] {
    bool all = true;
    for (int i = 0; i < 10; ++i) all = all && planned->run(args);
    return all;
  }));
  ASSERT_TRUE(flash_attention(args, {}, {.threads = 1}));
  EXPECT_TRUE(runs_without_system_calls([&] {
    bool all = true;
    for (int i = 0; i < 10; ++i) all = all && flash_attention(args, {}, {.threads = 1});
    return all;
  })) << "a repeated call neither";
  for (int i = 0; i < 3; ++i) {
    const auto again = plan(problem_of(args), {.threads = 1});
    EXPECT_EQ(again->choice().instance, planned->choice().instance);
    EXPECT_EQ(again->choice().reason, planned->choice().reason);
  }
}

#endif

TEST(Threads, SelectAndRunWhileTablesReloadAndOverlaysComeAndGo) {
  constexpr int calling = 64;
  const overlay rules = *parse_overlay("flash_attention: => *.dany.*");
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0};
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int index = 0; index < calling; ++index) {
    threads.emplace_back([&, index] {
      small_call call(1 + index % 3, 9, 1, 32);
      const flash_attention_args args = call.args();
      const auto planned = plan(problem_of(args), {.threads = 1});
      if (!planned) ++failed;
      for (int round = 0; !stop.load(std::memory_order_relaxed) && planned; ++round) {
        if ((index + round) % 4 == 0) {
          const overlay_scope scope(rules);
          failed += flash_attention(args, {}, {.threads = 1}) ? 0 : 1;
        } else if ((index + round) % 4 == 1) {
          const policy_scope scope(selection_policy{.tables = table_use::none});
          failed += flash_attention(args, {}, {.threads = 1}) ? 0 : 1;
        } else if ((index + round) % 4 == 2) {
          failed += flash_attention(args, {}, {.threads = 1, .overlays = &rules}) ? 0 : 1;
        } else {
          failed += planned->run(args) ? 0 : 1;
        }
        if (call.error() > 1e-5) ++failed;
        ran.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    reload_tables();
    set_process_policy(
        selection_policy{.tables = round % 2 == 0 ? table_use::all : table_use::none});
    set_process_overlay(round % 3 == 0 ? &rules : nullptr);
    std::this_thread::yield();
  }
  while (ran.load() < 4 * calling && failed.load() == 0) std::this_thread::yield();
  stop = true;
  for (std::thread& first : threads) first.join();
  set_process_policy({});
  set_process_overlay(nullptr);
  EXPECT_EQ(failed.load(), 0);
}

}  // namespace
}  // namespace tessera::testing
