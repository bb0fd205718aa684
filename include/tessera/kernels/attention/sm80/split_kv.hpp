// Split-KV: the keys of a work tile are cut into splits, each a thread block's work, which leaves
// partial results in the workspace (epilogue.hpp). Here they are combined, by the blocks of decode
// kernels that end last, or by a kernel of its own.
//
// A warp combines some columns of a row, a slice, several side by side if splits are few: what it
// adds up is all under way at once. The order of additions depends on the number of splits alone,
// not on who combines.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/attention/schedule_sm80.hpp>
#include <tessera/kernels/attention/sm80/epilogue.hpp>
#include <tessera/kernels/attention/sm80/traits.hpp>
#include <tessera/kernels/attention/sm80/work_list.hpp>
#include <tessera/kernels/attention/sm80/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/arrivals.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm80 {

static_assert(schedule_sm80::most_splits <= prim::cuda::wide_arrivals::most_splits &&
              schedule_sm80::most_splits <= prim::cuda::arrival_table::most_splits &&
              schedule_sm80::most_counted_tiles <= prim::cuda::counted_tiles &&
              schedule_sm80::most_combine_blocks <= prim::cuda::wide_arrivals::most_parts);

inline constexpr int combine_warps = 8;  ///< of a block that only combines
/// Splits of a group of lanes that are under way at once, of two slices, and of one.
inline constexpr int many_at_once = 8;
inline constexpr int most_at_once = 16;
/// Slices of a warp of a block that combines what it and others have left.
inline constexpr int slices_at_once = 4;
static_assert(schedule_sm80::splits_of_two_slices == many_at_once * schedule_sm80::groups_of_many);

/// A row of the launch. `used` is false behind the used rows of a sequence, whose blocks have
/// written them.
struct combined_row {
  prim::sequence seq{};
  query_row row{};
  std::int64_t flat = 0;  ///< see flat_row
  bool used = true;
};

/// The row of a launch at place `flat`.
__device__ __forceinline__ combined_row combined_row_of(const attention_kernel_args& call,
                                                        std::int64_t flat) {
  combined_row combined;
  combined.flat = flat;
  combined.row.head = static_cast<int>(flat % call.q_heads);
  const std::int64_t token = flat / call.q_heads;
  if (call.cu_seqlens_q != nullptr) {
    combined.used = token < call.cu_seqlens_q[sequences_in_use(call)];
    combined.seq.q_begin = token;
  } else {
    combined.seq = sequence_of(call, token / call.q_len);
    combined.row.query = static_cast<int>(token % call.q_len);
    combined.used = combined.row.query < combined.seq.q_len;
  }
  return combined;
}

__device__ __forceinline__ void store_four(std::uint16_t* to, const std::uint16_t (&four)[4]) {
  *reinterpret_cast<ushort4*>(to) = make_ushort4(four[0], four[1], four[2], four[3]);
}
__device__ __forceinline__ void store_four(float* to, const float (&four)[4]) {
  *reinterpret_cast<float4*>(to) = make_float4(four[0], four[1], four[2], four[3]);
}

/// Slices first ... first + Slices - 1 of those before `end`: the work of a warp. A slice is some
/// columns of a row: slices of row r, which `row_at` knows, have numbers from r * per_row on. Lanes
/// are in `Groups` groups, of which group g has the splits g, g + Groups, ..., and each lane has
/// four columns. Little code, since it is cold: lane l knows slice l % Slices and tells the others.
/// `Parts`: splits may be added in several calls.
template <class Kernel, int Slices, int Groups, int AtOnce, bool Parts = (Groups > 1)>
class slice_combiner {
  static constexpr int lanes = prim::cuda::warp_size / Groups;  ///< of a group
  using access = stored_element<element_t<Kernel::config.type>>;
  using stored = typename access::type;

 public:
  static constexpr int slices = Slices;

