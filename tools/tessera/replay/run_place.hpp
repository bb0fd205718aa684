// Where the calls of a replay run: this machine, or a GPU that has a counterpart of every block of
// host memory. It keeps the time of calls, sweeps caches between them, and measures meanwhile how
// fast memory can be read at most.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

#include "../execution.hpp"

namespace tessera::tool {

class run_place {
 public:
  /// Fails where the device of `--backend` does not answer.
  explicit run_place(const execution_flags& flags);
  ~run_place();
  run_place(const run_place&) = delete;
  run_place& operator=(const run_place&) = delete;

  device_id device() const noexcept { return device_; }
  void* stream() const noexcept;
  /// Threads; on a GPU its multiprocessors.
  int workers() const;

  /// Memory of the host, and as much there. Every byte is 0xff, which makes every number of any
  /// floating type a NaN: what is read before it is written is noticed.
  std::span<std::byte> block(std::size_t bytes);

  /// The tensor there, of one whose data lies in a block.
  tensor_view there(const tensor_view& host) const;
  /// Copies part of a block there, or back from there.
  void send(std::span<const std::byte> part);
  void fetch(std::span<std::byte> part);

  /// Seconds that the work takes there.
  double seconds_of(const std::function<status()>& work, const std::string& subject);

  /// Reads so much of other memory that nothing else is left in the caches, as the other layers of
  /// a model do.
  void sweep();
  /// GB/s of these readings: their upper quartile, since neighbours only slow them down.
  double read_gbytes() const;

 private:
  struct host_side;
  struct gpu_side;

  device_id device_;
  std::unique_ptr<host_side> host_;
  std::unique_ptr<gpu_side> gpu_;  ///< null on the CPU
  std::vector<double> rates_;
};

}  // namespace tessera::tool
