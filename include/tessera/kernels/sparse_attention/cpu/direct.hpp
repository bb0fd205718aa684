// The header path: everything known when compiling, nothing to link.
//
//   struct my_row {
//     static constexpr tessera::sparse_attention_config config{
//         .target = tessera::native_cpu_backend};
//   };
//   const auto same_document = [&](const tessera::position& at) { ... };
//   tessera::status done = tessera::launch<my_row>(args, {.causal = true}, tessera::cpu{},
//                                                  tessera::with_mask(same_document));
//
// Compile with OpenMP and the flags of the row's backend (-march=native gives the machine's own).
#pragma once

#include <tessera/families/sparse_attention/block_mask.hpp>
#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/families/sparse_attention/blocksparse_options.hpp>
#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/fits.hpp>
#include <tessera/families/sparse_attention/native_sparse_args.hpp>
#include <tessera/families/sparse_attention/native_sparse_options.hpp>
#include <tessera/families/sparse_attention/problem.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/sparse_attention/cpu/launch.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Runs the kernel of `Row` on the CPU: same arguments, options, checks and results as
/// `blocksparse_attention`, and nothing is looked up. The mask functor of `hooks` hides more: it is
/// asked about pairs that everything else shows, unless their block is shown as a whole, and, if it
/// has a member `classify` (see flash_hooks), about tiles.
///
/// Errors: those of the operation, status_code::ineligible_row if the row's config does not take
/// the problem, and status_code::device if a row of cpu_amx_bf16 with a type may not use the tile
/// registers here.
template <class Row, class Mask = prim::no_mask_functor>
status launch(const blocksparse_attention_args& args, const blocksparse_attention_options& options,
              const cpu& where = {}, const mask_hooks<Mask>& hooks = {}) {
  if (status done = direct::check_tiles_of<Row>(); !done) return done;
  return direct::launch_on_cpu<kernels::sparse_attention::cpu::launcher, Row>(
      blocksparse_op::blocksparse_attention, args, options, where, hooks.mask);
}

/// The same for `blocksparse_attention_backward`: the functor is that of the forward call.
template <class Row, class Mask = prim::no_mask_functor>
status launch(const blocksparse_attention_backward_args& args,
              const blocksparse_attention_options& options, const cpu& where = {},
              const mask_hooks<Mask>& hooks = {}) {
  if (status done = direct::check_tiles_of<Row>(); !done) return done;
  return direct::launch_on_cpu<kernels::sparse_attention::cpu::launcher, Row>(
      blocksparse_backward_op::blocksparse_attention_backward, args, options, where, hooks.mask);
}

/// The same for `native_sparse_attention` and its gradients, without functors.
template <class Row>
status launch(const native_sparse_attention_args& args,
              const native_sparse_attention_options& options, const cpu& where = {}) {
  if (status done = direct::check_tiles_of<Row>(); !done) return done;
  return direct::launch_on_cpu<kernels::sparse_attention::cpu::launcher, Row>(
      native_sparse_op::native_sparse_attention, args, options, where);
}
template <class Row>
status launch(const native_sparse_attention_backward_args& args,
              const native_sparse_attention_options& options, const cpu& where = {}) {
  return direct::launch_on_cpu<kernels::sparse_attention::cpu::launcher, Row>(
      native_sparse_backward_op::native_sparse_attention_backward, args, options, where);
}
/// The same for `block_selection`, by a row of native sparse attention without a type.
template <class Row>
status launch(const block_selection_args& args, const block_selection_options& options,
              const cpu& where = {}) {
  return direct::launch_on_cpu<kernels::sparse_attention::cpu::launcher, Row>(
      block_selection_op::block_selection, args, options, where);
}

}  // namespace tessera
