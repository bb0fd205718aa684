// One question to the chain of choosers, and the form of their answers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/cost.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/runtime/impl/memory.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/overlay.hpp>
#include <tessera/runtime/policy.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/problem_text.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// The demand that a choice may depend on under a policy. Where bits must not depend on the batch,
/// neither may the row.
inline demand demand_for(const family& kind, const problem_view& problem,
                         const selection_policy& policy) noexcept {
  demand asked;
  problem.op->form->demand_of(problem, asked);
  const bool alone = policy.promise == bits_promise::batch_invariant;
  if (alone) kind.without_batch(asked);
  return asked;
}

/// Why a device runs no row of that backend.
[[gnu::cold]] inline std::string missing_backend(backend target, const device_facts& device) {
  if (kind_of(target) != device.kind) {
    return sentence(
        {"the row is for ", is_cpu(target) ? "the CPU" : "GPUs", ", the device is ", device.id()});
  }
  std::string text = sentence({"the row needs ", name_of(target), ", this device has "});
  if (device.kind == device_kind::cpu) {
    text += name_of(device.highest);
    if (has_tile_products(target)) text += reason_of(device.tiles);
  } else {
    append(text, {"compute capability ", device.compute_capability / 10, ".",
                  device.compute_capability % 10});
  }
  return text;
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
struct inquiry {
  const family& kind;
  const problem_view& problem;
  tessera::demand demand;  ///< demand_for(kind, problem, policy)
  std::span<const instance> instances;
  const device_facts& device;
  int threads = 1;
  selection_policy policy{};
  std::string_view row_of_call{};
  std::string_view row_of_environment{};
  overlays_in_force overlays{};
  const lookup_tables* tables = nullptr;       ///< null: none
  const application_rows* own_rows = nullptr;  ///< null: only those of the build
  const autotuner* tuner = nullptr;            ///< null: nothing is measured
  selection_memory* memory = nullptr;          ///< null: nothing is remembered
  shared_memory* process_memory = nullptr;
  std::uint64_t generation = 0;  ///< selection_generation() before the tables were taken
  /// Counter of the calls of a problem, while a trace is recorded; else null.
  std::atomic<std::int64_t>* (*counter_of)(const problem_view&) = nullptr;
  explanation* notes = nullptr;  ///< null: nobody wants to know why

  bool names_a_row() const noexcept { return !row_of_call.empty() || !row_of_environment.empty(); }

  circumstances where() const noexcept {
    return {.kind = &kind,
            .generation = generation,
            .overlay_of_call = overlays.of_call != nullptr ? overlays.of_call->number() : 0,
            .overlay_of_thread = overlays.of_thread != nullptr ? overlays.of_thread->number() : 0,
            .application_rows = own_rows != nullptr ? own_rows->number() : 0,
            .ordinal = device.ordinal,
            .threads = threads,
            .policy = policy,
            .device = device.kind,
            .may_tune = tuner != nullptr};
  }

  demand_facts facts() const noexcept {
    demand_facts from;
    kind.facts_of(demand, from);
    return from;
  }

  /// The next row from number `at` on, which grows past it: the rows of the application, then those
  /// of the build. Null: there are no more.
  const instance* next_row(std::size_t& at) const noexcept {
    const auto own = own_rows != nullptr ? own_rows->rows() : std::span<const instance>();
    while (at < own.size()) {
      const instance& row = own[at++];
      if (row.family == kind.name) return &row;
    }
    const std::size_t of_build = at - own.size();
    if (of_build >= instances.size()) return nullptr;
    ++at;
    return &instances[of_build];
  }

  /// The same for the rows that fit.
  const instance* next_fitting(std::size_t& at) const noexcept {
    const std::size_t own = own_rows != nullptr ? own_rows->rows().size() : 0;
    while (at < own) {
      const instance* const row = next_row(at);
      if (row != nullptr && fits(*row)) return row;
    }
    while (at - own < instances.size()) {
      at = own + kind.next_fitting(instances, at - own, demand, device);
      const instance* const row = next_row(at);
      if (row != nullptr && keeps_promise(*row)) return row;
    }
    return nullptr;
  }

  std::size_t row_count() const noexcept {
    std::size_t count = 0;
    for (std::size_t at = 0; next_row(at) != nullptr;) ++count;
    return count;
  }

  /// The row of that name, or null.
  const instance* row_named(std::string_view name) const noexcept {
    for (std::size_t at = 0; const instance* row = next_row(at);) {
      if (row->name == name) return row;
    }
    return nullptr;
  }

  bool keeps_promise(const instance& row) const noexcept {
    const row_properties& has = row.properties;
    if (policy.promise == bits_promise::none) return true;
    return has.deterministic == determinism::same_bits &&
           (policy.promise == bits_promise::deterministic ||
            has.batch_invariant != batch_invariance::none);
  }

  /// True if the device runs the row, the row runs the problem, and its results keep what
  /// the policy promises. Holds for whatever any tier answers.
  bool fits(const instance& row) const noexcept {
    return kind.runs_on(row.config, device) && keeps_promise(row) && kind.runs(row.config, demand);
  }

  /// Why a row does not fit.
  std::string obstacle(const instance& row) const {
    if (!device.runs(row.target)) return missing_backend(row.target, device);
    if (!kind.runs_on(row.config, device)) return kind.missing_on(row.config, device);
    if (!keeps_promise(row)) {
      const bool repeats = row.properties.deterministic == determinism::same_bits;
      return sentence({"the policy asks for ", repeats ? "batch invariant" : "deterministic",
                       " results, which the row does not promise"});
    }
    return kind.difference(row.config, demand);
  }

  double predicted(const instance& row, const demand_facts& facts) const {
    return predicted_seconds(kind.estimate(row.config, facts, threads), row.target, device,
                             threads);
  }
};

/// A chooser decides, declines (no instance, `refusal` a success) or refuses the call.
struct answer {
  selection chosen{};
  status refusal{};
};

/// One member of the chain. It may decline; it writes a note if somebody wants to know why.
struct chooser {
  selection_tier tier = selection_tier::none;
  answer (*ask)(const inquiry&) = nullptr;
};

/// Adds to what the tier that is being asked says, if somebody wants to know.
[[gnu::cold]] inline void note(const inquiry& asked, sentence_parts parts) {
  if (asked.notes == nullptr) return;
  std::string& reason = asked.notes->tiers.back().reason;
  if (!reason.empty()) reason += "; ";
  append(reason, parts);
}

/// True if the row stands in for one that does not exist: it takes any problem, or it is portable
/// code on a machine that has more.
inline bool is_stand_in(const inquiry& asked, const instance& row) {
  return asked.kind.is_generic(row.config) ||
         (row.target == backend::cpu_generic && asked.device.highest != backend::cpu_generic);
}

/// Which of the rows that fit are meant.
struct row_filter {
  std::string_view pattern{};  ///< of their names; empty: any
  bool special = false;        ///< no stand-ins
};

/// The row with the lowest predicted time among those that fit and are meant; equal estimates go to
/// the first name. Null if there is none.
struct cheapest_row {
  const instance* row = nullptr;
  double seconds = 0;
  int count = 0;  ///< of the rows that were compared

  [[gnu::cold]] explicit cheapest_row(const inquiry& asked, const row_filter& meant = {}) {
    const demand_facts facts = asked.facts();
    for (std::size_t at = 0; const instance* next = asked.next_fitting(at);) {
      if (!meant.pattern.empty() && !matches_pattern(meant.pattern, next->name)) continue;
      if (meant.special && is_stand_in(asked, *next)) continue;
      ++count;
      const double predicted = asked.predicted(*next, facts);
      const bool better =
          row == nullptr || predicted < seconds || (predicted == seconds && next->name < row->name);
      if (!better) continue;
      row = next;
      seconds = predicted;
    }
  }
};

}  // namespace tessera
