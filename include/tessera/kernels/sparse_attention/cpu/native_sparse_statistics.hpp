// What gradients of native sparse attention know of each row and branch, and the sums of gradients
// of queries, to which blocks of keys add one after the other.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>

#include <tessera/kernels/sparse_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/shared_progress.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// Of a row and some of its keys: the softmax, and how much the output goes along d_out.
struct branch_sums {
  float maximum;
  float denominator;  ///< sum of exp(s - maximum)
  float along;        ///< sum of exp(s - maximum) <d_out, v>
};

/// lse of a branch, and D = gate <d_out, output of the branch>.
template <class Isa>
class branch_statistics {
  using vec = prim::simd<Isa>;
  using progress = prim::shared_progress<Isa>;

 public:
  branch_statistics(const native_sparse_rows<Isa>& rows, prim::float_carver& memory)
      : rows_(rows),
        all_(rows.all_tokens() * rows.args().q_heads),
        q_stride_(prim::padded<Isa>(rows.args().head_dim)),
        lse_(memory.take(sparse_branches * all_)),
        correction_(memory.take(sparse_branches * all_)),
        maximum_(memory.take(all_)),
        d_q_(memory.take(all_ * q_stride_)),
        turns_(memory.take<progress>(rows.all_tokens() * rows.args().kv_heads)) {}

  void put(sparse_branch branch, const token_sequence& tokens, std::int64_t token,
           std::int64_t head, float lse, float correction) const {
    const std::int64_t at = place(branch, tokens, token, head);
    lse_[at] = lse;
    correction_[at] = correction;
  }

  /// Sums of rows of a token over the selected blocks that were seen so far.
  void start_sums(const token_sequence& tokens, std::int64_t token, head_range heads) const {
    for (std::int64_t head = heads.begin; head < heads.end; ++head) {
      const std::int64_t at = place(sparse_branch::selected, tokens, token, head);
      maximum_[row_of(tokens, token, head)] = prim::minus_infinity;
      lse_[at] = correction_[at] = 0.0f;
    }
  }
  /// Adds those of a tile of keys to those of the row, `times` as often.
  void add(const token_sequence& tokens, std::int64_t token, std::int64_t head, int times,
           const branch_sums& more) const {
    const std::int64_t at = place(sparse_branch::selected, tokens, token, head);
    float& maximum = maximum_[row_of(tokens, token, head)];
    const float most = std::max(maximum, more.maximum), shift = prim::finite_maximum(most);
    const float of_old = maximum == most ? 1.0f : prim::exp_of<Isa>(maximum - shift);
    const float of_new = static_cast<float>(times) *
                         (more.maximum == most ? 1.0f : prim::exp_of<Isa>(more.maximum - shift));
    lse_[at] = lse_[at] * of_old + more.denominator * of_new;
    correction_[at] = correction_[at] * of_old + more.along * of_new;
    maximum = most;
  }
  /// Sums of selected blocks become statistics: <d_out, output of the branch>.
  float finish_sums(const token_sequence& tokens, std::int64_t token, std::int64_t head) const {
    const std::int64_t at = place(sparse_branch::selected, tokens, token, head);
    const float maximum = maximum_[row_of(tokens, token, head)], denominator = lse_[at];
    // Nothing was seen; NaN is not below.
    const bool empty = denominator <= 0.0f;
    const float along = empty ? 0.0f : correction_[at] / denominator;
    lse_[at] = empty ? prim::minus_infinity : maximum + std::log(denominator);
    correction_[at] = along * rows_.gate_of(sparse_branch::selected, tokens, token, head);
    return along;
  }

  /// Blocks that have had their turn at the rows of a token and key/value head.
  progress& turns(const token_sequence& tokens, std::int64_t token, std::int64_t kv_head) const {
    return turns_[rows_.place(tokens, token) * rows_.args().kv_heads + kv_head];
  }
  void start_turns(const token_sequence& tokens, std::int64_t token, std::int64_t kv_head) const {
    new (&turns(tokens, token, kv_head)) progress;
  }
  /// Sums of a row, whole registers, without the factor of the scores; heads lie side by side.
  float* d_q(const token_sequence& tokens, std::int64_t token, std::int64_t head) const {
    return d_q_ + row_of(tokens, token, head) * q_stride_;
  }

  /// Queries and gradients of a list as the branch has them: times its gate. Rows that see nothing
  /// of it are left out.
  void load(sparse_branch branch, const token_sequence& tokens, const row_list& list,
            gradient_block<Isa>& block) const {
    load_rows(tokens, list, block);
    for (int r = 0; r < list.count; ++r) {
      const std::int64_t at = place(branch, tokens, list.token[r], list.head[r]);
      // exp(s - lse + log n) is n times the weight.
      block.lse[r] =
          list.times[r] == 1 ? lse_[at] : lse_[at] - std::log(static_cast<float>(list.times[r]));
      block.correction[r] = correction_[at];
      if (lse_[at] == prim::minus_infinity) {
        block.leave_out(r);
        continue;
      }
      if (rows_.gate(branch).data == nullptr) continue;
      const auto gate = vec::broadcast(rows_.gate_of(branch, tokens, list.token[r], list.head[r]));
      float* const row = block.d_out + r * block.v_stride;
      for (std::int64_t d = 0; d < block.v_stride; d += vec::width) {
        vec::store(row + d, vec::mul(vec::load(row + d), gate));
      }
    }
  }
  /// The same as they are.
  void load_rows(const token_sequence& tokens, const row_list& list,
                 gradient_block<Isa>& block) const {
    const auto& args = rows_.args();
    block.load_queries(args.q, list.count, native_sparse_rows<Isa>::offsets(args.q, tokens, list));
    block.load_gradients(args.d_out, native_sparse_rows<Isa>::offsets(args.d_out, tokens, list));
  }

 private:
  std::int64_t row_of(const token_sequence& tokens, std::int64_t token, std::int64_t head) const {
    return rows_.place(tokens, token) * rows_.args().q_heads + head;
  }
  std::int64_t place(sparse_branch branch, const token_sequence& tokens, std::int64_t token,
                     std::int64_t head) const {
    return static_cast<std::int64_t>(branch) * all_ + row_of(tokens, token, head);
  }

  const native_sparse_rows<Isa>& rows_;
  std::int64_t all_;  ///< rows
  std::int64_t q_stride_;
  float *lse_, *correction_;  ///< of selected blocks first their denominators and `along`
  float* maximum_;
  float* d_q_;
  progress* turns_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
