// Entry points of the kernels of grouped matrix products: rows times the weights of their group,
// or the gradients of that.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_blocks.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_products.hpp>
#include <tessera/kernels/grouped_matmul/cpu/sums.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/kernels/grouped_matmul/cpu/weight_gradients.hpp>
#include <tessera/prim/common/workspace.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// Bytes of scratch memory for `launch`. Reads no memory that `args` points to.
template <class Kernel>
std::size_t workspace_bytes(const grouped_matmul_kernel_args& args, int threads) {
  return row_lists<Kernel>::bytes(args) +
         static_cast<std::size_t>(threads) * tile_memory<Kernel>(nullptr).bytes;
}

/// A launch: every block of a result once, by whichever thread is free.
template <class Kernel>
class grouped_launch {
  using shape = traits<Kernel>;

 public:
  grouped_launch(const grouped_matmul_kernel_args& args, const launch_context& context)
      : args_(args),
        lists_(args, context.workspace),
        tiles_(context.workspace + row_lists<Kernel>::bytes(args)),
        threads_(context.threads) {}

  /// Gradients have no epilogue.
  template <class Epilogue>
  void run(const Epilogue& epilogue) const {
    if (shape::has_byte_products || args_.d_out.data == nullptr) {
      return run_rows(row_products<Kernel>::forward(args_), epilogue);
    }
    if constexpr (!shape::has_byte_products) run_gradients();
  }

 private:
  void run_gradients() const {
    run_rows(row_products<Kernel>::backward(args_), no_epilogue{});
    const weight_gradients<Kernel> gradients(args_);
    for_each_item(gradients.items(), [&](std::int64_t item, const tile_memory<Kernel>& memory) {
      gradients.run(item, lists_, memory);
    });
    run_sums();
  }

  template <class Body>
  void for_each_item(std::int64_t items, const Body& body) const {
    const std::size_t bytes = tile_memory<Kernel>(nullptr).bytes;
    prim::parallel_items<typename shape::isa_type>(
        items, threads_, [&](std::int64_t item, int thread) {
          body(item, tile_memory<Kernel>(tiles_ + static_cast<std::size_t>(thread) * bytes));
        });
  }

  template <class Epilogue>
  void run_rows(const row_products<Kernel>& products, const Epilogue& epilogue) const {
    const std::int64_t columns = products.column_blocks();
    for_each_item(lists_.block_count * columns,
                  [&](std::int64_t item, const tile_memory<Kernel>& memory) {
                    products.run(lists_.blocks[item / columns], item % columns, memory, epilogue);
                  });
  }

  part_of_axis columns_of(std::int64_t block) const {
    return part_of<Kernel>(block, shape::block_n, args_.n);
  }

  void run_sums() const {
    const std::int64_t columns = blocks_of<Kernel>(args_.n, shape::block_n);
    if (args_.d_rhs_bias.data != nullptr) {
      for_each_item(
          args_.groups * columns, [&](std::int64_t item, const tile_memory<Kernel>& memory) {
            sum_bias_gradient<Kernel>(args_, item / columns, lists_.ranges[item / columns],
                                      columns_of(item % columns), memory);
          });
    }
    if (args_.d_out_init.data == nullptr) return;
    for_each_item(lists_.block_count * columns,
                  [&](std::int64_t item, const tile_memory<Kernel>& memory) {
                    copy_init_gradient<Kernel>(args_, lists_.blocks[item / columns],
                                               columns_of(item % columns), memory);
                  });
  }

  const grouped_matmul_kernel_args& args_;
  row_lists<Kernel> lists_;
  std::byte* tiles_;
  int threads_;
};

/// Runs the row's kernel with an epilogue. `args` come from `lower`.
template <class Kernel, class Epilogue>
status launch_with(const grouped_matmul_kernel_args& args, const launch_context& context,
                   const Epilogue& epilogue) {
  const std::size_t needed = workspace_bytes<Kernel>(args, context.threads);
  if (status done = prim::check_workspace({context.workspace, context.workspace_bytes}, needed);
      !done) {
    return done;
  }
  grouped_launch<Kernel>(args, context).run(epilogue);
  return {};
}

/// Runs the row's kernel.
template <class Kernel>
status launch(const grouped_matmul_kernel_args& args, const launch_context& context) {
  return launch_with<Kernel>(args, context, no_epilogue{});
}

}  // namespace tessera::kernels::grouped_matmul::cpu
