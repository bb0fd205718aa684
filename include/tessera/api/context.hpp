// How a call is to be carried out; what it computes does not depend on any of it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/events.hpp>
#include <tessera/runtime/selection.hpp>

namespace tessera {

/// Circumstances of a call or plan. The default suits almost every program.
struct context {
  /// Runs this row of the build and no other. A name that is not in the build, or a row that cannot
  /// run the problem, is an error. Wins over TESSERA_ROW.
  std::string_view row{};
  /// Threads to use. 0: what OpenMP would use (OMP_NUM_THREADS, omp_set_num_threads, else all).
  int threads = 0;
  /// Receives the events of this call; null: the sink of the process, if there is one.
  const event_sink* events = nullptr;
  /// Scratch memory, 64-byte aligned. Empty: the library keeps its own per thread, or per plan.
  std::span<std::byte> workspace{};
  selection_policy policy{};
};

}  // namespace tessera
