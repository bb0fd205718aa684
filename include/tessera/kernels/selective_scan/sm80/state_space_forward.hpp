// State spaces forward. Three passes: `walk_chunks<Outputs false>` has the states of each chunk
// that starts from 0, `carry_states` goes from chunk to chunk, `walk_chunks<Outputs true>` starts
// each chunk from what is in front of it and writes outputs. A launch whose sequences have one
// chunk is the last pass alone.
#pragma once

#include <cstdint>

#include <tessera/families/selective_scan/kernel_args.hpp>
#include <tessera/kernels/selective_scan/sm80/chunks.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_block.hpp>
#include <tessera/kernels/selective_scan/sm80/state_space_rows.hpp>

namespace tessera::kernels::selective_scan::sm80 {

/// h = decay h + dt x B.
template <bool SharesSteps>
__device__ __forceinline__ void advance(float (&h)[thread_states],
                                        const decay_rates<SharesSteps>& rates, int count,
                                        const staged_rows& rows, int i, const thread_place& mine) {
  const float dt = rates.step(rows, i, mine);
  const float moved = dt * rows.x[i * most_channels + mine.column];
  float b[thread_states], decays[thread_states];
  rates.decays(decays, rows, i, dt);
  take_four(b, rows.b + i * most_states + mine.state);
#pragma unroll
  for (int r = 0; r < thread_states; ++r) {
    if (r < count) h[r] = fmaf(moved, b[r], decays[r] * h[r]);
  }
}

/// What is left of h C over the slices of a block becomes outputs of its channels.
template <bool SharesSteps>
__device__ __forceinline__ void finish_outputs(const state_space_launch& all,
                                               const row_reader<SharesSteps>& reader,
                                               const staged_rows& rows, const float* sums,
                                               int columns, std::int64_t tile, int first,
                                               int count) {
  const int channels = all.cut.channels(), slices = 1 << all.cut.log_slices;
  const int column = reader.column();
  if (column >= columns) return;
  for (int i = reader.first_row(); i < count; i += reader.rows_apart()) {
    const int at = i * most_channels + column;
    float y = 0.0f;
    for (int slice = 0; slice < slices; ++slice) {
      y += sums[at + slice * channels];
    }
    if (tile > 0) y += *reader.column_at(first + i, column);
    const bool is_last = tile + 1 == all.cut.tiles;
    if (is_last) y = fmaf(reader.skip(), rows.x[at], y);
    if (all.call.norm || !is_last) {
      *reader.column_at(first + i, column) = y;
      continue;
    }
    if (all.call.z.data != nullptr) {
      y *= silu(reader.element_of(all.call.z, first + i, column)).value;
    }
    reader.put_element(all.call.out, first + i, column, y);
  }
}

template <bool SharesSteps, bool Outputs>
__global__ void __launch_bounds__(block_threads, 4)
    walk_chunks(__grid_constant__ const state_space_launch all) {
  __shared__ staged_rows rows;
  __shared__ float sums[Outputs ? stage_tokens * most_channels : 1];
  const state_space_kernel_args& args = all.call;
  const state_space_cut& cut = all.cut;
  const std::int64_t slot = blockIdx.x / cut.blocks;
  const scan_chunk chunk = chunk_at(args.sequences, slot);
  if (!chunk.exists) return;
  const channel_block block = block_at(all, blockIdx.x % cut.blocks);
  const thread_place mine = thread_place::here(cut);
  const row_reader<SharesSteps> reader(all, chunk, block);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (std::int64_t tile = 0; tile < cut.tiles; ++tile) {
    const thread_states_of own(all, block, mine, tile);
    const decay_rates<SharesSteps> rates(own, args);
    float h[thread_states] = {}, step_sum = 0.0f;
    if (Outputs && cut.carried) {
      own.load(h, all.memory.states, cut, slot);
    } else if (Outputs) {
      own.load(h, args.initial_state, chunk.states_entry);
    }
    for (int first = 0; first < chunk.length; first += stage_tokens) {
      const int count = min(stage_tokens, chunk.length - first);
      __syncthreads();
      reader.load_steps(rows, first, count);
      reader.load_x(rows, first, count);
      reader.load_states(rows.b, args.B, tile, first, count);
      if constexpr (Outputs) reader.load_states(rows.c, args.C, tile, first, count);
      __syncthreads();
      if constexpr (!Outputs) {
        for (int i = 0; i < count; ++i) {
          advance<SharesSteps>(h, rates, own.count, rows, i, mine);
          step_sum += rates.step(rows, i, mine);
        }
      } else {
        for (int four = 0; four < count; four += 4) {
          float y[4] = {};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (four + j >= count) break;
            advance<SharesSteps>(h, rates, own.count, rows, four + j, mine);
            float c[thread_states];
            take_four(c, rows.c + (four + j) * most_states + mine.state);
#pragma unroll
            for (int r = 0; r < thread_states; ++r) {
              if (r < own.count) y[j] = fmaf(h[r], c[r], y[j]);
            }
          }
          const float sum = sum_of_values<4, 1>(y, lane);
          const int i = four + summed_value<4, 1>(lane);
          sums[i * most_channels + mine.sum_column] = sum;
        }
        __syncthreads();
        finish_outputs<SharesSteps>(all, reader, rows, sums, block.columns, tile, first, count);
      }
    }
    if constexpr (Outputs) {
      if (!cut.carried) own.store(args.final_state, chunk.states_entry, h);
    } else {
      own.store(all.memory.states, cut, slot, h);
      const bool of_head = mine.column == 0 && block.first == 0;
      const bool of_column = mine.column < block.columns;
      if (tile == 0 && mine.state == 0 && (SharesSteps ? of_head : of_column)) {
        const std::int64_t width = SharesSteps ? args.heads : cut.channels_of_call;
        all.memory.step_sums[slot * width + (SharesSteps ? block.head : own.channel)] = step_sum;
      }
    }
  }
}

