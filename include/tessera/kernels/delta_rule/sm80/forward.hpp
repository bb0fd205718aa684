// Forward: `for a few tokens at a time { make their rows; for each of them step the tile of the
// state and store its answer }`. A block owns a tile of columns of the state of a sequence and
// value head, in registers from the first token to the last.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm80/step.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::state_place;
using recurrence::sm80::store_columns;

/// The columns of a tile in the states of a sequence and head.
template <class Data>
__device__ __forceinline__ state_place place_of(const delta_rule_states<Data>& states,
                                                const delta_rule_kernel_args& args,
                                                std::int64_t slot, std::int64_t head,
                                                std::int64_t column) {
  return {.offset = slot * states.sequence + head * states.head + column,
          .channel = states.channel,
          .channels = static_cast<int>(args.key_dim),
          .columns = static_cast<int>(args.value_dim - column)};
}

/// Where the columns of a tile lie in the row of a token and value head.
template <class Element>
__device__ __forceinline__ Element* columns_at(const delta_rule_output& rows, const sequence& all,
                                               std::int64_t step, std::int64_t head,
                                               std::int64_t column) {
  return static_cast<Element*>(rows.data) + row_of(rows, all.entry, all.token(step), head) + column;
}

template <class Element, class Shape, bool LowRank>
__global__ void __launch_bounds__(Shape::threads)
    step_through(__grid_constant__ const delta_rule_kernel_args args, int tiles) {
  __shared__ token_memory<Shape> tokens;
  const recurrence::tile_item item(blockIdx.x, tiles, args.value_heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  const auto mine = thread_place<Shape>::here();
  const auto store = [&](std::int64_t step, const column_values<Shape>& answer) {
    store_columns<Element, Shape>(columns_at<Element>(args.out, all, step, head, column),
                                  args.value_dim - column, mine, answer);
  };
  constexpr column_values<Shape> zeros{};
  if (all.is_rest) {
    for (std::int64_t step = 0; step < all.length; ++step) store(step, zeros);
    return;
  }
  if (!all.has_states) return;

  const token_reader<Element, Shape> reader(args, all, head);
  const bool is_lone = Shape::columns >= 32 && all.length == 1;
  fetched_rows<Shape> fetched;
  if (is_lone) reader.fetch_step(fetched, 0, column);
  state_tile<Shape> state;
  const auto initial = initial_states<device_code>(args, all);
  state.load(initial.data, initial.type, place_of(initial, args, all.slot, head, column));
  constexpr int most = tokens_at_a_time<Shape>;
  for (std::int64_t first = 0; first < all.length; first += most) {
    const int steps = static_cast<int>(min(std::int64_t{most}, all.length - first));
    __syncthreads();
    if (is_lone) {
      reader.make_step(tokens, fetched, 0);
    } else {
      reader.load_steps(tokens, first, steps, column);
    }
    __syncthreads();
    for (int i = 0; i < steps; ++i) {
      if (tokens.kind[i] == step_kind::padding) {
        store(first + i, zeros);
        continue;
      }
      if (tokens.kind[i] == step_kind::starts_anew) state.clear();
      column_values<Shape> held, missing, answer;
      step_state<Shape, LowRank>(state, tokens.rows_of(i), mine, tokens.value[i], tokens.beta[i],
                                 held, missing, answer);
      add_over_channels<Shape>(answer);
      store(first + i, answer);
    }
  }
  state.store(args.last.data, args.last.type, place_of(args.last, args, all.slot, head, column));
}

}  // namespace tessera::kernels::delta_rule::sm80
