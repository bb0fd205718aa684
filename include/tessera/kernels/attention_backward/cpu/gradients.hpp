// The gradients of q, k and v.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691, on register tiles: a work item owns a part of the
// keys of one entry and key/value head, and so their d_k and d_v; what it adds to d_q goes to sums
// of its own.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/kernels/attention_backward/cpu/block.hpp>
#include <tessera/kernels/attention_backward/cpu/launch_memory.hpp>
#include <tessera/kernels/attention_backward/cpu/rows.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>

namespace tessera::kernels::attention_backward::cpu {

/// Rows [0, rows) of floats become words of their columns: `to` has a row for each column.
template <class Row>
void transpose_to_words(const float* from, int rows, seen_columns seen, float* to) {
  using shape = traits<Row>;
  using vec = typename shape::vec;
  constexpr int width = shape::width;
  for (int row0 = 0; row0 < rows; row0 += width) {
    for (int column0 = seen.low; column0 < seen.high; column0 += width) {
      typename vec::reg square[width];
      for (int i = 0; i < width; ++i) {
        square[i] = row0 + i < rows ? vec::load(from + (row0 + i) * shape::score_stride + column0)
                                    : vec::zero();
      }
      vec::transpose(square);
      for (int i = 0; i < width; ++i) {
        shape::words::store_words(to + (column0 + i) * shape::query_word_stride, row0, square[i]);
      }
    }
  }
}

template <class Row>
class key_gradients {
  using shape = traits<Row>;
  using words = typename shape::words;
  using vec = typename shape::vec;
  using element = typename shape::element;
  using query_rows = typename shape::query_rows;
  static constexpr auto add = prim::product_kind::add;

 public:
  key_gradients(const attention_backward_kernel_args& args, const prim::sequence& seq, int kv_head,
                const launch_memory<Row>& memory, const scratch<Row>& buffers)
      : args_(args),
        seq_(seq),
        kv_head_(kv_head),
        memory_(memory),
        buffers_(buffers),
        qk_columns_(shape::columns_of(shape::head_dim(args.forward))),
        v_columns_(shape::columns_of(shape::v_head_dim(args.forward))) {}

  /// Part `part` of the keys; the first one clears keys that the sequence does not use.
  void run(std::int64_t part) const {
    const attention_kernel_args& of = args_.forward;
    const auto cut = schedule_backward::key_parts::of(seq_.k_len, of.kv_heads, shape::block_kv);
    if (part >= cut.count) return;
    if (part == 0 && of.cu_seqlens_k == nullptr) clear_keys(seq_.k_len, of.kv_len);
    const int group = kernels::attention::group_of(of);
    const std::int64_t rows = seq_.q_len * group;
    float* const d_q = memory_.d_q_of(of, seq_, kv_head_, part);
    const float* const correction = memory_.correction_of(of, seq_, kv_head_);
    std::memset(d_q, 0, static_cast<std::size_t>(rows * qk_columns_) * sizeof(float));
    const std::int64_t end =
        (part + 1) * cut.keys < seq_.k_len ? (part + 1) * cut.keys : seq_.k_len;
    for (std::int64_t key0 = part * cut.keys; key0 < end; key0 += shape::block_kv) {
      const int keys =
          static_cast<int>(end - key0 < shape::block_kv ? end - key0 : shape::block_kv);
      clear(buffers_.d_k, keys, qk_columns_);
      clear(buffers_.d_v, keys, v_columns_);
      bool loaded = false;
      for (std::int64_t row = 0; row < rows; row += shape::block_q) {
        const query_rows queries(of, *memory_.hooks, seq_.index, kv_head_, row, shape::block_q);
        const block<Row> part_of(args_, queries, buffers_);
        if (!part_of.sees(key0, keys)) continue;
        if (!loaded) part_of.load_keys(key0, keys, true);
        loaded = true;
        part_of.load_rows(correction + row, true);
        const seen_columns seen = part_of.template compute<block_part::gradients>(key0, keys);
        if (!seen.empty())
          add_products(part_of, queries.count(), keys, seen, d_q + row * qk_columns_);
      }
      store_keys(key0, keys);
    }
  }

