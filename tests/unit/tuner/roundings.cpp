// The gate between rows that round differently many numbers on the way, on a GPU that is not there.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/delta_rule/config.hpp>
#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/families/delta_rule/registry.hpp>
#include <tessera/spec/instance.hpp>

#include "tests/unit/gpu/pretended_gpu.hpp"
#include "tools/tuner/tunable_problem.hpp"

namespace {

using namespace tessera::testing;
using namespace tessera::tuner;
using namespace tessera;

struct alignas(64) cache_line {
  std::array<std::byte, 64> bytes{};
};

/// On the host, token by token.
status compute(const delta_rule_kernel_args& args) {
  for (const instance& row : delta_rule_registry()) {
    const auto& config = row.config_as<delta_rule_config>();
    if (row.target != backend::cpu_generic || config.type != dtype::bf16) continue;
    if (config.pass != delta_rule_pass::forward) continue;
    const std::size_t bytes = row.workspace_bytes(&args, 1);
    std::vector<cache_line> workspace(bytes / sizeof(cache_line) + 1);
    return row.launch(&args, {.workspace = workspace.front().bytes.data(),
                              .workspace_bytes = workspace.size() * sizeof(cache_line)});
  }
  return {status_code::no_row, "no row of the host"};
}

std::size_t of_queries(const delta_rule_kernel_args& args) {
  return static_cast<std::size_t>(args.sequences * args.tokens * args.key_heads * args.key_dim);
}

/// The last bit of each element of q is another: off by a small share of all terms of a result.
status compute_rounding(const delta_rule_kernel_args& args) {
  const std::span all(static_cast<const std::uint16_t*>(args.q.data), of_queries(args));
  std::vector<std::uint16_t> rounded(all.begin(), all.end());
  for (std::uint16_t& element : rounded) element ^= 1u;
  delta_rule_kernel_args changed = args;
  changed.q.data = rounded.data();
  return compute(changed);
}

/// An element is off by a tenth of the largest.
status compute_wrong(const delta_rule_kernel_args& args) {
  const status done = compute(args);
  const auto count = args.sequences * args.tokens * args.value_heads * args.value_dim;
  const std::span out(static_cast<std::uint16_t*>(args.out.data), static_cast<std::size_t>(count));
  const auto number = [](std::uint16_t bits) { return std::bit_cast<float>(bits * 0x10000u); };
  float most = 0;
  for (const std::uint16_t bits : out) most = std::max(most, std::fabs(number(bits)));
  out[77] =
      static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number(out[77]) + most / 10) >> 16);
  return done;
}

std::size_t no_workspace(const delta_rule_kernel_args&, int) {
  return 0;
}

template <status (*Compute)(const delta_rule_kernel_args&)>
status launch(const delta_rule_kernel_args& args, const launch_context&) {
  return Compute(args);
}

constexpr delta_rule_config by_steps{
    .target = backend::cuda_sm80, .type = dtype::bf16, .key_dim = 128};
constexpr delta_rule_config by_chunks{
    .target = backend::cuda_sm90, .type = dtype::bf16, .chunk = 64, .key_dim = 128};

template <status (*Compute)(const delta_rule_kernel_args&)>
instance row(std::string_view name, const delta_rule_config& config) {
  return instance_of<kernels::entry_functions<&no_workspace, &launch<Compute>>>("delta_rule", name,
                                                                                config);
}

class Roundings : public ::testing::Test {
 protected:
  Roundings() {
    gpus().reset();
    for (const instance& row : rows) names.push_back(row.name);
    auto opened = open_problem(
        "gated_delta_rule q=[1,300,2,128]bf16 v=[1,300,2,64] g=[1,300,2]f32 beta=[1,300,2]bf16",
        {.rows = &mine, .device = &facts, .only = names});
    EXPECT_TRUE(opened) << opened.message();
    if (opened) problem = *std::move(opened);
  }
  ~Roundings() override {
    problem.reset();
    gpus().reset();
  }

  static pretended_gpus& gpus() { return pretended_gpus::all(); }
  std::size_t place_of(std::string_view name) const {
    const auto rows_of = problem->candidates();
    for (std::size_t i = 0; i < rows_of.size(); ++i) {
      if (rows_of[i].name == name) return i;
    }
    ADD_FAILURE() << "no candidate " << name;
    return 0;
  }
  void run(std::string_view name) {
    const std::size_t place = place_of(name);
    ASSERT_TRUE(problem->prepare(place));
    const status done = problem->run(0);
    ASSERT_TRUE(done) << done.message();
  }
  std::vector<std::byte> results() const {
    std::vector<std::byte> bytes(problem->result_bytes());
    problem->copy_results(bytes);
    return bytes;
  }

  const std::array<instance, 4> rows{
      row<&compute_rounding>("delta_rule.pretended.chunks", by_chunks),
      row<&compute_wrong>("delta_rule.pretended.chunks_wrong", by_chunks),
      row<&compute>("delta_rule.pretended.steps", by_steps),
      row<&compute_rounding>("delta_rule.pretended.steps_rounding", by_steps)};
  const application_rows mine{std::span<const instance>(rows)};
  const device_facts facts = h200();
  std::vector<std::string_view> names;
  std::unique_ptr<tunable_problem> problem;
};

TEST_F(Roundings, TheStandardIsTheRowThatRoundsTheLeast) {
  ASSERT_NE(problem, nullptr);
  EXPECT_EQ(problem->candidates()[problem->reference_row()].name, "delta_rule.pretended.steps");
}

TEST_F(Roundings, RowsOfChunksDifferByAShareOfTermsThatCancel) {
  ASSERT_NE(problem, nullptr);
  ASSERT_TRUE(problem->make_inputs(1));
  run("delta_rule.pretended.steps");
  const std::vector<std::byte> exact = results();
  EXPECT_EQ(problem->complaint(exact), "");
  run("delta_rule.pretended.chunks");
  EXPECT_NE(results(), exact);
  EXPECT_EQ(problem->complaint(exact), "");
  // A row that promises no such rounding is held to each row of elements.
  run("delta_rule.pretended.steps_rounding");
  EXPECT_NE(problem->complaint(exact).find("bound 0.016;"), std::string::npos)
      << problem->complaint(exact);
  run("delta_rule.pretended.chunks_wrong");
  EXPECT_NE(problem->complaint(exact).find("bound 0.032;"), std::string::npos)
      << problem->complaint(exact);
}

}  // namespace
