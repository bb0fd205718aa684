// Forward: `for each run of tokens { read their rows; for each tile { for each token { step the
// tile of the state; store its answer } } }`, of each of some heads. A work item is some value
// heads of a sequence, or some tiles of columns of the state of one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/cpu/lone_token.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/step.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// A few tokens that are no padding, as floats.
struct token_run {
  static constexpr std::int64_t most = 8;  ///< their rows stay beside a tile in the nearest cache

  std::int64_t count = 0;
  token_rows rows[most];
  float beta[most] = {};
  std::int64_t token[most] = {};
  bool starts_anew[most] = {};
};

template <class Row>
class forward_launch {
 public:
  using isa_type = typename traits<Row>::isa_type;
  using element = typename traits<Row>::element;
  static constexpr std::int64_t tile_columns = traits<Row>::config.columns;

  explicit forward_launch(const delta_rule_kernel_args& args, int threads)
      : args_(args),
        threads_(threads),
        tiles_((args.value_dim + tile_columns - 1) / tile_columns),
        together_(tiles_together(args, tiles_, threads)),
        parts_((tiles_ + together_ - 1) / together_),
        heads_(heads_together(args, parts_ == 1 ? tiles_ : 0, threads)),
        head_parts_((args.value_heads + heads_ - 1) / heads_) {}

  /// Floats of a thread: tiles, the rows of a run of tokens, and values and an answer of the
  /// columns of an item.
  std::int64_t floats_of_thread() const {
    return args_.key_dim * tile_columns * together_ * heads_ +
           token_run::most * token_rows::count * padded(args_.key_dim) + 2 * item_columns();
  }

  void run(float* memory) const {
    prim::parallel_items<isa_type>(sequences_with_rest(args_) * head_parts_ * parts_, threads_,
                                   [&](std::int64_t item, int thread) {
                                     run_item(item, memory + thread * floats_of_thread());
                                   });
  }

 private:
  std::int64_t item_columns() const { return padded(tile_columns) * together_; }

  /// Tiles of a head share what is made of its tokens, as far as they stay in the second-level
  /// cache and every thread has an item.
  static std::int64_t tiles_together(const delta_rule_kernel_args& args, std::int64_t tiles,
                                     int threads) noexcept {
    constexpr std::int64_t most = 1 << 16;  // floats
    if (args.sequences * args.value_heads < threads) return 1;
    const std::int64_t floats = std::max<std::int64_t>(args.key_dim * tile_columns, 1);
    return std::clamp<std::int64_t>(most / floats, 1, std::max<std::int64_t>(tiles, 1));
  }

  /// Heads of an item, which has all `tiles` of each (0: it has not): rows of neighbours lie in the
  /// same pages, whose addresses cost more to find than their numbers to read. Their tiles stay in
  /// the second-level cache, and every thread has an item. Where all tokens are alone, which are
  /// bound by their states, threads have a few items each.
  static std::int64_t heads_together(const delta_rule_kernel_args& args, std::int64_t tiles,
                                     int threads) noexcept {
    constexpr std::int64_t most = 1 << 17;  // floats
    const bool are_alone = args.tokens <= (args.cu_seqlens != nullptr ? args.sequences : 1);
    if (tiles == 0 || (args.slots != nullptr && !are_alone)) return 1;
    const std::int64_t floats = std::max<std::int64_t>(args.key_dim * tile_columns * tiles, 1);
    const std::int64_t items =
        args.sequences * args.value_heads / (are_alone ? 2 * threads : threads);
    return std::clamp<std::int64_t>(std::min(most / floats, items), 1,
                                    std::max<std::int64_t>(args.value_heads, 1));
  }

  /// Part of a head of a sequence: columns [first, end). An item has `heads` from `head` on.
  struct item_place {
    std::int64_t sequence = 0, head = 0, heads = 1, first = 0, end = 0;
  };
  item_place place_of(std::int64_t item) const {
    const std::int64_t first = item % parts_ * together_ * tile_columns;
    const std::int64_t head = item / parts_ % head_parts_ * heads_;
    return {item / parts_ / head_parts_, head, std::min(heads_, args_.value_heads - head), first,
            std::min(args_.value_dim, first + together_ * tile_columns)};
  }
  /// One of the heads of an item.
  static item_place head_of(item_place at, std::int64_t number) {
    at.head += number;
    at.heads = 1;
    return at;
  }

  /// Calls body(column, columns, registers) for each tile.
  template <class Body>
  static void for_each_tile(const item_place& at, const Body& body) {
    for (std::int64_t column = at.first; column < at.end; column += tile_columns) {
      const std::int64_t columns = std::min(tile_columns, at.end - column);
      with_registers<Row>(columns, [&](auto registers) { body(column, columns, registers); });
    }
  }

