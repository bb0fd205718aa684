// The first GPU with what a bench that is bound by memory needs of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/runtime/device_memory.hpp>

#include "bench/support/device_ceilings.hpp"
#include "bench/support/report.hpp"

namespace tessera::bench {

/// The probe times by the stopwatch, which therefore stays where it is.
struct device_machine {
  device_facts facts{};
  std::unique_ptr<gpu_stopwatch> watch;
  device_probe probe;

  static constexpr device_id gpu{device_kind::cuda, 0};

  static result<device_machine> open() {
    const result<const device_facts*> facts = find_device(gpu);
    if (!facts) return facts.failure();
    result<gpu_stopwatch> watch = gpu_stopwatch::make(gpu);
    if (!watch) return watch.failure();
    auto kept = std::make_unique<gpu_stopwatch>(*std::move(watch));
    result<device_probe> probe = device_probe::make(*kept);
    if (!probe) return probe.failure();
    return device_machine{**facts, std::move(kept), *std::move(probe)};
  }

  /// `shares`: what the shares of the table are of.
  machine_report report(std::string_view shares) const {
    machine_report report;
    report.facts = {{"processor", std::string(facts.product_name())},
                    {"multiprocessors", std::to_string(facts.multiprocessors)}};
    report.ceilings = std::string(facts.product_name()).append("; ").append(shares);
    return report;
  }
};

}  // namespace tessera::bench
