// The CUDA rows of flash attention against the definition: golden files, every option alone and in
// pairs, random calls. Runs where there is a GPU; skips with a message elsewhere.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include <tessera/spec/flash_attention/eligibility.hpp>

#include "tests/cuda/device_call.hpp"
#include "tests/cuda/rows.hpp"
#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_golden.hpp"
#include "tests/support/flash_judge.hpp"

namespace {

using namespace tessera::support;
using tessera::dtype;
using tessera::flash_instance;
using tessera::status_code;
using tessera::device_test::device_call;
using golden_case = tessera::support::flash_golden_case;

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Why there is nothing to test here; empty if there is a device.
std::string absence() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess) return std::string("no CUDA device: ") + cudaGetErrorString(code);
  return devices > 0 ? "" : "no CUDA device";
}

class cuda_rows : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = absence(); !why.empty()) GTEST_SKIP() << why;
    sms_ = tessera::device_test::multiprocessors();
  }

  /// Runs a call through every row that takes it; gives how many ran.
  int run_all(flash_data& data, const char* only = nullptr) {
    const flash_case& one = data.shape();
    const auto problem = tessera::problem_of(data.args(), data.options(), one.op);
    const flash_expectation expectation(data.args(), data.options());
    device_call call(one.op, data.args(), data.options());
    int ran = 0;
    for (const flash_instance& row : tessera::device_test::all_rows()) {
      if (only != nullptr && row.name != only) continue;
      if (mismatch_of(row.config, problem) != tessera::flash_mismatch::none) continue;
      SCOPED_TRACE(std::string(row.name) + " " + std::string(name_of(row.config.type)));
      data.reset_outputs();
      const auto result = call.run(row, sms_);
      if (result.done.code() == status_code::ineligible_row) continue;  // addresses
      ++ran;
      EXPECT_TRUE(result.done) << result.done.message();
      EXPECT_EQ(expectation.complaints(), "");
      EXPECT_TRUE(result.margins_intact && data.margins_intact())
          << "bytes outside the outputs were written";
    }
    return ran;
  }

  int sms_ = 1;
};

TEST_F(cuda_rows, agree_with_golden_files) {
  int ran = 0;
  for (const auto& path : flash_golden_files()) {
    golden_case one(path);
    if (one.args().q.type == dtype::f32) continue;
    SCOPED_TRACE(one.name());
    const auto problem = tessera::problem_of(one.args(), one.options(), one.op());
    device_call call(one.op(), one.args(), one.options());
    for (const flash_instance& row : tessera::device_test::all_rows()) {
      if (mismatch_of(row.config, problem) != tessera::flash_mismatch::none) continue;
      SCOPED_TRACE(row.name);
      one.reset_outputs();
      const auto result = call.run(row, sms_);
      if (result.done.code() == status_code::ineligible_row) continue;
      ++ran;
      EXPECT_TRUE(result.done) << result.done.message();
      EXPECT_EQ(one.complaints(), "");
      EXPECT_TRUE(result.margins_intact);
    }
  }
  EXPECT_GT(ran, 10);
  RecordProperty("ran", ran);
}