  void run_item(std::int64_t item, float* scratch) const {
    const item_place at = place_of(item);
    const sequence tokens = sequence_of<isa_type>(args_, at.sequence);
    if (tokens.is_rest) {
      for (std::int64_t n = 0; n < at.heads; ++n) {
        for (std::int64_t step = 0; step < tokens.length; ++step) {
          clear(tokens, step, head_of(at, n));
        }
      }
      return;
    }
    if (!tokens.has_states) return;
    if (tokens.length == 1 && !tokens.is_padding(0) && is_in_place(tokens)) {
      return step_in_place(item, tokens, at, scratch);
    }
    walk(tokens, at, scratch);
  }

  element* answer_at(const sequence& tokens, std::int64_t token, std::int64_t head,
                     std::int64_t column) const {
    return static_cast<element*>(args_.out.data) + row_of(args_.out, tokens.entry, token, head) +
           column;
  }
  void clear(const sequence& tokens, std::int64_t step, const item_place& at) const {
    std::fill_n(answer_at(tokens, tokens.token(step), at.head, at.first), at.end - at.first,
                element{});
  }

  /// Rows of the run in scratch memory, which is behind the tiles.
  token_run empty_run(float* scratch) const {
    token_run run;
    float* const rows = scratch + args_.key_dim * tile_columns * together_ * heads_;
    for (std::int64_t i = 0; i < token_run::most; ++i) {
      run.rows[i] =
          token_rows::at(rows + i * token_rows::count * padded(args_.key_dim), args_.key_dim);
    }
    return run;
  }
  /// Rows of the columns of an item, behind those of the tokens.
  float* values_of(float* scratch) const {
    return scratch + floats_of_thread() - 2 * item_columns();
  }

  void walk(const sequence& tokens, const item_place& item, float* scratch) const {
    token_run run = empty_run(scratch);
    float* const values = values_of(scratch);
    const auto for_each_state = [&](std::int64_t n, const auto& body) {
      const item_place at = head_of(item, n);
      float* const tiles = scratch + n * args_.key_dim * tile_columns * together_;
      for_each_tile(at, [&](std::int64_t column, std::int64_t columns, auto registers) {
        constexpr std::int64_t pitch = registers() * traits<Row>::width;
        body(tile_place{tokens.slot, at.head, column, args_.key_dim, columns, pitch},
             tiles + (column - at.first) * args_.key_dim, registers);
      });
    };
    for (std::int64_t n = 0; n < item.heads; ++n) {
      for_each_state(n, [&](const tile_place& place, float* tile, auto) {
        load_tile<isa_type>(initial_states<isa_type>(args_, tokens), place, tile);
      });
    }
    for (std::int64_t step = 0; step < tokens.length; step += token_run::most) {
      for (std::int64_t n = 0; n < item.heads; ++n) {
        const item_place at = head_of(item, n);
        read_run(tokens, step, at, token_reader<Row>(args_, tokens.entry, at.head), run);
        for_each_state(n, [&](const tile_place& place, float* data, auto registers) {
          std::fill_n(values, place.pitch, 0.0f);
          this->template take_run<registers()>(tokens, run, place, {data, place.pitch}, values);
        });
      }
    }
    for (std::int64_t n = 0; args_.last.data != nullptr && n < item.heads; ++n) {
      for_each_state(n, [&](const tile_place& place, const float* tile, auto) {
        store_tile<isa_type>(tile, place, args_.last);
      });
    }
  }

  /// The tokens of the steps from `first` on; those of the next run are asked for.
  void read_run(const sequence& tokens, std::int64_t first, const item_place& at,
                const token_reader<Row>& reader, token_run& run) const {
    run.count = 0;
    const std::int64_t end = std::min(first + token_run::most, tokens.length);
    for (std::int64_t step = first; step < end; ++step) {
      if (step + token_run::most < tokens.length) {
        reader.ask_for(tokens.token(step + token_run::most));
      }
      if (tokens.is_padding(step)) {
        clear(tokens, step, at);
        continue;
      }
      const std::int64_t i = run.count++;
      run.token[i] = tokens.token(step);
      run.starts_anew[i] = tokens.starts_anew(step);
      reader.read(run.token[i], run.rows[i]);
      run.beta[i] = reader.beta(run.token[i]);
    }
  }

  void load_values(const sequence& tokens, std::int64_t token, std::int64_t head,
                   std::int64_t column, std::int64_t columns, float* to) const {
    load_row<isa_type>(static_cast<const element*>(args_.v.data) +
                           row_of(args_.v, tokens.entry, token, head) + column,
                       columns, to);
    if (args_.activates) activate<isa_type>(to, columns);
  }

