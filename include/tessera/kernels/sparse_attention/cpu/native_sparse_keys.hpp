// Gradients of keys and values of native sparse attention: a tile of means, and a block of tokens,
// look at the queries that see them. Statistics of all rows are known.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/sparse_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_statistics.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Gradients of the means of all blocks, without the factor of the scores.
struct mean_gradients {
  sparse_rows d_k, d_v;
  /// Row of a block.
  static float* row(const sparse_rows& of, const token_sequence& tokens, std::int64_t kv_head,
                    std::int64_t block) {
    return static_cast<float*>(of.data) + kv_head * of.head +
           (tokens.first_block + block) * of.token;
  }
};

/// The work of a thread on tiles of keys of a group.
template <class Isa>
class native_sparse_keys {
  using vec = prim::simd<Isa>;
  using rows_type = native_sparse_rows<Isa>;

 public:
  native_sparse_keys(const rows_type& rows, const branch_statistics<Isa>& statistics,
                     const mean_gradients& means, prim::float_carver& memory)
      : rows_(rows),
        args_(rows.args()),
        statistics_(statistics),
        means_(means),
        block_(args_.head_dim, args_.v_head_dim, memory) {}

  /// Means of blocks [begin, end), no more than a tile.
  void differentiate_means(const token_sequence& tokens, std::int64_t kv_head, key_range blocks) {
    start(sparse_branch::compressed, tokens, kv_head, blocks);
    const std::int64_t first_token = (blocks.begin + 1) * args_.block_size - 1;
    for_each_token_from(
        first_token, tokens.length, kv_head, [](std::int64_t) { return 1; },
        [&] { look(sparse_branch::compressed, tokens, blocks.begin); });
    for (std::int64_t n = 0; n < blocks.end - blocks.begin; ++n) {
      const float* const d_k = block_.d_k + n * block_.q_stride;
      const float* const d_v = block_.d_v + n * block_.v_stride;
      std::copy(d_k, d_k + block_.q_stride,
                mean_gradients::row(means_.d_k, tokens, kv_head, blocks.begin + n));
      std::copy(d_v, d_v + block_.v_stride,
                mean_gradients::row(means_.d_v, tokens, kv_head, blocks.begin + n));
    }
  }

  /// Tokens of a block, whose mean has its gradient.
  void differentiate_block(const token_sequence& tokens, std::int64_t kv_head, std::int64_t block) {
    const std::int64_t begin = block * args_.block_size;
    const std::int64_t end = std::min(begin + args_.block_size, tokens.length);
    for (std::int64_t first = begin; first < end; first += block_keys) {
      const key_range keys{first, std::min<std::int64_t>(first + block_keys, end)};
      start(sparse_branch::selected, tokens, kv_head, keys);
      for_each_token_from(
          first, tokens.length, kv_head,
          [&](std::int64_t token) {
            int times = 0;
            rows_.for_each_given(tokens, token, kv_head,
                                 [&](std::int64_t number) { times += number == block; });
            return times;
          },
          [&] { look(sparse_branch::selected, tokens, first); });
      if (rows_.has(sparse_branch::window)) {
        const std::int64_t last = std::min(tokens.length, keys.end + args_.window_left);
        for_each_token_from(
            first, last, kv_head, [](std::int64_t) { return 1; },
            [&] { look(sparse_branch::window, tokens, first); });
      }
      store(tokens, kv_head, block, keys, end - begin);
    }
  }

 private:
  void start(sparse_branch branch, const token_sequence& tokens, std::int64_t kv_head,
             key_range keys) {
    rows_.load_tile(branch, tokens, kv_head, keys.begin, keys.end - keys.begin, block_);
    block_.arrange_values();
    std::fill(block_.d_k, block_.d_k + block_.keys * block_.q_stride, 0.0f);
    std::fill(block_.d_v, block_.d_v + block_.keys * block_.v_stride, 0.0f);
  }

  /// Lists the heads of a group for tokens [first, end), each counted as often as times(token)
  /// says, and calls look() for every full list.
  template <class Times, class Look>
  void for_each_token_from(std::int64_t first, std::int64_t end, std::int64_t kv_head,
                           const Times& times, const Look& look) {
    rows_.for_each_heads(kv_head, [&](head_range heads) {
      list_.clear();
      for (std::int64_t token = first; token < end; ++token) {
        const int counted = times(token);
        if (counted == 0) continue;
        if (!list_.has_room(heads.count())) {
          look();
          list_.clear();
        }
        list_.add(token, heads.begin, heads.end, counted);
      }
      if (list_.count > 0) look();
    });
  }

  /// Adds what the rows of the list make of the keys from `first` on that are loaded.
  void look(sparse_branch branch, const token_sequence& tokens, std::int64_t first) {
    statistics_.load(branch, tokens, list_, block_);
    block_.compute_scores({args_.softmax_scale});
    rows_.hide(branch, list_, first, block_);
    block_.compute_gradients(false);
    block_.add_to_keys();
  }

  /// The rows of a tile, with their share of the gradient of their mean.
  void store(const token_sequence& tokens, std::int64_t kv_head, std::int64_t block, key_range keys,
             std::int64_t block_tokens) {
    const float share =
        rows_.has(sparse_branch::compressed) ? 1.0f / static_cast<float>(block_tokens) : 0.0f;
    const auto store_rows = [&](const sparse_rows& to, const sparse_rows& means, float* rows,
                                std::int64_t width, float scale) {
      const float* const mean = mean_gradients::row(means, tokens, kv_head, block);
      for (std::int64_t key = keys.begin; key < keys.end; ++key) {
        float* const row = rows + (key - keys.begin) * means.token;
        for (std::int64_t d = 0; d < means.token; d += vec::width) {
          auto sum = vec::load(row + d);
          if (share != 0.0f) sum = vec::fma(vec::load(mean + d), vec::broadcast(share), sum);
          vec::store(row + d, vec::mul(sum, vec::broadcast(scale)));
        }
        prim::store_row<Isa>(to, rows_type::offset(to, tokens, key, kv_head), width, row);
      }
    };
    store_rows(args_.d_k, means_.d_k, block_.d_k, args_.head_dim, args_.softmax_scale);
    store_rows(args_.d_v, means_.d_v, block_.d_v, args_.v_head_dim, 1.0f);
  }

  const rows_type& rows_;
  const native_sparse_kernel_args& args_;
  const branch_statistics<Isa>& statistics_;
  const mean_gradients& means_;
  gradient_block<Isa> block_;
  row_list list_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
