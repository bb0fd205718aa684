// What it costs to choose a row: without and with the memo, as a plan on top of the bare launch,
// and how often the run time allocates.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <tessera/api/flash_attention.hpp>
#include <tessera/runtime/flash_fwd.hpp>
#include <tessera/runtime/registry.hpp>
#include <tessera/runtime/select.hpp>
#include <tessera/spec/flash_attention/lower.hpp>

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
  problem.q = {dtype::f32, 4, {1, 1, 1, 64}};
  problem.k = problem.v = {dtype::f32, 4, {1, 1, 1, 64}};
  return problem;
}

/// A prompt of Llama-3.1-8B.
flash_problem prompt() {
  flash_problem problem;
  problem.q = {dtype::bf16, 4, {1, 2048, 32, 128}};
  problem.k = problem.v = {dtype::bf16, 4, {1, 2048, 8, 128}};
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

void select_row(benchmark::State& state, selection_memory<flash_fwd_family>* memory) {
  const flash_problem problem = prompt();
  measure_batches(state, [&] {
    const inquiry<flash_fwd_family> asked{.problem = problem,
                                          .demand = flash_fwd_family::demand_of(problem),
                                          .instances = flash_fwd_registry(),
                                          .device = this_device(),
                                          .threads = 1,
                                          .memory = memory};
    benchmark::DoNotOptimize(select(asked));
  });
}

void selection_without_memo(benchmark::State& state) {
  select_row(state, nullptr);
}

void selection_with_memo(benchmark::State& state) {
  static selection_memory<flash_fwd_family> memory;
  select_row(state, &memory);
}

void bare_launch(benchmark::State& state) {
  const bench::workload work(small_problem());
  const result<flash_plan> made = plan(small_problem(), {.threads = 1});
  if (!made) return state.SkipWithError(made.message().c_str());
  flash_kernel_args lowered;
  if (const status done = lower(flash_op::flash_attention, work.args(), work.options(), lowered);
      !done) {
    return state.SkipWithError(done.message().c_str());
  }
  const bench::buffer workspace(made->workspace_bytes());
  const flash_launch_function launch = made->choice().instance->launch;
  const launch_context where{1, workspace.data(), workspace.size()};
  measure_batches(state, [&] { benchmark::DoNotOptimize(launch(lowered, where)); });
}

void planned_run(benchmark::State& state) {
  const bench::workload work(small_problem());
  const result<flash_plan> made = plan(small_problem(), {.threads = 1});
  if (!made) return state.SkipWithError(made.message().c_str());
  const flash_attention_args args = work.args();
  measure_batches(state, [&] { benchmark::DoNotOptimize(made->run(args)); });
}

void whole_call(benchmark::State& state) {
  const bench::workload work(small_problem());
  const flash_attention_args args = work.args();
  measure_batches(state, [&] {
    benchmark::DoNotOptimize(flash_attention(args, work.options(), {.threads = 1}));
  });
}

}  // namespace

int main(int argc, char** argv) {
  using entry = std::pair<const char*, void (*)(benchmark::State&)>;
  for (const auto& [name, function] :
       {entry{"choosing/selection_without_memo", selection_without_memo},
        entry{"choosing/selection_with_memo", selection_with_memo},
        entry{"choosing/bare_launch", bare_launch}, entry{"choosing/planned_run", planned_run},
        entry{"choosing/flash_attention_call", whole_call}}) {
    benchmark::RegisterBenchmark(name, function)->UseManualTime();
  }
  return tessera::bench::run_benches(argc, argv);
}
