// Gradients of queries and gates of native sparse attention: each branch is computed again, for its
// lse and output, and then walked through once more.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/sparse_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_forward.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_statistics.hpp>
#include <tessera/kernels/sparse_attention/cpu/softmax_block.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// The work of a thread on lists of tokens and the heads of a group.
template <class Isa>
class native_sparse_queries {
  using vec = prim::simd<Isa>;
  using rows_type = native_sparse_rows<Isa>;

 public:
  native_sparse_queries(const rows_type& rows, const branch_statistics<Isa>& statistics,
                        prim::float_carver& memory)
      : rows_(rows),
        args_(rows.args()),
        statistics_(statistics),
        forward_(args_.head_dim, args_.v_head_dim, memory),
        backward_(args_.head_dim, args_.v_head_dim, memory),
        d_out_(memory.take(backward_.v_stride)) {}

  /// Tokens [begin, end) of a sequence.
  void run(const token_sequence& tokens, std::int64_t kv_head, key_range queries) {
    rows_.for_each_heads(kv_head, [&](head_range heads) {
      const std::int64_t count = (queries.end - queries.begin) * heads.count();
      std::fill(backward_.d_q, backward_.d_q + count * backward_.q_stride, 0.0f);
      list_rows(queries, heads);
      for (const auto branch : {sparse_branch::compressed, sparse_branch::window}) {
        if (!rows_.has(branch)) continue;
        const key_range seen = rows_.seen_by(branch, queries.begin, queries.end - 1);
        differentiate(branch, tokens, kv_head, 0, [&](const auto& visit) { visit(seen); });
      }
      for (std::int64_t token = queries.begin; token < queries.end; ++token) {
        list_rows({token, token + 1}, heads);
        differentiate(sparse_branch::selected, tokens, kv_head,
                      (token - queries.begin) * heads.count(), [&](const auto& visit) {
                        rows_.for_each_given(tokens, token, kv_head, [&](std::int64_t number) {
                          visit(rows_.tokens_of_block(number, token));
                        });
                      });
      }
      list_rows(queries, heads);
      store(tokens);
    });
  }

 private:
  void list_rows(key_range queries, head_range heads) {
    list_.clear();
    for (std::int64_t token = queries.begin; token < queries.end; ++token) {
      list_.add(token, heads.begin, heads.end);
    }
  }

  /// A branch of the rows of the list, whose d_q are rows `first` and following. `for_each_range`
  /// calls what it is given for each range of keys.
  template <class Ranges>
  void differentiate(sparse_branch branch, const token_sequence& tokens, std::int64_t kv_head,
                     std::int64_t first, const Ranges& for_each_range) {
    forward_.load_queries(args_.q, list_.count, rows_type::offsets(args_.q, tokens, list_));
    forward_.start();
    for_each_range(
        [&](key_range keys) { attend_to(rows_, branch, tokens, kv_head, list_, keys, forward_); });
    for (int r = 0; r < list_.count; ++r) finish_row(branch, tokens, r);
    statistics_.load(branch, tokens, list_, backward_);
    for_each_range([&](key_range keys) {
      for (std::int64_t key = keys.begin; key < keys.end; key += block_keys) {
        rows_.load_tile(branch, tokens, kv_head, key,
                        std::min<std::int64_t>(block_keys, keys.end - key), backward_);
        backward_.arrange_values();
        backward_.compute_scores({args_.softmax_scale});
        rows_.hide(branch, list_, key, backward_);
        backward_.compute_gradients(false);
        backward_.add_to_queries(first);
      }
    });
  }

  /// Statistics of a row, and the gradient of its gate.
  void finish_row(sparse_branch branch, const token_sequence& tokens, int r) {
    const float lse = forward_.finish(r, nullptr, 0, 0).lse;
    const std::int64_t token = list_.token[r], head = list_.head[r];
    auto sum = vec::zero();
    if (lse != prim::minus_infinity) {
      prim::load_row<Isa>(args_.d_out, rows_type::offset(args_.d_out, tokens, token, head),
                          args_.v_head_dim, d_out_);
      for (std::int64_t d = 0; d < forward_.v_stride; d += vec::width) {
        sum = vec::fma(vec::load(d_out_ + d), vec::load(forward_.output_row(r) + d), sum);
      }
    }
    const float d_gate = vec::sum(sum);
    const sparse_rows& to = branch == sparse_branch::compressed ? args_.d_g_cmp
                            : branch == sparse_branch::selected ? args_.d_g_slc
                                                                : args_.d_g_swa;
    if (to.data != nullptr) {
      prim::store_element<Isa>(to, rows_type::offset(to, tokens, token, head), d_gate);
    }
    statistics_.put(branch, tokens, list_, r, lse,
                    d_gate * rows_.gate_of(branch, tokens, token, head));
  }

  void store(const token_sequence& tokens) {
    const auto offsets = rows_type::offsets(args_.d_q, tokens, list_);
    const auto scale = vec::broadcast(args_.softmax_scale);
    for (int r = 0; r < list_.count; ++r) {
      float* const row = backward_.d_q + r * backward_.q_stride;
      for (std::int64_t d = 0; d < backward_.q_stride; d += vec::width) {
        vec::store(row + d, vec::mul(vec::load(row + d), scale));
      }
      prim::store_row<Isa>(args_.d_q, offsets(r), args_.head_dim, row);
    }
  }

  const rows_type& rows_;
  const native_sparse_kernel_args& args_;
  const branch_statistics<Isa>& statistics_;
  softmax_block<Isa> forward_;
  gradient_block<Isa> backward_;
  float* d_out_;
  row_list list_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
