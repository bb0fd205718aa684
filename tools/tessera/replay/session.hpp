// A replay: the steps of a trace, one layer of every kind of a model on each of them, and what that
// took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "../model_description.hpp"
#include "../terminal.hpp"
#include "layer_check.hpp"
#include "paged_layer.hpp"
#include "run_place.hpp"
#include "step_lists.hpp"
#include "tools/replay/scheduler.hpp"

namespace tessera::tool {

struct replay_wishes {
  std::int64_t check_every = 16;  ///< steps; 0: none is checked
  std::int64_t max_steps = 0;     ///< 0: until every request is finished
};

/// A step and what it took: `seconds` of attention in all layers.
struct step_record {
  std::int64_t clock = 0;
  std::int64_t tokens = 0;
  std::int64_t generating = 0;  ///< sequences
  std::int64_t sequences = 0;
  std::int64_t pages_used = 0, pages_kept = 0;
  std::int64_t joined = 0;  ///< sequences whose first pages are read once for several
  double seconds = 0;
  double bytes = 0, flops = 0;
};

/// A kind of layers in a replay.
struct replayed_layer {
  layer_kind kind;
  std::unique_ptr<paged_layer> layer{};
  double seconds = 0;  ///< of one layer
  double bytes = 0, flops = 0;
  layer_verdict verdict{};
};

class replay_session {
 public:
  /// `pool` is that of keys and values. `served` and `flags`
  /// outlive it. Kinds that cannot be replayed are in left_out(), one sentence each; fails if all
  /// are.
  replay_session(const model_description& model, const pool_wishes& pool,
                 const replay::trace& served, const execution_flags& flags);

  /// Runs until the trace or its wishes end.
  void run(const replay_wishes& wishes, progress& shown);

  const std::vector<replayed_layer>& layers() const noexcept { return layers_; }
  const std::vector<std::string>& left_out() const noexcept { return left_out_; }
  const std::vector<step_record>& steps() const noexcept { return steps_; }
  const replay::schedule_totals& totals() const noexcept { return scheduler_.totals(); }
  const replay::page_pool& pool() const noexcept { return scheduler_.pool(); }
  const replay::trace& served() const noexcept { return served_; }
  const run_place& place() const noexcept { return place_; }
  std::int64_t checked_steps() const noexcept { return checked_steps_; }
  bool passed() const;

 private:
  void add_layer(const model_description& model, const layer_kind& kind, const pool_wishes& pool,
                 const execution_flags& flags);
  void run_layer(replayed_layer& layer, const replay::step& step, bool is_checked,
                 step_record& record);

  const replay::trace& served_;
  replay::scheduler scheduler_;
  run_place place_;
  step_lists lists_;
  std::vector<replayed_layer> layers_;
  std::vector<std::string> left_out_;
  std::vector<step_record> steps_;
  std::int64_t checked_steps_ = 0;
};

}  // namespace tessera::tool
