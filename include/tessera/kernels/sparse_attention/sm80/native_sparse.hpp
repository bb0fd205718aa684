// The launches of native sparse attention: workspace, kernels and their order.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/sparse_attention/sm80/kernel_queue.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_branches.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_forward.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_keys.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_queries.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_selecting.hpp>
#include <tessera/kernels/sparse_attention/sm80/native_sparse_selection.hpp>
#include <tessera/kernels/sparse_attention/sm80/selected_blocks.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::sparse_attention::sm80 {

/// What both directions place and queue.
template <class Kernel>
class native_sparse_memory {
 protected:
  native_sparse_memory(const native_sparse_kernel_args& call, std::byte* workspace)
      : launch_{.call = call,
                .looked_at = call.given,
                .looked_slots = call.given.data == nullptr ? 0 : call.slots},
        parts_(workspace) {}

  /// Rows of floats, one for each block and key/value head.
  sparse_rows means(std::int64_t width) {
    const std::int64_t blocks = launch_.parts(launch_.call.block_size);
    float* rows = nullptr;
    parts_.take(rows, launch_.call.kv_heads * blocks * width);
    return {.data = rows, .type = dtype::f32, .entry = 0, .head = blocks * width, .token = width};
  }
  bool is_compressed() const { return launch_.call.g_cmp.data != nullptr; }

  void place_means() {
    launch_.means_k = means(launch_.call.head_dim);
    if (is_compressed()) launch_.means_v = means(launch_.call.v_head_dim);
  }
  void queue_means(kernel_queue& queue) const {
    queue.run_items(&native_sparse_means<Kernel>,
                    launch_.call.kv_heads * launch_.parts(launch_.call.block_size), threads, 0,
                    launch_);
  }
  /// Tiles of rows: lists of tokens, key/value heads, parts of their groups.
  std::int64_t row_items() const {
    return launch_.parts(launch_.tokens_of_list()) * launch_.call.kv_heads *
           launch_.lists_of_group();
  }
  /// Zeros in rows of tokens of no sequence, if there is such a tensor.
  void queue_clearing(kernel_queue& queue, const sparse_rows& rows, std::int64_t heads,
                      std::int64_t columns) const {
    if (!launch_.packed() || rows.data == nullptr) return;
    const std::int64_t elements = launch_.call.sequences.tokens * heads * columns;
    queue.run(&clear_unused_rows<Kernel>, clearing_blocks(elements), threads, 0,
              launch_.call.sequences, rows, heads, columns);
  }
  static std::int64_t clearing_blocks(std::int64_t elements) {
    return std::min<std::int64_t>((elements + threads - 1) / threads, 1024);
  }

  native_sparse_launch launch_;
  cuda::workspace_parts parts_;
};

/// Selected blocks on the matrix unit token by token, with what the workspace holds for them:
/// nothing.
template <class Kernel>
class selected_by_tokens {
  using tiles = selected_tiles<Kernel>;

 public:
  void place(const native_sparse_launch& /*launch*/, int /*multiprocessors*/,
             cuda::workspace_parts& /*parts*/) {}
  static void add_entries(std::vector<prim::cuda::kernel_entry>& all) {
    all.push_back(cuda::entry_of(&native_sparse_attend_selected<Kernel>, tiles::shared_bytes));
  }
  void queue(kernel_queue& queue, const native_sparse_launch& launch) const {
    const std::int64_t items = launch.parts(1) * launch.call.kv_heads * launch.lists_of_group();
    queue.run(&native_sparse_attend_selected<Kernel>, (items + tiles::warps - 1) / tiles::warps,
              tiles::warps * prim::cuda::warp_size, tiles::shared_bytes, launch, items);
  }
};

template <class Kernel, class Selected = selected_by_tokens<Kernel>>
class native_sparse_forward_row : native_sparse_memory<Kernel> {
  using memory = native_sparse_memory<Kernel>;
  using memory::clearing_blocks, memory::is_compressed, memory::launch_, memory::means,
      memory::parts_, memory::place_means, memory::queue_clearing, memory::queue_means,
      memory::row_items;

