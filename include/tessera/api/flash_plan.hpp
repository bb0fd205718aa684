// Choose once, run many times.
//
//   auto plan = tessera::plan(tessera::problem_of(args, options));
//   if (!plan) return report(plan.message());
//   for (...) if (auto done = plan->run(args); !done) return report(done.message());
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <tessera/api/context.hpp>
#include <tessera/runtime/explain.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/instance.hpp>
#include <tessera/spec/flash_attention/lower.hpp>
#include <tessera/spec/flash_attention/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

using flash_selection = selection<flash_instance>;

/// A row chosen for one problem, its threads and its scratch memory. `run` checks the tensors and
/// launches: no look-up, no allocation, no lock, no environment, no file.
class flash_plan {
 public:
  flash_plan(flash_plan&&) noexcept;
  flash_plan& operator=(flash_plan&&) noexcept;
  ~flash_plan();

  /// Runs on tensors with the planned shapes, dtypes and set of tensors; strides, addresses and
  /// the values of lengths are free and are checked. Biases, masks and sinks may broadcast other
  /// axes than planned; lse, row_max and dropout_mask may be present or not.
  /// One run at a time uses the plan's own memory; a second one meanwhile is refused with
  /// status_code::workspace.
  status run(const flash_attention_args& args) const;

  /// The same with the caller's scratch memory: workspace_bytes() bytes, 64-byte aligned. Any
  /// number of these may run at once, each with its own memory.
  status run(const flash_attention_args& args, std::span<std::byte> workspace) const;

  /// The row, who chose it and why.
  const flash_selection& choice() const noexcept;
  const flash_problem& problem() const noexcept;
  int threads() const noexcept;
  std::size_t workspace_bytes() const noexcept;

 private:
  struct state;
  explicit flash_plan(std::unique_ptr<state> made) noexcept;
  friend result<flash_plan> plan(const flash_problem&, const context&);

  std::unique_ptr<state> state_;
};

/// Checks the problem, chooses a row and reserves its scratch memory (none if context.workspace is
/// given: that memory is used instead and must outlive the plan). Refuses what the operation itself
/// would refuse, and problems that no row of this build takes.
result<flash_plan> plan(const flash_problem& problem, const context& context = {});

/// The whole choice as data: every tier's answer, every row with its predicted time or the reason
/// why it cannot run, and the row that would serve better. Runs nothing. `device` describes a
/// machine that need not be there; null: this one.
result<explanation> explain(const flash_problem& problem, const context& context = {},
                            const device_facts* device = nullptr);

}  // namespace tessera
