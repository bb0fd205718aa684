// Gradients by chunks of tokens, as products of their rows with states. A work item is a sequence
// and some heads of k and v with the heads that read them. Three scans, of states [V][K] forward
// and of their gradients both ways round:
//
//   for each segment { for each head { for each chunk {
//     what the state has for d_out: d_q; state
//   } } }
//   for each segment, from the last { for each head {
//     for each chunk { rows; weights of its pairs of tokens }
//     for each chunk, from the last { what the gradient has for k and v: d_v, d_k; gradient }
//     for each chunk { pairs of tokens: d_k }
//   } }
//
// Gradients of log decays need both states at once: then those in front of segments are kept on the
// way forward, and d_q comes on the way back.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/bonus.hpp>
#include <tessera/kernels/chunked_scan/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/chunked_scan/cpu/chunk_decays.hpp>
#include <tessera/kernels/chunked_scan/cpu/chunk_states.hpp>
#include <tessera/kernels/chunked_scan/cpu/rows.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/cpu/head_segments.hpp>
#include <tessera/kernels/recurrence/cpu/pair_gradients.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/kernels/recurrence/cpu/token_pairs.hpp>
#include <tessera/prim/cpu/gemm/strided_product.hpp>
#include <tessera/prim/cpu/stream.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Sequences of fewer tokens go token by token.
template <chunked_scan_decay Decay>
constexpr bool goes_back_by_chunks(std::int64_t length) noexcept {
  return Decay != chunked_scan_decay::keys_and_values && length >= chunk_tokens;
}