  /// Zeros for keys [begin, end), counted from the sequence's first.
  void clear_keys(std::int64_t begin, std::int64_t end) const {
    for (std::int64_t key = begin; key < end; ++key) {
      store_gradient<Row>(row_of(args_.d_k, args_.d_k_strides, key), nullptr,
                          shape::head_dim(args_.forward), 0.0f);
      store_gradient<Row>(row_of(args_.d_v, args_.d_v_strides, key), nullptr,
                          shape::v_head_dim(args_.forward), 0.0f);
    }
  }

 private:
  static void clear(float* rows, int count, int columns) {
    std::memset(rows, 0, static_cast<std::size_t>(count * columns) * sizeof(float));
  }
  element* row_of(void* data, const row_strides& strides, std::int64_t key) const {
    return token_row<element>(data, strides, seq_.index, seq_.k_begin + key, kv_head_);
  }

  /// d_q += d_s K;  d_v += (Z P)^T d_out;  d_k += d_s^T Q.
  void add_products(const block<Row>& part_of, int rows, int keys, seen_columns seen,
                    float* d_q) const {
    const attention_kernel_args& of = args_.forward;
    const prim::product_range key_words{seen.low / shape::k_pack, seen.high / shape::k_pack};
    if constexpr (shape::k_pack == 1) {
      prim::product<add, words, shape::mr, shape::score_stride>(buffers_.d_before, rows,
                                                                part_of.k_rows(keys), key_words,
                                                                {0, qk_columns_}, d_q, qk_columns_);
    } else {
      for (int r = 0; r < rows; ++r) {
        for (int c = seen.low; c < seen.high; c += vec::width) {
          words::store_words(buffers_.d_before_words + r * shape::score_word_stride, c,
                             vec::load(buffers_.d_before + r * shape::score_stride + c));
        }
      }
      prim::product<add, words, shape::mr, shape::score_word_stride>(
          buffers_.d_before_words, rows, part_of.k_rows(keys), key_words, {0, qk_columns_}, d_q,
          qk_columns_);
    }
    const auto add_to_keys = [&](const float* scores, float* transposed, float* row_panels,
                                 int head_dim, float* sums) {
      transpose_to_words<Row>(scores, rows, seen, transposed);
      const int used = seen.high < keys ? seen.high : keys;
      const int columns = shape::columns_of(head_dim);
      prim::product<add, words, shape::mr, shape::query_word_stride>(
          transposed + seen.low * shape::query_word_stride, used - seen.low,
          part_of.rows_panels(row_panels, head_dim), {0, prim::words_for<words>(rows)},
          {0, columns}, sums + std::int64_t{seen.low} * columns, columns);
    };
    add_to_keys(buffers_.weights, buffers_.weights_of_keys, buffers_.d_out_panels,
                shape::v_head_dim(of), buffers_.d_v);
    add_to_keys(buffers_.d_before, buffers_.d_before_of_keys, buffers_.q_panels,
                shape::head_dim(of), buffers_.d_k);
  }

  void store_keys(std::int64_t key0, int keys) const {
    const attention_kernel_args& of = args_.forward;
    for (int c = 0; c < keys; ++c) {
      store_gradient<Row>(row_of(args_.d_k, args_.d_k_strides, key0 + c),
                          buffers_.d_k + std::int64_t{c} * qk_columns_, shape::head_dim(of),
                          of.softmax_scale);
      store_gradient<Row>(row_of(args_.d_v, args_.d_v_strides, key0 + c),
                          buffers_.d_v + std::int64_t{c} * v_columns_, shape::v_head_dim(of), 1.0f);
    }
  }

  const attention_backward_kernel_args& args_;
  prim::sequence seq_;
  int kv_head_;
  const launch_memory<Row>& memory_;
  const scratch<Row>& buffers_;
  int qk_columns_, v_columns_;
};

}  // namespace tessera::kernels::attention_backward::cpu
