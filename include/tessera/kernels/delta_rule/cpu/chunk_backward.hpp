// Gradients of the delta rule by chunks of tokens, as products of their rows with tiles of states
// [K][columns], which never meet each other. With found and left rows as of the states in front of
// a chunk and behind it, and pairs of tokens as in `recurrence/cpu/token_pairs.hpp`:
//
//   for each segment { for each head { for each tile { for each chunk {
//     what the state holds for keys; what is missing and written; state
//   } } } }
//   for each segment, from the last { for each head {
//     for each chunk { rows; weights of its pairs of tokens }
//     for each tile {
//       for each chunk { state }
//       for each chunk, from the last {
//         what the gradient has for keys: d_written, d_held; what the state has for d_out and
//         d_held, and the gradient for written: d_q, d_k; gradient
//       }
//     }
//     for each chunk { pairs of tokens: d_q, d_k, gates }
//   } }
//
// A work item is a sequence and some key heads with their value heads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/delta_rule/cpu/chunk_substitution.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/token_gradient.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/decay_factor.hpp>
#include <tessera/kernels/recurrence/cpu/pair_gradients.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/kernels/recurrence/cpu/token_pairs.hpp>
#include <tessera/prim/cpu/gemm/strided_product.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Low-rank updates, tokens with segments and sequences of few tokens go token by token.
template <class Row>
bool goes_back_by_chunks(const delta_rule_kernel_args& args, const sequence& tokens) noexcept {
  return chunk_extents<Row>::has_chunks && args.update == delta_rule_update::delta &&
         tokens.ids == nullptr && tokens.length >= chunk_tokens;
}

/// One work item.
template <class Row>
class chunk_backward_item {
  using isa_type = typename traits<Row>::isa_type;
  using vec = typename traits<Row>::vec;
  using element = typename traits<Row>::element;
  using extents = chunk_extents<Row>;
  using scratch = chunk_scratch<Row>;
  using tile_decay = recurrence::tile_decay;
  using tile_shape = recurrence::tile_shape;
  static constexpr std::int64_t last = chunk_tokens - 1;

 public:
  /// `sums` are those of the first value head of the sequence, `sums_of_head` apart.
  chunk_backward_item(const delta_rule_kernel_args& args, const scratch& memory,
                      const sequence& tokens, std::int64_t first_key_head, const gate_sums& sums,
                      std::int64_t sums_of_head)
      : args_(args),
        memory_(memory),
        size_(memory.size),
        tokens_(tokens),
        first_head_(first_key_head * size_.group),
        heads_(std::min(args.value_heads - first_head_, size_.heads)),
        segments_((tokens.length + extents::segment_tokens - 1) / extents::segment_tokens),
        sums_(sums),
        sums_of_head_(sums_of_head) {}

  void run() const {
    memory_.clear_rows();
    const auto initial = initial_states<isa_type>(args_, tokens_);
    for_each_head([&](std::int64_t member) {
      load_state(initial, member, memory_.kept(0, member));
      load_state(args_.d_last, member, memory_.gradient(member));
    });
    for (std::int64_t segment = 0; segment < segments_; ++segment) {
      for_each_head([&](std::int64_t member) { go_forward(segment, member); });
    }
    for (std::int64_t segment = segments_ - 1; segment >= 0; --segment) {
      for_each_head([&](std::int64_t member) {
        if (member % size_.group == 0) begin_group();
        give_back(segment, member);
        if ((member + 1) % size_.group == 0) store_group(segment, head_of(member) / size_.group);
      });
    }
    for_each_head([&](std::int64_t member) { store_gradient(member); });
  }

 private:
  template <class Body>
  void for_each_head(const Body& body) const {
    for (std::int64_t member = 0; member < heads_; ++member) body(member);
  }
  /// Calls body(first column, where its tile begins in a state, registers).
  template <class Body>
  void for_each_tile(const Body& body) const {
    for (std::int64_t column = 0; column < args_.value_dim; column += extents::columns) {
      with_registers<Row>(columns_from(column), [&](auto registers) {
        body(column, column * size_.keys, registers);
      });
    }
  }
  std::int64_t columns_from(std::int64_t column) const {
    return std::min(extents::columns, args_.value_dim - column);
  }
  std::int64_t head_of(std::int64_t member) const { return first_head_ + member; }
  std::int64_t first_of(std::int64_t segment, std::int64_t chunk) const {
    return segment * extents::segment_tokens + chunk * chunk_tokens;
  }
  std::int64_t chunks_of(std::int64_t segment) const {
    const std::int64_t tokens = tokens_.length - first_of(segment, 0);
    return std::min((tokens + last) / chunk_tokens, extents::segment);
  }
  std::int64_t tokens_from(std::int64_t first) const {
    return std::min<std::int64_t>(tokens_.length - first, chunk_tokens);
  }
  tile_place place(std::int64_t member, std::int64_t column, std::int64_t pitch) const {
    return {tokens_.slot,  head_of(member),      column,
            args_.key_dim, columns_from(column), pitch};
  }

