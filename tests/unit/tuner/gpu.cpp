// Tuning on a GPU that is not there (tests/unit/gpu): its memory is the host's, its clock is what
// the rows say they take.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/api/flash_attention.hpp>
#include <tessera/api/flash_plan.hpp>
#include <tessera/families/attention/family.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/tables.hpp>
#include <tessera/spec/problem_text.hpp>

#include "bench/support/device_ceilings.hpp"
#include "bench/support/gpu_workload.hpp"
#include "quick_tune.hpp"
#include "tests/unit/gpu/pretended_gpu.hpp"
#include "tools/tuner/measuring_place.hpp"
#include "tools/tuner/tune.hpp"
#include "tools/tuner/tuner.hpp"

namespace {

using namespace tessera::testing;
using namespace tessera;

constexpr std::string_view text = "flash_attention q=[2,33,4,64]f32 k=[2,65,2,64] causal=true";

pretended_gpus& gpus() {
  return pretended_gpus::all();
}

/// Computes on the host, if the tensors lie where a GPU could read them.
template <int Microseconds>
status launch_taking(const attention_kernel_args& args, const launch_context& where) {
  for (const void* tensor : {args.q, args.k, args.v, static_cast<const void*>(args.out),
                             static_cast<const void*>(where.workspace)}) {
    if (!gpus().owns(tensor)) return {status_code::device, "an address of the host"};
  }
  if (where.stream == nullptr) return {status_code::device, "not in a stream"};
  gpus().clock += 1e-6 * Microseconds;
  return pretended_row("").launch(&args, where);
}

status launch_wrong(const attention_kernel_args& args, const launch_context& where) {
  const status done = launch_taking<1>(args, where);
  static_cast<float*>(args.out)[5] += 1e-2f;
  return done;
}

status launch_beyond(const attention_kernel_args& args, const launch_context& where) {
  const status done = launch_taking<1>(args, where);
  args.lse.data[-1] = 0;
  return done;
}

/// Takes the GPU along, as an illegal address does.
status launch_losing(const attention_kernel_args& args, const launch_context& where) {
  gpus().lost = "an illegal memory access was encountered";
  return launch_taking<1>(args, where);
}

/// The same, but not before it is timed.
status launch_losing_late(const attention_kernel_args& args, const launch_context& where) {
  static int calls = 0;
  if (++calls > 2) gpus().lost = "unspecified launch failure";
  return launch_taking<30>(args, where);
}

template <status (*Launch)(const attention_kernel_args&, const launch_context&)>
instance row(std::string_view name) {
  instance launching = pretended_row(name);
  launching.launch = [](const void* args, const launch_context& where) {
    return Launch(*static_cast<const attention_kernel_args*>(args), where);
  };
  return launching;
}

class Gpu : public ::testing::Test {
 protected:
  Gpu() {
    gpus().reset();
    for (const instance& row : rows) names.push_back(row.name);
  }
  ~Gpu() override {
    use_tables(nullptr);
    gpus().reset();
  }

  session_options options() const {
    session_options made;
    made.table = folder / "lookup.txt";
    made.where = {.rows = &mine, .device = &facts, .only = names};
    made.measuring = quick_rules();
    made.measuring.most_candidates = 99;
    made.measuring.lost_share = 0;  // what others take of the processor does not count
    made.environment = "a pretended H200";
    return made;
  }

