// Rows of the tokens of a chunk from the tensors, and weights of its pairs of tokens.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/decay_factor.hpp>
#include <tessera/kernels/recurrence/cpu/token_pairs.hpp>
#include <tessera/prim/cpu/gemm/strided_product.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// The tokens of a sequence and value head; those that are not there change nothing.
template <class Row, bool LowRank>
class chunk_reader {
  using isa_type = typename traits<Row>::isa_type;
  using vec = typename traits<Row>::vec;
  using element = typename traits<Row>::element;

 public:
  static constexpr int writes = LowRank ? 2 : 1;
  /// What is held is read of the decayed state by the delta rule, of that in front by others.
  static constexpr recurrence::state_side side =
      LowRank ? recurrence::state_side::in_front : recurrence::state_side::behind;

  chunk_reader(const delta_rule_kernel_args& args, const chunk_extents<Row>& size,
               const sequence& tokens, std::int64_t head)
      : args_(args), size_(size), tokens_(tokens), head_(head), reader_(args, tokens.entry, head) {}

  std::int64_t count_from(std::int64_t first) const {
    return std::min<std::int64_t>(tokens_.length - first, chunk_tokens);
  }
  token_rows token(const chunk_rows& rows, std::int64_t i) const {
    const std::int64_t at = i * size_.keys;
    return {rows.reads[0] + at, rows.writes[0] + at, rows.decay + at,
            LowRank ? rows.reads[1] + at : nullptr, LowRank ? rows.writes[1] + at : nullptr};
  }

  /// What changes a state: writes, decays, beta and what reads what is held.
  void load_updates(std::int64_t first, const chunk_rows& rows) const {
    const std::int64_t count = count_from(first), keys = size_.keys;
    std::fill_n(rows.whole_decay, keys, 0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = tokens_.token(first + i);
      reader_.read_key(at, token(rows, i), rows.whole_decay);
      if constexpr (LowRank) reader_.read_low_rank(at, token(rows, i));
      rows.beta[i] = reader_.beta(at);
    }
    for (int w = 0; w < writes; ++w) clear(rows.writes[w], count, keys);
    if constexpr (LowRank) clear(rows.reads[1], count, keys);
    std::fill_n(rows.decay + count * keys, (chunk_tokens - count) * keys, 1.0f);
    std::fill_n(rows.beta + count, chunk_tokens - count, 0.0f);
    // Decays of all tokens are rounded once: a product of factors near 1 is always rounded the same
    // way, chunk after chunk.
    for (std::int64_t c = 0; c < keys; c += vec::width) {
      vec::store(rows.whole_decay + c,
                 recurrence::decay_factor<isa_type>(vec::load(rows.whole_decay + c)));
    }
    for (int w = 0; w < writes; ++w) {
      recurrence::relate_chunk<isa_type, true, side>(pair_rows(rows, 1, w), rows.weights[1][w]);
      turn(rows.left[w], rows.turned_left[w]);
    }
  }
  /// Behind `load_updates`: what answers, and what is turned round for the way back.
  void load_queries(std::int64_t first, const chunk_rows& rows) const {
    const std::int64_t count = count_from(first);
    for (std::int64_t i = 0; i < count; ++i) {
      reader_.read_query(tokens_.token(first + i), token(rows, i));
    }
    clear(rows.reads[0], count, size_.keys);
    for (int w = 0; w < writes; ++w) {
      recurrence::relate_chunk<isa_type, true>(pair_rows(rows, 0, w), rows.weights[0][w]);
    }
    for (int r = 0; r < 2; ++r) turn(rows.found[r], rows.turned_found[r]);
  }

  void load_values(std::int64_t first, float* to) const {
    const std::int64_t count = count_from(first);
    for (std::int64_t i = 0; i < count; ++i) {
      load_value(args_.v, first + i, to + i * size_.values);
      if (args_.activates) activate<isa_type>(to + i * size_.values, args_.value_dim);
    }
    clear(to, count, size_.values);
  }
  void load_d_out(std::int64_t first, float* to) const {
    const std::int64_t count = count_from(first);
    for (std::int64_t i = 0; i < count; ++i) {
      load_value(args_.d_out, first + i, to + i * size_.values);
    }
    clear(to, count, size_.values);
  }
  /// A row of values.
  void load_value(const delta_rule_input& from, std::int64_t step, float* to) const {
    load_row<isa_type>(static_cast<const element*>(from.data) +
                           row_of(from, tokens_.entry, tokens_.token(step), head_),
                       args_.value_dim, to);
  }

 private:
  static void clear(float* rows, std::int64_t count, std::int64_t columns) {
    std::fill_n(rows + count * columns, (chunk_tokens - count) * columns, 0.0f);
  }
  recurrence::chunk_pair_rows pair_rows(const chunk_rows& rows, int r, int w) const {
    return {rows.reads[r], rows.writes[w],    rows.decay, rows.found[r],
            rows.left[w],  rows.passed_decay, size_.keys};
  }
  void turn(const float* rows, float* to) const {
    prim::transpose_rows<isa_type>({rows, size_.keys}, chunk_tokens, static_cast<int>(size_.keys),
                                   {to, chunk_tokens});
  }

  const delta_rule_kernel_args& args_;
  const chunk_extents<Row>& size_;
  const sequence& tokens_;
  std::int64_t head_;
  token_reader<Row> reader_;
};

}  // namespace tessera::kernels::delta_rule::cpu