/// One work item.
template <class Kernel, bool Decays, state_read Read>
class chunk_backward_item : recurrence::head_segments<typename traits<Kernel>::isa_type,
                                                      chunk_extents<Kernel>::segment_tokens> {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using scratch = chunk_scratch<Kernel>;
  using extents = chunk_extents<Kernel>;
  using base = recurrence::head_segments<isa_type, extents::segment_tokens>;
  using base::for_each_head, base::head_of, base::first_of, base::chunks_of, base::tokens_of,
      base::tokens_from, base::segments_;
  using tile_decay = recurrence::tile_decay;
  using chunk_gradients = recurrence::chunk_gradients;
  static constexpr bool has_bonus = Read == state_read::before;
  static constexpr recurrence::state_side side =
      has_bonus ? recurrence::state_side::in_front : recurrence::state_side::behind;

 public:
  /// `d_u`: sums of the heads of the item, where there is a bonus.
  chunk_backward_item(const chunked_scan_kernel_args& args, const scratch& memory,
                      const sequence& one, std::int64_t first_kv_head, double* d_u)
      : base(first_kv_head * memory.size.group, memory.size.heads, args.heads, one.length),
        given_(args),
        args_(args),
        memory_(memory),
        size_(memory.size),
        one_(one),
        wants_decays_(wants_decays(args)),
        streams_(size_.streams),
        d_u_(d_u) {}

  void run() {
    const chunk_states<Kernel> states(args_, size_, one_);
    for_each_head([&](std::int64_t member) {
      const std::int64_t head = head_of(member);
      states.load_turned(args_.initial_state, head, memory_.kept(0, member));
      states.load(args_.d_final_state, head, memory_.gradient(member));
      states.load_turned(args_.d_final_state, head, memory_.turned_gradient(member));
      if constexpr (has_bonus) std::fill_n(d_u_ + member * size_.keys, size_.keys, 0.0);
    });
    for (std::int64_t segment = 0; segment < segments_ - (wants_decays_ ? 1 : 0); ++segment) {
      stage_updates(segment);
      for_each_head([&](std::int64_t member) { go_forward(segment, member); });
    }
    for (std::int64_t segment = segments_ - 1; segment >= 0; --segment) {
      stage_updates(segment);
      stage_queries(segment);
      for_each_head([&](std::int64_t member) {
        if (member % size_.group == 0) begin_group();
        give_back(segment, member);
        if ((member + 1) % size_.group == 0) store_group(segment, kv_head_of(member));
      });
    }
    for_each_head([&](std::int64_t member) {
      states.store(memory_.gradient(member), head_of(member), args_.d_initial_state);
    });
    prim::stream<isa_type>::fence();
  }

 private:
  std::int64_t kv_head_of(std::int64_t member) const { return head_of(member) / size_.group; }

  /// Sums over the heads that read a head of k and v.
  void begin_group() const {
    std::fill_n(memory_.d_k, extents::segment_tokens * size_.keys, 0.0f);
    std::fill_n(memory_.d_v, extents::segment_tokens * size_.values, 0.0f);
  }
  void store_group(std::int64_t segment, std::int64_t kv_head) const {
    const std::int64_t begin = first_of(segment, 0), count = tokens_of(segment);
    store_rows(args_.d_k, begin, count, kv_head, args_.keys, memory_.d_k, size_.keys);
    store_rows(args_.d_v, begin, count, kv_head, args_.values, memory_.d_v, size_.values);
  }

  void stage_updates(std::int64_t segment) {
    const auto stage = this->staging(segment, one_, memory_.staged);
    stage(0, given_.k, size_.group, args_.keys, args_.k);
    stage(1, given_.v, size_.group, args_.values, args_.v);
    stage(2, given_.gk, 1, args_.keys, args_.gk);
    if (!wants_decays_) stage(3, given_.d_out, 1, args_.values, args_.d_out);
  }
  void stage_queries(std::int64_t segment) {
    const auto stage = this->staging(segment, one_, memory_.staged);
    stage(4, given_.q, 1, args_.keys, args_.q);
    if (wants_decays_) stage(3, given_.d_out, 1, args_.values, args_.d_out);
  }

  /// Rows of tokens that are not there.
  static void fill_rest(std::int64_t count, std::int64_t padded, float with, float* to) {
    std::fill_n(to + count * padded, (chunk_tokens - count) * padded, with);
  }
  /// Rows of the tokens of a chunk.
  void load_rows(const chunked_scan_rows& from, std::int64_t first, std::int64_t head,
                 std::int64_t columns, float scale, std::int64_t padded, float* to) const {
    const std::int64_t count = tokens_from(first);
    for (std::int64_t at = 0; at < count; ++at) {
      load_part<Kernel>(from, place_of(from, one_, first + at, head), columns, scale, padded,
                        to + at * padded);
    }
    fill_rest(count, padded, 0.0f, to);
  }

  /// What a chunk adds to a state: rows of k, v and decays.
  void load_updates(std::int64_t first, std::int64_t member, const chunk_rows& rows) const {
    load_rows(args_.k, first, kv_head_of(member), args_.keys, 1.0f, size_.keys, rows.k);
    load_rows(args_.v, first, kv_head_of(member), args_.values, 1.0f, size_.values, rows.v);
    turn(rows.v, size_.values, rows.turned_v);
    if constexpr (Decays) {
      const std::int64_t count = tokens_from(first);
      load_chunk_decays<Kernel>(args_, one_, first, count, head_of(member), size_.keys, rows.decay,
                                rows.whole_decay);
      fill_rest(count, size_.keys, 1.0f, rows.decay);
    }
  }

  static void turn(const float* rows, std::int64_t padded, float* to) {
    prim::transpose_rows<isa_type>({rows, padded}, chunk_tokens, static_cast<int>(padded),
                                   {to, chunk_tokens});
  }
  recurrence::chunk_pair_rows pair_rows(const chunk_rows& rows) const {
    return {rows.q, rows.k, rows.decay, rows.found_q, rows.left_k, rows.passed_decay, size_.keys};
  }
  recurrence::chunk_gradient_rows<1, 1, side> gradient_rows(const chunk_rows& rows) const {
    return {.reads = {rows.q},
            .keys = {rows.k},
            .decay = rows.decay,
            .d_weights = {{rows.d_weights}},
            .crossing = rows.crossing,
            .d_reads = {rows.d_q},
            .d_keys = {rows.d_k},
            .d_decay = memory_.of_keys,
            .crossed = memory_.of_pairs,
            .padded = size_.keys};
  }
  /// Queries as of the state in front of the chunk, keys as of that behind it.
  static const float* found_q(const chunk_rows& rows) { return Decays ? rows.found_q : rows.q; }
  static const float* left_k(const chunk_rows& rows) { return Decays ? rows.left_k : rows.k; }

  /// The row of a head.
  const float* bonus(std::int64_t member) const {
    load_part<Kernel>(args_.u, head_of(member) * args_.u.head, args_.keys, 1.0f, size_.keys,
                      memory_.u);
    return memory_.u;
  }

  /// Makes the state in front of the next segment; d_q, if it does not come on the way back.
  void go_forward(std::int64_t segment, std::int64_t member) const {
    const std::int64_t chunks = chunks_of(segment);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const chunk_rows& rows = memory_.rows[chunk];
      const std::int64_t first = first_of(segment, chunk);
      load_updates(first, member, rows);
      if constexpr (Decays) recurrence::leave_keys<isa_type>(pair_rows(rows));
      if (!wants_decays_) load_d_out(first, member, rows);
    }
    float* const before = memory_.kept(segment, member);
    float* const after = memory_.kept(segment + 1, member);
    if (!wants_decays_) {
      read_states(chunks, [&](std::int64_t chunk) { return chunk == 0 ? before : after; });
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        finish<chunk_gradients::queries>(segment, chunk, member);
      }
      return;
    }
    for_each_column_tile<Kernel>(size_.keys, [&](std::int64_t first, std::int64_t columns) {
      const std::int64_t tile = first * args_.values;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        take(chunk, first, columns, (chunk == 0 ? before : after) + tile, after + tile);
      }
    });
  }

  /// A tile of a state behind a chunk from that in front of it.
  void take(std::int64_t chunk, std::int64_t first, std::int64_t columns, const float* before,
            float* after) const {
    const chunk_rows& rows = memory_.rows[chunk];
    recurrence::update_state<isa_type, Decays ? tile_decay::columns : tile_decay::none>(
        before, after, {args_.values, columns}, rows.whole_decay + first, rows.turned_v,
        {left_k(rows) + first, size_.keys});
  }

  void give_back(std::int64_t segment, std::int64_t member) const {
    const std::int64_t chunks = chunks_of(segment);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) relate(segment, chunk, member);
    if (wants_decays_) {
      read_states(chunks - 1, [&](std::int64_t chunk) { return state(segment, chunk, member); });
      read_state(chunks - 1, state(segment, chunks - 1, member));
    }
    read_gradients(member, chunks);
    read_turned_gradients(segment, member, chunks);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      if (wants_decays_) {
        finish<chunk_gradients::all>(segment, chunk, member);
      } else {
        finish<chunk_gradients::keys>(segment, chunk, member);
      }
    }
  }

  void load_d_out(std::int64_t first, std::int64_t member, const chunk_rows& rows) const {
    load_rows(args_.d_out, first, head_of(member), args_.values, 1.0f, size_.values, rows.d_out);
    recurrence::relate_chunk<isa_type, false>(
        {.q = rows.d_out, .k = rows.v, .padded = size_.values}, rows.d_weights);
  }

  /// Rows of a chunk and weights of its pairs of tokens.
  void relate(std::int64_t segment, std::int64_t chunk, std::int64_t member) const {
    const std::int64_t first = first_of(segment, chunk);
    const chunk_rows& rows = memory_.rows[chunk];
    load_updates(first, member, rows);
    load_d_out(first, member, rows);
    load_rows(args_.q, first, head_of(member), args_.keys, args_.scale, size_.keys, rows.q);
    recurrence::relate_chunk<isa_type, Decays, side>(pair_rows(rows), rows.weights);
    if constexpr (has_bonus) {
      add_bonus_weights<Kernel>(rows, bonus(member), size_.keys);
    }
    turn(found_q(rows), size_.keys, rows.turned_q);
    turn(rows.d_out, size_.values, rows.turned_d_out);
  }

  /// The state in front of a chunk of a segment, where decays are given back.
  float* state(std::int64_t segment, std::int64_t chunk, std::int64_t member) const {
    return chunk == 0 ? memory_.kept(segment, member) : memory_.state(chunk);
  }

  /// What the states in front of chunks have for d_out; makes those behind them. `state_before`
  /// says where they lie.
  template <class StateBefore>
  void read_states(std::int64_t chunks, const StateBefore& state_before) const {
    for_each_column_tile<Kernel>(size_.keys, [&](std::int64_t first, std::int64_t columns) {
      const std::int64_t tile = first * args_.values;
      for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
        read_tile(chunk, first, columns, state_before(chunk) + tile);
        take(chunk, first, columns, state_before(chunk) + tile, state_before(chunk + 1) + tile);
      }
    });
  }
  void read_state(std::int64_t chunk, const float* before) const {
    for_each_column_tile<Kernel>(size_.keys, [&](std::int64_t first, std::int64_t columns) {
      read_tile(chunk, first, columns, before + first * args_.values);
    });
  }
  void read_tile(std::int64_t chunk, std::int64_t first, std::int64_t columns,
                 const float* tile) const {
    const chunk_rows& rows = memory_.rows[chunk];
    recurrence::read_state<isa_type, false, false>({rows.d_out, size_.values}, tile,
                                                   {args_.values, columns}, {}, {},
                                                   {rows.d_q + first, size_.keys});
  }

  /// What the gradient has for k, and the tokens behind a value.
  void read_gradients(std::int64_t member, std::int64_t chunks) const {
    constexpr std::int64_t last = chunk_tokens - 1;
    for_each_column_tile<Kernel>(size_.values, [&](std::int64_t first, std::int64_t columns) {
      float* const tile = memory_.gradient(member) + first * args_.keys;
      for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
        const chunk_rows& rows = memory_.rows[chunk];
        float* const d_v = memory_.d_v + (chunk * chunk_tokens + last) * size_.values + first;
        // The scan goes from the last token to the first, and so do its rows.
        recurrence::read_state<isa_type, true, true>(
            {left_k(rows) + last * size_.keys, -size_.keys}, tile, {args_.keys, columns},
            {rows.weights + last * chunk_tokens + last, -1, -chunk_tokens},
            {rows.d_out + last * size_.values + first, -size_.values}, {d_v, -size_.values});
        recurrence::update_state<isa_type, Decays ? tile_decay::rows : tile_decay::none>(
            tile, tile, {args_.keys, columns}, rows.whole_decay, rows.turned_q,
            {rows.d_out + first, size_.values});
      }
    });
  }

  /// What it has for v, and for the state in front of each chunk.
  void read_turned_gradients(std::int64_t segment, std::int64_t member, std::int64_t chunks) const {
    for_each_column_tile<Kernel>(size_.keys, [&](std::int64_t first, std::int64_t columns) {
      const std::int64_t at = first * args_.values;
      float* const tile = memory_.turned_gradient(member) + at;
      const recurrence::tile_shape of_tile{args_.values, columns};
      for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
        const chunk_rows& rows = memory_.rows[chunk];
        if (wants_decays_) {
          recurrence::multiply_tiles<isa_type>(state(segment, chunk, member) + at, tile, of_tile,
                                               rows.whole_decay + first, rows.crossing + first);
        }
        recurrence::read_state<isa_type, false, false>({rows.v, size_.values}, tile, of_tile, {},
                                                       {}, {rows.d_k + first, size_.keys});
        recurrence::update_state<isa_type, Decays ? tile_decay::columns : tile_decay::none>(
            tile, tile, of_tile, rows.whole_decay + first, rows.turned_d_out,
            {found_q(rows) + first, size_.keys});
      }
    });
  }

  /// The gradients of a chunk's tokens from what states and the gradient had for them.
  template <chunk_gradients Wanted>
  void finish(std::int64_t segment, std::int64_t chunk, std::int64_t member) const {
    using vec = typename shape::vec;
    const chunk_rows& rows = memory_.rows[chunk];
    const std::int64_t first = first_of(segment, chunk), head = head_of(member);
    const std::int64_t count = tokens_from(first);
    recurrence::give_back_tokens<isa_type, Decays, Wanted>(gradient_rows(rows), args_.scale);
    if constexpr (has_bonus) {
      add_bonus_gradients<Kernel, Wanted>(rows, bonus(member), size_.keys, args_.scale,
                                          d_u_ + member * size_.keys);
    }
    if constexpr (Wanted == chunk_gradients::all) {
      for (std::int64_t at = 0; args_.raw_decay && at < count; ++at) {
        through_raw_decay<Kernel>(args_, one_, first + at, head, size_.keys, rows.passed_decay,
                                  memory_.of_keys + at * size_.keys);
      }
      store_decays(first, count, head);
    }
    if constexpr (Wanted != chunk_gradients::keys) {
      store_rows(args_.d_q, first, count, head, args_.keys, rows.d_q, size_.keys);
    }
    if constexpr (Wanted != chunk_gradients::queries) {
      float* const d_k = memory_.d_k + chunk * chunk_tokens * size_.keys;
      for (std::int64_t i = 0; i < chunk_tokens * size_.keys; i += shape::width) {
        vec::store(d_k + i, vec::add(vec::load(d_k + i), vec::load(rows.d_k + i)));
      }
    }
  }

  void store_decays(std::int64_t first, std::int64_t count, std::int64_t head) const {
    store_rows(args_.d_gk, first, count, head, args_.keys, memory_.of_keys, size_.keys);
    for (std::int64_t at = 0; args_.d_g.data != nullptr && at < count; ++at) {
      const float* const row = memory_.of_keys + at * size_.keys;
      float sum = 0.0f;
      for (std::int64_t key = 0; key < args_.keys; ++key) sum += row[key];
      store_number<Kernel>(args_.d_g, place_of(args_.d_g, one_, first + at, head), sum);
    }
  }

  /// Rows of the tokens from `first` on, if somebody wants them.
  void store_rows(const chunked_scan_rows& to, std::int64_t first, std::int64_t count,
                  std::int64_t head, std::int64_t columns, const float* from,
                  std::int64_t padded) const {
    using stream = prim::stream<isa_type>;
    for (std::int64_t at = 0; to.data != nullptr && at < count; ++at) {
      const std::int64_t place = place_of(to, one_, first + at, head);
      if (streams_ && to.type == dtype::f32) {
        stream::copy(reinterpret_cast<std::byte*>(static_cast<float*>(to.data) + place),
                     reinterpret_cast<const std::byte*>(from + at * padded),
                     static_cast<std::size_t>(columns) * sizeof(float));
      } else {
        store_part<Kernel>(to, place, columns, from + at * padded);
      }
    }
  }

  const chunked_scan_kernel_args& given_;
  chunked_scan_kernel_args args_;  ///< with staged rows
  const scratch& memory_;
  const extents& size_;
  const sequence& one_;
  bool wants_decays_, streams_;
  double* d_u_;  ///< [heads][keys]: of the bonus
};

}  // namespace tessera::kernels::chunked_scan::cpu
