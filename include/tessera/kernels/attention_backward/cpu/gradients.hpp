// The gradients of q, k and v.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691, on register tiles: a work item owns a tile of keys
// of one entry and key/value head, and so their d_k and d_v. Tiles add to the d_q of a block of
// rows in the order of their keys, each when the one before has passed.
//
// Sums of d_k and d_v are transposed: as d_out^T P and Q^T d_s, products take weights and gradients
// of scores where they were computed, and nothing is transposed in the loops.
#pragma once

#include <cstdint>
#include <cstring>

#include <tessera/kernels/attention_backward/cpu/block.hpp>
#include <tessera/kernels/attention_backward/cpu/launch_memory.hpp>
#include <tessera/kernels/attention_backward/cpu/rows.hpp>
#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/pack_columns.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::attention_backward::cpu {

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

  /// Tile `tile` of the keys; the first one clears keys that the sequence does not use.
  void run(std::int64_t tile) const {
    const attention_kernel_args& of = args_.forward;
    if (tile == 0 && of.cu_seqlens_k == nullptr) clear_keys(seq_.k_len, of.kv_len);
    const std::int64_t key0 = tile * shape::block_kv;
    if (key0 >= seq_.k_len) return;
    const int keys =
        static_cast<int>(seq_.k_len - key0 < shape::block_kv ? seq_.k_len - key0 : shape::block_kv);
    const std::int64_t rows = seq_.q_len * kernels::attention::group_of(of);
    clear(buffers_.d_k, qk_columns_);
    clear(buffers_.d_v, v_columns_);
    bool loaded = false;
    for (std::int64_t row = 0; row < rows; row += shape::block_q) {
      const query_rows queries(of, *memory_.hooks, seq_.index, kv_head_, row, shape::block_q);
      const prim::key_interval visited = queries.keys_of_all().some;
      if (prim::intersection(visited, {key0, key0 + keys}).empty()) continue;
      const row_block<Row> own = memory_.block_of(of, seq_, kv_head_, row);
      const int before = static_cast<int>(tile - visited.begin / shape::block_kv);
      const block<Row> part_of(args_, queries, buffers_);
      if (part_of.sees(key0, keys)) {
        if (!loaded) part_of.load_keys(key0, keys, true);
        loaded = true;
        add_block(part_of, key0, keys, before, own);
      } else {
        own.tiles->wait(before);
        own.tiles->finish(1);
      }
    }
    store_keys(key0, keys);
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
  static void clear(float* sums, int columns) {
    std::memset(sums, 0, static_cast<std::size_t>(columns * shape::score_stride) * sizeof(float));
  }
  element* row_of(void* data, const row_strides& strides, std::int64_t key) const {
    return token_row<element>(data, strides, seq_.index, seq_.k_begin + key, kv_head_);
  }

  /// `before`: tiles that add to d_q of these rows first.
  void add_block(const block<Row>& part_of, std::int64_t key0, int keys, int before,
                 const row_block<Row>& own) const {
    part_of.load_rows(own.correction, own.taint);
    own.tiles->wait(before);
    lines_of_block lines(own, qk_columns_, v_columns_);
    const seen_pairs<Row> seen = part_of.template compute<block_part::gradients>(
        key0, keys, [&](int row) { lines.ask(row); },
        [&](row_tile rows, const key_columns& used, const seen_columns& all) {
          if constexpr (shape::k_pack > 1) write_words(rows, used, all);
          if (used.low < used.high) add_to_queries(part_of, rows, used, keys, own.d_q);
        });
    own.tiles->finish(1);
    for (int panel = seen.low / shape::nr; panel * shape::nr < seen.high; ++panel) {
      add_to_keys(seen, panel, own);
    }
  }

  /// What products with a block read and a tile of keys of the same head has driven out of the
  /// cache since: d_q of a row right before its tile is multiplied, and Q^T and d_out^T, which come
  /// behind all rows, a share with each row.
  class lines_of_block {
   public:
    lines_of_block(const row_block<Row>& own, int qk_columns, int v_columns)
        : d_q_(own.d_q), columns_(qk_columns) {
      constexpr std::int64_t column_bytes = sizeof(float) * shape::query_word_stride;
      queue_.clear();
      queue_.add(own.d_out, v_columns * column_bytes);
      queue_.add(own.q, qk_columns * column_bytes);
      queue_.spread(shape::block_q);
    }
    TESSERA_INLINE void ask(int row) {
      constexpr int line = 64 / sizeof(float);
      queue_.step();
      for (int c = 0; c < columns_; c += line) {
        TESSERA_PREFETCH(d_q_ + std::int64_t{row} * columns_ + c);
      }
    }

   private:
    const float* d_q_;
    int columns_;
    prim::line_queue queue_;
  };

  /// Gradients of scores of a register tile as words of A, and with its weights as words of B.
  void write_words(row_tile rows, const key_columns& used, const seen_columns& all) const {
    constexpr int stride = shape::score_stride, k_pack = shape::k_pack;
    const float* const d_before = buffers_.d_before + std::int64_t{rows.first} * stride;
    const int count = shape::product_words(prim::words_for<words>(rows.rows));
    const auto write = [&](const float* from, float* panels) {
      for (int word = 0; word < count; ++word) {
        for (int c = all.low; c < all.high; c += vec::width) {
          typename vec::reg row[k_pack];
          for (int i = 0; i < k_pack; ++i) {
            const int r = word * k_pack + i;
            row[i] = r < rows.rows ? vec::load(from + r * stride + c) : vec::zero();
          }
          prim::row_words<words>::store(
              shape::query_panels(panels).at(rows.first / k_pack + word, c), row);
        }
      }
    };
    write(buffers_.weights, buffers_.weight_panels);
    write(d_before, buffers_.d_before_panels);
    for (int r = 0; r < rows.rows; ++r) {
      for (int c = used.low; c < used.high; c += vec::width) {
        words::store_words(buffers_.d_before_words + r * shape::score_word_stride, c,
                           vec::load(d_before + r * stride + c));
      }
    }
  }

  /// d_q += d_s K.
  void add_to_queries(const block<Row>& part_of, row_tile rows, const key_columns& used, int keys,
                      float* d_q) const {
    const prim::product_range summed{used.low / shape::k_pack, used.high / shape::k_pack};
    const auto multiply = [&]<int Stride>(const float* d_scores) {
      shape::template multiply<add, Stride>(d_scores, rows.rows, part_of.k_rows(keys), summed,
                                            {0, qk_columns_}, d_q + rows.first * qk_columns_,
                                            qk_columns_);
    };
    if constexpr (shape::k_pack > 1) {
      multiply.template operator()<shape::score_word_stride>(buffers_.d_before_words);
    } else {
      multiply.template operator()<shape::score_stride>(
          buffers_.d_before + std::int64_t{rows.first} * shape::score_stride);
    }
  }

  /// d_v^T += d_out^T Z P;  d_k^T += Q^T d_s: of a panel of columns and the rows that see it.
  void add_to_keys(const seen_pairs<Row>& seen, int panel, const row_block<Row>& own) const {
    const prim::row_range rows = seen.rows[panel];
    if (rows.begin >= rows.end) return;
    const prim::product_range summed{rows.begin / shape::k_pack,
                                     shape::product_words(prim::words_for<words>(rows.end))};
    const int begin = panel * shape::nr, end = begin + shape::nr;
    const prim::product_range columns{begin < seen.low ? seen.low : begin,
                                      end < seen.high ? end : seen.high};
    const auto multiply = [&](const float* transposed, int head_dim, float* panels, float* sums) {
      shape::template multiply<add, shape::query_word_stride>(
          transposed, shape::tiles ? shape::columns_of(head_dim) : head_dim,
          shape::query_panels(panels), summed, columns, sums, shape::score_stride);
    };
    multiply(own.d_out, shape::v_head_dim(args_.forward), buffers_.weight_panels, buffers_.d_v);
    multiply(own.q, shape::head_dim(args_.forward), buffers_.d_before_panels, buffers_.d_k);
  }

  void store_keys(std::int64_t key0, int keys) const {
    const attention_kernel_args& of = args_.forward;
    for (int first = 0; first < keys; first += shape::width) {
      const int count = keys - first < shape::width ? keys - first : shape::width;
      const auto store = [&](const float* sums, int columns, void* to, const row_strides& strides,
                             int head_dim, float factor) {
        make_rows(sums + first, columns);
        for (int c = 0; c < count; ++c) {
          store_gradient<Row>(row_of(to, strides, key0 + first + c),
                              buffers_.sum_rows + std::int64_t{c} * columns, head_dim, factor);
        }
      };
      store(buffers_.d_k, qk_columns_, args_.d_k, args_.d_k_strides, shape::head_dim(of),
            of.softmax_scale);
      store(buffers_.d_v, v_columns_, args_.d_v, args_.d_v_strides, shape::v_head_dim(of), 1.0f);
    }
  }

  /// A register of columns of transposed sums as rows.
  void make_rows(const float* sums, int columns) const {
    for (int d = 0; d < columns; d += shape::width) {
      typename vec::reg square[shape::width];
      for (int i = 0; i < shape::width; ++i) {
        square[i] = vec::load(sums + std::int64_t{d + i} * shape::score_stride);
      }
      vec::transpose(square);
      for (int i = 0; i < shape::width; ++i) {
        vec::store(buffers_.sum_rows + std::int64_t{i} * columns + d, square[i]);
      }
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
