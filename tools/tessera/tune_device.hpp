// The device on which `tune` and `select` measure.
#pragma once

#include <string>

#include <CLI/App.hpp>

#include <tessera/runtime/device_facts.hpp>

#include "tools/tuner/tunable_problem.hpp"

namespace tessera::tool {

struct tune_device_flags {
  std::string backend;
  int threads = 0;
};

/// Adds --backend and --threads.
void add_tune_device_flags(CLI::App& command, tune_device_flags& flags);

/// The device of the flags. Fails where it is a GPU that is not there, or the build has no rows for
/// it. This process does not touch a GPU: its children use it.
class tune_device {
 public:
  explicit tune_device(const tune_device_flags& flags);

  /// Valid as long as this object.
  tuner::conditions conditions() const noexcept;
  /// "NVIDIA H200 (cuda:0, compute capability 9.0); tessera 0.1.0".
  std::string environment() const;

 private:
  device_facts facts_;
  int threads_;
};

}  // namespace tessera::tool
