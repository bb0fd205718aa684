// Gradients of state spaces. States in front of chunks come from the passes of the forward kernels,
// gradients behind them from `gather_gradients` and a carry back. Then
//
//   for each chunk, all side by side {
//     states in front of every 16th token;
//     for each 16 tokens, the last first { their states again, in registers; step back through them
//     }
//   }
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_forward.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_rows.hpp>

namespace tessera::kernels::selective_scan::sm80 {

inline constexpr int chunk_leaves = static_cast<int>(chunk_tokens) / stage_tokens;

/// The gradient of the states in front of each chunk, those behind it having none.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads, 4)
    gather_gradients(__grid_constant__ const state_space_launch all) {
  __shared__ staged_rows rows;
  const state_space_kernel_args& args = all.call;
  const state_space_cut& cut = all.cut;
  const std::int64_t slot = blockIdx.x / cut.blocks;
  const scan_chunk chunk = chunk_at(args.sequences, slot);
  if (!chunk.exists) return;
  const channel_block block = block_at(all, blockIdx.x % cut.blocks);
  const thread_place mine = thread_place::here(cut);
  const row_reader<SharesSteps> reader(all, chunk, block);
  for (std::int64_t tile = 0; tile < cut.tiles; ++tile) {
    const thread_states_of own(all, block, mine, tile);
    const decay_rates<SharesSteps> rates(own, args);
    float g[thread_states] = {};
    for (int first = (chunk.length - 1) / stage_tokens * stage_tokens; first >= 0;
         first -= stage_tokens) {
      const int count = min(stage_tokens, chunk.length - first);
      __syncthreads();
      reader.load_steps(rows, first, count);
      reader.load_d_y(rows.x, first, count);
      reader.load_states(rows.c, args.C, tile, first, count);
      __syncthreads();
      for (int i = count - 1; i >= 0; --i) {
        const float d_y = rows.x[i * most_channels + mine.column];
        float c[thread_states], decays[thread_states];
        rates.decays(decays, rows, i, rates.step(rows, i, mine));
        take_four(c, rows.c + i * most_states + mine.state);
#pragma unroll
        for (int r = 0; r < thread_states; ++r) {
          if (r < own.count) g[r] = decays[r] * fmaf(d_y, c[r], g[r]);
        }
      }
    }
    own.store(all.memory.gradients, cut, slot, g);
  }
}

/// Shared memory of a block on its way back.
struct backward_rows {
  staged_rows rows;
  float d_y[stage_tokens * most_channels];
  float4 leaf_states[chunk_leaves][block_threads];
  float sums[3][stage_tokens * most_channels];  ///< of slices: h C, d_h B, d_h decay h_before
  float groups[2][stage_tokens * most_states];  ///< of channel warps: d_B, d_C
  float head_steps[chunk_tokens];               ///< state_space_v2: gradients of steps
  float parameters[3][block_threads];
};

/// What a thread adds to the gradients of D, dt_bias and a head's A.
struct parameter_sums {
  float skip = 0.0f, bias = 0.0f, decay = 0.0f;
};

/// One token of a thread's states, backwards. `before` are the states in front of it, `after` those
/// behind, whose gradient g becomes that of the ones in front.
template <bool SharesSteps>
__device__ __forceinline__ void step_token_back(backward_rows& shared, int i,
                                                const thread_place& mine, int count,
                                                const decay_rates<SharesSteps>& rates,
                                                const float (&before)[thread_states],
                                                const float (&after)[thread_states],
                                                float (&g)[thread_states],
                                                float (&d_rate)[thread_states]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int at = i * most_channels + mine.column;
  const float dt = rates.step(shared.rows, i, mine);
  const float d_y = shared.d_y[at], moved = dt * shared.rows.x[at];
  float b[thread_states], c[thread_states], decays[thread_states];
  rates.decays(decays, shared.rows, i, dt);
  take_four(b, shared.rows.b + i * most_states + mine.state);
  take_four(c, shared.rows.c + i * most_states + mine.state);
  float of_states[4] = {};                    // sums over states
  float of_channels[2 * thread_states] = {};  // terms of sums over channels
#pragma unroll
  for (int r = 0; r < thread_states; ++r) {
    if (r >= count) continue;
    const float d_h = fmaf(d_y, c[r], g[r]);
    of_channels[r] = d_h * moved;
    of_channels[thread_states + r] = d_y * after[r];
    of_states[0] = fmaf(after[r], c[r], of_states[0]);
    of_states[1] = fmaf(d_h, b[r], of_states[1]);
    g[r] = d_h * decays[r];
    const float of_exponent = g[r] * before[r];
    of_states[2] =
        SharesSteps ? of_states[2] + of_exponent : fmaf(rates.rate[r], of_exponent, of_states[2]);
    if constexpr (!SharesSteps) d_rate[r] = fmaf(dt, of_exponent, d_rate[r]);
  }
  of_states[2] *= rates.unit;
  const float state_sum = sum_of_values<4, 1>(of_states, lane);
  const int which = summed_value<4, 1>(lane);
  if (which < 3) {
    shared.sums[which][i * most_channels + mine.sum_column] = state_sum;
  }
  const float channel_sum = sum_of_values<2 * thread_states, 4>(of_channels, lane);
  const int value = summed_value<2 * thread_states, 4>(lane);
  shared.groups[value / thread_states][i * most_states + mine.group_state + value % thread_states] =
      channel_sum;
}

/// Sums over the states of a few tokens become gradients of their channels, once all tiles are in.
template <bool SharesSteps>
__device__ __forceinline__ void finish_channels(const state_space_launch& all,
                                                const row_reader<SharesSteps>& reader,
                                                backward_rows& shared, int columns,
                                                std::int64_t tile, float head_rate, int first,
                                                int count, parameter_sums& parameters) {
  const state_space_kernel_args& args = all.call;
  const int channels = all.cut.channels(), slices = 1 << all.cut.log_slices;
  const bool is_last = tile + 1 == all.cut.tiles;
  const std::int64_t plane =
      entries_of(args.sequences) * args.sequences.tokens * all.cut.channels_of_call;
  const int column = reader.column();
  for (int i = reader.first_row(); i < count; i += reader.rows_apart()) {
    const int at = i * most_channels + column;
    float sums[3] = {};
    for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
      for (int which = 0; which < 3; ++which) {
        sums[which] += shared.sums[which][at + slice * channels];
      }
    }
    if (column >= columns) {
      if constexpr (SharesSteps) shared.sums[0][at] = 0.0f;
      continue;
    }
    float* const kept = all.memory.sums + reader.column_place(first + i, column);
#pragma unroll
    for (int which = 0; which < 3; ++which) {
      if (tile > 0) sums[which] += kept[which * plane];
      if (!is_last) kept[which * plane] = sums[which];
    }
    if (!is_last) continue;
    const float x = shared.rows.x[at], d_y = shared.d_y[at], skip = reader.skip();
    const float dt = SharesSteps ? shared.rows.dt[i] : shared.rows.dt[at];
    reader.put_element(args.d_x, first + i, column, fmaf(dt, sums[1], d_y * skip));
    parameters.skip = fmaf(d_y, x, parameters.skip);
    if (!args.norm && args.d_z.data != nullptr) {
      const float slope = silu(reader.element_of(args.z, first + i, column)).slope;
      const float d_gate = reader.element_of(args.d_out, first + i, column) * slope;
      reader.put_element(args.d_z, first + i, column, d_gate * fmaf(skip, x, sums[0]));
    }
    if constexpr (SharesSteps) {
      parameters.decay = fmaf(dt, sums[2], parameters.decay);
      shared.sums[0][at] = fmaf(head_rate, sums[2], x * sums[1]);  // nobody else's: slice 0
    } else {
      const float slope = step_of(args, reader.raw_step(first + i)).slope;
      const float d_raw = fmaf(x, sums[1], sums[2]) * slope;
      reader.put_element(args.d_dt, first + i, column, d_raw);
      parameters.bias += d_raw;
    }
  }
}

