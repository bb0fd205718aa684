// Records, files and child processes for the tests of lookup tables.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/lookup/record.hpp>
#include <tessera/lookup/table.hpp>

#include "tests/unit/tools/command_runner.hpp"

namespace tessera::testing {

/// A tenth of the counts that are promised, or all of them: tests/nightly sets the variable.
inline int of_full_count(int count) {
  const char* const full = std::getenv("TESSERA_FULL_COUNTS");
  return full != nullptr && *full == '1' ? count : count / 10;
}

inline constexpr std::string_view some_device = "cpu_avx512_bf16.l1d=32K.l2=1M.cores=2";
inline constexpr std::string_view some_identity =
    "type=bf16 head_dim=128 v_head_dim=128 mask=causal features=varlen,lengths";
inline constexpr std::string_view some_code = "9f86d081884c7d65";

inline std::string size_of_number(std::int64_t number) {
  return "batch=" + std::to_string(1 + number % 7) + " q_len=" + std::to_string(number) +
         " kv_len=4096 threads=2";
}

/// A record whose key is made of the number, and whose other members follow from it.
inline lookup_record record_of(std::int64_t number) {
  const auto value = static_cast<double>(number);
  return {.family = "attention",
          .semantic_version = 1,
          .code_version = std::string(some_code),
          .device_class = std::string(some_device),
          .identity = std::string(some_identity),
          .size = size_of_number(number),
          .row = "attention.cpu_avx512_bf16.bf16.d128.causal.32x256",
          .median_us = 100.25 + value,
          .spread_us = 0.5,
          .default_row = "attention.cpu_avx512_bf16.bf16.d128.causal.16x128",
          .default_us = 117 + value,
          .runner_up = "attention.cpu_avx512_bf16.bf16.d128.causal.64x256",
          .runner_up_us = 101 + value / 3,
          .samples = 35,
          .mode = "eager hot",
          .source = "tune",
          .environment = "AMD EPYC 9R14, tessera 0.2.0, gcc 12.2",
          .date = "2026-11-21T09:30:00Z"};
}

inline std::vector<lookup_record> records_of(std::int64_t begin, std::int64_t end) {
  std::vector<lookup_record> all;
  for (std::int64_t number = begin; number < end; ++number) all.push_back(record_of(number));
  return all;
}

inline std::string text_of(const std::vector<lookup_record>& records) {
  std::string text;
  for (const lookup_record& record : records) text += line_of(record) + "\n";
  return text;
}

inline lookup_table table_at(const std::string& path) {
  return read_tables({&path, 1});
}

/// The record with the key of a number, in any code version.
inline const lookup_record* found(const lookup_table& table, std::int64_t number,
                                  std::string_view code = {}) {
  return table.exact("attention", some_device, some_identity, size_of_number(number), code);
}

/// Runs `work` in a child process; its failed expectations are printed there and fail here.
/// Returns the status it ended with: 0 or 1, or what `work` ended it with.
template <class Work>
int in_child(Work work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int ended = 0;
  EXPECT_EQ(waitpid(child, &ended, 0), child);
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
}

}  // namespace tessera::testing
