// A walk through the blocks of queries and tiles of keys of a head, for what is summed over pairs:
// gradients of biases, of parameters of functors.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/cpu/block.hpp>
#include <tessera/kernels/attention_backward/cpu/launch_memory.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>

namespace tessera::kernels::attention_backward::cpu {

/// Numbers [begin, end) of an axis.
struct axis_part {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

template <class Row>
class block_walk {
  using shape = traits<Row>;
  using query_rows = typename shape::query_rows;

 public:
  block_walk(const attention_backward_kernel_args& args, const launch_memory<Row>& memory,
             const scratch<Row>& buffers)
      : args_(args), memory_(memory), buffers_(buffers) {}

  /// Queries whose rows fill a block.
  static std::int64_t queries_of(const attention_kernel_args& of) {
    const int group = kernels::attention::group_of(of);
    return group < 1 || group > shape::block_q ? 1 : shape::block_q / group;
  }
  /// Blocks of a sequence at most.
  static std::int64_t blocks_of(const attention_kernel_args& of) {
    return schedule_backward::ceil_div(of.q_len, queries_of(of));
  }

  /// Calls add(rows, columns that some row sees, first key, keys) for every block of these queries
  /// and keys of a head; the gradients of its scores are in the buffers.
  template <class Add>
  void run(std::int64_t entry, int kv_head, axis_part queries, axis_part keys,
           const Add& add) const {
    const attention_kernel_args& of = args_.forward;
    const prim::sequence seq = kernels::attention::sequence_of(of, entry);
    const std::int64_t group = kernels::attention::group_of(of);
    const std::int64_t q_end = queries.end < seq.q_len ? queries.end : seq.q_len;
    const std::int64_t k_end = keys.end < seq.k_len ? keys.end : seq.k_len;
    const float* const correction = memory_.correction_of(of, seq, kv_head);
    for (std::int64_t row = queries.begin * group; row < q_end * group; row += shape::block_q) {
      const std::int64_t left = q_end * group - row;
      const query_rows rows(of, *memory_.hooks, entry, kv_head, row,
                            static_cast<int>(left < shape::block_q ? left : shape::block_q));
      const block<Row> part(args_, rows, buffers_);
      part.load_rows(correction + row, nullptr);
      for (std::int64_t key0 = keys.begin; key0 < k_end; key0 += shape::block_kv) {
        const int count =
            static_cast<int>(k_end - key0 < shape::block_kv ? k_end - key0 : shape::block_kv);
        if (!part.sees(key0, count)) continue;
        part.load_keys(key0, count, false);
        add(rows, part.template compute<block_part::gradients>(key0, count), key0, count);
      }
    }
  }

 private:
  const attention_backward_kernel_args& args_;
  const launch_memory<Row>& memory_;
  const scratch<Row>& buffers_;
};

}  // namespace tessera::kernels::attention_backward::cpu