/// The shares of d_B and d_C: those of an owner's first block, or what was there before as well.
__device__ __forceinline__ void add_groups(const state_space_launch& all, const float* sums,
                                           int which, float* row, std::int64_t tile,
                                           std::int64_t row_stride, bool is_first, int count) {
  const int log = all.cut.log_states(), channel_warps = block_warps >> all.cut.log_slices;
  const std::int64_t first_state = tile << log;
  for (int at = static_cast<int>(threadIdx.x); at < count << log; at += block_threads) {
    const int i = at >> log;
    const std::int64_t n = first_state + (at & ((1 << log) - 1));
    if (n >= all.call.states) continue;
    float sum = 0.0f;
    for (int warp = 0; warp < channel_warps; ++warp) {
      sum += sums[i * most_states + (warp << log) + static_cast<int>(n - first_state)];
    }
    float* const to = row + i * row_stride + which * all.call.states + n;
    *to = is_first ? sum : *to + sum;
  }
}

/// Gradients of the steps of a head's tokens.
__device__ __forceinline__ void finish_head(const state_space_launch& all,
                                            const row_reader<true>& reader, const scan_chunk& chunk,
                                            std::int64_t head, const float* head_steps,
                                            parameter_sums& parameters) {
  const state_space_kernel_args& args = all.call;
  const int i = static_cast<int>(threadIdx.x);
  if (i >= chunk.length) return;
  const float d_raw = head_steps[i] * step_of(args, reader.raw_step(i)).slope;
  prim::cuda::put_number(args.d_dt.data, args.d_dt.type,
                         row_of(args.d_dt, chunk.entry, reader.token(i), head), d_raw);
  parameters.bias += d_raw;
}

