// One question to the chain of choosers, and the form of their answers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/explain.hpp>
#include <tessera/runtime/memory.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// A problem and everything a choice depends on. Asking has no effect besides: no file, no
/// environment, no measurement.
template <class Family>
struct inquiry {
  using instance_type = typename Family::instance_type;

  const typename Family::problem_type& problem;
  typename Family::demand_type demand;  ///< Family::demand_of(problem)
  std::span<const instance_type> instances;
  const device_facts& device;
  int threads = 1;
  selection_policy policy{};
  std::string_view row_of_call{};
  std::string_view row_of_environment{};
  selection_memory<Family>* memory = nullptr;  ///< null: nothing is remembered
  explanation* notes = nullptr;                ///< null: nobody wants to know why

  /// True if the device runs the row's backend and the row runs the problem.
  bool fits(const instance_type& row) const noexcept {
    return device.runs(row.config.target) && Family::runs(row.config, demand);
  }

  /// Why a row does not fit.
  std::string obstacle(const instance_type& row) const {
    if (!device.runs(row.config.target)) {
      return std::string("the row needs ")
          .append(name_of(row.config.target))
          .append(", this device has ")
          .append(name_of(device.highest));
    }
    return Family::difference(row.config, demand);
  }
};

/// A chooser decides, declines (no instance, `refused` a success) or refuses the call.
template <class Family>
struct answer {
  selection<typename Family::instance_type> chosen{};
  status refusal{};
};

/// One member of the chain. It may decline; it writes a note if somebody wants to know why.
template <class Family>
struct chooser {
  selection_tier tier = selection_tier::none;
  answer<Family> (*ask)(const inquiry<Family>&) = nullptr;
};

/// Adds a tier's note, made of `parts`, if somebody wants to know; else costs a comparison.
template <class Family, class... Parts>
void note(const inquiry<Family>& asked, selection_tier tier, bool decided, const Parts&... parts) {
  if (asked.notes == nullptr) return;
  std::string reason;
  (reason.append(parts), ...);
  asked.notes->tiers.push_back({tier, decided, std::move(reason)});
}

}  // namespace tessera
