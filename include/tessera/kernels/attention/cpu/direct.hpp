// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::attention_config config{.target = tessera::native_cpu_backend,
//                                                   .head_dim = 128};
//   };
//   tessera::status done = tessera::launch<my_row>(args, {.causal = true}, tessera::cpu{});
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <cstddef>
#include <span>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/kernels/attention/cpu/launch.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::attention::cpu {

/// `launch` of a validated call.
template <class Kernel, class Problem, class Hooks>
status launch_direct(const Problem& problem, attention_kernel_args& lowered,
                     const tessera::cpu& where, const Hooks& hooks) {
  lowered.batch_invariant = where.batch_invariant;
  using isa_type = typename traits<Kernel>::isa_type;
  if (status done = direct::check_row(traits<Kernel>::config, problem); !done) return done;
  if constexpr (traits<Kernel>::tiles) {
    if (status done = direct::check_tiles<isa_type>(); !done) return done;
  }
  const int threads = direct::threads_of(where);
  const std::size_t bytes = workspace_bytes<Kernel>(lowered, threads);
  std::span<std::byte> memory;
  if (status done = prim::find_workspace<isa_type>(where.workspace, bytes, memory); !done) {
    return done;
  }
  return launch_with<Kernel>(lowered, hooks, {threads, memory.data(), memory.size()});
}

}  // namespace kernels::attention::cpu

/// Runs the kernel `Kernel` on the CPU: same arguments, options, checks and results as
/// `flash_attention` (with args.weights: as `attention`), and nothing is looked up. `hooks` are
/// compiled into the tile loop (see flash_hooks).
///
/// Errors: those of `flash_attention`, status_code::device if a row of cpu_amx_bf16 may not use the
/// tile registers here, and status_code::ineligible_row if the row's config does not
/// take the problem ("head_dim is 96, the row has 128").
template <class Kernel, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const flash_attention_args& args,
                                             const flash_attention_options& options,
                                             const cpu& where = {}, const Hooks& hooks = {}) {
  const flash_op op = args.weights.present() ? flash_op::attention : flash_op::flash_attention;
  attention_kernel_args lowered;
  if (status done = lower(op, args, options, lowered); !done) return done;
  if (status done = kernels::attention::cpu::launch_direct<Kernel>(problem_of(args, options, op),
                                                                   lowered, where, hooks);
      !done) {
    return done;
  }
  if (args.dropout_mask.present()) {
    prim::write_dropout_mask(args.dropout_mask, lowered.dropout_seed, lowered.dropout_threshold);
  }
  return {};
}

/// The same with default options; a row whose mask is `causal` runs a causal problem.
template <class Kernel, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status launch(const flash_attention_args& args,
                                             const cpu& where = {}, const Hooks& hooks = {}) {
  return launch<Kernel>(args, {.causal = Kernel::config.mask == mask_mode::causal}, where, hooks);
}

/// The same for other operations, by their enumerators: `launch<row>(page_op::page_attention, args,
/// options)` with a row whose config has `keys` paged.
template <class Kernel, class Op, class Hooks = flash_hooks<>>
requires prim::is_hooks<Hooks> status
launch(Op op, const typename operation_table<Op>::problem_type::args_type& args,
       const typename operation_table<Op>::problem_type::options_type& options,
       const cpu& where = {}, const Hooks& hooks = {}) {
  attention_kernel_args lowered;
  if (status done = lower(op, args, options, lowered); !done) return done;
  return kernels::attention::cpu::launch_direct<Kernel>(problem_of(args, options, op), lowered,
                                                        where, hooks);
}

}  // namespace tessera