/// Golden problems are f32 mostly: the same inputs rounded to 16 bits, judged by the definition.
TEST_F(cuda_rows, agree_with_the_definition_on_rounded_golden_inputs) {
  int ran = 0;
  for (const auto& path : flash_golden_files()) {
    golden_case one(path);
    if (one.args().q.type != dtype::f32) continue;
    SCOPED_TRACE(one.name());
    for (const dtype type : {dtype::bf16, dtype::f16}) {
      tessera::flash_attention_args args = one.args();
      std::array<guarded_tensor, 4> tokens;
      std::size_t next = 0;
      for (auto* view : {&args.q, &args.k, &args.v, &args.out}) {
        const auto values = tessera::reference::to_doubles(*view);
        guarded_tensor& rounded = tokens[next++];
        rounded = guarded_tensor(type, view->rank, view->extent);
        rounded.fill([&](std::int64_t flat) { return values[static_cast<std::size_t>(flat)]; });
        *view = rounded.view();
      }
      const auto problem = tessera::problem_of(args, one.options(), one.op());
      const flash_expectation expectation(args, one.options());
      device_call call(one.op(), args, one.options());
      for (const flash_instance& row : tessera::device_test::all_rows()) {
        if (mismatch_of(row.config, problem) != tessera::flash_mismatch::none) continue;
        SCOPED_TRACE(std::string(row.name) + " " + std::string(name_of(type)));
        tokens[3].reset();
        const auto result = call.run(row, sms_);
        if (result.done.code() == status_code::ineligible_row) continue;
        ++ran;
        EXPECT_TRUE(result.done) << result.done.message();
        EXPECT_EQ(expectation.complaints(), "");
        EXPECT_TRUE(result.margins_intact);
      }
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(ran, 100);
}

TEST_F(cuda_rows, are_right_with_every_pair_of_options) {
  int ran = 0;
  for (const flash_trait first : all_flash_traits) {
    for (const flash_trait second : all_flash_traits) {
      if (second < first || !compatible(first, second)) continue;
      for (const dtype type : {dtype::f16, dtype::bf16}) {
        SCOPED_TRACE(std::string(name_of(first)) + " " + std::string(name_of(second)) + " " +
                     std::string(name_of(type)));
        random_source random =
            stream(static_cast<std::uint64_t>(first) * 100 + static_cast<std::uint64_t>(second),
                   static_cast<std::uint64_t>(type));
        case_limits limits;
        limits.type = type;
        for (int repeat = 0; repeat < 3; ++repeat) {
          limits.head_dim = repeat == 0 ? 0 : random.pick({64, 96, 128, 256});
          flash_data data(case_with(std::array{first, second}, random, limits));
          ran += run_all(data);
        }
        if (HasFailure()) return;
      }
    }
  }
  EXPECT_GT(ran, 1000);
}

TEST_F(cuda_rows, are_right_on_random_calls) {
  const std::uint64_t seed = setting("TESSERA_FUZZ_SEED", 1);
  const std::uint64_t first = setting("TESSERA_FUZZ_FIRST", 0);
  const std::uint64_t count = setting("TESSERA_FUZZ_COUNT", 2000);
  int ran = 0;
  for (std::uint64_t n = first; n < first + count; ++n) {
    random_source random = stream(seed, n);
    case_limits limits;
    limits.type = random.pick({dtype::f16, dtype::bf16});
    limits.work = static_cast<double>(setting("TESSERA_FUZZ_WORK", 200000));
    if (random.chance(0.5)) {
      limits.head_dim = limits.v_head_dim = random.pick({64, 96, 128, 256});
    } else if (random.chance(0.2)) {
      limits.head_dim = 192;
      limits.v_head_dim = 128;
    }
    if (random.chance(0.5)) limits.features = tessera::base_features;
    flash_data data(random_case(random, limits));
    ran += run_all(data);
    if (HasFailure()) {
      FAIL() << "to repeat: TESSERA_FUZZ_SEED=" << seed << " TESSERA_FUZZ_FIRST=" << n
             << " TESSERA_FUZZ_COUNT=1 <this program> --gtest_filter='*random_calls'";
    }
  }
  RecordProperty("ran", ran);
  std::printf("%d calls ran\n", ran);
}

/// NaN in a value that some rows see and others must not: the definition decides row by row.
TEST_F(cuda_rows, keep_values_that_are_not_finite_to_the_rows_that_see_them) {
  for (const dtype type : {dtype::bf16, dtype::f16}) {
    for (const std::int64_t head_dim : {64, 96, 128, 256}) {
      flash_case one;
      one.type = type;
      one.q_len = 150;
      one.kv_len = 170;
      one.q_heads = 4;
      one.kv_heads = 2;
      one.head_dim = one.v_head_dim = head_dim;
      one.options.causal = true;
      one.seed = 7;
      flash_data data(one);
      const auto& v = data.args().v;
      const auto at = [&](std::int64_t key, std::int64_t head, std::int64_t d) {
        return key * v.stride[1] + head * v.stride[2] + d;
      };
      store(v, at(90, 0, 3), std::nan(""));
      store(v, at(100, 1, head_dim - 1), HUGE_VAL);
      store(v, at(169, 0, 8), -HUGE_VAL);
      EXPECT_GE(run_all(data), 2) << head_dim;
    }
  }
}

}  // namespace
