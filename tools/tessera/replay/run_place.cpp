#include "run_place.hpp"

#include <cstring>
#include <functional>
#include <optional>

#include <fmt/format.h>
#include <omp.h>

#include <tessera/runtime/device_facts.hpp>

#include "../failure.hpp"
#include "bench/support/ceilings.hpp"
#include "bench/support/device_ceilings.hpp"
#include "bench/support/device_mirror.hpp"
#include "bench/support/gpu_stopwatch.hpp"
#include "bench/support/memory.hpp"
#include "bench/support/timing.hpp"

namespace tessera::tool {
namespace {

constexpr const char* subject = "--backend";

}  // namespace

struct run_place::host_side {
  std::vector<bench::buffer> blocks;
  double bytes = 0;                         ///< of all blocks
  std::optional<bench::limit_probe> probe;  ///< where the calls run here
};

struct run_place::gpu_side {
  explicit gpu_side(device_id gpu)
      : watch(value_of(bench::gpu_stopwatch::make(gpu), subject)),
        mirror(gpu, watch.stream()),
        probe(value_of(bench::device_probe::make(watch), subject)) {}

  bench::gpu_stopwatch watch;
  bench::device_mirror mirror;
  bench::device_probe probe;
};

run_place::run_place(const execution_flags& flags)
    : device_(device_of_backend(flags.backend)), host_(std::make_unique<host_side>()) {
  if (device_.kind == device_kind::cuda) {
    gpu_ = std::make_unique<gpu_side>(device_);
  } else {
    host_->probe.emplace(flags.threads > 0 ? flags.threads : omp_get_max_threads());
  }
}

run_place::~run_place() = default;

void* run_place::stream() const noexcept {
  return gpu_ ? gpu_->watch.stream() : nullptr;
}

int run_place::workers() const {
  if (!gpu_) return host_->probe->threads();
  return value_of(find_device(device_), subject)->multiprocessors;
}

std::span<std::byte> run_place::block(std::size_t bytes) {
  host_->bytes += static_cast<double>(bytes);
  if (host_->bytes > bench::physical_bytes()) {
    throw failure(fmt::format("the pools and tensors need {:.3g} bytes, this machine has {:.3g}",
                              host_->bytes, bench::physical_bytes()));
  }
  const bench::buffer& buffer = host_->blocks.emplace_back(bytes);
  std::memset(buffer.data(), 0xff, bytes);
  const std::span<std::byte> span(buffer.data(), bytes);
  if (gpu_) require(gpu_->mirror.add(span), subject);
  return span;
}

tensor_view run_place::there(const tensor_view& host) const {
  return gpu_ ? gpu_->mirror.at(host) : host;
}

void run_place::send(std::span<const std::byte> part) {
  if (gpu_) require(gpu_->mirror.send(part), subject);
}

void run_place::fetch(std::span<std::byte> part) {
  if (gpu_) require(gpu_->mirror.fetch(part), subject);
}

double run_place::seconds_of(const std::function<status()>& work, const std::string& what) {
  if (gpu_) return value_of(gpu_->watch.seconds_of(work), what);
  const double begin = bench::now_seconds();
  require(work(), what);
  return bench::now_seconds() - begin;
}

void run_place::sweep() {
  if (gpu_) {
    rates_.push_back(value_of(gpu_->probe.read_gbytes(), subject));
    return;
  }
  bench::limit_probe& probe = *host_->probe;
  const std::size_t piece =
      bench::limit_probe::piece_bytes * static_cast<std::size_t>(probe.threads());
  for (std::size_t swept = 0; swept <= bench::last_level_cache_bytes(); swept += piece) {
    rates_.push_back(probe.read_rate(probe.threads()));
  }
}

double run_place::read_gbytes() const {
  return bench::statistics_of(rates_).upper_quartile;
}

}  // namespace tessera::tool