 public:
  native_sparse_forward_row(const native_sparse_kernel_args& call, int multiprocessors,
                            std::byte* workspace)
      : memory(call, workspace) {
    if (launch_.selects() || is_compressed()) place_means();
    if (on_matrix_unit && has_others()) {
      const std::int64_t width = call.v_head_dim, tokens = call.sequences.tokens;
      float* rows = nullptr;
      parts_.take(rows, launch_.all_tokens() * call.q_heads * width);
      launch_.others =
          sparse_rows{rows, dtype::f32, tokens * call.q_heads * width, width, call.q_heads * width};
    }
    items_ = launch_.parts(tokens_of_worker()) * call.kv_heads;
    most_workers_ = std::max(1, multiprocessors) * 4;
    workers_ = std::min<std::int64_t>(items_, most_workers_);
    if (launch_.selects()) place_selection();
    if constexpr (on_matrix_unit) selected_.place(launch_, multiprocessors, parts_);
  }
  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    std::vector<prim::cuda::kernel_entry> all{cuda::entry_of(&native_sparse_means<Kernel>),
                                              cuda::entry_of(&clear_unused_rows<Kernel>),
                                              cuda::entry_of(&clear_unused_slots<Kernel>)};
    if constexpr (on_matrix_unit) {
      all.push_back(cuda::entry_of(&native_sparse_attend_branches<Kernel>,
                                   value_tiles<Kernel>::shared_bytes));
      all.push_back(
          cuda::entry_of(&native_sparse_select_tiles<Kernel>, score_tiles<Kernel>::key_bytes));
      Selected::add_entries(all);
    } else {
      all.push_back(cuda::entry_of(&native_sparse_select<Kernel>, selection_bytes(most_head_dim)));
      all.push_back(cuda::entry_of(&native_sparse_attend<Kernel>,
                                   attend_bytes(most_head_dim, most_head_dim)));
    }
    return all;
  }
  status launch(const launch_context& context) const {
    const native_sparse_kernel_args& call = launch_.call;
    kernel_queue queue(context);
    if (launch_.selects() || is_compressed()) queue_means(queue);
    if constexpr (on_matrix_unit) {
      queue_tiles(queue);
    } else {
      if (launch_.selects()) {
        queue.run(&native_sparse_select<Kernel>, workers_, threads, selection_bytes(call.head_dim),
                  launch_, launch_.parts(launch_.tokens_of_list()));
      }
      if (attends()) {
        queue.run_items(&native_sparse_attend<Kernel>, row_items(), threads,
                        attend_bytes(call.head_dim, call.v_head_dim), launch_);
      }
    }
    queue_clearing(queue, call.out, call.q_heads, call.v_head_dim);
    if (launch_.packed() && call.selected.data != nullptr) {
      queue.run(&clear_unused_slots<Kernel>,
                clearing_blocks(call.sequences.tokens * call.kv_heads * call.block_count), threads,
                0, call);
    }
    return queue.ended();
  }

 private:
  static constexpr bool on_matrix_unit = Kernel::config.type != dtype::none;

  /// Weights of blocks, and places for the selection where the call has none.
  void place_selection() {
    const native_sparse_kernel_args& call = launch_.call;
    parts_.take(launch_.weights, workers_ * tokens_of_worker() * launch_.most_blocks());
    launch_.looked_slots =
        std::min(call.block_count, std::max<std::int64_t>(1, launch_.most_blocks()));
    launch_.looked_at = call.selected;
    if (call.selected.data != nullptr) return;
    const std::int64_t slots = launch_.looked_slots, tokens = call.sequences.tokens;
    launch_.looked_at =
        sparse_slots{nullptr, tokens * call.kv_heads * slots, slots, call.kv_heads * slots, 1};
    parts_.take(launch_.looked_at.data, launch_.all_tokens() * call.kv_heads * slots);
  }

  /// False where blocks are selected and no more.
  bool attends() const { return launch_.call.out.data != nullptr; }
  bool has_others() const { return is_compressed() || launch_.call.g_swa.data != nullptr; }
  /// Tokens that a block of threads selects for at a time.
  std::int64_t tokens_of_worker() const {
    if constexpr (on_matrix_unit) return score_tiles<Kernel>::warps;
    return launch_.tokens_of_list();
  }

  /// The other branches, the selection, then selected blocks.
  void queue_tiles(kernel_queue& queue) const {
    using values = value_tiles<Kernel>;
    using scores = score_tiles<Kernel>;
    if (has_others()) {
      const std::int64_t items = launch_.parts(values::warps) * launch_.call.kv_heads;
      queue.run(&native_sparse_attend_branches<Kernel>, std::min(items, most_workers_),
                values::block_threads, values::shared_bytes, launch_, items);
    }
    if (launch_.selects()) {
      queue.run(&native_sparse_select_tiles<Kernel>, workers_, scores::block_threads,
                scores::key_bytes, launch_, items_);
    }
    if (attends()) selected_.queue(queue, launch_);
  }

  Selected selected_;
  std::int64_t items_ = 0;    ///< pieces of work of the selection
  std::int64_t workers_ = 0;  ///< its blocks of threads, each with weights of its own
  std::int64_t most_workers_ = 1;
};

