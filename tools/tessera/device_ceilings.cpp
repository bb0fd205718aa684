#include "device_ceilings.hpp"

#include <algorithm>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/device_memory.hpp>

#include "device_kernels.hpp"

namespace tessera::tool {

#if defined(TESSERA_CUDA)

namespace {

/// Runs things in a stream of a device and times them.
class stopwatch {
 public:
  static result<stopwatch> start(device_id gpu) {
    if (status done = enter_device(gpu.ordinal); !done) return done;
    result<device_stream> stream = device_stream::make(gpu);
    if (!stream) return stream.failure();
    result<device_timer> timer = device_timer::make(gpu);
    if (!timer) return timer.failure();
    return stopwatch(*std::move(stream), *std::move(timer));
  }

  void* stream() const { return stream_.handle(); }

  /// The shortest of a few runs, after one that warms up.
  template <class Work>
  result<double> shortest(const Work& work) {
    constexpr int runs = 5;
    double best = 0;
    for (int run = -1; run < runs; ++run) {
      if (status done = timer_.start(stream()); !done) return done;
      if (status done = work(); !done) return done;
      if (status done = timer_.stop(stream()); !done) return done;
      const result<double> took = timer_.seconds();
      if (!took) return took.failure();
      if (run == 0 || (run > 0 && *took < best)) best = *took;
    }
    return best;
  }

 private:
  stopwatch(device_stream stream, device_timer timer)
      : stream_(std::move(stream)), timer_(std::move(timer)) {}

  device_stream stream_;
  device_timer timer_;
};

status measure_products(stopwatch& watch, int multiprocessors, void* sink,
                        device_ceilings& limits) {
  constexpr int steps = 20000;
  const auto rate = [&](device_product kind, double& gflops) -> status {
    double operations = 0;
    const result<double> took = watch.shortest([&] {
      return launch_products(kind, multiprocessors, steps, sink, watch.stream(), operations);
    });
    if (!took) return took.failure();
    gflops = operations / *took * 1e-9;
    return {};
  };
  if (status done = rate(device_product::fma_f32, limits.fma_f32_gflops); !done) return done;
  if (status done = rate(device_product::mma_bf16, limits.mma_bf16_gflops); !done) return done;
  return rate(device_product::mma_tf32, limits.mma_tf32_gflops);
}

status measure_memory(stopwatch& watch, const device_facts& facts, device_ceilings& limits) {
  constexpr std::size_t mebi = std::size_t{1} << 20;
  limits.buffer_bytes =
      std::max(std::size_t{512} * mebi, 4 * static_cast<std::size_t>(facts.l2_bytes) / mebi * mebi);
  const device_id gpu = facts.id();
  result<device_buffer> memory = device_buffer::allocate(gpu, limits.buffer_bytes, watch.stream());
  if (!memory) return memory.failure();
  const std::size_t half = limits.buffer_bytes / 2;
  if (status done = fill_memory(gpu, memory->data(), 0, memory->size(), watch.stream()); !done) {
    return done;
  }
  const auto rate = [&](double bytes, double& gbytes, const auto& work) -> status {
    const result<double> took = watch.shortest(work);
    if (!took) return took.failure();
    gbytes = bytes / *took * 1e-9;
    return {};
  };
  const auto all = static_cast<double>(memory->size());
  status done = rate(all, limits.read_gbytes, [&] {
    return launch_read(memory->data(), memory->size(), facts.multiprocessors, memory->data(),
                       watch.stream());
  });
  if (!done) return done;
  return rate(all, limits.copy_gbytes, [&] {
    return launch_copy(memory->data() + half, memory->data(), half, watch.stream());
  });
}

}  // namespace

result<device_ceilings> measure_ceilings_of(device_id gpu) {
  const result<const device_facts*> facts = find_device(gpu);
  if (!facts) return facts.failure();
  result<stopwatch> watch = stopwatch::start(gpu);
  if (!watch) return watch.failure();
  device_ceilings limits;
  {
    const result<device_buffer> sink = device_buffer::allocate(gpu, 16, watch->stream());
    if (!sink) return sink.failure();
    const int multiprocessors = (*facts)->multiprocessors;
    if (status done = measure_products(*watch, multiprocessors, sink->data(), limits); !done) {
      return done;
    }
  }
  if (status done = measure_memory(*watch, **facts, limits); !done) return done;
  return limits;
}

#else

result<device_ceilings> measure_ceilings_of(device_id gpu) {
  const result<const device_facts*> facts = find_device(gpu);
  return facts ? status(status_code::device, "the command was built without CUDA")
               : facts.failure();
}

#endif

boost::json::object to_json(const device_ceilings& limits) {
  return {{"fma_f32_gflops_per_second", limits.fma_f32_gflops},
          {"mma_bf16_gflops_per_second", limits.mma_bf16_gflops},
          {"mma_tf32_gflops_per_second", limits.mma_tf32_gflops},
          {"read_gigabytes_per_second", limits.read_gbytes},
          {"copy_gigabytes_per_second", limits.copy_gbytes},
          {"buffer_bytes", limits.buffer_bytes}};
}

}  // namespace tessera::tool
