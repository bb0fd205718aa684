// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::flash_config config{.target = tessera::native_cpu_backend,
//                                                   .head_dim = 128};
//   };
//   tessera::status done = tessera::launch<my_row>(args, {.causal = true}, tessera::cpu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <span>

#include <tessera/kernels/flash_attention/launch.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/eligibility.hpp>
#include <tessera/spec/flash_attention/lower.hpp>
#include <tessera/spec/flash_attention/options.hpp>
#include <tessera/spec/flash_attention/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Where a header-path launch runs.
struct cpu {
  /// 0: what OpenMP would use; 1 where the unit is compiled without OpenMP.
  int threads = 0;
  /// Scratch memory, 64-byte aligned, flash::workspace_bytes<Row>() bytes. Empty: a buffer of the
  /// calling thread that grows as needed and is kept.
  std::span<std::byte> workspace{};
};

namespace flash {

/// Scratch memory of the calling thread, shared by all header-path launches of one instruction set.
template <class Isa>
std::byte* thread_workspace(std::size_t bytes) {
  constexpr auto alignment = std::align_val_t{64};
  struct release {
    void operator()(std::byte* p) const { ::operator delete (p, std::align_val_t{64}); }
  };
  thread_local std::unique_ptr<std::byte, release> memory;
  thread_local std::size_t capacity = 0;
  if (bytes > capacity) {
    memory.reset();
    capacity = 0;
    memory.reset(static_cast<std::byte*>(::operator new(bytes, alignment)));
    capacity = bytes;
  }
  return memory.get();
}

inline int threads_of(const cpu& where) {
  if (where.threads > 0) return where.threads;
#if defined(_OPENMP)
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// Refuses options, sizes and features that the row's config does not take.
template <class Row>
status check_row(const flash_attention_args& args, const flash_attention_options& options,
                 flash_op op) {
  constexpr flash_config config = traits<Row>::config;
  const flash_problem problem = problem_of(args, options, op);
  const flash_mismatch mismatch = mismatch_of(config, problem);
  if (mismatch == flash_mismatch::none) return {};
  return {status_code::ineligible_row, sentence_of(mismatch, config, problem)};
}

}  // namespace flash

/// Runs the kernel of `Row` on the CPU: same arguments, options, checks and results as
/// `flash_attention` (with args.weights: as `attention`), and nothing is looked up. `hooks` are
/// compiled into the tile loop (see flash_hooks).
///
/// Errors: those of `flash_attention`, and status_code::ineligible_row if the row's config does not
/// take the problem ("head_dim is 96, the row has 128").
template <class Row, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const flash_attention_args& args,
                                             const flash_attention_options& options,
                                             const cpu& where = {}, const Hooks& hooks = {}) {
  using isa_type = typename flash::traits<Row>::isa_type;
  const flash_op op = args.weights.present() ? flash_op::attention : flash_op::flash_attention;
  flash_kernel_args lowered;
  if (status done = lower(op, args, options, lowered); !done) return done;
  if (status done = flash::check_row<Row>(args, options, op); !done) return done;
  const int threads = flash::threads_of(where);
  const std::size_t bytes = flash::workspace_bytes<Row>(lowered, threads);
  std::byte* memory =
      where.workspace.empty() ? flash::thread_workspace<isa_type>(bytes) : where.workspace.data();
  const std::size_t given = where.workspace.empty() ? bytes : where.workspace.size();
  if (status done = flash::launch_with<Row>(lowered, hooks, {threads, memory, given}); !done) {
    return done;
  }
  if (args.dropout_mask.present()) prim::write_dropout_mask(args.dropout_mask, lowered);
  return {};
}

/// The same with default options; a row whose mask is `causal` runs a causal problem.
template <class Row, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const flash_attention_args& args,
                                             const cpu& where = {}, const Hooks& hooks = {}) {
  return launch<Row>(args, {.causal = Row::config.mask == mask_mode::causal}, where, hooks);
}

}  // namespace tessera
