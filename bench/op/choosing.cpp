// What it costs to choose a row: remembered and anew, with lookup tables of up to 100,000 rows, as
// a plan on top of the bare launch, while a trace is recorded, and how often the run time
// allocates.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/family.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/impl/select.hpp>
#include <tessera/runtime/record.hpp>

#include "bench/support/report.hpp"
#include "bench/support/workload.hpp"

namespace {

std::atomic<std::size_t> allocations{0};

}  // namespace

// Counts every allocation of the program; the library is in it. Kept out of line, or the compiler
// takes the malloc it sees behind new for a mismatch with delete.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace {

using namespace tessera;

/// One query, few keys: the kernel takes less time than anything that is measured around it.
flash_problem small_problem() {
  flash_problem problem;
  problem.tensors.q = shaped(dtype::f32, {1, 1, 1, 64});
  problem.tensors.k = problem.tensors.v = shaped(dtype::f32, {1, 1, 1, 64});
  return problem;
}

/// A prompt of Llama-3.1-8B.
flash_problem prompt() {
  flash_problem problem;
  problem.tensors.q = shaped(dtype::bf16, {1, 2048, 32, 128});
  problem.tensors.k = problem.tensors.v = shaped(dtype::bf16, {1, 2048, 8, 128});
  problem.options.causal = true;
  return problem;
}

constexpr std::size_t batch = 1000;

/// Times batches of `work()` and reports one call: the clock costs as much as what is measured.
template <class Work>
void measure_batches(benchmark::State& state, Work&& work) {
  const std::size_t before = allocations.load();
  std::size_t calls = 0;
  std::vector<double> seconds;
  seconds.reserve(100'000);
  const std::size_t reserved = allocations.load() - before;
  for (auto _ : state) {
    const double start = bench::now_seconds();
    for (std::size_t call = 0; call < batch; ++call) work();
    const double took = bench::now_seconds() - start;
    calls += batch;
    state.SetIterationTime(took);
    if (seconds.size() < seconds.capacity()) seconds.push_back(took / double{batch});
  }
  const std::size_t made = allocations.load() - before - reserved;
  state.counters["median_us"] = bench::statistics_of(seconds).median * 1e6;
  state.counters["allocations"] = static_cast<double>(made) / static_cast<double>(calls);
  state.SetLabel("allocations per call: " +
                 std::to_string(static_cast<double>(made) / static_cast<double>(calls)));
}

/// A table with that many lines for this device and the family, none of them for the prompt.
lookup_tables tables_with(std::int64_t lines) {
  std::vector<lookup_record> records;
  records.reserve(static_cast<std::size_t>(lines));
  flash_problem problem = prompt();
  for (std::int64_t line = 0; line < lines; ++line) {
    attention_demand demand = demand_of(problem);
    demand.sizes.q_len = std::int64_t{1} << (line % 20);
    demand.sizes.kv_len = std::int64_t{1} << (line / 20 % 20);
    demand.sizes.head_dim = static_cast<int>(129 + line / 400);
    const key_text key =
        key_text_of(attention_record, tessera::demand(demand), 1, device_kind::cpu);
    lookup_record& record = records.emplace_back();
    record.family = attention_record.name;
    record.code_version = attention_record.code_version(device_kind::cpu);
    record.device_class = device_class_of(this_device()).view();
    record.identity = key.identity.view();
    record.size = key.size.view();
    record.row =
        attention_registry()[static_cast<std::size_t>(line) % attention_registry().size()].name;
    record.median_us = 1;
    record.samples = 1;
    record.date = "2026-01-01T00:00:00Z";
  }
  return {lookup_table(std::move(records)), lookup_table(), lookup_table()};
}

/// What a call does before it launches: key, policy, scopes, memo; without `memory` the whole
/// chain.
void select_row(benchmark::State& state, selection_memory* memory) {
  const flash_problem problem = prompt();
  const lookup_tables tables = tables_with(state.range(0));
  measure_batches(state, [&] {
    const selection_policy policy = policy_in_force();
    const problem_view view = view_of(problem);
    const inquiry asked{.kind = attention_record,
                        .problem = view,
                        .demand = demand_for(attention_record, view, policy),
                        .instances = attention_registry(),
                        .device = this_device(),
                        .threads = 1,
                        .policy = policy,
                        .overlays = {nullptr, overlay_scope::innermost()},
                        .tables = &tables,
                        .memory = memory,
                        .generation = selection_generation()};
    benchmark::DoNotOptimize(select(asked));
  });
}

void selection_anew(benchmark::State& state) {
  select_row(state, nullptr);
}

void selection_remembered(benchmark::State& state) {
  static selection_memory memory;
  select_row(state, &memory);
}

/// The test that stands before everything that is told.
void explain_off(benchmark::State& state) {
  measure_batches(state, [] { benchmark::DoNotOptimize(installed_event_sink() == nullptr); });
}

void bare_launch(benchmark::State& state) {
  const bench::workload_of work(small_problem());
  const result<flash_plan> made = plan(small_problem(), {.threads = 1});
  if (!made) return state.SkipWithError(made.message().c_str());
  attention_kernel_args lowered;
  if (const status done = lower(flash_op::flash_attention, work.args(), work.options(), lowered);
      !done) {
    return state.SkipWithError(done.message().c_str());
  }
  const bench::buffer workspace(made->workspace_bytes());
  const auto launch = made->choice().instance->launch;
  const launch_context where{1, workspace.data(), workspace.size()};
  measure_batches(state, [&] { benchmark::DoNotOptimize(launch(&lowered, where)); });
}

void planned_run(benchmark::State& state) {
  const bench::workload_of work(small_problem());
  const result<flash_plan> made = plan(small_problem(), {.threads = 1});
  if (!made) return state.SkipWithError(made.message().c_str());
  const flash_attention_args args = work.args();
  measure_batches(state, [&] { benchmark::DoNotOptimize(made->run(args)); });
}

void recorded_run(benchmark::State& state) {
  const status done = record_to("/dev/null");
  if (!done) return state.SkipWithError(done.message().c_str());
  planned_run(state);
  discard_recording();
}

void whole_call(benchmark::State& state) {
  const bench::workload_of work(small_problem());
  const flash_attention_args args = work.args();
  measure_batches(state, [&] {
    benchmark::DoNotOptimize(flash_attention(args, work.options(), {.threads = 1}));
  });
}

}  // namespace

int main(int argc, char** argv) {
  using entry = std::pair<const char*, void (*)(benchmark::State&)>;
  for (const auto& [name, function] : {entry{"choosing/selection_remembered", selection_remembered},
                                       entry{"choosing/selection_anew", selection_anew}}) {
    benchmark::RegisterBenchmark(name, function)
        ->UseManualTime()
        ->ArgName("table_rows")
        ->Arg(0)
        ->Arg(1000)
        ->Arg(100'000);
  }
  for (const auto& [name, function] :
       {entry{"choosing/explain_off", explain_off}, entry{"choosing/bare_launch", bare_launch},
        entry{"choosing/planned_run", planned_run}, entry{"choosing/recorded_run", recorded_run},
        entry{"choosing/flash_attention_call", whole_call}}) {
    benchmark::RegisterBenchmark(name, function)->UseManualTime();
  }
  return tessera::bench::run_benches(argc, argv);
}
