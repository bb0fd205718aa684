// Forward: `for each token { read its rows; step the tile of the state; store its answer }`. A work
// item is a tile of columns of the state of a sequence and value head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/cpu/rows.hpp>
#include <tessera/kernels/delta_rule/cpu/step.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::delta_rule::cpu {

template <class Row>
class forward_launch {
 public:
  using isa_type = typename traits<Row>::isa_type;
  using element = typename traits<Row>::element;
  static constexpr std::int64_t tile_columns = traits<Row>::config.columns;

  explicit forward_launch(const delta_rule_kernel_args& args) : args_(args) {}

  /// Floats of a thread: a tile, the rows of a token, its values and its answer.
  static std::int64_t floats_of_thread(const delta_rule_kernel_args& args) {
    return args.key_dim * tile_columns + token_rows::count * padded(args.key_dim) +
           2 * padded(tile_columns);
  }

  void run(float* memory, int threads) const {
    const std::int64_t tiles = (args_.value_dim + tile_columns - 1) / tile_columns;
    const std::int64_t sequences = sequences_with_rest(args_);
    prim::parallel_items<isa_type>(
        sequences * args_.value_heads * tiles, threads, [&](std::int64_t item, int thread) {
          const std::int64_t head = item / tiles % args_.value_heads;
          const std::int64_t column = item % tiles * tile_columns;
          const sequence tokens = sequence_of<isa_type>(args_, item / tiles / args_.value_heads);
          if (tokens.is_rest) {
            return clear(tokens, head, column);
          }
          if (!tokens.has_states) return;
          float* const scratch = memory + thread * floats_of_thread(args_);
          with_registers<Row>(columns_from(column), [&](auto registers) {
            this->template walk<registers()>(tokens, head, column, scratch);
          });
        });
  }

 private:
  std::int64_t columns_from(std::int64_t column) const {
    return std::min(tile_columns, args_.value_dim - column);
  }
  element* answer_at(const sequence& tokens, std::int64_t step, std::int64_t head,
                     std::int64_t column) const {
    return static_cast<element*>(args_.out.data) +
           row_of(args_.out, tokens.entry, tokens.token(step), head) + column;
  }

  void clear(const sequence& tokens, std::int64_t head, std::int64_t column) const {
    for (std::int64_t step = 0; step < tokens.length; ++step) {
      std::fill_n(answer_at(tokens, step, head, column), columns_from(column), element{});
    }
  }

  template <int Registers>
  void walk(const sequence& tokens, std::int64_t head, std::int64_t column, float* scratch) const {
    constexpr std::int64_t pitch = Registers * traits<Row>::width;
    const std::int64_t channels = args_.key_dim, columns = columns_from(column);
    float* const state = scratch;
    float* const values = state + channels * tile_columns;
    float* const answer = values + padded(tile_columns);
    const token_rows rows = token_rows::at(answer + padded(tile_columns), channels);
    const token_reader<Row> reader(args_, tokens.entry, head, rows);
    std::fill_n(values, pitch, 0.0f);
    const tile_place place{tokens.slot, head, column, channels, columns, pitch};
    load_tile<isa_type>(initial_states<isa_type>(args_, tokens), place, state);
    for (std::int64_t step = 0; step < tokens.length; ++step) {
      element* const out = answer_at(tokens, step, head, column);
      if (tokens.is_padding(step)) {
        std::fill_n(out, columns, element{});
        continue;
      }
      const std::int64_t token = tokens.token(step);
      if (tokens.starts_anew(step)) std::fill_n(state, channels * pitch, 0.0f);
      reader.read(token);
      load_row<isa_type>(static_cast<const element*>(args_.v.data) +
                             row_of(args_.v, tokens.entry, token, head) + column,
                         columns, values);
      if (args_.activates) activate<isa_type>(values, columns);
      if (args_.update == delta_rule_update::delta) {
        delta_step<isa_type, Registers>(state, rows, channels, values, reader.beta(token), answer);
      } else {
        low_rank_step<isa_type, Registers>(state, rows, channels, values, answer);
      }
      store_row<isa_type>(out, columns, answer);
    }
    if (args_.last.data != nullptr) store_tile<isa_type>(state, place, args_.last);
  }

  const delta_rule_kernel_args& args_;
};

}  // namespace tessera::kernels::delta_rule::cpu
