// Gradients of biases: those of scores, summed over the axes that the bias broadcasts. A work item
// owns a part of the axes that are not summed over and walks through the others in one order.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention_backward/cpu/block.hpp>
#include <tessera/kernels/attention_backward/cpu/launch_memory.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/kernels/attention_backward/cpu/walk.hpp>

namespace tessera::kernels::attention_backward::cpu {

template <class Row>
class bias_gradient {
  using shape = traits<Row>;
  using element = typename shape::element;
  using query_rows = typename shape::query_rows;

 public:
  /// `behind_cap`: of bias_post.
  bias_gradient(const attention_backward_kernel_args& args, const score_gradient& to,
                bool behind_cap, const launch_memory<Row>& memory)
      : args_(args),
        to_(to),
        behind_cap_(behind_cap && shape::mods::has_cap(args.forward)),
        memory_(memory),
        group_(kernels::attention::group_of(args.forward)),
        step_(block_walk<Row>::queries_of(args.forward)) {}

  std::int64_t items() const {
    return parts(to_.batches, 1) * (to_.heads > 1 ? args_.forward.kv_heads : 1) *
           parts(to_.rows, step_) * parts(to_.columns, shape::block_kv);
  }

  void run(std::int64_t item, int thread) const {
    const attention_kernel_args& of = args_.forward;
    const scratch<Row> buffers = memory_.of_thread(thread, of);
    const block_walk<Row> walk(args_, memory_, buffers);
    double* const sums = memory_.sums + memory_.sum_count * thread;
    const axis_part keys =
        part_of(item, to_.columns, shape::block_kv, of.cu_seqlens_k != nullptr, of.kv_len);
    const axis_part queries = part_of(item, to_.rows, step_, of.cu_seqlens_q != nullptr, of.q_len);
    axis_part heads{0, of.kv_heads};
    if (to_.heads > 1) {
      heads = {item % of.kv_heads, item % of.kv_heads + 1};
      item /= of.kv_heads;
    }
    const axis_part entries = to_.batches > 1 ? axis_part{item, item + 1} : axis_part{0, of.batch};
    for (std::int64_t at = 0; at < memory_.sum_count; ++at) sums[at] = 0.0;
    for (std::int64_t entry = entries.begin; entry < entries.end; ++entry) {
      for (std::int64_t head = heads.begin; head < heads.end; ++head) {
        walk.run(entry, static_cast<int>(head), queries, keys,
                 [&](const query_rows& rows, seen_columns seen, std::int64_t, int count) {
                   add_block(rows, queries.begin, seen, count, sums, buffers);
                 });
      }
    }
    store(entries.begin, heads.begin, queries, keys, sums);
  }

 private:
  static std::int64_t parts(std::int64_t extent, std::int64_t step) {
    return extent > 1 ? schedule_backward::ceil_div(extent, step) : 1;
  }
  /// The part of an axis that an item owns, or all of it; `item` loses it.
  static axis_part part_of(std::int64_t& item, std::int64_t extent, std::int64_t step, bool packed,
                           std::int64_t length) {
    if (extent <= 1) return {0, packed ? INT64_MAX : length};
    const std::int64_t count = parts(extent, step);
    const std::int64_t begin = item % count * step;
    item /= count;
    return {begin, begin + step < extent ? begin + step : extent};
  }

  void add_block(const query_rows& rows, std::int64_t first_query, seen_columns seen, int count,
                 double* sums, const scratch<Row>& buffers) const {
    const int end = seen.high < count ? seen.high : count;
    const bool columns = to_.columns > 1;
    for (int r = 0; r < rows.count(); ++r) {
      const float* const from =
          (behind_cap_ ? buffers.d_scores : buffers.d_before) + r * shape::score_stride;
      const std::int64_t query = to_.rows > 1 ? rows.query_of(r) - first_query : 0;
      const std::int64_t head = to_.heads > 1 ? rows.head_of(r) % group_ : 0;
      double* const to = sums + (query * group_ + head) * (columns ? shape::block_kv : 1);
      for (int c = seen.low; c < end; ++c) to[columns ? c : 0] += static_cast<double>(from[c]);
    }
  }

  void store(std::int64_t entry, std::int64_t kv_head, axis_part queries, axis_part keys,
             const double* sums) const {
    const bool columns = to_.columns > 1;
    const std::int64_t rows = to_.rows > 1 ? queries.end - queries.begin : 1;
    const int heads = to_.heads > 1 ? group_ : 1;
    const std::int64_t count = columns ? keys.end - keys.begin : 1;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (int g = 0; g < heads; ++g) {
        const double* const from = sums + (i * group_ + g) * (columns ? shape::block_kv : 1);
        const std::int64_t at = (to_.batches > 1 ? entry : 0) * to_.batch +
                                (to_.heads > 1 ? kv_head * group_ + g : 0) * to_.head +
                                (to_.rows > 1 ? queries.begin + i : 0) * to_.row +
                                (columns ? keys.begin : 0) * to_.column;
        for (std::int64_t j = 0; j < count; ++j) {
          put(at + j * to_.column, static_cast<float>(from[j]));
        }
      }
    }
  }

  void put(std::int64_t at, float value) const {
    if (to_.type == dtype::f32) {
      static_cast<float*>(to_.data)[at] = value;
    } else if (to_.type == dtype::f16) {
      static_cast<f16*>(to_.data)[at] = f16(value);
    } else {
      static_cast<bf16*>(to_.data)[at] = bf16(value);
    }
  }

  const attention_backward_kernel_args& args_;
  const score_gradient& to_;
  bool behind_cap_;
  const launch_memory<Row>& memory_;
  int group_;
  std::int64_t step_;  ///< queries of an item
};

}  // namespace tessera::kernels::attention_backward::cpu
