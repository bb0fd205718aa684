// Every mean pooling row over generated problems and golden files: right within its tolerance,
// nothing written outside the output, no input changed, the same bits for any number of threads.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/place.hpp"
#include "tests/support/pooling_data.hpp"
#include "tests/support/pooling_golden.hpp"

namespace {

using namespace tessera::support;
using tessera::instance;
using tessera::mean_pooling_op;

class pooling_rows : public testing::TestWithParam<instance> {
 protected:
  static const tessera::mean_pooling_config& config() {
    return GetParam().config_as<tessera::mean_pooling_config>();
  }

  void SetUp() override {
    if (!runs_here(GetParam().target)) {
      GTEST_SKIP() << "this machine does not run " << name_of(GetParam().target);
    }
  }

  /// Runs the case on the row with 1, 2 and again 1 threads.
  void expect_right(const pooling_case& one) {
    pooling_data data(one);
    const pooling_expectation expectation(data.op(), data.args(), data.options());
    const std::uint64_t inputs = data.input_digest();
    std::vector<std::byte> first;
    for (const int threads : {1, 2, 1}) {
      data.output().reset();
      const auto done = run_here(data.op(), data.args(), data.options(),
                                 {.row = GetParam().name, .threads = threads});
      ASSERT_TRUE(done) << done.message();
      if (first.empty()) {
        first = data.output().bytes();
        EXPECT_EQ(expectation.complaint(data.output().view()), "");
        EXPECT_TRUE(data.output().margins_intact()) << "bytes outside the output were written";
      }
      EXPECT_TRUE(data.output().bytes() == first) << "other bits with " << threads << " threads";
    }
    EXPECT_EQ(data.input_digest(), inputs) << "an input was changed";
  }
};

TEST_P(pooling_rows, are_right_on_random_problems) {
  for (std::uint64_t index = 0; index < 120; ++index) {
    SCOPED_TRACE("case " + std::to_string(index));
    random_source random = stream(31, index);
    expect_right(random_pooling_case(random, {.type = config().type, .pass = config().pass}));
    if (HasFailure()) return;
  }
}

TEST_P(pooling_rows, are_right_where_sums_are_cut) {
  // Pieces of at most 512 tokens, items of 256 KiB, column blocks of 4096: sizes on both sides.
  struct sizes {
    std::int64_t batch, tokens, columns;
  };
  for (const sizes& one : {sizes{1, 1024, 3}, sizes{1, 1025, 16}, sizes{3, 700, 40},
                           sizes{1, 40, 4096}, sizes{2, 33, 4100}, sizes{1, 9000, 8},
                           sizes{2, 1300, 512}, sizes{1, 3000, 520}, sizes{1, 40000, 3}}) {
    for (const bool packed : {false, true}) {
      for (const std::int64_t chunk : {0, 600}) {
        pooling_case wide;
        const bool backward = config().pass == tessera::pooling_pass::backward;
        wide.op = chunk > 0 ? (backward ? mean_pooling_op::mean_pooling_chunks_backward
                                        : mean_pooling_op::mean_pooling_chunks)
                            : (backward ? mean_pooling_op::mean_pooling_backward
                                        : mean_pooling_op::mean_pooling);
        wide.type = config().type;
        wide.packed = packed;
        wide.batch = packed ? 1 : one.batch;
        wide.tokens = one.tokens;
        wide.columns = one.columns;
        if (chunk > 0) wide.chunk_size = chunk;
        if (packed) {
          wide.lengths = {0, one.tokens / 3, 1, 0, one.tokens - one.tokens / 3 - 2};
          if (one.batch == 2) wide.lengths = {one.tokens};
        }
        wide.seed = static_cast<std::uint64_t>(one.tokens);
        SCOPED_TRACE(std::to_string(one.tokens) + " tokens of " + std::to_string(one.columns) +
                     (packed ? ", packed" : "") + ", chunk " + std::to_string(chunk));
        expect_right(wide);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(table, pooling_rows,
                         testing::ValuesIn(tessera::mean_pooling_registry().begin(),
                                           tessera::mean_pooling_registry().end()),
                         [](const auto& row) { return test_name(row.param.name); });

struct golden_direction {
  std::filesystem::path path;
  mean_pooling_op op;
};
void PrintTo(const golden_direction& one, std::ostream* stream) {
  *stream << one.path.stem().string() << " as " << name_of(one.op);
}

/// Every file in both directions.
std::vector<golden_direction> directions() {
  std::vector<golden_direction> all;
  for (const std::filesystem::path& path : pooling_golden_files()) {
    const bool chunks = path.filename().string().starts_with("mean_pooling_chunks.");
    all.push_back(
        {path, chunks ? mean_pooling_op::mean_pooling_chunks : mean_pooling_op::mean_pooling});
    all.push_back({path, chunks ? mean_pooling_op::mean_pooling_chunks_backward
                                : mean_pooling_op::mean_pooling_backward});
  }
  return all;
}

class pooling_golden_files_agree : public testing::TestWithParam<golden_direction> {};

TEST_P(pooling_golden_files_agree, with_the_chosen_row_and_every_other) {
  pooling_golden_case one(GetParam().path, GetParam().op);
  const auto done = run_here(one.op(), one.args(), one.options(), {});
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(one.complaints(), "");
  int ran = 0;
  const auto problem = problem_of(one.args(), one.options(), one.op());
  for (const instance& row : tessera::mean_pooling_registry()) {
    const auto& config = row.config_as<tessera::mean_pooling_config>();
    const bool fits = config.type == problem.tensors.x.type && config.pass == pass_of(one.op()) &&
                      runs_here(row.target);
    if (!fits) continue;
    SCOPED_TRACE(row.name);
    one.reset_outputs();
    const auto named = run_here(one.op(), one.args(), one.options(), {.row = row.name});
    ASSERT_TRUE(named) << named.message();
    EXPECT_EQ(one.complaints(), "");
    ++ran;
  }
  EXPECT_GT(ran, 0);
}

TEST_P(pooling_golden_files_agree, with_the_definition_to_double_precision) {
  const pooling_golden_case one(GetParam().path, GetParam().op);
  const auto ours = tessera::reference::mean_pooling<>(one.op(), one.args(), one.options());
  const auto file = tessera::safetensors_file::open(GetParam().path);
  ASSERT_TRUE(file) << file.message();
  const std::string name = is_backward(one.op()) ? "d_x" : "out";
  const tessera::tensor_view* truth = file->tensor("ref." + name);
  ASSERT_NE(truth, nullptr);
  const comparison found =
      compare(ours.values, tessera::reference::to_doubles(*truth),
              truth->extent[static_cast<std::size_t>(truth->rank - 1)], scale_of(name));
  EXPECT_TRUE(found.specials_agree);
  EXPECT_LE(found.error, 1e-12);
}

INSTANTIATE_TEST_SUITE_P(files, pooling_golden_files_agree, testing::ValuesIn(directions()),
                         [](const auto& one) {
                           return test_name(one.param.path.stem().string()) +
                                  (is_backward(one.param.op) ? "_backward" : "");
                         });

}  // namespace
