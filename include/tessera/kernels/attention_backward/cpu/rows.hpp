// What is done row by row: the correction of each row and operands that all tiles of keys share
// ahead of the products, d_q behind them, and the gradients of sinks.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>

#include <tessera/kernels/attention_backward/cpu/block.hpp>
#include <tessera/kernels/attention_backward/cpu/launch_memory.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack_columns.hpp>

namespace tessera::kernels::attention_backward::cpu {

TESSERA_INLINE float statistic_of(const row_statistics& of, const prim::sequence& seq, int head,
                                  std::int64_t query) {
  return of.data[seq.index * of.batch + head * of.head + (seq.q_begin + query) * of.row];
}

/// Writes columns of a row: floats times `factor` as elements, or zeros.
template <class Row>
TESSERA_INLINE void store_gradient(typename traits<Row>::element* to, const float* from, int count,
                                   float factor) {
  using vec = typename traits<Row>::vec;
  for (int d = 0; d < count; d += vec::width) {
    const auto x =
        from != nullptr ? vec::mul(vec::load(from + d), vec::broadcast(factor)) : vec::zero();
    if (count - d >= vec::width) {
      vec::store_as(to + d, x);
    } else {
      vec::store_as_n(to + d, x, count - d);
    }
  }
}

/// What is subtracted from the gradients of a block's weights:
///   sum of d_out out - d_lse + sum over keys of Z P d_weights.
template <class Row>
void compute_corrections(const attention_backward_kernel_args& args,
                         const typename traits<Row>::query_rows& rows, float* correction,
                         const scratch<Row>& memory) {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  using element = typename shape::element;
  const attention_kernel_args& forward_args = args.forward;
  const prim::sequence& seq = rows.sequence();
  const int v_head_dim = shape::v_head_dim(forward_args);
  for (int r = 0; r < rows.count(); ++r) {
    const int head = rows.head_of(r);
    const std::int64_t query = rows.query_of(r);
    const float lse = statistic_of(forward_args.lse, seq, head, query);
    correction[r] = 0.0f;
    if (lse == prim::minus_infinity) continue;
    if (forward_args.normalize) {
      const auto* d_out = token_row<const element>(args.d_out, args.d_out_strides, seq.index,
                                                   seq.q_begin + query, head);
      const element* out = rows.output(r);
      auto sum = vec::zero();
      for (int d = 0; d < v_head_dim; d += vec::width) {
        const int count = v_head_dim - d < vec::width ? v_head_dim - d : vec::width;
        sum = vec::fma(vec::load_as_n(d_out + d, count), vec::load_as_n(out + d, count), sum);
      }
      correction[r] = vec::sum(sum);
    }
    if (args.d_lse.data != nullptr) {
      const float unit = forward_args.normalize
                             ? 1.0f
                             : std::exp(statistic_of(forward_args.row_max, seq, head, query) - lse);
      correction[r] -= statistic_of(args.d_lse, seq, head, query) * unit;
    }
  }
  if (forward_args.weights == nullptr) return;
  const block<Row> part(args, rows, memory);
  part.load_rows(correction, nullptr);
  for (std::int64_t key0 = 0; key0 < seq.k_len; key0 += shape::block_kv) {
    const int count =
        static_cast<int>(seq.k_len - key0 < shape::block_kv ? seq.k_len - key0 : shape::block_kv);
    if (!part.sees(key0, count)) continue;
    part.load_keys(key0, count, false);
    part.template compute<block_part::weights>(key0, count);
  }
  for (int r = 0; r < rows.count(); ++r) correction[r] = memory.correction[r];
}

/// Rows as columns of A, without those that are skipped; those with elements that are not finite
/// are reported and left out too.
template <class Row, class Rows, class Report>
void pack_block(const Rows& rows, int count, int head_dim, const bool* skipped, float* to,
                const Report& report) {
  using shape = traits<Row>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  constexpr int stride = shape::query_word_stride;
  if (prim::pack_columns<words, isa_type>(rows, count, head_dim, skipped, to, stride)) return;
  bool left_out[shape::block_q];
  prim::find_nonfinite<isa_type>(rows, {0, count}, head_dim, left_out);
  for (int r = 0; r < count; ++r) {
    if (left_out[r] && !skipped[r]) report(r);
    left_out[r] = left_out[r] || skipped[r];
  }
  static_cast<void>(
      prim::pack_columns<words, isa_type>(rows, count, head_dim, left_out, to, stride));
}

/// Everything that `own` holds, of rows that the sequence uses.
template <class Row>
void prepare_rows(const attention_backward_kernel_args& args,
                  const typename traits<Row>::query_rows& rows, const row_block<Row>& own,
                  const launch_memory<Row>& memory, const scratch<Row>& buffers) {
  using shape = traits<Row>;
  using element = typename shape::element;
  const attention_kernel_args& of = args.forward;
  const prim::sequence& seq = rows.sequence();
  compute_corrections<Row>(args, rows, own.correction, buffers);
  prim::listed_rows<element, shape::block_q> q, d_out;
  for (int r = 0; r < rows.count(); ++r) {
    const int head = rows.head_of(r);
    const std::int64_t query = rows.query_of(r);
    q.address[r] = rows.query(r);
    d_out.address[r] = token_row<const element>(args.d_out, args.d_out_strides, seq.index,
                                                seq.q_begin + query, head);
    buffers.skipped[r] = statistic_of(of.lse, seq, head, query) == prim::minus_infinity;
    own.taint[r] = 0.0f;
  }
  pack_block<Row>(q, rows.count(), shape::head_dim(of), buffers.skipped, own.q, [](int) {});
  pack_block<Row>(d_out, rows.count(), shape::v_head_dim(of), buffers.skipped, own.d_out,
                  [&](int r) { own.taint[r] = std::numeric_limits<float>::quiet_NaN(); });
  std::memset(own.d_q, 0,
              static_cast<std::size_t>(rows.count() * memory.d_q_stride) * sizeof(float));
  new (own.tiles) typename row_block<Row>::progress;
}

/// Writes d_q of the folded rows [begin, end) of a sequence's key/value head; zeros to rows that
/// the sequence does not use.
template <class Row>
void store_d_q(const attention_backward_kernel_args& args, const prim::sequence& seq, int kv_head,
               std::int64_t begin, std::int64_t end, const launch_memory<Row>& memory) {
  using shape = traits<Row>;
  using element = typename shape::element;
  const attention_kernel_args& of = args.forward;
  const int group = kernels::attention::group_of(of), head_dim = shape::head_dim(of);
  const std::int64_t used = seq.q_len * group;
  for (std::int64_t row = begin; row < end; ++row) {
    auto* to = token_row<element>(args.d_q, args.d_q_strides, seq.index, seq.q_begin + row / group,
                                  kv_head * group + static_cast<int>(row % group));
    if (row < used) {
      store_gradient<Row>(to, memory.d_q_of(of, seq, kv_head) + row * memory.d_q_stride, head_dim,
                          of.softmax_scale);
    } else {
      store_gradient<Row>(to, nullptr, head_dim, 0.0f);
    }
  }
}

/// d_sinks of one head, or summed over all.
template <class Row>
void store_d_sinks(const attention_backward_kernel_args& args, std::int64_t sink_row,
                   const launch_memory<Row>& memory) {
  const attention_kernel_args& of = args.forward;
  const int group = kernels::attention::group_of(of);
  const bool all_heads = args.d_sink_heads == 1;
  const auto first = all_heads ? 0 : static_cast<int>(sink_row);
  const int end = all_heads ? of.q_heads : first + 1;
  for (int t = 0; t < of.sink_count; ++t) {
    double sum = 0;
    for (int head = first; head < end; ++head) {
      const float sink = of.sinks[head * of.sink_head_stride + t * of.sink_stride];
      for (std::int64_t entry = 0; entry < of.batch; ++entry) {
        const prim::sequence seq = kernels::attention::sequence_of(of, entry);
        const float* correction = memory.correction_of(of, seq, head / group) + head % group;
        for (std::int64_t query = 0; query < seq.q_len; ++query) {
          const float lse = statistic_of(of.lse, seq, head, query);
          if (lse == prim::minus_infinity) continue;
          const float shift = of.normalize ? lse : statistic_of(of.row_max, seq, head, query);
          const float weight = sink == shift ? 1.0f : std::exp(sink - shift);
          sum -= static_cast<double>(weight) * static_cast<double>(correction[query * group]);
        }
      }
    }
    args.d_sinks[sink_row * args.d_sink_head_stride + t * args.d_sink_stride] =
        static_cast<float>(sum);
  }
}

}  // namespace tessera::kernels::attention_backward::cpu