/// The sum of what the threads have whose numbers are `apart` from this one's on.
__device__ __forceinline__ float sum_of_threads(const float* all, int apart) {
  float sum = 0.0f;
  for (int at = static_cast<int>(threadIdx.x); at < block_threads; at += apart) sum += all[at];
  return sum;
}

/// What the threads of a block add to gradients of parameters: of each channel, or of the head.
template <bool SharesSteps>
__device__ __forceinline__ void store_parameters(const state_space_launch& all,
                                                 backward_rows& shared, std::int64_t slot,
                                                 const channel_block& block,
                                                 const parameter_sums& parameters) {
  const int thread = static_cast<int>(threadIdx.x);
  shared.parameters[0][thread] = parameters.skip;
  shared.parameters[1][thread] = parameters.bias;
  shared.parameters[2][thread] = parameters.decay;
  __syncthreads();
  const std::int64_t width = SharesSteps ? all.call.heads : all.cut.channels_of_call;
  if (thread >= (SharesSteps ? 1 : block.columns)) return;
  for (int which = 0; which < (SharesSteps ? 3 : 2); ++which) {
    const float sum =
        sum_of_threads(shared.parameters[which], SharesSteps ? 1 : all.cut.channels());
    const std::int64_t place =
        SharesSteps ? block.head : block.head * all.call.columns + block.first + thread;
    all.memory.parameters[(slot * 3 + which) * width + place] = sum;
  }
}

/// What they add to a d_D of columns, which a head has block by block. The barrier behind it is the
/// caller's.
__device__ __forceinline__ void store_skips(const state_space_launch& all, backward_rows& shared,
                                            std::int64_t slot, const channel_block& block,
                                            parameter_sums& parameters) {
  const int thread = static_cast<int>(threadIdx.x);
  shared.parameters[0][thread] = parameters.skip;
  parameters.skip = 0.0f;
  __syncthreads();
  if (thread >= block.columns) return;
  const std::int64_t channel = block.head * all.call.columns + block.first + thread;
  all.memory.skips[slot * all.cut.channels_of_call + channel] =
      sum_of_threads(shared.parameters[0], all.cut.channels());
}

