// Launches of grouped matrix products on the CPU: rows times the weights of their group,
// or the gradients of that.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/kernels/cpu_entry_points.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_blocks.hpp>
#include <tessera/kernels/grouped_matmul/cpu/row_products.hpp>
#include <tessera/kernels/grouped_matmul/cpu/sums.hpp>
#include <tessera/kernels/grouped_matmul/cpu/tile_memory.hpp>
#include <tessera/kernels/grouped_matmul/cpu/traits.hpp>
#include <tessera/kernels/grouped_matmul/cpu/weight_gradients.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::grouped_matmul::cpu {

/// A launch: every block of a result once, by whichever thread is free.
template <class Kernel>
class grouped_launch {
  using shape = traits<Kernel>;

 public:
  grouped_launch(const grouped_matmul_kernel_args& args, std::byte* workspace, int threads)
      : args_(args),
        lists_(args, workspace),
        tiles_(workspace + row_lists<Kernel>::bytes(args)),
        threads_(threads) {}

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
    const weight_gradients<Kernel> gradients(args_, threads_);
    for_each_item(gradients.items(), [&](std::int64_t item, const tile_memory<Kernel>& memory) {
      gradients.run(item, lists_, memory);
    });
    run_sums();
  }

  template <class Body>
  void for_each_item(std::int64_t items, const Body& body) const {
    const std::size_t bytes = tile_memory<Kernel>(nullptr, args_).bytes;
    prim::parallel_items<typename shape::isa_type>(
        items, threads_, [&](std::int64_t item, int thread) {
          body(item, tile_memory<Kernel>(tiles_ + static_cast<std::size_t>(thread) * bytes, args_));
        });
  }

  template <class Epilogue>
  void run_rows(const row_products<Kernel>& products, const Epilogue& epilogue) const {
    const std::int64_t width = products.item_columns(lists_.block_count, threads_);
    const std::int64_t parts = blocks_of<Kernel>(products.columns(), width);
    for_each_item(
        lists_.block_count * parts, [&](std::int64_t item, const tile_memory<Kernel>& memory) {
          products.run(lists_.blocks[item / parts],
                       part_of<Kernel>(item % parts, width, products.columns()), memory, epilogue);
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

/// The launch of a row with an epilogue.
template <class Kernel>
struct launcher {
  using args_type = grouped_matmul_kernel_args;

  template <class Epilogue>
  struct launch {
    std::size_t workspace_bytes(int threads) const {
      return row_lists<Kernel>::bytes(args) +
             static_cast<std::size_t>(threads) * tile_memory<Kernel>(nullptr, args).bytes;
    }
    void run(std::byte* workspace, int threads) const {
      grouped_launch<Kernel>(args, workspace, threads).run(epilogue);
    }

    const args_type& args;
    const Epilogue& epilogue;
  };

  template <class Epilogue = no_epilogue>
  static launch<Epilogue> of(const args_type& args, const Epilogue& epilogue = none) {
    return {args, epilogue};
  }

 private:
  static constexpr no_epilogue none{};
};

}  // namespace tessera::kernels::grouped_matmul::cpu
