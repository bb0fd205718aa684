// The last work tiles of a launch, whose keys several blocks share (schedule_sm90.hpp): each leaves
// the sums of its part in the workspace, and the one that ends last makes rows of all of them. The
// order of parts is that of keys, whoever is last, so that bits do not depend on it; two parts have
// none, so that the last of plain rows keeps its own in registers.
#pragma once

#include <cstdint>

#include <tessera/families/attention/schedule_sm90.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/cuda/arrival_table.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::attention::sm90 {

/// Words, 0 between launches, in which parts of a shared tile are counted: eight bits a warpgroup.
template <class Kernel>
__device__ __forceinline__ unsigned* part_words_of(const launch_args& args) {
  static __device__ unsigned words[prim::cuda::arrival_places][schedule_sm90::most_split_tiles];
  return args.counter_place >= 0 ? words[args.counter_place] : args.counter_word + 16;
}

/// A warpgroup's rows of one part.
template <class Traits>
class key_parts {
 public:
  __device__ __forceinline__ key_parts(const launch_args& args, const planned_tile<Traits>& planned,
                                       shared_plan<Traits>& shared, lane_tile<Traits>& lane,
                                       int warpgroup)
      : args_(args), planned_(planned), shared_(shared), lane_(lane), warpgroup_(warpgroup) {}

  /// Leaves the warpgroup's sums; `any_keys`: there are such. True if those of all other parts are
  /// there: then the lane has the sums of all.
  __device__ __forceinline__ bool merge(bool any_keys) const {
    if (warpgroup_ * rows_of_warpgroup >= planned_.work.rows) return false;
    if (!any_keys) clear();
    const bool two = keeps_own && args_.parts.value == 2;
    if (!two || !is_last(false)) {
      leave();
      if (!is_last(true)) return false;
    }
    add_up(two);
    return true;
  }

 private:
  static constexpr int fours = Traits::v_columns / 8;
  /// Plain rows: those over pages and those with a tail of columns would spill 4 bytes.
  static constexpr bool keeps_own = Traits::from_first;

  static __device__ __forceinline__ int thread() {
    return static_cast<int>(prim::cuda::thread_index()) % prim::cuda::warpgroup_size;
  }
  /// The first four sums of the thread in a piece; the next are a warpgroup's threads on.
  __device__ __forceinline__ float4* place_of(int piece) const {
    const int block = piece * Traits::consumers + warpgroup_;
    return args_.sums_of_parts +
           static_cast<std::int64_t>(block) * ((fours + 1) * prim::cuda::warpgroup_size) + thread();
  }

  __device__ __forceinline__ void clear() const {
#pragma unroll
    for (float& sum : lane_.out) sum = 0.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      lane_.reference[half] = nothing_seen<Traits>;
      lane_.sum[half] = 0.0f;
    }
  }
  __device__ __forceinline__ void leave() const {
    float4* const place = place_of(planned_.piece);
#pragma unroll
    for (int i = 0; i < fours; ++i) {
      place[i * prim::cuda::warpgroup_size] = make_float4(
          lane_.out[4 * i], lane_.out[4 * i + 1], lane_.out[4 * i + 2], lane_.out[4 * i + 3]);
    }
    place[fours * prim::cuda::warpgroup_size] =
        make_float4(lane_.reference[0], lane_.reference[1], lane_.sum[0], lane_.sum[1]);
  }

  __device__ __forceinline__ float4 state_of(int piece) const {
    return __ldcg(place_of(piece) + fours * prim::cuda::warpgroup_size);
  }

  /// Whether all other parts have been left; counts this one if it `has_been_left`.
  __device__ __forceinline__ bool is_last(bool has_been_left) const {
    // Of threads, not of rows, which are another warpgroup's in the next work tile. By whole warps.
    const int warpgroup = prim::cuda::warpgroup_index();
    __threadfence();
    prim::cuda::wait_for_threads(warpgroup, prim::cuda::warpgroup_size);
    if (thread() == 0) {
      unsigned* const word =
          part_words_of<typename Traits::kernel>(args_) + args_.parts.quotient(planned_.piece);
      const int shift = 8 * warpgroup_;
      const unsigned own = has_been_left ? 1 : 0;
      const unsigned before = atomicAdd(word, own << shift) >> shift & 255u;
      const bool last = before + 1 == args_.parts.value;
      if (last) atomicSub(word, (before + own) << shift);
      __threadfence();
      shared_.is_last_part[warpgroup - 1] = last;
    }
    prim::cuda::wait_for_threads(warpgroup, prim::cuda::warpgroup_size);
    return shared_.is_last_part[warpgroup - 1];
  }

  /// The own part is in registers already if it `is_kept`. Products and their sum are rounded alike
  /// whichever of two is the own one.
  __device__ __forceinline__ void add_up(bool is_kept) const {
    const int first_piece = planned_.piece - part_of(args_, planned_);
    const int end = first_piece + static_cast<int>(args_.parts.value);
    const int kept = is_kept ? planned_.piece : -1;
    float most[2], factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = is_kept ? lane_.reference[half] : nothing_seen<Traits>;
    }
#pragma unroll 1
    for (int piece = first_piece; piece < end; ++piece) {
      if (piece == kept) continue;
      const float4 state = state_of(piece);
      most[0] = fmaxf(most[0], state.x);
      most[1] = fmaxf(most[1], state.y);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = is_kept ? prim::cuda::exp2_fast(lane_.reference[half] - most[half]) : 0.0f;
      lane_.sum[half] = is_kept ? __fmul_rn(factor[half], lane_.sum[half]) : 0.0f;
      lane_.reference[half] = most[half];
    }
    const auto add = [](float& sum, float by, float x) { sum = __fadd_rn(sum, __fmul_rn(by, x)); };
    // A few sums at a time through all parts, the own from memory too if there are many: what is
    // held in registers beside them would not fit.
    constexpr int at_once = 8;
#pragma unroll
    for (int begin = 0; begin < fours; begin += at_once) {
      const int last = min(begin + at_once, fours);
#pragma unroll
      for (int i = 4 * begin; i < 4 * last; ++i) {
        lane_.out[i] = is_kept ? __fmul_rn(factor[i % 4 / 2], lane_.out[i]) : 0.0f;
      }
#pragma unroll 1
      for (int piece = first_piece; piece < end; ++piece) {
        if (piece == kept) continue;
        const float4* const place = place_of(piece);
        const float4 state = state_of(piece);
        const float first = prim::cuda::exp2_fast(state.x - most[0]);
        const float second = prim::cuda::exp2_fast(state.y - most[1]);
        if (begin == 0) {
          add(lane_.sum[0], first, state.z);
          add(lane_.sum[1], second, state.w);
        }
#pragma unroll
        for (int i = begin; i < last; ++i) {
          const float4 four = __ldcg(place + i * prim::cuda::warpgroup_size);
          add(lane_.out[4 * i], first, four.x);
          add(lane_.out[4 * i + 1], first, four.y);
          add(lane_.out[4 * i + 2], second, four.z);
          add(lane_.out[4 * i + 3], second, four.w);
        }
      }
    }
  }

  const launch_args& args_;
  const planned_tile<Traits>& planned_;
  shared_plan<Traits>& shared_;
  lane_tile<Traits>& lane_;
  const int warpgroup_;
};

}  // namespace tessera::kernels::attention::sm90
