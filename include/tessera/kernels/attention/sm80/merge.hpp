// Merging the splits of rows whose keys were worked on by several blocks: what a warp does, and a
// kernel of its own for launches whose blocks do not merge (sm80_arrivals.hpp). A warp merges some
// columns of a row, several rows side by side if splits are few: what it adds up is all under way
// at once. The order of additions depends on the number of splits alone.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/block.hpp>
#include <tessera/kernels/attention/sm80/finish.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

inline constexpr int merge_warps = 8;  ///< of a block that only merges
/// Splits of a group of lanes that are under way at once: all, if splits fill one wave of blocks.
inline constexpr int many_at_once = 12;

/// A row of the launch. `used` is false behind the used rows of a sequence, which the blocks that
/// found them have written.
struct merged_row {
  prim::sequence seq{};
  query_row row{};
  std::int64_t flat = 0;  ///< see flat_row
  bool used = true;
};

/// The row of a launch at place `flat`.
__device__ __forceinline__ merged_row merged_row_of(const attention_kernel_args& call,
                                                    std::int64_t flat) {
  merged_row found;
  found.flat = flat;
  found.row.head = static_cast<int>(flat % call.q_heads);
  const std::int64_t token = flat / call.q_heads;
  if (call.cu_seqlens_q != nullptr) {
    found.used = token < call.cu_seqlens_q[call.batch];
    found.seq.q_begin = token;
  } else {
    found.seq = sequence_of(call, token / call.q_len);
    found.row.query = static_cast<int>(token % call.q_len);
    found.used = found.row.query < found.seq.q_len;
  }
  return found;
}

__device__ __forceinline__ void store_four(std::uint16_t* to, const std::uint16_t (&four)[4]) {
  *reinterpret_cast<ushort4*>(to) = make_ushort4(four[0], four[1], four[2], four[3]);
}
__device__ __forceinline__ void store_four(float* to, const float (&four)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(four[0], four[1], four[2], four[3]);
}

/// Units first ... first + Units - 1 of those before `end`: the work of a warp. A unit is some
/// columns of a row: units of row r, which `row_at` knows, have numbers from r * slices on. Lanes
/// are in `Groups` groups, of which group g has the splits g, g + Groups, ..., and each lane has
/// four columns. Little code, since it is cold: lane l knows unit l % Units and tells the others.
template <class Row, int Units, int Groups, int AtOnce>
class unit_merger {
  static constexpr int lanes = prim::cuda::warp_size / Groups;  ///< of a group
  using access = stored_element<element_t<Row::config.type>>;
  using stored = typename access::type;

 public:
  static constexpr int units = Units;

  template <class Index, class RowAt>
  static __device__ __forceinline__ void run(const launch_args& args, const RowAt& row_at,
                                             Index first, Index end) {
    const int slices = schedule_sm80::slices_of_row(
        Row::config.head_dim != 0 ? resolved(Row::config).v_head_dim : args.v_stride, Groups);
    const Index unit = min(first + lane() % Units, end - 1);
    const Index number = unit / slices;
    const merged_row own = row_at(number);
    if (!own.used) return;
    const auto slice = static_cast<int>(unit - number * slices);
    sums of[Units];
#pragma unroll
    for (int u = 0; u < Units; ++u) {
      of[u].column = (of_unit(slice, u) * lanes + lane() % lanes) * 4;
      of[u].at = of_unit(own.flat, u) * args.splits;
    }
    for (int s = lane() / lanes;;) {
      add_splits(args, s, of);
      s += Groups * AtOnce;
      if (Groups == 1 || s - lane() / lanes >= args.splits) break;
    }
    prim::softmax_state state;
#pragma unroll
    for (int u = 0; u < Units; ++u) {
      add_groups(of[u]);
      const bool mine = lane() % Units == u;
      state.maximum = mine ? of[u].state.maximum : state.maximum;
      state.denominator = mine ? of[u].state.denominator : state.denominator;
    }
    const attention_kernel_args& call = args.call;
    const prim::softmax_result result = finished_sums(args, own.row.head, state);
    if (lane() < Units && first + lane() < end && slice == 0) {
      report(call, own.seq, own.row, result);
    }
    const auto out = reinterpret_cast<std::uintptr_t>(token_row<stored>(
        call.out, call.out_strides, own.seq, own.seq.q_begin + own.row.query, own.row.head));
#pragma unroll
    for (int u = 0; u < Units; ++u) {
      const float scale = of_unit(result.scale, u);
      auto* const to = reinterpret_cast<stored*>(of_unit(out, u));
      if (first + u < end && lane() < lanes) write(args, of[u], scale, to);
    }
  }

 private:
  struct sums {
    std::int64_t at = 0;  ///< of the row's first split in the workspace
    int column = 0;
    prim::softmax_state state{};
    float4 sum{};
  };

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  }

  template <class Value>
  static __device__ __forceinline__ Value of_unit(Value own, int unit) {
    return Units == 1 ? own : __shfl_sync(prim::cuda::all_lanes, own, unit);
  }

  /// Splits first, first + Groups, ...: AtOnce of them.
  static __device__ __forceinline__ void add_splits(const launch_args& args, int first,
                                                    sums (&of)[Units]) {
    float4 parts[Units][AtOnce];
    float2 states[Units][AtOnce];
    // Lanes behind the last column, and splits behind the last split, read what is not used.
    const auto place = [&](int i) {
      return static_cast<unsigned>(min(first + i * Groups, args.splits - 1));
    };
#pragma unroll
    for (int u = 0; u < Units; ++u) {
      const float* from =
          args.sums + of[u].at * args.v_stride + min(of[u].column, args.v_stride - 4);
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) {
        parts[u][i] = *reinterpret_cast<const float4*>(
            from + place(i) * static_cast<unsigned>(args.v_stride));
      }
    }
