// Gradients by chunks of tokens, as products of their rows with tiles of states [K][columns], which
// never meet each other. With found and left rows as of the states in front of a chunk and behind
// it, and pairs of tokens as in `recurrence/cpu/token_pairs.hpp`:
//
//   for each segment { for each head { for each tile { for each chunk {
//     what the state holds; what its tokens write; state
//   } } } }
//   for each segment, from the last { for each head {
//     for each chunk { rows; weights of its pairs of tokens }
//     for each tile {
//       for each chunk { state }
//       for each chunk, from the last {
//         what the gradient has for writes: d_values, d_held; what the state has for d_out and
//         d_held, and the gradient for values: d_reads, d_writes; gradient
//       }
//     }
//     for each chunk { pairs of tokens: d_reads, d_writes, gates }
//   } }
//
// A work item is a sequence and some key heads with their value heads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_reader.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_substitution.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/token_gradient.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/head_segments.hpp>
#include <tessera/kernels/recurrence/cpu/pair_gradients.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/kernels/recurrence/cpu/token_pairs.hpp>
#include <tessera/prim/cpu/gemm/strided_product.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Tokens with segments and sequences of few tokens go token by token.
template <class Row>
bool goes_back_by_chunks(const sequence& tokens) noexcept {
  return chunk_extents<Row>::has_chunks && !tokens.is_rest && tokens.ids == nullptr &&
         tokens.length >= chunk_tokens;
}

