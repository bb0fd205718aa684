// A token of each sequence, or, of packed ones, as many as a sequence has: a block reads, changes
// and stores 128 columns of a state.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/states.hpp>
#include <tessera/kernels/delta_rule/sm80/forward.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/kernels/recurrence/sm80/row_tile.hpp>

namespace tessera::kernels::delta_rule::sm80 {

using recurrence::sm80::row_shape;
using recurrence::sm80::row_tile;
using recurrence::sm80::warp_channels;

/// Whether the kernel below takes a call. Bits are those of `step_through` (row_tile.hpp), since it
/// is for the batch to say which of the two it is.
inline bool takes_lone_tokens(const delta_rule_kernel_args& args) {
  const auto whole = [](const auto& states) {
    return recurrence::sm80::has_whole_rows(states, states.type, states.channel);
  };
  return recurrence::sm80::has_lone_tokens(args) && args.seg_ids == nullptr &&
         args.value_dim % row_shape::columns == 0 && whole(args.initial) && whole(args.last);
}

/// What the state has for the vector that the step reads with: the warp's channels of it.
template <bool LowRank>
__device__ __forceinline__ float4 held_of(const row_tile& state, const token_rows& token) {
  const warp_channels read(LowRank ? token.read : token.key), decay(token.decay);
  float4 held = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < row_tile::channels; ++i) {
    const float x = LowRank ? read.at[i] : read.at[i] * decay.at[i];
    held = recurrence::sm80::multiply_add(x, state.at[i], held);
  }
  return held;
}
/// The state behind the step; what the query has of the warp's channels of it.
template <bool LowRank>
__device__ __forceinline__ float4 write_rows(row_tile& state, const token_rows& token,
                                             const float4& written, const float4& held) {
  const warp_channels query(token.query), key(token.key), decay(token.decay);
  const warp_channels write(LowRank ? token.write : token.key);
  float4 answer = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
  for (int i = 0; i < row_tile::channels; ++i) {
    float4& x = state.at[i];
    x = recurrence::sm80::multiply(decay.at[i], x);
    if constexpr (LowRank) x = recurrence::sm80::multiply_add(write.at[i], held, x);
    x = recurrence::sm80::multiply_add(key.at[i], written, x);
    answer = recurrence::sm80::multiply_add(query.at[i], x, answer);
  }
  return answer;
}

template <class Element, bool LowRank>
__global__ void __launch_bounds__(row_shape::threads, recurrence::sm80::row_blocks)
    lone_through(__grid_constant__ const delta_rule_kernel_args args, int tiles) {
  __shared__ __align__(16) token_memory<row_shape> tokens;
  __shared__ recurrence::sm80::warp_sums sums;
  const recurrence::tile_item item(blockIdx.x, tiles, args.value_heads);
  const std::int64_t column = item.tile * row_shape::columns, head = item.head;
  const sequence all = sequence_of<device_code>(args, item.sequence);
  const auto store = [&](std::int64_t step, const float4& answer) {
    recurrence::sm80::store_answer(columns_at<Element>(args.out, all, step, head, column), answer);
  };
  if (all.is_rest) {
    for (std::int64_t step = 0; step < all.length; ++step) store(step, {});
    return;
  }
  if (!all.has_states) return;
  const token_reader<Element, row_shape> reader(args, all, head);
  recurrence::sm80::fetched_rows<row_shape> fetched;
  if (all.length > 0) reader.fetch_step(fetched, 0, column);
  row_tile state;
  const auto initial = initial_states<device_code>(args, all);
  state.load(initial.data, place_of(initial, args, all.slot, head, column));
  for (std::int64_t step = 0; step < all.length; ++step) {
    if (step > 0) reader.fetch_step(fetched, step, column);
    reader.make_step(tokens, fetched, step);
    __syncthreads();
    const token_rows token = tokens.rows_of(0);
    const float4 held = sums.add(held_of<LowRank>(state, token));
    float4 written = *reinterpret_cast<const float4*>(&tokens.value[0][row_tile::first_column()]);
    if constexpr (!LowRank) {
      written = recurrence::sm80::multiply(tokens.beta[0],
                                           recurrence::sm80::multiply_add(-1.0f, held, written));
    }
    const float4 answer = write_rows<LowRank>(state, token, written, held);
    __syncthreads();
    store(step, sums.add(answer));
  }
  state.store(args.last.data, place_of(args.last, args, all.slot, head, column));
}

}  // namespace tessera::kernels::delta_rule::sm80