#pragma unroll
    for (int u = 0; u < Units; ++u) {
      const auto* from = reinterpret_cast<const float2*>(args.states) + of[u].at;
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) states[u][i] = from[place(i)];
    }
    __syncwarp();  // nvcc 13.0 would move loads behind what waits for others
#pragma unroll
    for (int u = 0; u < Units; ++u) {
      float maximum = of[u].state.maximum;
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) {
        if (first + i * Groups >= args.splits) states[u][i].x = prim::minus_infinity;
        maximum = fmaxf(maximum, states[u][i].x);
      }
      if (Groups > 1) rescale(of[u], maximum);
      const float shift = prim::finite_maximum(maximum);
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) {
        const float weight = prim::cuda::exp2_fast((states[u][i].x - shift) * prim::log2_e);
        if (weight != 0.0f) {  // what has no weight does not count, whatever it is
          const float4& part = parts[u][i];
          of[u].state.denominator = fmaf(weight, states[u][i].y, of[u].state.denominator);
          of[u].sum.x = fmaf(weight, part.x, of[u].sum.x);
          of[u].sum.y = fmaf(weight, part.y, of[u].sum.y);
          of[u].sum.z = fmaf(weight, part.z, of[u].sum.z);
          of[u].sum.w = fmaf(weight, part.w, of[u].sum.w);
        }
      }
      of[u].state.maximum = maximum;
    }
  }

  /// Makes sums relative to another maximum.
  static __device__ __forceinline__ void rescale(sums& of, float maximum) {
    const float weight =
        prim::cuda::exp2_fast((of.state.maximum - prim::finite_maximum(maximum)) * prim::log2_e);
    const auto scaled = [&](float x) { return weight != 0.0f ? weight * x : 0.0f; };
    of.state = {maximum, scaled(of.state.denominator)};
    of.sum = make_float4(scaled(of.sum.x), scaled(of.sum.y), scaled(of.sum.z), scaled(of.sum.w));
  }

  static __device__ __forceinline__ void add_groups(sums& of) {
    if (Groups == 1) return;
    float maximum = of.state.maximum;
#pragma unroll
    for (int step = lanes; step < prim::cuda::warp_size; step *= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(prim::cuda::all_lanes, maximum, step));
    }
    rescale(of, maximum);
#pragma unroll
    for (int step = lanes; step < prim::cuda::warp_size; step *= 2) {
      of.state.denominator += __shfl_xor_sync(prim::cuda::all_lanes, of.state.denominator, step);
      of.sum.x += __shfl_xor_sync(prim::cuda::all_lanes, of.sum.x, step);
      of.sum.y += __shfl_xor_sync(prim::cuda::all_lanes, of.sum.y, step);
      of.sum.z += __shfl_xor_sync(prim::cuda::all_lanes, of.sum.z, step);
      of.sum.w += __shfl_xor_sync(prim::cuda::all_lanes, of.sum.w, step);
    }
  }

  static __device__ __forceinline__ void write(const launch_args& args, const sums& of, float scale,
                                               stored* row) {
    const int width = args.call.v_head_dim;
    const stored four[] = {access::rounded(of.sum.x * scale), access::rounded(of.sum.y * scale),
                           access::rounded(of.sum.z * scale), access::rounded(of.sum.w * scale)};
    if (args.aligned_out && of.column + 4 <= width) {
      store_four(row + of.column, four);
      return;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (of.column + e < width) row[of.column + e] = four[e];
    }
  }
};

/// Units [first, end) by `warps` warps of the block.
template <class Merger, class RowAt>
__device__ __forceinline__ void merge_units(const launch_args& args, const RowAt& row_at, int first,
                                            int end, int warps) {
  const int warp = static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
#pragma unroll 1
  for (int u = first + warp * Merger::units; u < end; u += warps * Merger::units) {
    Merger::run(args, row_at, u, end);
  }
}

/// Merges the splits of all rows of the launch, which are `units` units: a warp each.
template <class Row>
__global__ void __launch_bounds__(merge_warps * 32)
    merge_splits(const __grid_constant__ launch_args args, std::int64_t units) {
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  const std::int64_t unit =
      static_cast<std::int64_t>(blockIdx.x) * merge_warps + threadIdx.x / prim::cuda::warp_size;
  if (unit >= units) return;
  const auto row_at = [&](std::int64_t number) { return merged_row_of(args.call, number); };
  if (args.splits <= schedule_sm80::some_splits) {
    unit_merger<Row, 1, 1, schedule_sm80::some_splits>::run(args, row_at, unit, unit + 1);
  } else if (args.splits <= schedule_sm80::many_splits) {
    unit_merger<Row, 1, 1, schedule_sm80::many_splits>::run(args, row_at, unit, unit + 1);
  } else {
    unit_merger<Row, 1, schedule_sm80::groups_of_many, many_at_once>::run(args, row_at, unit,
                                                                          unit + 1);
  }
}

}  // namespace tessera::kernels::attention::sm80
