// GPUs that are not there: the calls that the library makes of the CUDA runtime, answered from the
// host's memory and written down. Rows for them compute on the CPU.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <tessera/families/attention/kernel_args.hpp>
#include <tessera/flash_attention.hpp>
#include <tessera/spec/instance.hpp>

#include "tests/support/gpu_facts.hpp"

namespace tessera::testing {

using support::h200;

/// What every pretended GPU knows and was asked to do; one for the process.
struct pretended_gpus {
  std::vector<device_facts> devices;
  int current = 0;
  std::set<void*> captured;  ///< streams in a capture
  bool out_of_memory = false;
  double clock = 0;         ///< seconds; what is launched adds to it, marks in streams read it
  std::string lost;         ///< what waiting for a stream brings to light; empty: nothing
  std::size_t streams = 0;  ///< that were made

  struct block {
    int device = 0;
    std::size_t bytes = 0;
    void* stream = nullptr;
    bool for_all = false;  ///< of a plan
  };
  std::map<void*, block> live;  ///< memory not given back
  struct given {
    block memory;
    void* stream = nullptr;  ///< in whose order it was given back
  };
  std::vector<given> given_back;

  struct launched {
    std::string row;
    int device = 0;
    launch_context where{};
  };
  std::vector<launched> launches;
  std::vector<void*> counted_in;  ///< streams that faults were counted in, a rule each
  std::vector<int> prepared;      ///< devices
  std::string launch_failure;     ///< what the driver says to launches; empty: nothing
  std::string prepare_failure;
  std::deque<double> marks;  ///< of the clock, by events

  static pretended_gpus& all();
  /// Two devices, no memory in use, nothing written down.
  void reset();
  /// True if the memory of a device holds this address.
  bool owns(const void* address) const;
};

/// A row of cuda_sm80 for f32 of any head dim, which takes `scratch_bytes` a launch.
instance pretended_row(std::string_view name, std::size_t scratch_bytes = 4096);

/// The same call with tensors on a GPU.
flash_attention_args on_gpu(flash_attention_args args, int ordinal = 0);

}  // namespace tessera::testing