  // Of rows with the same prediction the first by name is the default.
  const std::vector<instance> rows{row<&launch_taking<40>>("attention.pretended.a"),
                                   row<&launch_taking<10>>("attention.pretended.fast"),
                                   row<&launch_losing>("attention.pretended.losing"),
                                   row<&launch_losing_late>("attention.pretended.losing_late"),
                                   row<&launch_beyond>("attention.pretended.beyond"),
                                   row<&launch_wrong>("attention.pretended.wrong")};
  const application_rows mine{std::span<const instance>(rows)};
  std::vector<std::string_view> names;
  const device_facts facts = h200();
  const scratch_folder folder;
};

TEST_F(Gpu, RowsAreRacedByTheDevicesClockAndTheNextPlanTakesTheWinner) {
  session tuning(options());
  const auto planned = tuning.plan({{std::string(text)}});
  ASSERT_TRUE(planned) << planned.message();
  EXPECT_EQ(planned->front().default_row, "attention.pretended.a");
  EXPECT_EQ(planned->front().key.device_class, device_class_of(facts).view());
  const auto found = tuning.run(*planned);
  ASSERT_TRUE(found) << found.message();
  const tuned_problem& problem = found->front();
  const auto state = [&](const char* name) {
    return problem.row_named("attention.pretended." + std::string(name))->state;
  };
  const auto reason = [&](const char* name) {
    return problem.row_named("attention.pretended." + std::string(name))->reason;
  };
  EXPECT_EQ(problem.kind, outcome_kind::tuned) << name_of(problem.reason);
  EXPECT_EQ(problem.row, "attention.pretended.fast") << reason("a") << reason("fast");
  EXPECT_NEAR(problem.gain, 4, 1e-6);
  EXPECT_NEAR(problem.row_named(problem.row)->seconds, 10e-6, 1e-12);
  EXPECT_EQ(state("wrong"), row_state::wrong);
  EXPECT_EQ(state("beyond"), row_state::wrong);
  EXPECT_EQ(reason("beyond"), "writes beyond lse");
  EXPECT_EQ(state("losing"), row_state::crashed);
  EXPECT_EQ(reason("losing"), "threw: an illegal memory access was encountered");
  // The rows that race after it are not lost with it.
  EXPECT_EQ(state("losing_late"), row_state::crashed);
  EXPECT_EQ(reason("losing_late"), "threw: unspecified launch failure");
  EXPECT_FALSE(problem.disturbed);

  use_tables(load_lookup_tables({.user = folder / "lookup.txt", .site = {}, .shipped = false}));
  context where = with_rows({.device = {device_kind::cuda, 0}}, mine);
  const auto tuned = plan(*parse_problem<flash_problem>(text), where);
  ASSERT_TRUE(tuned) << tuned.message();
  EXPECT_EQ(tuned->choice().tier, selection_tier::persistent);
  EXPECT_EQ(tuned->choice().row(), "attention.pretended.fast");
}

TEST_F(Gpu, TheProcessThatTunesDoesNotTouchIt) {
  session tuning(options());
  const auto planned = tuning.plan({{std::string(text)}});
  ASSERT_TRUE(planned) << planned.message();
  ASSERT_TRUE(tuning.run(*planned));
  EXPECT_EQ(gpus().streams, 0u);
  EXPECT_TRUE(gpus().marks.empty());
  EXPECT_TRUE(gpus().live.empty());
  EXPECT_TRUE(gpus().launches.empty());
}

TEST_F(Gpu, RoundsReadOtherPartsOfMemoryThanTheCacheHolds) {
  const auto opened = open_problem(text, options().where);
  ASSERT_TRUE(opened) << opened.message();
  tunable_problem& problem = **opened;
  ASSERT_TRUE(problem.make_inputs(1));
  ASSERT_TRUE(problem.prepare(problem.default_row()));
  std::size_t all = 0;
  for (const auto& [memory, block] : gpus().live) all += block.bytes;
  EXPECT_GT(all, 3 * static_cast<std::size_t>(facts.l2_bytes));
  ASSERT_TRUE(problem.run(0));
  EXPECT_EQ(problem.complaint({}), "");
  EXPECT_EQ(problem.against_definition(true), "");
  EXPECT_EQ(gpus().prepared, std::vector<int>{0});
  ASSERT_FALSE(gpus().launches.empty());
  EXPECT_EQ(gpus().launches.front().where.threads, facts.multiprocessors);
  problem.drop_inputs();
  EXPECT_TRUE(gpus().live.empty());
}

TEST_F(Gpu, WorkloadsOfBenchesAreTimedThereAndComeBack) {
  const flash_problem problem = *parse_problem<flash_problem>(text);
  auto watch = bench::gpu_stopwatch::make({device_kind::cuda, 0});
  ASSERT_TRUE(watch) << watch.message();
  const auto made = plan(problem, with_rows({.row = "attention.pretended.a",
                                             .device = watch->device(),
                                             .stream = watch->stream()},
                                            mine));
  ASSERT_TRUE(made) << made.message();
  auto work = bench::gpu_workload_of<flash_problem>::make(
      bench::workload_of(problem, {.cold_bytes = std::size_t{1} << 20}), *watch);
  ASSERT_TRUE(work) << work.message();
  const flash_attention_args first = work->args(0);
  EXPECT_TRUE(gpus().owns(first.q.data));
  EXPECT_NE(first.k.data, work->args(1).k.data);
  EXPECT_EQ(first.k.device, watch->device());
  ASSERT_TRUE(made->run(first));
  const auto here = work->fetched();
  ASSERT_TRUE(here) << here.message();
  EXPECT_EQ((*here)->args().out.device, device_id{});
  EXPECT_EQ((*here)->verdict().complaint(), "");
  const auto time =
      work->measure([&](const flash_attention_args& args) { return made->run(args); });
  ASSERT_TRUE(time) << time.message();
  EXPECT_NEAR(time->median, 40e-6, 1e-12);
  const auto refused =
      work->measure([](const flash_attention_args&) { return status(status_code::device, "no"); });
  EXPECT_EQ(refused.message(), "no");
}

TEST_F(Gpu, SlotsHoldWhatWasPutThere) {
  for (const device_facts& device : {facts, this_device()}) {
    const auto place = place_on(device);
    ASSERT_TRUE(place->reset(0, 4));
    const std::array<std::byte, 4> before{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
    ASSERT_TRUE(place->fill(0, before));
    ASSERT_TRUE(place->fetch());
    EXPECT_TRUE(std::ranges::equal(place->bytes(0), before));
    EXPECT_TRUE(place->intact(0));
  }
}

TEST_F(Gpu, WithoutMemoryARowIsRefusedInWords) {
  const auto opened = open_problem(text, options().where);
  ASSERT_TRUE(opened) << opened.message();
  ASSERT_TRUE((*opened)->make_inputs(1));
  gpus().out_of_memory = true;
  const status refused = (*opened)->prepare(0);
  EXPECT_EQ(refused.message(), "workspace: out of memory");
}

TEST_F(Gpu, FactsComeFromAChild) {
  const auto found = facts_in_child({device_kind::cuda, 1});
  ASSERT_TRUE(found) << found.message();
  device_facts second = facts;
  second.ordinal = 1;
  EXPECT_EQ(*found, second);
  const auto absent = facts_in_child({device_kind::cuda, 63});
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.message(), "cuda:63: this process sees 2 CUDA devices");
}

TEST_F(Gpu, ProblemsOfOtherDevicesAreNotItsOwn) {
  for (const instance& row : mean_pooling_registry()) {
    if (is_cuda(row.target)) GTEST_SKIP() << "this build has " << row.name;
  }
  conditions where = options().where;
  where.only = {};
  const auto opened = open_problem("mean_pooling x=[3,50,96]f32", where);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.message(),
            "no mean_pooling row of this build runs mean_pooling x=[3,50,96]f32 on cuda:0");
}

TEST_F(Gpu, TheOnlineTunerLeavesItToTheCommand) {
  online_tuner tuner({.store = false});
  context where = with_rows({.device = {device_kind::cuda, 0}, .tuner = &tuner.hook()}, mine);
  where.policy = selection_policy{.tables = table_use::none, .autotune = autotune_use::on_miss};
  const auto chosen = plan(*parse_problem<flash_problem>(text), where);
  ASSERT_TRUE(chosen) << chosen.message();
  EXPECT_EQ(chosen->choice().tier, selection_tier::heuristic);
  EXPECT_NE(tuner.last_refusal().find("`tessera tune --backend cuda` measures them"),
            std::string::npos)
      << tuner.last_refusal();
  EXPECT_NE(tuner.last_refusal().find(device_class_of(facts).view()), std::string::npos);
}

}  // namespace
