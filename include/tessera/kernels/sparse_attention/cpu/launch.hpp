// Entry points of the kernels of sparse attention on the CPU.
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/sparse_attention/config.hpp>
#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/kernels/sparse_attention/cpu/blocksparse_backward.hpp>
#include <tessera/kernels/sparse_attention/cpu/blocksparse_forward.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_backward.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_forward.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Instantiated for every row that is compiled. The compiler's message shows `Kernel` and `Broken`.
template <class Kernel, sparse_attention_rule Broken>
struct row_is_legal {
  static_assert(Broken == sparse_attention_rule::none,
                "this row breaks the rule named by the second template argument");
  static_assert(isa::of<Kernel::config.target>::compiled,
                "this translation unit lacks the compiler flags of the row's backend "
                "(see tessera/prim/cpu/isa.hpp, or use -march=native)");
  static constexpr bool value = true;
};

/// The launch of a row's pattern and direction.
template <class Kernel>
auto launch_of(const sparse_attention_kernel_args& args) {
  static_assert(row_is_legal<Kernel, broken_rule(Kernel::config)>::value);
  constexpr bool backward = Kernel::config.pass == sparse_pass::backward;
  if constexpr (Kernel::config.pattern == sparse_pattern::blocksparse) {
    using kernel =
        std::conditional_t<backward, blocksparse_backward<Kernel>, blocksparse_forward<Kernel>>;
    return kernel(args.blocksparse);
  } else {
    using kernel =
        std::conditional_t<backward, native_sparse_backward<Kernel>, native_sparse_forward<Kernel>>;
    return kernel(args.native_sparse);
  }
}

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const sparse_attention_kernel_args& args, int threads) {
  return launch_of<Kernel>(args).workspace_bytes(threads);
}

/// Runs the row's kernel. `args` come from `lower`.
template <class Kernel>
status launch(const sparse_attention_kernel_args& args, const launch_context& context) {
  const auto kernel = launch_of<Kernel>(args);
  const std::size_t needed = kernel.workspace_bytes(context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  kernel.run(context.workspace, context.threads);
  return {};
}

}  // namespace tessera::kernels::sparse_attention::cpu
