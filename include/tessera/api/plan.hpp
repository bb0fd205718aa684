// Choose once, run many times: the same class for every operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/api/context.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

struct family;

/// Entries of a tensor that break what its declaration says of them.
struct tensor_faults {
  std::string_view tensor;    ///< its name in the args
  std::size_t place = 0;      ///< its place among them
  std::uint64_t entries = 0;  ///< of all runs; an entry counts in each run anew
};

/// A row chosen for one problem, its device and its scratch memory, for an operation known at run
/// time. `run` checks the tensors and launches: no look-up, no allocation, no lock, no environment,
/// no file; on a GPU no waiting either, so that a run may be captured in a CUDA graph. A plan on a
/// GPU outlives the work that its runs have put into streams.
class operation_plan {
 public:
  operation_plan(operation_plan&&) noexcept;
  operation_plan& operator=(operation_plan&&) noexcept;
  ~operation_plan();

  /// Runs on tensors (a view per tensor of the operation's signature) with the planned shapes,
  /// dtypes, device and set of tensors; strides, addresses and the values of lengths are free and
  /// are checked (but not values in a GPU's memory). Axes that broadcast may be others than
  /// planned, and tensors that no choice depends on may be present or not. Rows start at multiples
  /// of 16 bytes on a GPU where the operation's kernels want that, unless planned `unaligned` or of
  /// a length that is none. One run at a time uses the plan's own memory; a second one meanwhile is
  /// refused with status_code::workspace. On a GPU, where runs return before they are done, that
  /// memory serves the runs in one stream (any number if workspace_bytes() is 0).
  status run(const tensor_view* tensors) const;
  /// The same in another stream than that of the plan's context.
  status run(const tensor_view* tensors, void* stream) const;
  /// The same with the caller's scratch memory: workspace_bytes() bytes, 64-byte aligned, where the
  /// plan runs. Any number of these may run at once, each with its own memory.
  status run(const tensor_view* tensors, std::span<std::byte> workspace) const;
  status run(const tensor_view* tensors, std::span<std::byte> workspace, void* stream) const;

  /// Of a plan that was made with `context.checked`: the tensors in whose numbers runs met faults,
  /// in the order of the args; none: there were no faults. What outputs hold after a run with
  /// faults is not specified; nothing outside of them was written or read. Tensors in a GPU's
  /// memory are looked at in the order of the stream of each run, in graphs too: waits for the
  /// plan's stream, or for the one that runs were put in. On the CPU none, since runs with faults
  /// are refused.
  result<std::vector<tensor_faults>> faults() const;
  result<std::vector<tensor_faults>> faults(void* stream) const;

  /// The row, who chose it and why.
  const selection& choice() const noexcept;
  /// The planned problem; lives as long as the plan.
  problem_view problem() const noexcept;
  device_id device() const noexcept;
  /// Threads; on a GPU its multiprocessors.
  int threads() const noexcept;
  std::size_t workspace_bytes() const noexcept;

  struct state;
  explicit operation_plan(std::unique_ptr<state> settled) noexcept;

 private:
  std::unique_ptr<state> state_;
};

/// The plan of an operation with its own structs of args and options.
template <class Problem>
class basic_plan : public operation_plan {
 public:
  using problem_type = Problem;
  using args_type = typename Problem::args_type;

  explicit basic_plan(operation_plan plan) noexcept : operation_plan(std::move(plan)) {}

  status run(const args_type& args) const { return operation_plan::run(tensors_of(args)); }
  status run(const args_type& args, void* stream) const {
    return operation_plan::run(tensors_of(args), stream);
  }
  status run(const args_type& args, std::span<std::byte> workspace) const {
    return operation_plan::run(tensors_of(args), workspace);
  }
  status run(const args_type& args, std::span<std::byte> workspace, void* stream) const {
    return operation_plan::run(tensors_of(args), workspace, stream);
  }
};

/// The problems that operations have: see spec/problem.hpp.
template <class Problem>
concept problem_of_operation = requires {
  typename Problem::op_type;
  typename Problem::args_type;
  typename Problem::options_type;
};

/// Checks the problem, chooses a row and reserves its scratch memory (none if context.workspace is
/// given: that memory is used instead and must outlive the plan). Refuses what the operation itself
/// would refuse, and problems that no row of this build takes.
template <problem_of_operation Problem>
result<basic_plan<Problem>> plan(const Problem& problem, const context& context = {});

/// The whole choice as data: every tier's answer, every row with its predicted time or the reason
/// why it cannot run, and the row that would serve better. Runs nothing. `device` describes a
/// machine that need not be there; null: this one.
template <problem_of_operation Problem>
result<explanation> explain(const Problem& problem, const context& context = {},
                            const device_facts* device = nullptr);

}  // namespace tessera
