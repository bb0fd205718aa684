// Which row a model build gets for a problem, written once for all families: what `family::row_for`
// is made of.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/device_facts.hpp>

#include "table.hpp"

namespace tessera::generate {

/// A row of the default table beside its config.
template <class Config>
struct known_row {
  row text;
  Config config;
};

/// A machine of that backend to compare rows on: a server with 16 cores, or a GPU like the H100.
/// Which tile is best depends on the machine; a lookup table measured on it knows better, and comes
/// first.
inline device_facts typical_device(backend target) noexcept {
  device_facts device;
  device.highest = target;
  if (is_cpu(target)) {
    constexpr int cores = 16;
    device.physical_cores = device.hardware_threads = device.available_threads = cores;
    return device;
  }
  device.kind = device_kind::cuda;
  device.compute_capability = 90;
  device.multiprocessors = 132;
  device.shared_bytes_per_block = 227 * 1024;
  device.shared_bytes_per_multiprocessor = 228 * 1024;
  device.l2_bytes = 50 << 20;
  device.core_clock_khz = 1'980'000;
  device.memory_clock_khz = 2'619'000;
  device.memory_bus_bits = 5120;
  return device;
}

/// What the device divides the work among.
inline int workers_of(const device_facts& device) noexcept {
  return device.kind == device_kind::cpu ? device.available_threads : device.multiprocessors;
}

/// The row of `target` with the lowest predicted time that is compiled for exactly this problem:
/// one of `known` if there is a specialised one among them, else the one that would be made for it,
/// else one for any problem.
/// No value if `target` can have none.
template <class Family>
outcome<std::optional<row>> cheapest_row(
    const typename Family::demand_type& demand, backend target,
    const std::vector<known_row<typename Family::config_type>>& known,
    outcome<row> (*row_named)(std::string_view name)) {
  const device_facts device = typical_device(target);
  const auto facts = facts_of(demand);
  const known_row<typename Family::config_type>* best = nullptr;
  double least = 0;
  for (const auto& candidate : known) {
    if (candidate.config.target != target || !runs(candidate.config, demand)) continue;
    const int workers = workers_of(device);
    const double seconds =
        predicted_seconds(estimate_of(candidate.config, facts, workers), target, device, workers);
    const bool general = is_last_resort(candidate.config);
    if (best != nullptr && general > is_last_resort(best->config)) continue;
    const bool better =
        best == nullptr || general < is_last_resort(best->config) || seconds < least;
    if (!better) continue;
    best = &candidate;
    least = seconds;
  }
  if (best == nullptr) return std::optional<row>();
  if (!is_last_resort(best->config)) return std::optional<row>(best->text);
  const std::string wanted = wanted_row_of<Family>(demand, device, best->config);
  if (wanted.empty()) return std::optional<row>(best->text);
  auto cheapest = row_named(wanted);
  if (const auto* why = std::get_if<refusal>(&cheapest)) return *why;
  return std::optional<row>(std::get<row>(std::move(cheapest)));
}

}  // namespace tessera::generate