/// From what each chunk makes of 0 to what is in front of it, and the final states; `Back`: of
/// gradients, from the last chunk to the first, to what is behind it.
template <bool SharesSteps, bool Back>
__global__ void __launch_bounds__(block_threads)
    carry_states(__grid_constant__ const state_space_launch all, std::int64_t elements) {
  const state_space_kernel_args& args = all.call;
  const state_space_cut& cut = all.cut;
  const std::int64_t index =
      static_cast<std::int64_t>(blockIdx.x) * block_threads + static_cast<int>(threadIdx.x);
  const std::int64_t n = index % cut.state_stride,
                     channel = index / cut.state_stride % cut.channels_of_call;
  if (index >= elements || n >= args.states) return;
  const scan_sequence own =
      sequence_at(args.sequences, index / cut.state_stride / cut.channels_of_call);
  const std::int64_t head = channel / args.columns, column = channel % args.columns;
  const float rate = prim::cuda::number_at(
      args.A.data, args.A.type,
      head * args.A.head + (SharesSteps ? 0 : column * args.A.column + n * args.A.state));
  const scan_tensor& from = Back ? args.d_final_state : args.initial_state;
  float state = 0.0f;
  if (from.data != nullptr && own.states_entry != no_states) {
    state = static_cast<const float*>(from.data)[own.states_entry * from.entry + head * from.head +
                                                 column * from.column + n * from.state];
  }
  float* const memory = Back ? all.memory.gradients : all.memory.states;
  const std::int64_t width = SharesSteps ? args.heads : cut.channels_of_call;
  const std::int64_t chunks = chunks_of(own.length);
  const std::int64_t step = Back ? -1 : 1, begin = own.first_slot + (Back ? chunks - 1 : 0);
  float* place = memory + (begin * cut.channels_of_call + channel) * cut.state_stride + n;
  const float* steps = all.memory.step_sums + begin * width + (SharesSteps ? head : channel);
  const std::int64_t slot_floats = step * cut.channels_of_call * cut.state_stride;
  constexpr int batch = 8;  // loads under way at a time
  for (std::int64_t first = 0; first < chunks; first += batch) {
    float alone[batch], decay[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (first + i >= chunks) break;
      alone[i] = place[i * slot_floats];
      decay[i] = steps[i * step * width];
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (first + i >= chunks) break;
      place[i * slot_floats] = state;
      state = fmaf(expf(rate * decay[i]), state, alone[i]);
    }
    place += batch * slot_floats;
    steps += batch * step * width;
  }
  if (Back || args.final_state.data == nullptr || own.states_entry == no_states) return;
  static_cast<float*>(
      args.final_state
          .data)[own.states_entry * args.final_state.entry + head * args.final_state.head +
                 column * args.final_state.column + n * args.final_state.state] = state;
}

}  // namespace tessera::kernels::selective_scan::sm80
