// Child processes: their messages arrive, and whatever ends them is told apart.
#include "tools/tuner/child.hpp"

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

namespace {

using namespace tessera::tuner;
using namespace std::chrono_literals;

struct heard {
  std::vector<child_message> messages;
  child_outcome outcome;
};

template <class Work>
heard run(const Work& work, double limit = 20) {
  heard all;
  const auto receive = [&](const child_message& message) {
    all.messages.push_back(message);
    return limit;
  };
  const auto ended = run_in_child(work, receive, limit);
  EXPECT_TRUE(ended) << ended.message();
  if (ended) all.outcome = *ended;
  return all;
}

TEST(Child, MessagesArriveInOrderAndWhole) {
  const heard all = run([](const child_channel& parent) {
    for (std::uint32_t n = 0; n < 1000; ++n) {
      parent.send(n % 3, n, 0.5 * n, std::string(n % 97, 'x'));
    }
  });
  ASSERT_EQ(all.outcome.end, child_end::finished);
  ASSERT_EQ(all.messages.size(), 1000u);
  for (std::uint32_t n = 0; n < 1000; ++n) {
    EXPECT_EQ(all.messages[n].kind, n % 3);
    EXPECT_EQ(all.messages[n].index, n);
    EXPECT_EQ(all.messages[n].value, 0.5 * n);
    EXPECT_EQ(all.messages[n].text.size(), n % 97);
  }
}

TEST(Child, CrashIsNamed) {
  const heard all = run([](const child_channel& parent) {
    parent.send(1);
    std::raise(SIGSEGV);
  });
  EXPECT_EQ(all.outcome.end, child_end::crashed);
  EXPECT_NE(all.outcome.text.find("signal 11"), std::string::npos) << all.outcome.text;
  EXPECT_EQ(all.messages.size(), 1u);
}

TEST(Child, ExceptionAndExitAreCrashes) {
  const heard thrown =
      run([](const child_channel&) { throw std::runtime_error("no such tensor"); });
  EXPECT_EQ(thrown.outcome.end, child_end::crashed);
  EXPECT_EQ(thrown.outcome.text, "threw: no such tensor");
  const heard left = run([](const child_channel&) { _exit(7); });
  EXPECT_EQ(left.outcome.end, child_end::crashed);
  EXPECT_EQ(left.outcome.text, "ended with status 7");
}

TEST(Child, SilenceBeyondTheLimitIsAHang) {
  const auto begin = std::chrono::steady_clock::now();
  const heard all = run(
      [](const child_channel& parent) {
        parent.send(1);
        std::this_thread::sleep_for(1h);
      },
      0.3);
  EXPECT_EQ(all.outcome.end, child_end::timed_out);
  EXPECT_NE(all.outcome.text.find("0.3 s"), std::string::npos) << all.outcome.text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
}

TEST(Child, ParallelRegionsRunAfterThoseOfTheParent) {
  int parent_threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : parent_threads)
  parent_threads += 1;
  const heard all = run([](const child_channel& parent) {
    int threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : threads)
    threads += 1;
    parent.send(0, 0, threads);
  });
  EXPECT_EQ(all.outcome.end, child_end::finished) << all.outcome.text;
  ASSERT_EQ(all.messages.size(), 1u);
  EXPECT_EQ(all.messages[0].value, parent_threads);
}

TEST(Child, WritesStayInTheChildButForSharedMemory) {
  int own = 1;
  const shared_memory shared(64);
  const heard all = run([&](const child_channel&) {
    own = 2;
    shared.bytes()[63] = std::byte{42};
  });
  EXPECT_EQ(all.outcome.end, child_end::finished);
  EXPECT_EQ(own, 1);
  EXPECT_EQ(shared.bytes()[63], std::byte{42});
}

TEST(Child, WhatItPrintsIsThrownAway) {
  testing::internal::CaptureStdout();
  const heard all = run([](const child_channel&) {
    const std::string text = "noise\n";
    EXPECT_EQ(write(STDOUT_FILENO, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(all.outcome.end, child_end::finished);
}

}  // namespace
