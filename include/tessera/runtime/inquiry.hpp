// One question to the chain of choosers, and the form of their answers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/runtime/application_rows.hpp>
#include <tessera/runtime/autotuner.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/explain.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/lookup/table.hpp>
#include <tessera/runtime/memory.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// The demand that a choice may depend on under a policy. Where bits must not depend on the batch,
/// neither may the row.
template <class Family>
typename Family::demand_type demand_for(const typename Family::problem_type& problem,
                                        const selection_policy& policy) noexcept {
  const auto demand = Family::demand_of(problem);
  const bool alone = policy.promise == bits_promise::batch_invariant;
  return alone ? Family::without_batch(demand) : demand;
}

/// The overlays that a call sees, in the order they are asked.
struct overlays_in_force {
  const overlay* of_call = nullptr;
  const overlay_scope* of_thread = nullptr;  ///< the innermost scope
  const overlay* of_process = nullptr;

  bool any() const noexcept {
    return of_call != nullptr || of_thread != nullptr || of_process != nullptr;
  }
};

/// A problem and everything a choice depends on. Asking has no effect besides: no file, no
/// environment, no measurement (but by a tuner that the caller brings and allows).
template <class Family>
struct inquiry {
  static_assert(selectable_family<Family>);
  using instance_type = typename Family::instance_type;

  const typename Family::problem_type& problem;
  typename Family::demand_type demand;  ///< demand_for(problem, policy)
  std::span<const instance_type> instances;
  const device_facts& device;
  int threads = 1;
  selection_policy policy{};
  std::string_view row_of_call{};
  std::string_view row_of_environment{};
  overlays_in_force overlays{};
  const lookup_tables* tables = nullptr;       ///< null: none
  const application_rows* own_rows = nullptr;  ///< null: only those of the build
  const autotuner* tuner = nullptr;            ///< null: nothing is measured
  selection_memory<Family>* memory = nullptr;  ///< null: nothing is remembered
  shared_memory<Family>* process_memory = nullptr;
  std::uint64_t generation = 0;  ///< selection_generation() before the tables were taken
  /// Counter of the calls of a problem, while a trace is recorded; else null.
  std::atomic<std::int64_t>* (*counter_of)(const typename Family::problem_type&) = nullptr;
  explanation* notes = nullptr;  ///< null: nobody wants to know why

  bool names_a_row() const noexcept { return !row_of_call.empty() || !row_of_environment.empty(); }

  circumstances where() const noexcept {
    return {.generation = generation,
            .overlay_of_call = overlays.of_call != nullptr ? overlays.of_call->number() : 0,
            .overlay_of_thread = overlays.of_thread != nullptr ? overlays.of_thread->number() : 0,
            .application_rows = own_rows != nullptr ? own_rows->number() : 0,
            .device = device.id(),
            .threads = threads,
            .may_tune = tuner != nullptr,
            .policy = policy};
  }

  /// Calls visit(row) for the rows of the application, then for those of the build.
  template <class Visitor>
  void for_each_row(const Visitor& visit) const {
    if (own_rows != nullptr) {
      for (const instance_type& row : own_rows->of<instance_type>()) visit(row);
    }
    for (const instance_type& row : instances) visit(row);
  }

  std::size_t row_count() const noexcept {
    return instances.size() + (own_rows != nullptr ? own_rows->of<instance_type>().size() : 0);
  }

  /// The row of that name, or null.
  const instance_type* row_named(std::string_view name) const noexcept {
    const instance_type* found = nullptr;
    for_each_row([&](const instance_type& row) {
      if (found == nullptr && row.name == name) found = &row;
    });
    return found;
  }

  bool keeps_promise(const instance_type& row) const noexcept {
    const row_properties& has = row.properties;
    if (policy.promise == bits_promise::none) return true;
    return has.deterministic == determinism::same_bits &&
           (policy.promise == bits_promise::deterministic ||
            has.batch_invariant == batch_invariance::same_bits);
  }

  /// True if the device runs the row, the row runs the problem, and its results keep what
  /// the policy promises. Holds for whatever any tier answers.
  bool fits(const instance_type& row) const noexcept {
    return Family::runs_on(row.config, device) && keeps_promise(row) &&
           Family::runs(row.config, demand);
  }

  /// Why a row does not fit.
  std::string obstacle(const instance_type& row) const {
    if (!Family::runs_on(row.config, device)) return Family::missing_on(row.config, device);
    if (!keeps_promise(row)) {
      const bool repeats = row.properties.deterministic == determinism::same_bits;
      return std::string("the policy asks for ")
          .append(repeats ? "batch invariant" : "deterministic")
          .append(" results, which the row does not promise");
    }
    return Family::difference(row.config, demand);
  }

  double predicted(const instance_type& row, const typename Family::facts_type& facts) const {
    return predicted_seconds(Family::estimate(row.config, facts, threads), row.config.target,
                             device, threads);
  }
};

/// A chooser decides, declines (no instance, `refusal` a success) or refuses the call.
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

/// Adds `parts` to what the tier that is being asked says, if somebody wants to know; else costs a
/// comparison.
template <class Family, class... Parts>
void note(const inquiry<Family>& asked, const Parts&... parts) {
  if (asked.notes == nullptr) return;
  std::string& reason = asked.notes->tiers.back().reason;
  if (!reason.empty()) reason += "; ";
  (reason.append(parts), ...);
}

/// The row with the lowest predicted time among those that fit and that `wanted` accepts; equal
/// estimates go to the first name. Null if there is none. `count` becomes the number of them.
template <class Family, class Wanted>
[[gnu::cold]] const typename Family::instance_type* cheapest_row(const inquiry<Family>& asked,
                                                                 const Wanted& wanted,
                                                                 double& seconds, int& count) {
  const auto facts = Family::facts_of(asked.demand);
  const typename Family::instance_type* best = nullptr;
  seconds = 0;
  count = 0;
  asked.for_each_row([&](const typename Family::instance_type& row) {
    if (!wanted(row) || !asked.fits(row)) return;
    ++count;
    const double predicted = asked.predicted(row, facts);
    const bool better =
        best == nullptr || predicted < seconds || (predicted == seconds && row.name < best->name);
    if (!better) return;
    best = &row;
    seconds = predicted;
  });
  return best;
}

}  // namespace tessera
