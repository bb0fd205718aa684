// The problems of a model measured: row, time, cost on paper, error, and what the device could do.
#pragma once

#include <string>
#include <vector>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/tensor_view.hpp>

#include "bench/support/ceilings.hpp"
#include "bench/support/device_ceilings.hpp"
#include "bench/support/timing.hpp"
#include "bench/support/workload.hpp"
#include "execution.hpp"
#include "model_problems.hpp"

namespace tessera::tool {

/// One measurement: a problem that a kind of layers asks in a phase.
struct measured_layer {
  std::string model;
  model_problem asked;
  std::string row{};
  selection_tier tier = selection_tier::none;
  selection_reason reason = selection_reason::none;
  bool measured = false;  ///< else only the row was chosen
  bench::timing time{};
  reference::call_work counted{};
  bool memory_bound = false;  ///< the ceiling that would be reached first is bandwidth
  double of_ceiling = 0;      ///< time at that ceiling over measured time
  support::comparison error{};

  double rate() const {
    return (memory_bound ? counted.bytes : counted.flops) / time.median * 1e-9;
  }
  /// Was not found wrong.
  bool passed() const noexcept { return !measured || error.passed; }
};

/// Measured ceilings of the device that the layers run on.
struct limits_of_device {
  device_id device{};
  bench::ceilings cpu{};
  bench::device_ceilings gpu{};

  /// `type` is that of the problem's first tensor.
  double peak_gflops(backend target, dtype type) const;
  double read_gbytes() const;
};
limits_of_device measure_limits(const execution_flags& flags, device_id device);

/// The row of a problem.
void choose_row(measured_layer& layer, const execution_flags& flags, device_id device);

/// The row, and what it does with the problem. A problem that this machine has no memory for is not
/// measured: one message says what it needs.
void measure(measured_layer& layer, const execution_flags& flags, const limits_of_device& limits);

}  // namespace tessera::tool
