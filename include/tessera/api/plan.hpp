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

/// A row chosen for one problem, its device and its scratch memory. `run` checks the tensors and
/// launches: no look-up, no allocation, no lock, no environment, no file; on a GPU no waiting
/// either, so that a run may be captured in a CUDA graph. A plan on a GPU outlives the work that
/// its runs have put into streams.
template <class Family>
class basic_plan {
 public:
  using problem_type = typename Family::problem_type;
  using args_type = typename Family::args_type;
  using selection_type = selection<typename Family::instance_type>;

  basic_plan(basic_plan&&) noexcept;
  basic_plan& operator=(basic_plan&&) noexcept;
  ~basic_plan();

  /// Runs on tensors with the planned shapes, dtypes, device and set of tensors; strides, addresses
  /// and the values of lengths are free and are checked (but not values in a GPU's memory). Axes
  /// that broadcast may be others than planned, and outputs that no choice depends on may be
  /// present or not. Rows of q, k and v start at multiples of 16 bytes on a GPU, unless planned
  /// `unaligned` or of a length that is none. One run at a time uses the plan's own memory; a
  /// second one meanwhile is refused with status_code::workspace. On a GPU, where runs return
  /// before they are done, that memory serves the runs in one stream (any number if
  /// workspace_bytes() is 0).
  status run(const args_type& args) const;

  /// The same in another stream than that of the plan's context.
  status run(const args_type& args, void* stream) const;

  /// The same with the caller's scratch memory: workspace_bytes() bytes, 64-byte aligned, where the
  /// plan runs. Any number of these may run at once, each with its own memory.
  status run(const args_type& args, std::span<std::byte> workspace) const;
  status run(const args_type& args, std::span<std::byte> workspace, void* stream) const;

  /// The row, who chose it and why.
  const selection_type& choice() const noexcept;
  const problem_type& problem() const noexcept;
  device_id device() const noexcept;
  /// Threads; on a GPU its multiprocessors.
  int threads() const noexcept;
  std::size_t workspace_bytes() const noexcept;

 private:
  struct state;
  explicit basic_plan(std::unique_ptr<state> made) noexcept;
  friend result<basic_plan> impl::make_plan<Family>(const problem_type&, const context&);

  std::unique_ptr<state> state_;
};

}  // namespace tessera
