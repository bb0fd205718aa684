// One layer of a kind on a pool of its own: the tokens of each step, the calls that serve them, and
// what rows they ran on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <tessera/api/plan.hpp>
#include <tessera/runtime/family.hpp>
#include <tessera/spec/problem_text.hpp>

#include "paged_form.hpp"
#include "run_place.hpp"
#include "step_lists.hpp"
#include "tests/reference/operations.hpp"
#include "token_rows.hpp"
#include "tools/replay/scheduler.hpp"

namespace tessera::tool {

/// A row and the steps that it served.
struct row_use {
  std::string row{};
  selection_tier tier = selection_tier::none;
  selection_reason reason = selection_reason::none;
  std::int64_t steps = 0;
  double seconds = 0;
};

/// The call of a step and what it took.
struct layer_call_cost {
  double seconds = 0;
  reference::call_work work{};
};

class paged_layer {
 public:
  /// `pool_type` is `type`, or of 8 bits where the operation takes such pools. `subject` begins the
  /// messages of what goes wrong.
  paged_layer(paged_form form, dtype type, dtype pool_type, const replay::trace& served,
              run_place& place, const execution_flags& flags, std::string subject);

  /// Whether some row of the build serves the largest step there is.
  status plan_step(const step_lists& lists) const;

  /// Writes the tokens of a step and sends them.
  void load(const replay::step& step);
  /// Writes their keys into the pool and attends over it.
  layer_call_cost run(const step_lists& lists, const replay::step& step);
  /// What the last call made, in host memory, with the pools if they are asked for.
  void fetch(const replay::step& step, bool with_pools);
  /// Elements of `out` of the tokens of the last call that are NaN or infinite.
  std::int64_t wild_elements(const replay::step& step) const;

  const paged_form& form() const noexcept { return form_; }
  const operation& op() const noexcept { return *operation_.op; }
  std::span<const row_use> rows() const noexcept { return rows_; }
  std::size_t pool_bytes() const noexcept;

  /// The call of the last step, in host memory; of `tokens` tokens.
  std::vector<tensor_view> call(const step_lists& lists, std::int64_t tokens) const;
  const void* options() const noexcept { return problem_.options.data(); }
  /// Rows of the new tokens, in the order of form().fresh.
  const token_rows& fresh_rows(std::size_t tensor) const { return fresh_[tensor].rows; }
  /// The memory of a pool.
  std::span<std::byte> pool(std::size_t number) const { return pools_[number]; }
  dtype type() const noexcept { return type_; }
  dtype pool_type(std::size_t number) const noexcept {
    const dtype own = form_.pools[number].type;
    return own != dtype::none ? own : pool_type_;
  }

 private:
  /// A tensor of the tokens of a step.
  struct input {
    token_tensor form;
    token_rows rows;
    std::span<std::byte> memory;
  };
  /// A plan, and which of rows_ it runs.
  struct chosen_plan {
    operation_plan plan;
    std::size_t row = 0;
  };

  void add_inputs(const std::vector<token_tensor>& tensors, std::vector<input>& inputs);
  void make_sinks();
  std::vector<tensor_view> call_there(const step_lists& lists) const;
  chosen_plan& plan_of(const step_lists& lists);
  std::size_t number_of_row(const selection& choice);

  paged_form form_;
  dtype type_;
  dtype pool_type_;
  const replay::trace& served_;
  run_place& place_;
  const execution_flags& flags_;
  std::string subject_;
  found_operation operation_;
  owned_problem problem_;
  std::vector<input> queries_, fresh_;
  std::vector<std::span<std::byte>> pools_;
  std::span<std::byte> out_, sinks_;
  std::map<batch_shape, chosen_plan> plans_;
  std::vector<row_use> rows_;
};

}  // namespace tessera::tool