  /// Zeros behind the channels.
  void load_state(const delta_rule_states<const void>& from, std::int64_t member,
                  float* to) const {
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
      store_tile<isa_type>(gradient + at,
                           place(member, column, registers() * traits<Row>::width),
                           args_.d_initial);
    });
  }

  void load_values(const delta_rule_input& from, std::int64_t step, std::int64_t head,
                   float* to) const {
    load_row<isa_type>(static_cast<const element*>(from.data) +
                           row_of(from, tokens_.entry, tokens_.token(step), head),
                       args_.value_dim, to);
  }

  /// Keys, decays and beta of the tokens of a chunk, with queries if they are wanted; tokens that
  /// are not there change nothing. Decays of all tokens are rounded once: a product of factors near
  /// 1 is always rounded the same way, chunk after chunk.
  void load_tokens(std::int64_t first, std::int64_t member, bool with_queries,
                   const chunk_rows& rows) const {
    const token_reader<Row> reader(args_, tokens_.entry, head_of(member));
    const std::int64_t count = tokens_from(first), keys = size_.keys;
    std::fill_n(rows.whole_decay, keys, 0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = tokens_.token(first + i);
      const token_rows to{rows.q + i * keys, rows.k + i * keys, rows.decay + i * keys};
      reader.read_key(token, to, rows.whole_decay);
      if (with_queries) reader.read_query(token, to);
      rows.beta[i] = reader.beta(token);
    }
    std::fill_n(rows.q + count * keys, (chunk_tokens - count) * keys, 0.0f);
    std::fill_n(rows.k + count * keys, (chunk_tokens - count) * keys, 0.0f);
    std::fill_n(rows.decay + count * keys, (chunk_tokens - count) * keys, 1.0f);
    std::fill_n(rows.beta + count, chunk_tokens - count, 0.0f);
    for (std::int64_t c = 0; c < keys; c += vec::width) {
      vec::store(rows.whole_decay + c,
                 recurrence::decay_factor<isa_type>(vec::load(rows.whole_decay + c)));
    }
    recurrence::relate_chunk<isa_type, true>(
        {rows.k, rows.k, rows.decay, rows.found_k, rows.left_k, rows.passed_decay, keys},
        rows.key_weights);
    turn(rows.left_k, rows.turned_left_k);
  }
  /// Rows of values of the tokens of a chunk.
  void load_values(const delta_rule_input& from, std::int64_t first, std::int64_t member,
                   bool activates, float* to) const {
    const std::int64_t count = tokens_from(first);
    for (std::int64_t i = 0; i < count; ++i) {
      load_values(from, first + i, head_of(member), to + i * size_.values);
      if (activates) activate<isa_type>(to + i * size_.values, args_.value_dim);
    }
    std::fill_n(to + count * size_.values, (chunk_tokens - count) * size_.values, 0.0f);
  }
  void turn(const float* rows, float* to) const {
    prim::transpose_rows<isa_type>({rows, size_.keys}, chunk_tokens, static_cast<int>(size_.keys),
                                   {to, chunk_tokens});
  }
  void turn_tile(const float* tile, std::int64_t pitch, float* to) const {
    prim::transpose_rows<isa_type>({tile, pitch}, static_cast<int>(size_.keys),
                                   static_cast<int>(pitch), {to, size_.keys});
  }

  /// Makes what is missing of the values of a segment, and the state in front of the next.
  void go_forward(std::int64_t segment, std::int64_t member) const {
    const std::int64_t chunks = chunks_of(segment);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t first = first_of(segment, chunk);
      load_tokens(first, member, false, memory_.rows[chunk]);
      load_values(args_.v, first, member, args_.activates, memory_.rows[chunk].d_out);
    }
    for_each_tile([&](std::int64_t column, std::int64_t at, auto registers) {
      constexpr std::int64_t pitch = registers() * traits<Row>::width;
      float* const after = memory_.kept(segment + 1, member) + at;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        const chunk_rows& rows = memory_.rows[chunk];
        const float* const before = chunk == 0 ? memory_.kept(segment, member) + at : after;
        float* const missing = memory_.missing(member, first_of(segment, chunk)) + column;
        recurrence::read_state<isa_type, false, false>({rows.found_k, size_.keys}, before,
                                                       {size_.keys, pitch}, {}, {},
                                                       {missing, size_.values});
        find_written<isa_type, registers()>({rows.key_weights, rows.beta, missing, size_.values},
                                            rows.d_out + column, rows.written + column);
        take(rows, column, pitch, before, after);
      }
    });
  }
  /// A tile of a state behind a chunk from that in front of it.
  void take(const chunk_rows& rows, std::int64_t column, std::int64_t pitch, const float* before,
            float* after) const {
    recurrence::update_state<isa_type, tile_decay::rows>(
        before, after, {size_.keys, pitch}, rows.whole_decay, rows.turned_left_k,
        {rows.written + column, size_.values});
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
            memory_.missing(member, first_of(segment, chunk)) + column,
            memory_.gradient(member) + at);
      }
    });
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) finish(segment, chunk, member);
  }

  /// Rows of a chunk and weights of its pairs of tokens.
  void relate(std::int64_t segment, std::int64_t chunk, std::int64_t member) const {
    const std::int64_t first = first_of(segment, chunk), keys = size_.keys;
    const chunk_rows& rows = memory_.rows[chunk];
    load_tokens(first, member, true, rows);
    recurrence::relate_chunk<isa_type, true>(
        {rows.q, rows.k, rows.decay, rows.found_q, rows.left_k, rows.passed_decay, keys},
        rows.weights);
    turn(rows.found_q, rows.turned_q);
    turn(rows.found_k, rows.turned_k);
    load_values(args_.d_out, first, member, false, rows.d_out);
    const float* const missing = memory_.missing(member, first);
    for (std::int64_t i = 0; i < chunk_tokens; ++i) {
      for (std::int64_t c = i * size_.values; c < (i + 1) * size_.values; c += vec::width) {
        vec::store(rows.written + c,
                   vec::mul(vec::broadcast(rows.beta[i]), vec::load(missing + c)));
      }
    }
    for (float* const sums : {rows.d_q, rows.d_read_k, rows.d_k}) {
      std::fill_n(sums, chunk_tokens * keys, 0.0f);
    }
    std::fill_n(rows.crossing, keys, 0.0f);
    std::fill_n(rows.d_beta, chunk_tokens, 0.0f);
  }

  /// A tile of the state in front of a chunk and of the gradient behind it, which becomes that in
  /// front.
  template <int Registers>
  void give_back_tile(const chunk_rows& rows, std::int64_t column, const float* before,
                      const float* missing, float* gradient) const {
    constexpr std::int64_t pitch = Registers * traits<Row>::width;
    const std::int64_t keys = size_.keys, values = size_.values;
    const tile_shape shape{keys, pitch}, turned{pitch, keys};
    float *const d_held = rows.d_held + column, *const d_out = rows.d_out + column;
    turn_tile(before, pitch, memory_.turned_tile);
    turn_tile(gradient, pitch, memory_.turned_gradient);
    add_crossing(turned, rows);
    // The scan goes from the last token to the first, and so do its rows.
    recurrence::read_state<isa_type, true, false>(
        {rows.left_k + last * keys, -keys}, gradient, shape,
        {rows.weights + last * chunk_tokens + last, -1, -chunk_tokens},
        {d_out + last * values, -values}, {d_held + last * values, -values});
    find_held<isa_type, Registers>(
        {rows.key_weights, rows.beta, const_cast<float*>(missing), values}, d_held, rows.d_beta);
    const auto read_turned = [&](const float* readers, const float* tile, float* out) {
      recurrence::read_state<isa_type, false, true>({readers, values}, tile, turned, {}, {},
                                                    {out, keys});
    };
    read_turned(d_out, memory_.turned_tile, rows.d_q);
    read_turned(d_held, memory_.turned_tile, rows.d_read_k);
    read_turned(rows.written + column, memory_.turned_gradient, rows.d_k);
    recurrence::update_state<isa_type, tile_decay::rows>(
        gradient, gradient, shape, rows.whole_decay, rows.turned_q, {d_out, values});
    recurrence::update_state<isa_type, tile_decay::none>(gradient, gradient, shape, nullptr,
                                                         rows.turned_k, {d_held, values});
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
    const std::int64_t first = first_of(segment, chunk), head = head_of(member);
    const std::int64_t keys = size_.keys;
    const auto relate_values = [&](const float* readers, float* weights) {
      recurrence::relate_chunk<isa_type, false>(
          {.q = readers, .k = rows.written, .padded = size_.values}, weights);
    };
    relate_values(rows.d_out, rows.d_weights);
    relate_values(rows.d_held, rows.d_key_weights);
    for (int t = 0; t < chunk_tokens; ++t) rows.d_key_weights[t * (chunk_tokens + 1)] = 0.0f;
    recurrence::give_back_tokens<isa_type, true, recurrence::chunk_gradients::all>(
        recurrence::chunk_gradient_rows<2>{.reads = {rows.q, rows.k},
                                           .k = rows.k,
                                           .decay = rows.decay,
                                           .d_weights = {rows.d_weights, rows.d_key_weights},
                                           .crossing = rows.crossing,
                                           .d_reads = {rows.d_q, rows.d_read_k},
                                           .d_k = rows.d_k,
                                           .d_decay = memory_.of_keys,
                                           .crossed = memory_.of_pairs,
                                           .padded = keys},
        args_.scale);
    const std::int64_t sums = head * sums_of_head_;
    const gate_gradients<Row> gates(args_, tokens_.entry, head,
                                    {sums_.a_log + sums, sums_.bias + sums}, memory_.row);
    for (std::int64_t i = 0; i < tokens_from(first); ++i) {
      gates.store(tokens_.token(first + i), memory_.of_keys + i * keys, rows.d_beta[i]);
      store_values(first + i, head, rows.d_held + i * size_.values);
    }
    float *const d_q = memory_.d_q + chunk * chunk_tokens * keys,
                 *const d_k = memory_.d_k + chunk * chunk_tokens * keys;
    for (std::int64_t i = 0; i < chunk_tokens * keys; i += vec::width) {
      const auto of_key = vec::add(vec::load(rows.d_read_k + i), vec::load(rows.d_k + i));
      vec::store(d_q + i, vec::add(vec::load(d_q + i), vec::load(rows.d_q + i)));
      vec::store(d_k + i, vec::add(vec::load(d_k + i), of_key));
    }
  }
  /// Values have the opposite gradient of what was held of them; that is used up.
  void store_values(std::int64_t step, std::int64_t head, float* d_held) const {
    scale_row<isa_type>(d_held, args_.value_dim, -1.0f);
    if (args_.activates) {
      load_values(args_.v, step, head, memory_.row);
      activate_back<isa_type>(memory_.row, args_.value_dim, d_held);
    }
    store_row<isa_type>(args_.d_v, row_of(args_.d_v, tokens_.entry, tokens_.token(step), head),
                        args_.value_dim, d_held);
  }

  /// Sums over the value heads of a key head.
  void begin_group() const {
    for (float* const sums : {memory_.d_q, memory_.d_k}) {
      std::fill_n(sums, extents::segment_tokens * size_.keys, 0.0f);
    }
  }
  void store_group(std::int64_t segment, std::int64_t key_head) const {
    const std::int64_t begin = first_of(segment, 0);
    const std::int64_t count = std::min(tokens_.length - begin, extents::segment_tokens);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t token = tokens_.token(begin + i);
      store_operand_gradient<Row>(args_, args_.q, args_.d_q, tokens_.entry, token, key_head,
                                  memory_.d_q + i * size_.keys, memory_.row);
      store_operand_gradient<Row>(args_, args_.k, args_.d_k, tokens_.entry, token, key_head,
                                  memory_.d_k + i * size_.keys, memory_.row);
    }
  }

  const delta_rule_kernel_args& args_;
  const scratch& memory_;
  const extents& size_;
  const sequence& tokens_;
  std::int64_t first_head_, heads_, segments_;
  gate_sums sums_;
  std::int64_t sums_of_head_;
};

}  // namespace tessera::kernels::delta_rule::cpu
