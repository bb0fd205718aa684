// How a call is to be carried out; what it computes does not depend on any of it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Scratch memory from the application. Functions are called on the thread of the call.
struct workspace_allocator {
  /// At least `bytes` bytes on `device`, 64-byte aligned; on a GPU for use in the order of
  /// `stream`. Null: there are not that many.
  void* (*allocate)(void* state, device_id device, std::size_t bytes,
                    void* stream) noexcept = nullptr;
  /// Takes memory back; on a GPU when the earlier work of `stream` is done.
  void (*release)(void* state, device_id device, void* memory, std::size_t bytes,
                  void* stream) noexcept = nullptr;
  void* state = nullptr;
};

/// Circumstances of a call or plan. The default suits almost every program.
struct context {
  /// Runs this row and no other. A name that is not in the build, or a row that cannot run the
  /// problem, is an error. With `*` (any text) or `?` (any character) in it: the row of that form
  /// with the lowest predicted time. Wins over TESSERA_ROW.
  std::string_view row{};
  /// Threads to use on the CPU. 0: what OpenMP would use (OMP_NUM_THREADS, omp_set_num_threads,
  /// else all). A GPU is used whole.
  int threads = 0;
  /// Where a plan will run, or a problem is explained for. Calls look at their tensors instead.
  device_id device{};
  /// The stream (cudaStream_t) of a call on a GPU, and of the runs of a plan that name no other.
  /// Null: the default stream. A call returns when its work is in the stream. Refused on the CPU.
  void* stream = nullptr;
  /// A plan counts entries of lengths, offsets, page numbers and the like that a call on the CPU is
  /// refused for, where they lie in a GPU's memory: kernels stay inside the tensors whatever those
  /// hold, and `faults()` of the plan tells. Costs small kernels before each run. Changes nothing
  /// on the CPU, which looks at every call; a call on a GPU, which nobody can ask, is refused.
  bool checked = false;
  /// Receives the events of this call; null: the sink of the process, if there is one.
  const event_sink* events = nullptr;
  /// Scratch memory where the call runs, 64-byte aligned. Empty: that of `allocator`, else the
  /// library's own: on the CPU kept per thread, on a GPU taken and given back in the order of the
  /// stream; a plan's is taken when it is made.
  std::span<std::byte> workspace{};
  /// Gives calls and plans their scratch memory; null: nobody. Must outlive them.
  const workspace_allocator* allocator = nullptr;
  /// How the row is chosen. Unset: the policy in force (see policy.hpp).
  std::optional<selection_policy> policy{};
  /// Rules for this call, asked before those of the thread's scopes; null: none.
  const overlay* overlays = nullptr;
  /// Rows of the application; null: only those of the build.
  const application_rows* rows = nullptr;
  /// Measures problems without a measured row where the policy allows it; null: nothing is
  /// measured.
  const autotuner* tuner = nullptr;
};

/// The same circumstances with rows of the application, which must outlive the call or plan.
inline context with_rows(context where, const application_rows& rows) noexcept {
  where.rows = &rows;
  return where;
}

}  // namespace tessera