template <class Kernel>
class native_sparse_backward_row : native_sparse_memory<Kernel> {
  using memory = native_sparse_memory<Kernel>;
  using memory::clearing_blocks, memory::is_compressed, memory::launch_, memory::means,
      memory::parts_, memory::place_means, memory::queue_clearing, memory::queue_means,
      memory::row_items;

 public:
  native_sparse_backward_row(const native_sparse_kernel_args& call, int /*multiprocessors*/,
                             std::byte* workspace)
      : memory(call, workspace) {
    parts_.take(launch_.lse, sparse_branches * launch_.all_tokens() * call.q_heads);
    parts_.take(launch_.correction, sparse_branches * launch_.all_tokens() * call.q_heads);
    if (!is_compressed()) return;
    place_means();
    launch_.d_means_k = means(call.head_dim);
    launch_.d_means_v = means(call.v_head_dim);
  }
  std::size_t bytes() const { return parts_.bytes(); }

  static auto entries() {
    const int most = gradient_bytes(most_head_dim, most_head_dim);
    return std::array{cuda::entry_of(&native_sparse_means<Kernel>),
                      cuda::entry_of(&clear_unused_rows<Kernel>),
                      cuda::entry_of(&native_sparse_query_gradients<Kernel>, most),
                      cuda::entry_of(&native_sparse_mean_gradients<Kernel>, most),
                      cuda::entry_of(&native_sparse_key_gradients<Kernel>, most)};
  }
  status launch(const launch_context& context) const {
    const native_sparse_kernel_args& call = launch_.call;
    const int shared = gradient_bytes(call.head_dim, call.v_head_dim);
    kernel_queue queue(context);
    if (is_compressed()) queue_means(queue);
    queue.run_items(&native_sparse_query_gradients<Kernel>, row_items(), threads, shared, launch_);
    if (is_compressed()) {
      queue.run_items(&native_sparse_mean_gradients<Kernel>,
                      launch_.parts(call.block_size * tile) * call.kv_heads, threads, shared,
                      launch_);
    }
    const std::int64_t tiles_of_block = (call.block_size + tile - 1) / tile;
    queue.run_items(&native_sparse_key_gradients<Kernel>,
                    launch_.parts(call.block_size) * call.kv_heads * tiles_of_block, threads,
                    shared, launch_);
    queue_clearing(queue, call.d_q, call.q_heads, call.head_dim);
    queue_clearing(queue, call.d_k, call.kv_heads, call.head_dim);
    queue_clearing(queue, call.d_v, call.kv_heads, call.v_head_dim);
    for (const sparse_rows* gate : {&call.d_g_slc, &call.d_g_cmp, &call.d_g_swa}) {
      queue_clearing(queue, *gate, call.q_heads, 1);
    }
    return queue.ended();
  }
};

}  // namespace tessera::kernels::sparse_attention::sm80
