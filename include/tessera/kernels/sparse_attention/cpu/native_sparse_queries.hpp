// Gradients of queries and gates of native sparse attention. Means and window are computed again,
// for their lse and output, and then walked through once more; of selected blocks, which add to the
// queries afterwards, the statistics are there (native_sparse_keys.hpp).
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
      list_.clear();
      for (std::int64_t token = queries.begin; token < queries.end; ++token) {
        list_.add(token, heads.begin, heads.end);
      }
      std::fill(backward_.d_q, backward_.d_q + list_.count * backward_.q_stride, 0.0f);
      for (const auto branch : {sparse_branch::compressed, sparse_branch::window}) {
        if (!rows_.has(branch)) continue;
        differentiate(branch, tokens, kv_head,
                      rows_.seen_by(branch, queries.begin, queries.end - 1));
      }
      finish(tokens);
    });
    for (std::int64_t token = queries.begin; token < queries.end; ++token) {
      statistics_.start_turns(tokens, token, kv_head);
    }
  }

 private:
  /// What the rows of the list see of a branch, in `keys`.
  void differentiate(sparse_branch branch, const token_sequence& tokens, std::int64_t kv_head,
                     key_range keys) {
    forward_.load_queries(args_.q, list_.count, rows_type::offsets(args_.q, tokens, list_));
    forward_.start();
    attend_to(rows_, branch, tokens, kv_head, list_, keys, forward_);
    for (int r = 0; r < list_.count; ++r) finish_row(branch, tokens, r);
    statistics_.load(branch, tokens, list_, backward_);
    for (std::int64_t key = keys.begin; key < keys.end; key += block_keys) {
      rows_.load_tile(branch, tokens, kv_head, key,
                      std::min<std::int64_t>(block_keys, keys.end - key), backward_);
      backward_.arrange_values();
      backward_.compute_scores({args_.softmax_scale});
      rows_.hide(branch, list_, key, backward_);
      backward_.compute_gradients();
      backward_.add_to_queries();
    }
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
    store_gate(branch, tokens, token, head, d_gate);
    statistics_.put(branch, tokens, token, head, lse,
                    d_gate * rows_.gate_of(branch, tokens, token, head));
  }

  void store_gate(sparse_branch branch, const token_sequence& tokens, std::int64_t token,
                  std::int64_t head, float d_gate) const {
    const sparse_rows& to = branch == sparse_branch::compressed ? args_.d_g_cmp
                            : branch == sparse_branch::selected ? args_.d_g_slc
                                                                : args_.d_g_swa;
    if (to.data == nullptr) return;
    prim::store_element<Isa>(to, rows_type::offset(to, tokens, token, head), d_gate);
  }

  /// Statistics of selected blocks, and the sums that these add to.
  void finish(const token_sequence& tokens) const {
    for (int r = 0; r < list_.count; ++r) {
      const std::int64_t token = list_.token[r], head = list_.head[r];
      store_gate(sparse_branch::selected, tokens, token, head,
                 statistics_.finish_sums(tokens, token, head));
      const float* const row = backward_.d_q + r * backward_.q_stride;
      std::copy(row, row + backward_.q_stride, statistics_.d_q(tokens, token, head));
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