/// A block owns a chunk of a block of channels; in state_space_v2 of all channels of a head, block
/// by block.
template <bool SharesSteps>
__global__ void __launch_bounds__(block_threads, 2)
    step_chunks_back(__grid_constant__ const state_space_launch all) {
  extern __shared__ __align__(128) unsigned char memory[];
  backward_rows& shared = *reinterpret_cast<backward_rows*>(memory);
  const state_space_kernel_args& args = all.call;
  const state_space_cut& cut = all.cut;
  const std::int64_t owners = SharesSteps ? args.heads : cut.blocks;
  const std::int64_t slot = blockIdx.x / owners, owner = blockIdx.x % owners;
  const scan_chunk chunk = chunk_at(args.sequences, slot);
  if (!chunk.exists) return;
  const thread_place mine = thread_place::here(cut);
  const int leaves = (chunk.length + stage_tokens - 1) / stage_tokens;
  const float head_rate =
      SharesSteps ? prim::cuda::number_at(args.A.data, args.A.type, owner * args.A.head) : 0.0f;
  const std::int64_t row_stride = owners * 2 * args.states;
  parameter_sums parameters;
  for (int i = static_cast<int>(threadIdx.x); i < chunk_tokens; i += block_threads) {
    shared.head_steps[i] = 0.0f;
  }
  const std::int64_t own_blocks = SharesSteps ? cut.blocks_of_head : 1;
  for (std::int64_t item = 0; item < own_blocks * cut.tiles; ++item) {
    const std::int64_t part = item / cut.tiles, tile = item % cut.tiles;
    const channel_block block = block_at(all, owner * own_blocks + part);
    const row_reader<SharesSteps> reader(all, chunk, block);
    const thread_states_of own(all, block, mine, tile);
    const decay_rates<SharesSteps> rates(own, args);
    float h[thread_states], g[thread_states], d_rate[thread_states] = {};
    if (cut.carried) {
      own.load(h, all.memory.states, cut, slot);
      own.load(g, all.memory.gradients, cut, slot);
    } else {
      own.load(h, args.initial_state, chunk.states_entry);
      own.load(g, args.d_final_state, chunk.states_entry);
    }
    for (int leaf = 0; leaf < leaves; ++leaf) {
      shared.leaf_states[leaf][threadIdx.x] = make_float4(h[0], h[1], h[2], h[3]);
      if (leaf + 1 == leaves) break;
      __syncthreads();
      reader.load_steps(shared.rows, leaf * stage_tokens, stage_tokens);
      reader.load_x(shared.rows, leaf * stage_tokens, stage_tokens);
      reader.load_states(shared.rows.b, args.B, tile, leaf * stage_tokens, stage_tokens);
      __syncthreads();
      for (int i = 0; i < stage_tokens; ++i) {
        advance<SharesSteps>(h, rates, own.count, shared.rows, i, mine);
      }
    }
    for (int leaf = leaves - 1; leaf >= 0; --leaf) {
      const int first = leaf * stage_tokens, count = min(stage_tokens, chunk.length - first);
      __syncthreads();
      reader.load_steps(shared.rows, first, count);
      reader.load_x(shared.rows, first, count);
      reader.load_d_y(shared.d_y, first, count);
      reader.load_states(shared.rows.b, args.B, tile, first, count);
      reader.load_states(shared.rows.c, args.C, tile, first, count);
      __syncthreads();
      float before[stage_tokens][thread_states];
      take_four(h, &shared.leaf_states[leaf][threadIdx.x].x);
#pragma unroll
      for (int i = 0; i < stage_tokens; ++i) {
#pragma unroll
        for (int r = 0; r < thread_states; ++r) before[i][r] = h[r];
        if (i < count) advance<SharesSteps>(h, rates, own.count, shared.rows, i, mine);
      }
#pragma unroll
      for (int i = stage_tokens - 1; i >= 0; --i) {
        if (i < count) {
          step_token_back<SharesSteps>(shared, i, mine, own.count, rates, before[i], h, g, d_rate);
        }
#pragma unroll
        for (int r = 0; r < thread_states; ++r) h[r] = before[i][r];
      }
      __syncthreads();
      finish_channels<SharesSteps>(all, reader, shared, block.columns, tile, head_rate, first,
                                   count, parameters);
      float* const row =
          all.memory.groups + reader.row(first) * row_stride + owner * 2 * args.states;
      add_groups(all, shared.groups[0], 0, row, tile, row_stride, part == 0, count);
      add_groups(all, shared.groups[1], 1, row, tile, row_stride, part == 0, count);
      if constexpr (SharesSteps) {
        __syncthreads();
        const int i = static_cast<int>(threadIdx.x);
        if (i < count && tile + 1 == cut.tiles) {
          float sum = 0.0f;
          for (int column = 0; column < cut.channels(); ++column) {
            sum += shared.sums[0][i * most_channels + column];
          }
          shared.head_steps[first + i] += sum;
        }
      }
    }
    if (chunk.is_first) own.store(args.d_initial_state, chunk.states_entry, g);
    if constexpr (!SharesSteps) own.store(all.memory.gradients, cut, slot, d_rate);
    if constexpr (SharesSteps) {
      if (args.d_D.column != 0 && tile + 1 == cut.tiles) {
        store_skips(all, shared, slot, block, parameters);
      }
    }
  }
  const channel_block block = block_at(all, owner * own_blocks);
  if constexpr (SharesSteps) {
    __syncthreads();
    const row_reader<SharesSteps> reader(all, chunk, block);
    finish_head(all, reader, chunk, owner, shared.head_steps, parameters);
  }
  store_parameters<SharesSteps>(all, shared, slot, block, parameters);
}

}  // namespace tessera::kernels::selective_scan::sm80
