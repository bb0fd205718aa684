// Gradients of keys and values of native sparse attention: a tile of means, and a block of tokens,
// look at the queries that see them. Statistics of all rows are known; those of selected blocks are
// made here too, and gradients of queries, block by block in their order, whichever threads have
// the blocks. So a block is loaded once for all tokens that selected it, 64 rows at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include <tessera/kernels/sparse_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_statistics.hpp>
#include <tessera/kernels/sparse_attention/cpu/selected_tokens.hpp>
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
  native_sparse_keys(const rows_type& rows, const selected_tokens<Isa>& selected,
                     const branch_statistics<Isa>& statistics, const mean_gradients& means,
                     prim::float_carver& memory)
      : rows_(rows),
        args_(rows.args()),
        selected_(selected),
        statistics_(statistics),
        means_(means),
        block_(args_.head_dim, args_.v_head_dim, memory) {}

  /// Means of blocks [begin, end), no more than a tile.
  void differentiate_means(const token_sequence& tokens, std::int64_t kv_head, key_range blocks) {
    start(sparse_branch::compressed, tokens, kv_head, blocks);
    look_at_tokens((blocks.begin + 1) * args_.block_size - 1, tokens.length,
                   sparse_branch::compressed, tokens, kv_head, blocks.begin);
    for (std::int64_t n = 0; n < blocks.end - blocks.begin; ++n) {
      const float* const d_k = block_.d_k + n * block_.q_stride;
      const float* const d_v = block_.d_v + n * block_.v_stride;
      std::copy(d_k, d_k + block_.q_stride,
                mean_gradients::row(means_.d_k, tokens, kv_head, blocks.begin + n));
      std::copy(d_v, d_v + block_.v_stride,
                mean_gradients::row(means_.d_v, tokens, kv_head, blocks.begin + n));
    }
  }

  /// What the tokens that selected a block know of it.
  void add_statistics(const token_sequence& tokens, std::int64_t kv_head, std::int64_t block) {
    for_each_tile(tokens, block, [&](key_range keys) {
      load(sparse_branch::selected, tokens, kv_head, keys);
      look_at_selected(tokens, kv_head, block, [&](selecting_tokens now, selecting_tokens next) {
        statistics_.load_rows(tokens, list_, block_);
        block_.lines.clear();
        ask_for(tokens, next);
        block_.spread_lines(false);
        block_.compute_scores({args_.softmax_scale});
        rows_.hide(sparse_branch::selected, list_, keys.begin, block_);
        block_.compute_products();
        for (int r = 0; r < list_.count; ++r) sums_[r] = sums_of(r);
        in_turn(tokens, kv_head, now, [&](std::int64_t token, int first, int end) {
          for (int r = first; r < end; ++r) {
            statistics_.add(tokens, token, list_.head[r], list_.times[r], sums_[r]);
          }
        });
      });
    });
  }

  /// Tokens of a block, whose mean has its gradient.
  void differentiate_block(const token_sequence& tokens, std::int64_t kv_head, std::int64_t block) {
    for_each_tile(tokens, block, [&](key_range keys) {
      start(sparse_branch::selected, tokens, kv_head, keys);
      look_at_selected(tokens, kv_head, block, [&](selecting_tokens now, selecting_tokens next) {
        block_.lines.clear();
        for (const selecting_token& one : now) {
          const std::int64_t heads = list_.count / (now.end() - now.begin());
          block_.lines.add(statistics_.d_q(tokens, one.token, list_.head[0]),
                           heads * block_.q_stride * std::int64_t{sizeof(float)});
        }
        ask_for(tokens, next);
        block_.rows = list_.count;
        block_.spread_lines(true);
        compute(sparse_branch::selected, tokens, keys.begin);
        block_.template add_to_queries<prim::strided_product_kind::overwrite>();
        in_turn(tokens, kv_head, now, [&](std::int64_t token, int first, int end) {
          add_to_sums(statistics_.d_q(tokens, token, list_.head[first]), first, end);
        });
        block_.add_to_keys();
      });
      block_.lines.clear();
      if (rows_.has(sparse_branch::window)) {
        look_at_tokens(keys.begin, std::min(tokens.length, keys.end + args_.window_left),
                       sparse_branch::window, tokens, kv_head, keys.begin);
      }
      store(tokens, kv_head, block, keys);
    });
  }

 private:
  /// Calls body(keys) for the tiles of a block.
  template <class Body>
  void for_each_tile(const token_sequence& tokens, std::int64_t block, const Body& body) const {
    const key_range all = keys_of(tokens, block);
    for (std::int64_t first = all.begin; first < all.end; first += block_keys) {
      body({first, std::min<std::int64_t>(first + block_keys, all.end)});
    }
  }
  key_range keys_of(const token_sequence& tokens, std::int64_t block) const {
    const std::int64_t begin = block * args_.block_size;
    return {begin, std::min(begin + args_.block_size, tokens.length)};
  }

  void load(sparse_branch branch, const token_sequence& tokens, std::int64_t kv_head,
            key_range keys) {
    rows_.load_tile(branch, tokens, kv_head, keys.begin, keys.end - keys.begin, block_);
    block_.arrange_values();
  }
  void start(sparse_branch branch, const token_sequence& tokens, std::int64_t kv_head,
             key_range keys) {
    load(branch, tokens, kv_head, keys);
    std::fill(block_.d_k, block_.d_k + block_.keys * block_.q_stride, 0.0f);
    std::fill(block_.d_v, block_.d_v + block_.keys * block_.v_stride, 0.0f);
  }

  /// Lists the heads of a group for the tokens that selected a block, and calls look(tokens of the
  /// list, those of the next list) for every full list.
  template <class Look>
  void look_at_selected(const token_sequence& tokens, std::int64_t kv_head, std::int64_t block,
                        const Look& look) {
    const selecting_tokens all = selected_.of(tokens, kv_head, block);
    rows_.for_each_heads(kv_head, [&](head_range heads) {
      const auto part = [&](const selecting_token* first) {
        const std::int64_t most = block_rows / heads.count();
        return selecting_tokens{first, first + std::min<std::int64_t>(most, all.end() - first)};
      };
      for (selecting_tokens now = part(all.begin()); now.begin() != now.end();) {
        const selecting_tokens next = part(now.end());
        list_.clear();
        for (const selecting_token& one : now) {
          list_.add(one.token, heads.begin, heads.end, one.times);
        }
        look(now, next);
        now = next;
      }
    });
  }
  /// Queues operands of the next list beside this one's products.
  void ask_for(const token_sequence& tokens, selecting_tokens next) {
    const std::int64_t first = list_.head[0], heads = list_.head[list_.count - 1] + 1 - first;
    for (const selecting_token& one : next) {
      for (const auto& [of, width] :
           {std::pair{&args_.q, args_.head_dim}, std::pair{&args_.d_out, args_.v_head_dim}}) {
        const auto bytes = static_cast<std::int64_t>(size_of(of->type));
        const auto* const row = static_cast<const std::byte*>(of->data) +
                                rows_type::offset(*of, tokens, one.token, first) * bytes;
        const bool adjacent = of->head == width;
        for (std::int64_t head = 0; head < (adjacent ? 1 : heads); ++head) {
          block_.lines.add(row + head * of->head * bytes, (adjacent ? heads : 1) * width * bytes);
        }
      }
    }
  }
  /// The same of all tokens [first, end), whose gradients of queries are there: adds what they make
  /// of the keys from `key` on that are loaded.
  void look_at_tokens(std::int64_t first, std::int64_t end, sparse_branch branch,
                      const token_sequence& tokens, std::int64_t kv_head, std::int64_t key) {
    rows_.for_each_heads(kv_head, [&](head_range heads) {
      const auto look = [&] {
        compute(branch, tokens, key);
        block_.add_to_keys();
      };
      list_.clear();
      for (std::int64_t token = first; token < end; ++token) {
        if (!list_.has_room(heads.count())) {
          look();
          list_.clear();
        }
        list_.add(token, heads.begin, heads.end);
      }
      if (list_.count > 0) look();
    });
  }

  /// Weights and gradients of scores of the list and the keys from `first` on that are loaded.
  void compute(sparse_branch branch, const token_sequence& tokens, std::int64_t first) {
    statistics_.load(branch, tokens, list_, block_);
    block_.compute_scores({args_.softmax_scale});
    rows_.hide(branch, list_, first, block_);
    block_.compute_gradients();
  }

  /// Calls body(token, first row, end) for the tokens of the list, each when the tiles in front of
  /// this one are done with it. Lists of the same token and tile, where a group has more heads than
  /// a list, are this thread's.
  template <class Body>
  void in_turn(const token_sequence& tokens, std::int64_t kv_head, selecting_tokens now,
               const Body& body) const {
    const std::int64_t lists = (rows_.group() + block_rows - 1) / block_rows;
    const std::int64_t tiles = (args_.block_size + block_keys - 1) / block_keys;
    const int rows = list_.count / static_cast<int>(now.end() - now.begin());
    int first = 0;
    for (const selecting_token& one : now) {
      auto& turns = statistics_.turns(tokens, one.token, kv_head);
      turns.wait(static_cast<int>(one.turn * lists * tiles));
      body(one.token, first, first + rows);
      turns.finish(1);
      first += rows;
    }
  }

  /// Of a row and the tile.
  branch_sums sums_of(int r) const {
    const float* const scores = block_.score_row(r);
    const float* const products = block_.d_scores + r * gradient_block<Isa>::score_stride;
    auto most = vec::broadcast(prim::minus_infinity);
    for (int c = 0; c < block_.columns(); c += vec::width)
      most = vec::max(most, vec::load(scores + c));
    const float maximum = vec::maximum(most);
    const auto minus_shift = vec::broadcast(-prim::finite_maximum(maximum));
    const auto hidden = vec::broadcast(std::numeric_limits<float>::lowest());
    auto denominator = vec::zero(), along = vec::zero();
    for (int c = 0; c < block_.columns(); c += vec::width) {
      const auto score = vec::load(scores + c);
      const auto weight = prim::exp_of<Isa>(vec::add(score, minus_shift));
      const auto term = vec::mul(weight, vec::load(products + c));
      denominator = vec::add(denominator, weight);
      along = vec::add(along, vec::select_below(score, hidden, vec::zero(), term));
    }
    return {maximum, vec::sum(denominator), vec::sum(along)};
  }

  /// Rows [first, end) of d_q, which are those of heads side by side.
  void add_to_sums(float* sums, int first, int end) const {
    const float* const from = block_.d_q + first * block_.q_stride;
    for (std::int64_t d = 0; d < (end - first) * block_.q_stride; d += vec::width) {
      vec::store(sums + d, vec::add(vec::load(sums + d), vec::load(from + d)));
    }
  }

  /// The rows of a tile, with their share of the gradient of their mean.
  void store(const token_sequence& tokens, std::int64_t kv_head, std::int64_t block,
             key_range keys) {
    const key_range all = keys_of(tokens, block);
    const float share = rows_.has(sparse_branch::compressed)
                            ? 1.0f / static_cast<float>(all.end - all.begin)
                            : 0.0f;
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
  const selected_tokens<Isa>& selected_;
  const branch_statistics<Isa>& statistics_;
  const mean_gradients& means_;
  gradient_block<Isa> block_;
  row_list list_;
  branch_sums sums_[block_rows];
};

}  // namespace tessera::kernels::sparse_attention::cpu
