// How a call is to be carried out; what it computes does not depend on any of it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <tessera/runtime/application_rows.hpp>
#include <tessera/runtime/autotuner.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/runtime/selection.hpp>

namespace tessera {

/// Circumstances of a call or plan. The default suits almost every program.
struct context {
  /// Runs this row and no other. A name that is not in the build, or a row that cannot run the
  /// problem, is an error. With `*` (any text) or `?` (any character) in it: the row of that form
  /// with the lowest predicted time. Wins over TESSERA_ROW.
  std::string_view row{};
  /// Threads to use. 0: what OpenMP would use (OMP_NUM_THREADS, omp_set_num_threads, else all).
  int threads = 0;
  /// Receives the events of this call; null: the sink of the process, if there is one.
  const event_sink* events = nullptr;
  /// Scratch memory, 64-byte aligned. Empty: the library keeps its own per thread, or per plan.
  std::span<std::byte> workspace{};
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
