// A token of each sequence, or, of packed ones, as many as a sequence has: a block decays, adds to,
// reads and stores 128 columns of a state.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/sm80/forward.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/row_tile.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::row_shape;
using recurrence::sm80::row_tile;
using recurrence::sm80::warp_channels;

/// Whether the kernel below takes a call. Bits are those of `step_through` (row_tile.hpp), since it
/// is for the batch to say which of the two it is.
inline bool takes_lone_tokens(const chunked_scan_kernel_args& args) {
  const auto whole = [](const chunked_scan_states& states) {
    return recurrence::sm80::has_whole_rows(states, dtype::f32, states.key);
  };
  return recurrence::sm80::has_lone_tokens(args) && args.gv.data == nullptr &&
         args.values % row_shape::columns == 0 && whole(args.initial_state) &&
         whole(args.final_state);
}

/// The state behind the step; what the query has of the warp's channels of it, or, with `Before`,
/// of those in front of it.
template <bool Before>
__device__ __forceinline__ float4 step_rows(row_tile& state, const token_rows& token,
                                            const float4& value) {
  const warp_channels query(token.query), key(token.key), decay(token.decay);
  float4 answer = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < row_tile::channels; ++i) {
    float4& x = state.at[i];
    if constexpr (Before) answer = recurrence::sm80::multiply_add(query.at[i], x, answer);
    x = recurrence::sm80::multiply(decay.at[i], x);
    x = recurrence::sm80::multiply_add(key.at[i], value, x);
    if constexpr (!Before) answer = recurrence::sm80::multiply_add(query.at[i], x, answer);
  }
  return answer;
}

template <class Element, bool Bonus>
__global__ void __launch_bounds__(row_shape::threads, recurrence::sm80::row_blocks)
    lone_through(__grid_constant__ const chunked_scan_kernel_args args, int tiles) {
  __shared__ __align__(16) token_memory<row_shape> tokens;
  __shared__ recurrence::sm80::warp_sums sums;
  const recurrence::tile_item item(blockIdx.x, tiles, args.heads);
  const std::int64_t column = item.tile * row_shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  const auto store = [&](std::int64_t step, const float4& answer) {
    auto* const row = static_cast<Element*>(args.out.data) +
                      row_of(args.out, all.entry, all.token(step), head) + column;
    recurrence::sm80::store_answer(row, answer);
  };
  if (all.is_rest) {
    for (std::int64_t step = 0; step < all.length; ++step) store(step, {});
    return;
  }
  if (!all.has_states) return;
  const token_reader<row_shape> reader(args, all, head);
  fetched_rows<row_shape> fetched;
  if (all.length > 0) reader.fetch_step(fetched, 0, column);
  row_tile state;
  state.load(args.initial_state.data, place_of(args.initial_state, args, all.slot, head, column));
  for (std::int64_t step = 0; step < all.length; ++step) {
    if (step > 0) reader.fetch_step(fetched, step, column);
    reader.make_step(tokens, fetched, step, column);
    __syncthreads();
    const float bonus = Bonus ? reader.bonus_of(tokens) : 0.0f;
    const float4 value =
        *reinterpret_cast<const float4*>(&tokens.value[0][row_tile::first_column()]);
    const float4 answer = step_rows<Bonus>(state, tokens.rows_of(0), value);
    const float4 sum = sums.add(answer);
    store(step, Bonus ? recurrence::sm80::multiply_add(bonus, value, sum) : sum);
  }
  state.store(args.final_state.data, place_of(args.final_state, args, all.slot, head, column));
}

}  // namespace tessera::kernels::chunked_scan::sm80