  /// A run of tokens through a tile; `values` has room for an answer behind it.
  template <int Registers>
  void take_run(const sequence& tokens, const token_run& run, const tile_place& place,
                const state_tile<float>& tile, float* values) const {
    using row = tile_row<isa_type, Registers>;
    row held = row::zero();
    for (std::int64_t i = 0; i < run.count; ++i) {
      if (run.starts_anew[i]) std::fill_n(tile.data, place.channels * tile.step, 0.0f);
      if (i == 0 || run.starts_anew[i]) {
        held = read_tile<isa_type, Registers>({tile.data, tile.step}, run.rows[i].read,
                                              place.channels);
      }
      const bool has_next = i + 1 < run.count && !run.starts_anew[i + 1];
      const float* const next = has_next ? run.rows[i + 1].read : nullptr;
      held = take<Registers>(tokens, run, i, place, tile, held, next, values);
    }
  }

  /// One of them. Returns what the next one, that reads with `next`, has of the state; null: none.
  template <int Registers>
  TESSERA_INLINE tile_row<isa_type, Registers> take(const sequence& tokens, const token_run& run,
                                                    std::int64_t i, const tile_place& place,
                                                    const state_tile<float>& tile,
                                                    const tile_row<isa_type, Registers>& held,
                                                    const float* next, float* values) const {
    using row = tile_row<isa_type, Registers>;
    load_values(tokens, run.token[i], place.head, place.column, place.columns, values);
    row written = row::load(values);
    const auto step = [&](auto low_rank, auto has_next) {
      return step_tile<isa_type, Registers, low_rank(), has_next()>(
          tile, run.rows[i], place.channels, written, held, next);
    };
    const auto step_with = [&](auto low_rank) {
      return next != nullptr ? step(low_rank, std::true_type{}) : step(low_rank, std::false_type{});
    };
    step_answers<isa_type, Registers> answers;
    if (args_.update == delta_rule_update::delta) {
      keep_missing<isa_type, Registers>(written, held, run.beta[i]);
      answers = step_with(std::false_type{});
    } else {
      answers = step_with(std::true_type{});
    }
    float* const answer = values + padded(tile_columns);
    answers.query.store(answer);
    store_row<isa_type>(answer_at(tokens, run.token[i], place.head, place.column), place.columns,
                        answer);
    return answers.next;
  }

  /// Whether a lone token may step from the memory of one state to that of the other: what an item
  /// has of the columns does not count, since it depends on threads, and bits may not.
  bool is_in_place(const sequence& tokens) const {
    return args_.initial.data != nullptr && args_.initial.type == dtype::f32 &&
           !tokens.starts_from_zero && args_.last.data != nullptr &&
           args_.last.type == dtype::f32 && args_.value_dim % traits<Row>::width == 0;
  }

  /// Columns [column, ...) of a state where it lies.
  template <class Float, class States>
  static state_tile<Float> state_at(const States& states, std::int64_t slot, std::int64_t head,
                                    std::int64_t column) {
    return {static_cast<Float*>(states.data) + slot * states.sequence + head * states.head + column,
            states.channel};
  }

  /// Lone tokens of heads: states are read where they lie, and the next one is asked for.
  void step_in_place(std::int64_t item, const sequence& tokens, const item_place& all,
                     float* scratch) const {
    token_run run = empty_run(scratch);
    const std::int64_t columns = all.end - all.first;
    float* const rows = values_of(scratch);
    const lone_values values{rows, rows + item_columns(), columns};
    for (std::int64_t n = 0; n < all.heads; ++n) {
      const item_place at = head_of(all, n);
      read_run(tokens, 0, at, token_reader<Row>(args_, tokens.entry, at.head), run);
      load_values(tokens, run.token[0], at.head, at.first, columns, rows);
      const auto before = state_at<const float>(args_.initial, tokens.slot, at.head, at.first);
      const auto after = state_at<float>(args_.last, tokens.slot, at.head, at.first);
      state_tile<const float> soon{};
      if (before.data == after.data) {
        soon = n + 1 < all.heads
                   ? state_at<const float>(args_.initial, tokens.slot, at.head + 1, at.first)
                   : state_behind(item);
      }
      if (args_.update == delta_rule_update::delta) {
        step_lone_token<Row, false>(before, after, run.rows[0], run.beta[0], args_.key_dim, values,
                                    soon);
      } else {
        step_lone_token<Row, true>(before, after, run.rows[0], 0.0f, args_.key_dim, values, soon);
      }
      store_row<isa_type>(answer_at(tokens, run.token[0], at.head, at.first), columns,
                          values.answer);
    }
  }
  /// The first state of the item that comes next; null: there is none, or another thread may be
  /// writing it, which would have to give its lines away.
  state_tile<const float> state_behind(std::int64_t item) const {
    const std::int64_t next_item = item + 1;
    if (threads_ > 1 || next_item >= args_.sequences * head_parts_ * parts_) return {};
    const item_place next = place_of(next_item);
    const sequence tokens = sequence_of<isa_type>(args_, next.sequence);
    if (!tokens.has_states) return {};
    return state_at<const float>(args_.initial, tokens.slot, next.head, next.first);
  }

  const delta_rule_kernel_args& args_;
  int threads_;
  std::int64_t tiles_, together_, parts_, heads_, head_parts_;
};

}  // namespace tessera::kernels::delta_rule::cpu
