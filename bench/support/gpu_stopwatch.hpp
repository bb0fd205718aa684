// A stream of a GPU and its clock.
#pragma once

#include <functional>
#include <utility>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::bench {

/// Runs things in a stream of a GPU and times them by its clock.
class gpu_stopwatch {
 public:
  static result<gpu_stopwatch> make(device_id gpu) {
    result<device_stream> stream = device_stream::make(gpu);
    if (!stream) return stream.failure();
    result<device_timer> timer = device_timer::make(gpu);
    if (!timer) return timer.failure();
    return gpu_stopwatch(gpu, *std::move(stream), *std::move(timer));
  }

  device_id device() const noexcept { return gpu_; }
  void* stream() const noexcept { return stream_.handle(); }

  /// Seconds of what `work` puts into the stream; the GPU is current meanwhile.
  result<double> seconds_of(const std::function<status()>& work) {
    if (status done = timer_.start(stream()); !done) return done;
    if (status done = with_device(gpu_, work); !done) return done;
    if (status done = timer_.stop(stream()); !done) return done;
    return timer_.seconds();
  }

 private:
  gpu_stopwatch(device_id gpu, device_stream stream, device_timer timer)
      : gpu_(gpu), stream_(std::move(stream)), timer_(std::move(timer)) {}

  device_id gpu_;
  device_stream stream_;
  device_timer timer_;
};

}  // namespace tessera::bench
