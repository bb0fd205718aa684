// The loop of a fuzz test: random calls, each of which is right or refused.
//
// TESSERA_FUZZ_COUNT (default 2000, or what the test says) calls with seed TESSERA_FUZZ_SEED
// (default 1), from call TESSERA_FUZZ_FIRST (default 0) on. Call number n of a seed is always the
// same one; a failure prints the line that repeats it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "random.hpp"

namespace tessera::support {

/// What became of the calls.
struct fuzz_tally {
  std::uint64_t right = 0, refused = 0, ineligible = 0;
};

inline std::uint64_t fuzz_setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// What calls a test draws.
struct fuzz_plan {
  std::uint64_t count = 2000;  ///< where nobody says how many
  bool has_illegal = true;
};

/// Calls check(random, tally) for each call; it fails the test where something is wrong.
template <class Check>
void run_fuzz(const Check& check, const fuzz_plan& plan = {}) {
  const std::uint64_t seed = fuzz_setting("TESSERA_FUZZ_SEED", 1);
  const std::uint64_t first = fuzz_setting("TESSERA_FUZZ_FIRST", 0);
  const std::uint64_t count = fuzz_setting("TESSERA_FUZZ_COUNT", plan.count);
  fuzz_tally counts;
  for (std::uint64_t n = first; n < first + count; ++n) {
    random_source random = stream(seed, n);
    check(random, counts);
    if (testing::Test::HasFailure()) {
      FAIL() << "to repeat: TESSERA_FUZZ_SEED=" << seed << " TESSERA_FUZZ_FIRST=" << n
             << " TESSERA_FUZZ_COUNT=1 <this program> --gtest_filter="
             << testing::UnitTest::GetInstance()->current_test_info()->test_suite_name() << ".*";
    }
    if ((n - first + 1) % 10000 == 0) {
      std::fprintf(stderr, "fuzz: %llu of %llu calls\n",
                   static_cast<unsigned long long>(n - first + 1),
                   static_cast<unsigned long long>(count));
    }
  }
  testing::Test::RecordProperty("right", std::to_string(counts.right));
  testing::Test::RecordProperty("refused", std::to_string(counts.refused));
  testing::Test::RecordProperty("ineligible", std::to_string(counts.ineligible));
  if (count >= 100) {
    EXPECT_GT(counts.right, count / 4);
    EXPECT_TRUE(!plan.has_illegal || counts.refused > count / 10);
  }
}

}  // namespace tessera::support
