// Choose once, run many times: the same class for every family.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include <tessera/api/context.hpp>
#include <tessera/runtime/selection.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

template <class Family>
class basic_plan;

namespace impl {
template <class Family>
result<basic_plan<Family>> make_plan(const typename Family::problem_type& problem,
                                     const context& where);
}

/// A row chosen for one problem, its threads and its scratch memory. `run` checks the tensors and
/// launches: no look-up, no allocation, no lock, no environment, no file.
template <class Family>
class basic_plan {
 public:
  using problem_type = typename Family::problem_type;
  using args_type = typename Family::args_type;
  using selection_type = selection<typename Family::instance_type>;

  basic_plan(basic_plan&&) noexcept;
  basic_plan& operator=(basic_plan&&) noexcept;
  ~basic_plan();

  /// Runs on tensors with the planned shapes, dtypes and set of tensors; strides, addresses and
  /// the values of lengths are free and are checked. Axes that broadcast may be others than
  /// planned, and outputs that no choice depends on may be present or not.
  /// One run at a time uses the plan's own memory; a second one meanwhile is refused with
  /// status_code::workspace.
  status run(const args_type& args) const;

  /// The same with the caller's scratch memory: workspace_bytes() bytes, 64-byte aligned. Any
  /// number of these may run at once, each with its own memory.
  status run(const args_type& args, std::span<std::byte> workspace) const;

  /// The row, who chose it and why.
  const selection_type& choice() const noexcept;
  const problem_type& problem() const noexcept;
  int threads() const noexcept;
  std::size_t workspace_bytes() const noexcept;

 private:
  struct state;
  explicit basic_plan(std::unique_ptr<state> made) noexcept;
  friend result<basic_plan> impl::make_plan<Family>(const problem_type&, const context&);

  std::unique_ptr<state> state_;
};

}  // namespace tessera
