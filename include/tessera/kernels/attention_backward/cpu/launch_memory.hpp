// Memory of a launch: what all threads share, and a slice of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention_backward/cpu/scratch.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/shared_progress.hpp>

namespace tessera::kernels::attention_backward::cpu {

/// Sums of the gradients of a functor's parameters, whatever the number of threads.
inline constexpr std::int64_t parameter_lanes = 32;

/// Rows of q are folded as in the forward kernels: those of a key/value head lie side by side, row
/// r of a sequence being query r / group of head r % group. Blocks of block_q of them begin with
/// the first of a sequence. What is known of a block of rows before its tiles of keys come.
template <class Row>
struct row_block {
  using progress = prim::shared_progress<typename traits<Row>::isa_type>;

  float* correction;
  float* taint;     ///< 0, or NaN where d_out has elements that are not finite
  float* d_q;       ///< sums, [rows][columns of the head dim]
  float* q;         ///< transposed: [columns of the head dim][query_word_stride] words of A
  float* d_out;     ///< likewise
  progress* tiles;  ///< of keys that have added to d_q
};

template <class Row>
struct launch_memory {
  using shape = traits<Row>;
  using progress = typename row_block<Row>::progress;

  float* correction;     ///< [kv_heads][rows]
  float* taint;          ///< likewise
  float* d_q;            ///< [kv_heads][rows][columns of the head dim]
  float* q;              ///< [kv_heads][blocks][columns of the head dim][query_word_stride]
  float* d_out;          ///< likewise
  progress* tiles;       ///< [kv_heads][blocks]
  progress* items;       ///< tiles of keys that threads take
  double* sums;          ///< [threads][sum_count]: of gradients of biases
  double* d_parameters;  ///< [parameter_lanes][parameters]: of a functor's parameters
  const typename shape::hooks* hooks;
  std::byte* slices;
  std::size_t slice;    ///< bytes of one thread
  std::size_t bytes;    ///< of all
  std::int64_t rows;    ///< folded, of all entries
  std::int64_t blocks;  ///< of rows, of all entries: each begins one
  std::int64_t sum_count;
  std::int64_t parameters;
  int d_q_stride, d_out_columns;

  /// Needs no memory to count bytes: `base` may be null.
  static launch_memory at(std::byte* base, const attention_backward_kernel_args& args,
                          const typename shape::hooks& hooks, int threads) {
    const attention_kernel_args& of = args.forward;
    const std::int64_t group = kernels::attention::group_of(of);
    launch_memory memory{};
    memory.hooks = &hooks;
    if constexpr (shape::has_parameters) memory.parameters = hooks.logits.parameters();
    memory.rows = schedule_backward::all_rows(of) * group;
    memory.blocks = memory.rows / shape::block_q + of.batch;
    memory.d_q_stride = shape::columns_of(shape::head_dim(of));
    memory.d_out_columns = shape::columns_of(shape::v_head_dim(of));
    std::size_t offset = 0;
    const auto take = [&]<class Element>(Element** pointer, std::int64_t count) {
      *pointer = reinterpret_cast<Element*>(base + offset);
      offset += (static_cast<std::size_t>(count) * sizeof(Element) + 63) / 64 * 64;
    };
    const std::int64_t all = memory.rows * of.kv_heads;
    take(&memory.correction, all);
    take(&memory.taint, all);
    take(&memory.d_q, all * memory.d_q_stride);
    const std::int64_t all_blocks = memory.blocks * of.kv_heads;
    take(&memory.q, all_blocks * memory.d_q_stride * shape::query_word_stride);
    take(&memory.d_out, all_blocks * memory.d_out_columns * shape::query_word_stride);
    take(&memory.tiles, all_blocks);
    take(&memory.items, 1);
    const bool biases = args.d_bias_pre.data != nullptr || args.d_bias_post.data != nullptr;
    memory.sum_count =
        biases ? (group > shape::block_q ? group : shape::block_q) * shape::block_kv : 0;
    take(&memory.sums, memory.sum_count * threads);
    take(&memory.d_parameters, parameter_lanes * memory.parameters);
    memory.slices = base + offset;
    // The prefetcher of one core may not reach what another writes.
    constexpr std::size_t apart = std::size_t{16} * 1024;
    memory.slice = scratch<Row>::carve(nullptr, of, nullptr) + apart;
    memory.bytes = offset + static_cast<std::size_t>(threads) * memory.slice;
    return memory;
  }

  scratch<Row> of_thread(int thread, const attention_kernel_args& args) const {
    scratch<Row> buffers;
    scratch<Row>::carve(slices + static_cast<std::size_t>(thread) * slice, args, &buffers);
    return buffers;
  }

  /// The place of a sequence's first row of a key/value head.
  static std::int64_t first_row(const attention_kernel_args& args, const prim::sequence& seq,
                                int kv_head, std::int64_t rows) {
    const std::int64_t token = args.cu_seqlens_q != nullptr ? seq.q_begin : seq.index * args.q_len;
    return kv_head * rows + token * kernels::attention::group_of(args);
  }
  float* correction_of(const attention_kernel_args& args, const prim::sequence& seq,
                       int kv_head) const {
    return correction + first_row(args, seq, kv_head, rows);
  }
  float* d_q_of(const attention_kernel_args& args, const prim::sequence& seq, int kv_head) const {
    return d_q + first_row(args, seq, kv_head, rows) * d_q_stride;
  }
  /// The block that begins with row `row` of a sequence's key/value head.
  row_block<Row> block_of(const attention_kernel_args& args, const prim::sequence& seq, int kv_head,
                          std::int64_t row) const {
    const std::int64_t first = first_row(args, seq, kv_head, rows) + row;
    const std::int64_t before = first_row(args, seq, 0, rows) / shape::block_q + seq.index;
    const std::int64_t number = kv_head * blocks + before + row / shape::block_q;
    return {correction + first,
            taint + first,
            d_q + first * d_q_stride,
            q + number * d_q_stride * shape::query_word_stride,
            d_out + number * d_out_columns * shape::query_word_stride,
            tiles + number};
  }
};

}  // namespace tessera::kernels::attention_backward::cpu