/// One work item.
template <class Row, bool LowRank>
class chunk_backward_item
    : recurrence::head_segments<typename traits<Row>::isa_type, chunk_extents<Row>::whole_segment> {
  using isa_type = typename traits<Row>::isa_type;
  using vec = typename traits<Row>::vec;
  using extents = chunk_extents<Row>;
  using scratch = chunk_scratch<Row>;
  using base = recurrence::head_segments<isa_type, extents::whole_segment>;
  using base::for_each_head, base::head_of, base::first_of, base::chunks_of, base::tokens_of,
      base::segments_;
  using reader = chunk_reader<Row, LowRank>;
  using tile_decay = recurrence::tile_decay;
  using tile_shape = recurrence::tile_shape;
  static constexpr std::int64_t last = chunk_tokens - 1;
  static constexpr int writes = reader::writes;

 public:
  /// `sums` are those of the first value head of the sequence, those of others `sums_of_head`
  /// apart.
  chunk_backward_item(const delta_rule_kernel_args& args, const scratch& memory,
                      const sequence& tokens, std::int64_t first_key_head, const gate_sums& sums,
                      std::int64_t sums_of_head)
      : base(first_key_head * memory.size.group, memory.size.heads, args.value_heads,
             tokens.length),
        given_(args),
        args_(args),
        memory_(memory),
        size_(memory.size),
        tokens_(tokens),
        sums_(sums),
        sums_of_head_(sums_of_head) {}

  void run() {
    memory_.clear_rows();
    const auto initial = initial_states<isa_type>(args_, tokens_);
    for_each_head([&](std::int64_t member) {
      load_state(initial, member, memory_.kept(0, member));
      load_state(args_.d_last, member, memory_.gradient(member));
    });
    for (std::int64_t segment = 0; segment < segments_; ++segment) {
      stage_updates(segment);
      for_each_head([&](std::int64_t member) { go_forward(segment, member); });
    }
    for (std::int64_t segment = segments_ - 1; segment >= 0; --segment) {
      stage_updates(segment);
      stage_queries(segment);
      for_each_head([&](std::int64_t member) {
        if (member % size_.group == 0) begin_group();
        give_back(segment, member);
        if ((member + 1) % size_.group == 0) store_group(segment, head_of(member) / size_.group);
      });
    }
    for_each_head([&](std::int64_t member) { store_gradient(member); });
  }

 private:
  void stage_updates(std::int64_t segment) {
    const auto stage = this->staging(segment, tokens_, memory_.staged);
    stage(0, given_.k, size_.group, args_.key_dim, args_.k);
    stage(1, given_.v, 1, args_.value_dim, args_.v);
    if (args_.decay_has_channels) stage(2, given_.decay, 1, args_.key_dim, args_.decay);
    stage(3, given_.read, size_.group, args_.key_dim, args_.read);
    stage(4, given_.write, size_.group, args_.key_dim, args_.write);
  }
  void stage_queries(std::int64_t segment) {
    const auto stage = this->staging(segment, tokens_, memory_.staged);
    stage(5, given_.q, size_.group, args_.key_dim, args_.q);
    stage(6, given_.d_out, 1, args_.value_dim, args_.d_out);
  }

  /// Calls body(first column, where its tile begins in a state, registers).
  template <class Body>
  void for_each_tile(const Body& body) const {
    for (std::int64_t column = 0; column < args_.value_dim; column += extents::columns) {
      with_registers<Row>(columns_from(column),
                          [&](auto registers) { body(column, column * size_.keys, registers); });
    }
  }
  std::int64_t columns_from(std::int64_t column) const {
    return std::min(extents::columns, args_.value_dim - column);
  }
  reader reader_of(std::int64_t member) const { return {args_, size_, tokens_, head_of(member)}; }
  tile_place place(std::int64_t member, std::int64_t column, std::int64_t pitch) const {
    return {tokens_.slot, head_of(member), column, args_.key_dim, columns_from(column), pitch};
  }

  /// Zeros behind the channels.
  void load_state(const delta_rule_states<const void>& from, std::int64_t member, float* to) const {
    std::fill_n(to, size_.state, 0.0f);
    for_each_tile([&](std::int64_t column, std::int64_t at, auto registers) {
      load_tile<isa_type>(from, place(member, column, registers() * traits<Row>::width), to + at);
    });
  }
  /// What lies where a sequence starts from 0 counts for nothing.
  void store_gradient(std::int64_t member) const {
    if (args_.d_initial.data == nullptr) return;
    float* const gradient = memory_.gradient(member);
    if (tokens_.starts_from_zero) std::fill_n(gradient, size_.state, 0.0f);
    for_each_tile([&](std::int64_t column, std::int64_t at, auto registers) {
      store_tile<isa_type>(gradient + at, place(member, column, registers() * traits<Row>::width),
                           args_.d_initial);
    });
  }

  /// Makes what the tokens of a segment find, and the state in front of the next.
  void go_forward(std::int64_t segment, std::int64_t member) const {
    const std::int64_t chunks = chunks_of(segment);
    const reader tokens = reader_of(member);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const chunk_rows& rows = memory_.rows[chunk];
      tokens.load_updates(first_of(segment, chunk), rows);
      tokens.load_values(first_of(segment, chunk), LowRank ? rows.values[0] : rows.d_out);
    }
    for_each_tile([&](std::int64_t column, std::int64_t at, auto registers) {
      constexpr std::int64_t pitch = registers() * traits<Row>::width;
      const chunk_substitution<isa_type, registers()> columns{size_.values};
      float* const after = memory_.kept(segment + 1, member) + at;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const chunk_rows& rows = memory_.rows[chunk];
        const float* const before = chunk == 0 ? memory_.kept(segment, member) + at : after;
        float* const found = LowRank ? rows.values[writes - 1] + column
                                     : memory_.found(member, first_of(segment, chunk)) + column;
        recurrence::read_state<isa_type, false, false>({rows.found[1], size_.keys}, before,
                                                       {size_.keys, pitch}, {}, {},
                                                       {found, size_.values});
        if constexpr (LowRank) {
          columns.find_held(rows.weights[1][0], rows.weights[1][1], rows.values[0] + column, found);
        } else {
          columns.find_written(rows.weights[1][0], rows.beta, rows.d_out + column, found,
                               rows.values[0] + column);
        }
        take(rows, column, pitch, before, after);
      }
    });
    for (std::int64_t chunk = 0; LowRank && chunk < chunks; ++chunk) {
      std::copy_n(memory_.rows[chunk].values[writes - 1], chunk_tokens * size_.values,
                  memory_.found(member, first_of(segment, chunk)));
    }
  }
  /// A tile of a state behind a chunk from that in front of it.
  void take(const chunk_rows& rows, std::int64_t column, std::int64_t pitch, const float* before,
            float* after) const {
    const tile_shape shape{size_.keys, pitch};
    recurrence::update_state<isa_type, tile_decay::rows>(before, after, shape, rows.whole_decay,
                                                         rows.turned_left[0],
                                                         {rows.values[0] + column, size_.values});
    if constexpr (LowRank) {
      recurrence::update_state<isa_type, tile_decay::none>(after, after, shape, nullptr,
                                                           rows.turned_left[1],
                                                           {rows.values[1] + column, size_.values});
    }
  }

  void give_back(std::int64_t segment, std::int64_t member) const {
    const std::int64_t chunks = chunks_of(segment);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) relate(segment, chunk, member);
    for_each_tile([&](std::int64_t column, std::int64_t at, auto registers) {
      constexpr std::int64_t pitch = registers() * traits<Row>::width;
      const auto before = [&](std::int64_t chunk) {
        return chunk == 0 ? memory_.kept(segment, member) + at : memory_.tile(chunk);
      };
      for (std::int64_t chunk = 0; chunk + 1 < chunks; ++chunk) {
        take(memory_.rows[chunk], column, pitch, before(chunk), before(chunk + 1));
      }
      for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
        this->template give_back_tile<registers()>(
            memory_.rows[chunk], column, before(chunk),
            memory_.found(member, first_of(segment, chunk)) + column,
            memory_.gradient(member) + at);
      }
    });
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) finish(segment, chunk, member);
  }

  /// Rows of a chunk and weights of its pairs of tokens.
  void relate(std::int64_t segment, std::int64_t chunk, std::int64_t member) const {
    const std::int64_t first = first_of(segment, chunk);
    const chunk_rows& rows = memory_.rows[chunk];
    const reader tokens = reader_of(member);
    tokens.load_updates(first, rows);
    tokens.load_queries(first, rows);
    tokens.load_d_out(first, rows.d_out);
    const float* const found = memory_.found(member, first);
    if constexpr (LowRank) {
      tokens.load_values(first, rows.values[0]);
      std::copy_n(found, chunk_tokens * size_.values, rows.values[1]);
    } else {
      for (std::int64_t i = 0; i < chunk_tokens; ++i) {
        for (std::int64_t c = i * size_.values; c < (i + 1) * size_.values; c += vec::width) {
          vec::store(rows.values[0] + c,
                     vec::mul(vec::broadcast(rows.beta[i]), vec::load(found + c)));
        }
      }
    }
    for (float* const sums : rows.d_reads) std::fill_n(sums, chunk_tokens * size_.keys, 0.0f);
    for (int w = 0; w < writes; ++w) {
      std::fill_n(rows.d_writes[w], chunk_tokens * size_.keys, 0.0f);
    }
    std::fill_n(rows.crossing, size_.keys, 0.0f);
    std::fill_n(rows.d_beta, chunk_tokens, 0.0f);
  }

  /// A tile of the state in front of a chunk and of the gradient behind it, which becomes that in
  /// front.
  template <int Registers>
  void give_back_tile(const chunk_rows& rows, std::int64_t column, const float* before,
                      const float* found, float* gradient) const {
    constexpr std::int64_t pitch = Registers * traits<Row>::width;
    const std::int64_t keys = size_.keys, values = size_.values;
    const tile_shape shape{keys, pitch}, turned{pitch, keys};
    const float* const d_out = rows.d_out + column;
    float* const d_held = rows.d_values[writes - 1] + column;
    turn_tile(before, pitch, memory_.turned_tile);
    turn_tile(gradient, pitch, memory_.turned_gradient);
    add_crossing(turned, rows);
    // The scan goes from the last token to the first, and so do its rows.
    for (int w = 0; w < writes; ++w) {
      recurrence::read_state<isa_type, true, false>(
          {rows.left[w] + last * keys, -keys}, gradient, shape,
          {rows.weights[0][w] + last * chunk_tokens + last, -1, -chunk_tokens},
          {d_out + last * values, -values}, {rows.d_values[w] + column + last * values, -values});
    }
    const chunk_substitution<isa_type, Registers> columns{values};
    if constexpr (LowRank) {
      columns.find_d_values(rows.weights[1][0], rows.weights[1][1], rows.d_values[0] + column,
                            d_held);
    } else {
      columns.find_d_held(rows.weights[1][0], rows.beta, found, d_held, rows.d_beta);
    }
    const auto read_turned = [&](const float* readers, const float* tile, float* out) {
      recurrence::read_state<isa_type, false, true>({readers, values}, tile, turned, {}, {},
                                                    {out, keys});
    };
    read_turned(d_out, memory_.turned_tile, rows.d_reads[0]);
    read_turned(d_held, memory_.turned_tile, rows.d_reads[1]);
    for (int w = 0; w < writes; ++w) {
      read_turned(rows.values[w] + column, memory_.turned_gradient, rows.d_writes[w]);
    }
    recurrence::update_state<isa_type, tile_decay::rows>(
        gradient, gradient, shape, rows.whole_decay, rows.turned_found[0], {d_out, values});
    recurrence::update_state<isa_type, tile_decay::none>(gradient, gradient, shape, nullptr,
                                                         rows.turned_found[1], {d_held, values});
  }
  void turn_tile(const float* tile, std::int64_t pitch, float* to) const {
    prim::transpose_rows<isa_type>({tile, pitch}, static_cast<int>(size_.keys),
                                   static_cast<int>(pitch), {to, size_.keys});
  }
  void add_crossing(const tile_shape& turned, const chunk_rows& rows) const {
    if (args_.decay.data == nullptr) return;
    float* const more = memory_.row;
    recurrence::multiply_tiles<isa_type>(memory_.turned_tile, memory_.turned_gradient, turned,
                                         rows.whole_decay, more);
    for (std::int64_t c = 0; c < size_.keys; c += vec::width) {
      vec::store(rows.crossing + c, vec::add(vec::load(rows.crossing + c), vec::load(more + c)));
    }
  }

  /// The gradients of a chunk's tokens from what states and the gradient had for them.
  void finish(std::int64_t segment, std::int64_t chunk, std::int64_t member) const {
    const chunk_rows& rows = memory_.rows[chunk];
    const std::int64_t first = first_of(segment, chunk), keys = size_.keys;
    recurrence::chunk_gradient_rows<2, writes, reader::side> pairs{
        .reads = {rows.reads[0], rows.reads[1]},
        .keys = {},
        .decay = rows.decay,
        .d_weights = {},
        .crossing = rows.crossing,
        .d_reads = {rows.d_reads[0], rows.d_reads[1]},
        .d_keys = {},
        .d_decay = memory_.of_keys,
        .crossed = memory_.of_pairs,
        .padded = keys};
    const float* const d_answers[2] = {rows.d_out, rows.d_values[writes - 1]};
    for (int w = 0; w < writes; ++w) {
      pairs.keys[w] = rows.writes[w];
      pairs.d_keys[w] = rows.d_writes[w];
      for (int r = 0; r < 2; ++r) {
        recurrence::relate_chunk<isa_type, false>(
            {.q = d_answers[r], .k = rows.values[w], .padded = size_.values}, rows.d_weights[r][w]);
        pairs.d_weights[r][w] = rows.d_weights[r][w];
      }
    }
    // No token holds what it writes itself.
    for (int t = 0; t < chunk_tokens; ++t) rows.d_weights[1][0][t * (chunk_tokens + 1)] = 0.0f;
    recurrence::give_back_tokens<isa_type, true, recurrence::chunk_gradients::all>(pairs,
                                                                                   args_.scale);
    store_tokens(first, member, rows);
    float* const d_q = memory_.d_q + chunk * chunk_tokens * keys;
    float* const d_k = memory_.d_k + chunk * chunk_tokens * keys;
    for (std::int64_t i = 0; i < chunk_tokens * keys; i += vec::width) {
      auto of_key = vec::load(rows.d_writes[0] + i);
      if constexpr (!LowRank) of_key = vec::add(vec::load(rows.d_reads[1] + i), of_key);
      vec::store(d_q + i, vec::add(vec::load(d_q + i), vec::load(rows.d_reads[0] + i)));
      vec::store(d_k + i, vec::add(vec::load(d_k + i), of_key));
    }
  }

  /// What no other head adds to.
  void store_tokens(std::int64_t first, std::int64_t member, const chunk_rows& rows) const {
    const std::int64_t head = head_of(member), sums = head * sums_of_head_;
    const reader tokens = reader_of(member);
    const gate_gradients<Row> gates(args_, tokens_.entry, head,
                                    {sums_.a_log + sums, sums_.bias + sums}, memory_.row);
    for (std::int64_t i = 0; i < tokens.count_from(first); ++i) {
      const std::int64_t token = tokens_.token(first + i), at = i * size_.keys;
      token_rows d_token;
      d_token.read = rows.d_reads[1] + at;
      d_token.write = rows.d_writes[writes - 1] + at;
      gates.store_from_logs(token, tokens.token(rows, i), d_token, memory_.of_keys + at,
                            rows.d_beta[i]);
      // In the delta rule values have the opposite gradient of what was held of them.
      float* const d_values = rows.d_values[0] + i * size_.values;
      if constexpr (!LowRank) scale_row<isa_type>(d_values, args_.value_dim, -1.0f);
      if (args_.activates) {
        tokens.load_value(args_.v, first + i, memory_.row);
        activate_back<isa_type>(memory_.row, args_.value_dim, d_values);
      }
      store_row<isa_type>(args_.d_v, row_of(args_.d_v, tokens_.entry, token, head), args_.value_dim,
                          d_values);
    }
  }

  /// Sums over the value heads of a key head.
  void begin_group() const {
    for (float* const sums : {memory_.d_q, memory_.d_k}) {
      std::fill_n(sums, extents::segment_tokens * size_.keys, 0.0f);
    }
  }
  void store_group(std::int64_t segment, std::int64_t key_head) const {
    const std::int64_t begin = first_of(segment, 0);
    for (std::int64_t i = 0; i < tokens_of(segment); ++i) {
      const std::int64_t token = tokens_.token(begin + i);
      store_operand_gradient<Row>(args_, args_.q, args_.d_q, tokens_.entry, token, key_head,
                                  memory_.d_q + i * size_.keys, memory_.row);
      store_operand_gradient<Row>(args_, args_.k, args_.d_k, tokens_.entry, token, key_head,
                                  memory_.d_k + i * size_.keys, memory_.row);
    }
  }

  const delta_rule_kernel_args& given_;
  delta_rule_kernel_args args_;  ///< with staged rows
  const scratch& memory_;
  const extents& size_;
  const sequence& tokens_;
  gate_sums sums_;
  std::int64_t sums_of_head_;
};

}  // namespace tessera::kernels::delta_rule::cpu