  template <class Index, class RowAt>
  static __device__ __forceinline__ void run(const launch_args& args, const RowAt& row_at,
                                             Index first, Index end) {
    const int per_row = schedule_sm80::slices_of_row(
        Kernel::config.head_dim != 0 ? resolved(Kernel::config).v_head_dim : args.partial_stride,
        Groups);
    const Index slice = min(first + lane() % Slices, end - 1);
    const Index number = slice / per_row;
    const combined_row own = row_at(number);
    if (!own.used) return;
    const auto in_row = static_cast<int>(slice - number * per_row);
    sums of[Slices];
#pragma unroll
    for (int u = 0; u < Slices; ++u) {
      of[u].column = (of_slice(in_row, u) * lanes + lane() % lanes) * 4;
      of[u].at = of_slice(own.flat, u) * args.splits;
    }
    for (int s = lane() / lanes;;) {
      add_splits(args, args.splits, s, of, [](int split) { return static_cast<unsigned>(split); });
      s += Groups * AtOnce;
      if (Groups == 1 || s - lane() / lanes >= args.splits) break;
    }
    prim::softmax_state state;
#pragma unroll
    for (int u = 0; u < Slices; ++u) {
      add_groups(of[u]);
      const bool mine = lane() % Slices == u;
      state.maximum = mine ? of[u].state.maximum : state.maximum;
      state.denominator = mine ? of[u].state.denominator : state.denominator;
    }
    const attention_kernel_args& call = args.call;
    const prim::softmax_result result =
        finished_sums<takes_codes(Kernel::config)>(args, own.row.head, state);
    if (lane() < Slices && first + lane() < end && in_row == 0) {
      report(call, own.seq, own.row, result);
    }
    const auto out = reinterpret_cast<std::uintptr_t>(token_row<stored>(
        call.out, call.out_strides, own.seq, own.seq.q_begin + own.row.query, own.row.head));
#pragma unroll
    for (int u = 0; u < Slices; ++u) {
      const float scale = of_slice(result.scale, u);
      auto* const to = reinterpret_cast<stored*>(of_slice(out, u));
      if (first + u < end && lane() < lanes) write(args, of[u], scale, to);
    }
  }

  /// Slice `in_row` of a row whose splits lie in two runs, with one slice at a time.
  template <class Runs>
  static __device__ __forceinline__ void combine_runs(const launch_args& args,
                                                      const prim::sequence& seq,
                                                      const query_row& row, const Runs& runs,
                                                      int in_row) {
    static_assert(Slices == 1 && Groups == 1 && Parts && std::extent_v<Runs> == 2);
    sums of[1];
    of[0].column = (in_row * lanes + lane()) * 4;
    of[0].at = runs[0].first;
    const std::int64_t to_other = runs[1].first - runs[0].first - runs[0].splits;
    const int splits = runs[0].splits + runs[1].splits;
#pragma unroll 1
    for (int s = 0; s < splits; s += AtOnce) {
      add_splits(args, splits, s, of,
                 [&](int split) { return split + (split < runs[0].splits ? 0 : to_other); });
    }
    const prim::softmax_result result =
        finished_sums<takes_codes(Kernel::config)>(args, row.head, of[0].state);
    if (lane() == 0 && in_row == 0) report(args.call, seq, row, result);
    write(args, of[0], result.scale,
          token_row<stored>(args.call.out, args.call.out_strides, seq, seq.q_begin + row.query,
                            row.head));
  }

  struct sums {
    std::int64_t at = 0;  ///< of the row's first split in the workspace
    int column = 0;
    prim::softmax_state state{};
    float4 sum{};
  };

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
  }

  /// Of `splits` splits the first, first + Groups, ...: AtOnce of them. Split s lies
  /// `from_first(s)` behind `at`.
  template <class FromFirst>
  static __device__ __forceinline__ void add_splits(const launch_args& args, int splits, int first,
                                                    sums (&of)[Slices],
                                                    const FromFirst& from_first) {
    float4 parts[Slices][AtOnce];
    float2 states[Slices][AtOnce];
    // Lanes behind the last column, and splits behind the last split, read what is not used.
    const auto place = [&](int i) { return from_first(min(first + i * Groups, splits - 1)); };
#pragma unroll
    for (int u = 0; u < Slices; ++u) {
      const float* from = args.partial_out + of[u].at * args.partial_stride +
                          min(of[u].column, args.partial_stride - 4);
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) {
        parts[u][i] = *reinterpret_cast<const float4*>(
            from + place(i) * static_cast<unsigned>(args.partial_stride));
      }
    }
#pragma unroll
    for (int u = 0; u < Slices; ++u) {
      const auto* from = reinterpret_cast<const float2*>(args.partial_stats) + of[u].at;
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) states[u][i] = from[place(i)];
    }
    __syncwarp();  // nvcc 13.0 would move loads behind what waits for others
