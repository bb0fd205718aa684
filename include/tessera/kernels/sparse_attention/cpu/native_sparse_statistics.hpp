// What gradients of native sparse attention know of each row and branch.
#pragma once

#include <cmath>
#include <cstdint>

#include <tessera/kernels/sparse_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/sparse_attention/cpu/native_sparse_rows.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::sparse_attention::cpu {

/// lse of a branch, and D = gate <d_out, output of the branch>.
template <class Isa>
class branch_statistics {
  using vec = prim::simd<Isa>;

 public:
  branch_statistics(const native_sparse_rows<Isa>& rows, prim::float_carver& memory)
      : rows_(rows),
        tokens_(rows.args().sequences.tokens *
                (rows.args().sequences.begin == nullptr ? rows.args().sequences.count : 1)),
        lse_(memory.take(sparse_branches * tokens_ * rows.args().q_heads)),
        correction_(memory.take(sparse_branches * tokens_ * rows.args().q_heads)) {}

  void put(sparse_branch branch, const token_sequence& tokens, const row_list& list, int r,
           float lse, float correction) const {
    const std::int64_t at = place(branch, tokens, list.token[r], list.head[r]);
    lse_[at] = lse;
    correction_[at] = correction;
  }

  /// Queries and gradients of a list as the branch has them: times its gate. Rows that see nothing
  /// of it are left out.
  void load(sparse_branch branch, const token_sequence& tokens, const row_list& list,
            gradient_block<Isa>& block) const {
    const auto& args = rows_.args();
    block.load_queries(args.q, list.count, native_sparse_rows<Isa>::offsets(args.q, tokens, list));
    block.load_gradients(args.d_out, native_sparse_rows<Isa>::offsets(args.d_out, tokens, list));
    for (int r = 0; r < list.count; ++r) {
      const std::int64_t at = place(branch, tokens, list.token[r], list.head[r]);
      // exp(s - lse + log n) is n times the weight.
      block.lse[r] = lse_[at] - std::log(static_cast<float>(list.times[r]));
      block.correction[r] = correction_[at];
      if (lse_[at] == prim::minus_infinity) {
        block.leave_out(r);
        continue;
      }
      const auto gate = vec::broadcast(rows_.gate_of(branch, tokens, list.token[r], list.head[r]));
      float* const row = block.d_out + r * block.v_stride;
      for (std::int64_t d = 0; d < block.v_stride; d += vec::width) {
        vec::store(row + d, vec::mul(vec::load(row + d), gate));
      }
    }
  }

 private:
  std::int64_t place(sparse_branch branch, const token_sequence& tokens, std::int64_t token,
                     std::int64_t head) const {
    const std::int64_t row = tokens.entry * rows_.args().sequences.tokens + tokens.begin + token;
    return (static_cast<std::int64_t>(branch) * tokens_ + row) * rows_.args().q_heads + head;
  }

  const native_sparse_rows<Isa>& rows_;
  std::int64_t tokens_;
  float *lse_, *correction_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
