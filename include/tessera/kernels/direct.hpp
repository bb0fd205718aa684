// What the header paths of all families share: where a launch runs, and whether its row takes it.
#pragma once

#include <cstddef>
#include <span>

#include <tessera/prim/common/tile_access.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/fits.hpp>
#include <tessera/spec/problem_of.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Where a header-path launch runs.
struct cpu {
  /// 0: what OpenMP would use; 1 where the unit is compiled without OpenMP.
  int threads = 0;
  /// Scratch memory, 64-byte aligned, as much as the row's `workspace_bytes` says. Empty: a buffer
  /// of the calling thread that grows as needed and is kept.
  std::span<std::byte> workspace{};
  /// The bits of an entry do not depend on the others: pages that sequences share are read by each.
  bool batch_invariant = false;
};

namespace direct {

inline int threads_of(const cpu& where) {
  return where.threads > 0 ? where.threads : prim::default_threads();
}

/// Refuses options, sizes and features that a row's config does not take.
template <class Config, class Problem>
status check_row(const Config& config, const Problem& problem) {
  if (runs(config, problem)) return {};
  return {status_code::ineligible_row, obstacle_of(config, problem)};
}

/// Runs the kernel of `Row` on a call of an operation, after its checks: in the caller's memory, or
/// in that of this thread. `Launcher` is the row's (kernels/cpu_entry_points.hpp).
template <template <class> class Launcher, class Row, class Op, class Args, class Options,
          class... Hooks>
status launch_on_cpu(Op op, const Args& args, const Options& options, const cpu& where,
                     const Hooks&... hooks) {
  typename Launcher<Row>::args_type lowered;
  if (status done = lower(op, args, options, lowered); !done) return done;
  if (status done = check_row(resolved(Row::config), problem_of(args, options, op)); !done) {
    return done;
  }
  const auto launch = Launcher<Row>::of(lowered, hooks...);
  const int threads = threads_of(where);
  std::span<std::byte> memory;
  if (status done = prim::find_workspace<typename isa::of<Row::config.target>::type>(
          where.workspace, launch.workspace_bytes(threads), memory);
      !done) {
    return done;
  }
  launch.run(memory.data(), threads);
  return {};
}

/// Refuses rows of AMX where this process may not use its registers.
template <class Isa>
status check_tiles() {
  static const tile_access tiles = prim::find_tile_access<Isa>();
  if (tiles == tile_access::granted) return {};
  return refusal(status_code::device, {"the row needs ", name_of(backend::cpu_amx_bf16),
                                       ", this processor does not give it", reason_of(tiles)});
}

/// The same of a row, if it is one. Configs may have rows of no type there, whose loops need none.
template <class Row>
status check_tiles_of() {
  if constexpr (has_tile_products(Row::config.target) && Row::config.type != dtype::none) {
    return check_tiles<typename isa::of<Row::config.target>::type>();
  }
  return {};
}

}  // namespace direct

}  // namespace tessera
