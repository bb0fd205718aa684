#include "bench/support/device_ceilings.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tessera::bench {

#if defined(TESSERA_CUDA)

result<device_probe> device_probe::make(gpu_stopwatch& watch) {
  constexpr std::size_t mebi = std::size_t{1} << 20;
  const result<const device_facts*> facts = find_device(watch.device());
  if (!facts) return facts.failure();
  const auto cache = static_cast<std::size_t>((*facts)->l2_bytes);
  const std::size_t bytes = std::max(512 * mebi, 4 * cache / mebi * mebi);
  result<device_buffer> memory = device_buffer::allocate(watch.device(), bytes, watch.stream());
  if (!memory) return memory.failure();
  // Zeros, as the kernel that reads expects them.
  status done = fill_memory(watch.device(), memory->data(), 0, bytes, watch.stream());
  if (!done) return done;
  return device_probe(watch, **facts, *std::move(memory));
}

result<double> device_probe::product_gflops(device_product kind, int steps) {
  double operations = 0;
  const result<double> took = watch_->seconds_of([&] {
    return launch_products(kind, multiprocessors_, steps, memory_.data(), watch_->stream(),
                           operations);
  });
  if (!took) return took.failure();
  return operations / *took * 1e-9;
}

result<double> device_probe::read_gbytes() {
  const result<double> took = watch_->seconds_of([&] {
    return launch_read(memory_.data(), memory_.size(), multiprocessors_, memory_.data(),
                       watch_->stream());
  });
  if (!took) return took.failure();
  return static_cast<double>(memory_.size()) / *took * 1e-9;
}

result<double> device_probe::copy_gbytes() {
  const std::size_t half = memory_.size() / 2;
  const result<double> took = watch_->seconds_of(
      [&] { return launch_copy(memory_.data() + half, memory_.data(), half, watch_->stream()); });
  if (!took) return took.failure();
  return static_cast<double>(memory_.size()) / *took * 1e-9;
}

#else

namespace {

status not_built() {
  return {status_code::device, "the program was built without CUDA"};
}

}  // namespace

result<device_probe> device_probe::make(gpu_stopwatch& watch) {
  const result<const device_facts*> facts = find_device(watch.device());
  return facts ? not_built() : facts.failure();
}
result<double> device_probe::product_gflops(device_product, int) {
  return not_built();
}
result<double> device_probe::read_gbytes() {
  return not_built();
}
result<double> device_probe::copy_gbytes() {
  return not_built();
}

#endif

result<device_ceilings> measure_ceilings(device_probe& probe) {
  constexpr int runs = 5;
  constexpr int steps = 20000;
  device_ceilings limits;
  limits.buffer_bytes = probe.buffer_bytes();
  const auto best = [](double& limit, const auto& measure) -> status {
    for (int run = -1; run < runs; ++run) {
      const result<double> rate = measure();
      if (!rate) return rate.failure();
      if (run >= 0) limit = std::max(limit, *rate);
    }
    return {};
  };
  const std::array products{std::pair{device_product::fma_f32, &limits.fma_f32_gflops},
                            std::pair{device_product::mma_bf16, &limits.mma_bf16_gflops},
                            std::pair{device_product::mma_tf32, &limits.mma_tf32_gflops}};
  for (const auto& [kind, limit] : products) {
    status done = best(*limit, [&, kind = kind] { return probe.product_gflops(kind, steps); });
    if (!done) return done;
  }
  status done = best(limits.read_gbytes, [&] { return probe.read_gbytes(); });
  if (done) done = best(limits.copy_gbytes, [&] { return probe.copy_gbytes(); });
  if (!done) return done;
  return limits;
}

result<device_ceilings> measure_ceilings_of(device_id gpu) {
  const result<const device_facts*> facts = find_device(gpu);
  if (!facts) return facts.failure();
  result<gpu_stopwatch> watch = gpu_stopwatch::make(gpu);
  if (!watch) return watch.failure();
  result<device_probe> probe = device_probe::make(*watch);
  if (!probe) return probe.failure();
  return measure_ceilings(*probe);
}

}  // namespace tessera::bench