#pragma unroll
    for (int u = 0; u < Slices; ++u) {
      float maximum = of[u].state.maximum;
#pragma unroll
      for (int i = 0; i < AtOnce; ++i) {
        if (first + i * Groups >= splits) states[u][i].x = prim::minus_infinity;
        maximum = fmaxf(maximum, states[u][i].x);
      }
      if (Parts) rescale(of[u], maximum);
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

 private:
  template <class Value>
  static __device__ __forceinline__ Value of_slice(Value own, int slice) {
    return Slices == 1 ? own : __shfl_sync(prim::cuda::all_lanes, own, slice);
  }

  /// Makes sums relative to another maximum.
  static __device__ __forceinline__ void rescale(sums& of, float maximum) {
    const float weight =
        prim::cuda::exp2_fast((of.state.maximum - prim::finite_maximum(maximum)) * prim::log2_e);
    const auto scaled = [&](float x) { return weight != 0.0f ? weight * x : 0.0f; };
    of.state = {maximum, weight * of.state.denominator};  // NaN stays, whatever its weight
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
};

/// visit(a combiner of so many splits), which has up to `Most` slices side by side.
template <class Kernel, int Most, class Visit>
__device__ __forceinline__ void with_combiner(int splits, const Visit& visit) {
  using namespace schedule_sm80;
  constexpr auto at_most = [](int slices) { return slices < Most ? slices : Most; };
  if (splits <= few_splits) {
    visit(slice_combiner<Kernel, at_most(4), 1, few_splits>{});
  } else if (splits <= some_splits) {
    visit(slice_combiner<Kernel, at_most(2), 1, some_splits>{});
  } else if (splits <= many_splits) {
    visit(slice_combiner<Kernel, 1, 1, many_splits>{});
  } else if (splits <= splits_of_two_slices) {
    visit(slice_combiner<Kernel, at_most(2), groups_of_many, many_at_once>{});
  } else {
    visit(slice_combiner<Kernel, 1, groups_of_many, most_at_once>{});
  }
}

/// Slices [first, end) by `warps` warps of the block, of which this is number `warp`.
template <class Combiner, class RowAt>
__device__ __forceinline__ void combine_slices(const launch_args& args, const RowAt& row_at,
                                               int first, int end, int warp, int warps) {
#pragma unroll 1
  for (int u = first + warp * Combiner::slices; u < end; u += warps * Combiner::slices) {
    Combiner::run(args, row_at, u, end);
  }
}

/// The word of work tile `index`, in the module's memory (prim/cuda/arrival_table.hpp).
template <class Kernel>
__device__ __forceinline__ unsigned long long* arrival_word(int place, int index) {
  static __device__ unsigned long long words[prim::cuda::arrival_places][prim::cuda::counted_tiles];
  return &words[place][index];
}

/// In clock cycles, about 20 us: the last blocks of a wave end closer to each other than that.
inline constexpr long long combine_patience = 1 << 15;

/// The end of a block that has left partial results in the workspace.
template <class Traits, class Kernel>
__device__ __forceinline__ void combine_if_late(const launch_args& args, const work_tile& work,
                                                int index) {
  __shared__ unsigned parts_of_block;
  __syncthreads();
  if (threadIdx.x == 0 && part_of_block<Traits>() == 0) {
    const prim::cuda::wide_arrivals counted(arrival_word<Kernel>(args.arrivals, index), args.splits,
                                            args.combine_blocks);
    parts_of_block = counted.arrive(combine_patience);
  }
  __syncthreads();
  const unsigned parts = parts_of_block;
  if (parts == 0) return;
  const auto row_at = [&](int r) {
    combined_row combined;
    combined.seq = work.seq;
    combined.row = query_of(args, work.kv_head, work.first_row + r);
    combined.flat = flat_row(args.call, work.seq, combined.row);
    return combined;
  };
  const int slices = work.used * schedule_sm80::slices_of_row(
                                     args.partial_stride, schedule_sm80::groups_for(args.splits));
  const int warp = Traits::grouped ? part_of_block<Traits>()
                                   : static_cast<int>(threadIdx.x) / prim::cuda::warp_size;
  const int warps = Traits::grouped ? static_cast<int>(args.parts.value) : Traits::warps;
#pragma unroll 1
  for (unsigned left = parts; left != 0; left &= left - 1) {
    const int part = __ffs(static_cast<int>(left)) - 1;
    const int first = part * args.slices_of_block;
    const int end = min(first + args.slices_of_block, slices);
    with_combiner<Kernel, slices_at_once>(args.splits, [&](auto combiner) {
      combine_slices<decltype(combiner)>(args, row_at, first, end, warp, warps);
    });
  }
}

/// Combines the splits of all rows of the launch, which are `slices` slices: a warp each.
template <class Kernel>
__global__ void __launch_bounds__(combine_warps * 32)
    combine_splits(const __grid_constant__ launch_args args, std::int64_t slices) {
  prim::cuda::let_next_grid_start();
  prim::cuda::wait_for_grid_before();
  const std::int64_t slice =
      static_cast<std::int64_t>(blockIdx.x) * combine_warps + threadIdx.x / prim::cuda::warp_size;
  if (slice >= slices) return;
  const auto row_at = [&](std::int64_t number) { return combined_row_of(args.call, number); };
  with_combiner<Kernel, 1>(
      args.splits, [&](auto combiner) { decltype(combiner)::run(args, row_at, slice, slice + 1); });
}

}  // namespace tessera::kernels::attention::sm80
