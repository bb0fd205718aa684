// Memory of a launch: what all threads share, and a slice of each.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention_backward/cpu/scratch.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>

namespace tessera::kernels::attention_backward::cpu {

/// Rows of q are folded as in the forward kernels: those of a key/value head lie side by side, row
/// r of a sequence being query r / group of head r % group.
/// Sums of the gradients of a functor's parameters, whatever the number of threads.
inline constexpr std::int64_t parameter_lanes = 32;

template <class Row>
struct launch_memory {
  using shape = traits<Row>;

  float* correction;     ///< [kv_heads][rows]
  float* d_q;            ///< [parts of keys][kv_heads][rows][columns of the head dim]
  double* sums;          ///< [threads][sum_count]: of gradients of biases
  double* d_parameters;  ///< [parameter_lanes][parameters]: of a functor's parameters
  const typename shape::hooks* hooks;
  std::byte* slices;
  std::size_t slice;  ///< bytes of one thread
  std::size_t bytes;  ///< of all
  std::int64_t rows;  ///< folded, of all entries
  std::int64_t sum_count;
  std::int64_t parameters;
  int d_q_stride;

  /// Needs no memory to count bytes: `base` may be null.
  static launch_memory at(std::byte* base, const attention_backward_kernel_args& args,
                          const typename shape::hooks& hooks, int threads) {
    const attention_kernel_args& of = args.forward;
    const std::int64_t group = kernels::attention::group_of(of);
    launch_memory memory{};
    memory.hooks = &hooks;
    if constexpr (shape::has_parameters) memory.parameters = hooks.logits.parameters();
    memory.rows = schedule_backward::all_rows(of) * group;
    memory.d_q_stride = shape::columns_of(shape::head_dim(of));
    std::size_t offset = 0;
    const auto take = [&]<class Element>(Element** pointer, std::int64_t count) {
      *pointer = reinterpret_cast<Element*>(base + offset);
      offset += (static_cast<std::size_t>(count) * sizeof(Element) + 63) / 64 * 64;
    };
    const std::int64_t all = memory.rows * of.kv_heads;
    take(&memory.correction, all);
    take(&memory.d_q,
         schedule_backward::key_parts::room_for(of.kv_heads) * all * memory.d_q_stride);
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
  float* d_q_of(const attention_kernel_args& args, const prim::sequence& seq, int kv_head,
                std::int64_t part) const {
    const std::int64_t row = part * args.kv_heads * rows + first_row(args, seq, kv_head, rows);
    return d_q + row * d_q_stride;
  }
};

}  // namespace tessera::kernels::attention_backward::cpu
