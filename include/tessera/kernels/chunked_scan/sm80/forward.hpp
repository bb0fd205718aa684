// Forward: `for a few tokens at a time { make their rows; for each of them step the tile of the
// state and store its answer }`. A block owns a tile of columns of the state of a sequence and
// head, in registers from the first token to the last.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/step.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/state_tile.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::state_place;
using recurrence::sm80::store_columns;
using recurrence::sm80::take_columns;

/// The columns of a tile in the states of a sequence and head.
__device__ __forceinline__ state_place place_of(const chunked_scan_states& states,
                                                const chunked_scan_kernel_args& args,
                                                std::int64_t slot, std::int64_t head,
                                                std::int64_t column) {
  return {.offset = slot * states.sequence + head * states.head + column,
          .channel = states.key,
          .channels = static_cast<int>(args.keys),
          .columns = static_cast<int>(args.values - column)};
}

/// The thread's columns of step i.
template <class Shape, scan_kind Kind>
__device__ __forceinline__ taken_columns<Shape> columns_of(token_memory<Shape>& tokens, int i,
                                                           const thread_place<Shape>& mine) {
  taken_columns<Shape> columns;
  take_columns<Shape>(columns.value, tokens.value[i], mine);
  if constexpr (Kind == scan_kind::value_decays) {
    take_columns<Shape>(columns.decay, tokens.value_decay[i], mine);
  }
  if constexpr (Kind == scan_kind::bonus) columns.bonus = tokens.bonus[i];
  return columns;
}

/// Of single tokens, which wait for states: as many as registers let without spills.
template <class Shape>
inline constexpr int step_blocks = Shape::keys <= 128 ? 4 : 1;

template <class Element, class Shape, scan_kind Kind>
__global__ void __launch_bounds__(Shape::threads, step_blocks<Shape>)
    step_through(__grid_constant__ const chunked_scan_kernel_args args, int tiles) {
  __shared__ token_memory<Shape> tokens;
  const recurrence::tile_item item(blockIdx.x, tiles, args.heads);
  const std::int64_t column = item.tile * Shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  const auto mine = thread_place<Shape>::here();
  const auto store = [&](std::int64_t step, const column_values<Shape>& answer) {
    auto* const row = static_cast<Element*>(args.out.data) +
                      row_of(args.out, all.entry, all.token(step), head) + column;
    store_columns<Element, Shape>(row, args.values - column, mine, answer);
  };
  if (all.is_rest) {
    for (std::int64_t step = 0; step < all.length; ++step) store(step, {});
    return;
  }
  if (!all.has_states) return;

  const token_reader<Shape> reader(args, all, head);
  const bool is_lone = Shape::columns >= 32 && all.length == 1;
  fetched_rows<Shape> fetched;
  if (is_lone) {
    reader.fetch_step(fetched, 0, column);
  } else {
    reader.load_bonus(tokens);
  }
  state_tile<Shape> state;
  state.load(args.initial_state.data, dtype::f32,
             place_of(args.initial_state, args, all.slot, head, column));
  constexpr int most = tokens_at_a_time<Shape>;
  for (std::int64_t first = 0; first < all.length; first += most) {
    const int steps = static_cast<int>(min(std::int64_t{most}, all.length - first));
    __syncthreads();
    if (is_lone) {
      reader.make_step(tokens, fetched, 0, column);
      if constexpr (Kind == scan_kind::bonus) {
        __syncthreads();
        tokens.bonus[0] = reader.bonus_of(tokens);
      }
    } else {
      reader.load_steps(tokens, first, steps, column);
    }
    __syncthreads();
    for (int i = 0; i < steps; ++i) {
      const taken_columns<Shape> columns = columns_of<Shape, Kind>(tokens, i, mine);
      column_values<Shape> answer;
      step_state<Shape, Kind>(state, tokens.rows_of(i), mine, columns, answer);
      add_over_channels<Shape>(answer);
      if constexpr (Kind == scan_kind::bonus) {
#pragma unroll
        for (int j = 0; j < Shape::columns_of_thread; ++j) {
          answer[j] = fmaf(columns.bonus, columns.value[j], answer[j]);
        }
      }
      store(first + i, answer);
    }
  }
  state.store(args.final_state.data, dtype::f32,
              place_of(args.final_state, args, all.slot, head, column));
}

}  // namespace tessera::kernels::chunked_scan::sm80
