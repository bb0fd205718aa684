#include "tuner.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include <tessera/lookup/table.hpp>
#include <tessera/runtime/device_facts.hpp>
#include <tessera/runtime/key.hpp>
#include <tessera/runtime/tables.hpp>

#include "tune.hpp"

namespace tessera {

struct online_tuner::state {
  autotune_settings settings;
  autotuner hook{};
  mutable std::mutex one_at_a_time;
  std::string refusal;
};

namespace {

tuner::session_options options_for(const autotune_settings& settings,
                                   const autotune_request& asked) {
  tuner::session_options options;
  if (settings.store) {
    options.table = settings.table.empty() ? process_table_locations().user : settings.table;
  }
  options.where = {.threads = asked.threads,
                   .rows = settings.rows,
                   .only = asked.rows,
                   .identity = asked.identity};
  options.measuring.most_candidates = static_cast<std::size_t>(settings.most_candidates);
  options.measuring.race_seconds = settings.seconds;
  options.measuring.limit_seconds = settings.limit_seconds;
  options.accept_disturbed = settings.accept_disturbed;
  options.environment = std::string(this_device().product_name()) + "; online";
  return options;
}

/// The answer, or why there is none.
status measure(const autotune_settings& settings, const autotune_request& asked,
               autotune_answer& answer) {
  const auto mine = device_class_of(this_device());
  if (asked.device_class != mine.view()) {
    return {status_code::device,
            "rows for " + std::string(asked.device_class) +
                " are not measured within a program, whose forks could not use its GPU, only those "
                "for " +
                std::string(mine.view()) + "; `tessera tune --backend cuda` measures them"};
  }
  tuner::session tuning(options_for(settings, asked));
  const auto planned = tuning.plan({{std::string(asked.problem)}});
  if (!planned) return planned.failure();
  const auto found = tuning.tune(planned->front());
  if (!found) return found.failure();
  const tuner::logged_row* row = found->row_named(found->row);
  const auto place = std::find(asked.rows.begin(), asked.rows.end(), found->row);
  if (row == nullptr || row->samples == 0 || place == asked.rows.end()) {
    return {status_code::no_row, "none of the " + std::to_string(asked.rows.size()) +
                                     " rows could be timed for " + std::string(asked.problem)};
  }
  answer.row = static_cast<std::size_t>(place - asked.rows.begin());
  answer.median_us = row->seconds * 1e6;
  const tuner::logged_row* standard = found->row_named(asked.default_row);
  if (standard != nullptr && standard->samples > 0) answer.default_us = standard->seconds * 1e6;
  return {};
}

}  // namespace

online_tuner::online_tuner(autotune_settings settings) : state_(std::make_unique<state>()) {
  state_->settings = std::move(settings);
  state_->hook.state = state_.get();
  state_->hook.tune = [](void* self, const autotune_request& asked,
                         autotune_answer& answer) noexcept {
    try {
      auto& mine = *static_cast<state*>(self);
      const std::scoped_lock lock(mine.one_at_a_time);
      mine.refusal.clear();
      const status done = measure(mine.settings, asked, answer);
      if (!done) mine.refusal = done.message();
      return static_cast<bool>(done);
    } catch (const std::exception&) {
      return false;  // out of memory: the cost model decides
    }
  };
}

online_tuner::~online_tuner() = default;

const autotuner& online_tuner::hook() const noexcept {
  return state_->hook;
}

std::string online_tuner::last_refusal() const {
  const std::scoped_lock lock(state_->one_at_a_time);
  return state_->refusal;
}

}  // namespace tessera
