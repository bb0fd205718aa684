// Finished rows to global memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/sm90/careful_row.hpp>
#include <tessera/kernels/attention/sm90/score_mod.hpp>
#include <tessera/kernels/attention/sm90/shared_plan.hpp>
#include <tessera/kernels/attention/sm90/softmax.hpp>
#include <tessera/kernels/attention/sm90/traits.hpp>
#include <tessera/kernels/attention/sm90/work_tile.hpp>
#include <tessera/prim/common/online_softmax.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::attention::sm90 {

/// Adds 0 times two elements of 16 bits to two sums, which are 0 until one of them is not finite.
__device__ __forceinline__ void add_zero_times(std::uint32_t& sums, std::uint32_t word,
                                               dtype type) {
  if (type == dtype::f16) {
    asm("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(sums) : "r"(word), "r"(0));
  } else {
    asm("fma.rn.bf16x2 %0, %1, %2, %0;" : "+r"(sums) : "r"(word), "r"(0));
  }
}

template <class Traits>
class epilogue {
 public:
  /// `stage`: the place of the work tile.
  __device__ __forceinline__ epilogue(const launch_args& args, const typename Traits::hooks& hooks,
                                      shared_plan<Traits>& shared,
                                      const planned_tile<Traits>& planned, lane_tile<Traits>& lane,
                                      int warpgroup, std::uint32_t stage)
      : args_(args),
        hooks_(hooks),
        shared_(shared),
        planned_(planned),
        lane_(lane),
        warpgroup_(warpgroup),
        stage_(stage) {}

  /// Writes the warpgroup's rows, or leaves them to be written (row_store.hpp). `any_keys`: some
  /// row sees some key.
  __device__ __forceinline__ void write(bool any_keys) const {
    const int thread = static_cast<int>(prim::cuda::thread_index());
    const int row = row_of_lane(thread, warpgroup_);
    const int first_of_warp = row - thread % 32 / 4;
    // Products of the warpgroup have read the queries, in whose place rows are to lie.
    if constexpr (Traits::stores_boxes && !Traits::has_out_place) {
      prim::cuda::wait_for_threads(prim::cuda::warpgroup_index(), prim::cuda::warpgroup_size);
    }
    if (first_of_warp >= planned_.work.rows) return;
    int empty = first_of_warp;
    if (any_keys && first_of_warp < planned_.work.used) {
      const unsigned wrong = finish(thread, row);
      if (wrong != 0) {
#pragma unroll 1
        for (int r = 0; r < rows_of_warp; ++r) {
          if ((wrong >> r & 1u) != 0) {
            careful_row<Traits>(args_, hooks_, planned_, first_of_warp + r).write();
          }
        }
      }
      empty = planned_.work.used;
    }
    write_empty_rows(first_of_warp, empty);
  }

  /// Leaves the sums of the warpgroup's rows of an item of a list as rows of sm80 do, whose kernel
  /// combines them (sm80/split_kv_listed.hpp).
  __device__ __forceinline__ void leave(bool any_keys) const {
    const int thread = static_cast<int>(prim::cuda::thread_index());
    const int row = row_of_lane(thread, warpgroup_);
    const int first_of_warp = row - thread % 32 / 4;
    if (first_of_warp >= planned_.work.used) return;
    float sum[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = any_keys ? prim::cuda::sum_of_quad(lane_.sum[half]) : 0.0f;
    }
    if (!any_keys) {
#pragma unroll
      for (float& out : lane_.out) out = 0.0f;
    }
    const unsigned wrong = any_keys ? wrong_rows(row, sum) : 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      if (r >= planned_.work.used || (wrong >> r % rows_of_warp & 1u) != 0) continue;
      const std::int64_t at = place_of_partial(planned_, r);
      if (thread % 4 == 0) {
        args_.partial_stats[2 * at] =
            sum[half] > 0.0f ? lane_.reference[half] * ln_2 : prim::minus_infinity;
        args_.partial_stats[2 * at + 1] = sum[half];
      }
      float* const out = args_.partial_out + at * args_.partial_stride + thread % 4 * 2;
#pragma unroll
      for (int i = 0; i < Traits::v_columns / 8; ++i) {
        const int from = 4 * i + 2 * half;
        if (8 * i < args_.partial_stride) {
          *reinterpret_cast<float2*>(out + 8 * i) =
              make_float2(lane_.out[from], lane_.out[from + 1]);
        }
      }
    }
#pragma unroll 1
    for (int r = 0; r < rows_of_warp && wrong != 0; ++r) {
      if ((wrong >> r & 1u) != 0) {
        careful_row<Traits>(args_, hooks_, planned_, first_of_warp + r).leave();
      }
    }
  }

 private:
  /// Bit r is of row r of the warp: its sums are not what they should be.
  __device__ __forceinline__ unsigned wrong_rows(int row, const float (&sum)[2]) const {
    unsigned wrong = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // 0 times a value that is infinite or NaN reaches sums of rows that must not see it.
      float zero[2] = {};  // unless a sum is not finite
#pragma unroll
      for (int i = 0; i < Traits::v_columns / 2; ++i) {
        if (half_of(i) == half) zero[i & 1] = fmaf(lane_.out[i], 0.0f, zero[i & 1]);
      }
      const row_keys keys = planned_.keys[row + 8 * half];
      // A mask, a bias or a functor may hide all of a row's interval: no weight, no sum.
      const bool sees = keys.begin < keys.end && !(Traits::modifies && sum[half] == 0.0f);
      const bool right =
          zero[0] + zero[1] == 0.0f && (sum[half] > 0.0f || !sees) && sum[half] < 3e38f;
      const unsigned lanes =
          __ballot_sync(prim::cuda::all_lanes, !right && row + 8 * half < planned_.work.used);
      if (lanes == 0) continue;
#pragma unroll
      for (int r = 0; r < 8; ++r) {
        if ((lanes >> 4 * r & 0xfu) != 0) wrong |= 1u << (r + 8 * half);
      }
    }
    return wrong;
  }

  /// The usual row: normalised, without sinks, and nobody wants to know its sum.
  __device__ __forceinline__ bool scales_alone() const {
    const attention_kernel_args& call = args_.call;
    return call.normalize && call.sinks == nullptr && call.lse.data == nullptr &&
           call.row_max.data == nullptr;
  }

  /// What sums of values are multiplied by in the lane's rows; log sum exps of rows that are not
  /// `wrong` are reported.
  __device__ __forceinline__ void scale_rows(int thread, int row, const float (&sum)[2],
                                             unsigned wrong, float (&scale)[2]) const {
    if (scales_alone()) {
      const int head = query_of(args_, planned_.work, row).head;
      const int next_head = query_of(args_, planned_.work, row + 8).head;
      scale[0] = sum[0] > 0.0f ? prim::cuda::reciprocal_fast(sum[0]) : 0.0f;
      scale[1] = sum[1] > 0.0f ? prim::cuda::reciprocal_fast(sum[1]) : 0.0f;
      scale[0] *= value_scale_of_head<Traits>(args_, head);
      scale[1] *= value_scale_of_head<Traits>(args_, next_head);
      return;
    }
    // Lanes 0 and 1 of a quad finish a row each.
    const int quarter = thread % 4;
    const int own_half = quarter % 2;
    const int own_row = row + 8 * own_half;
    const bool own_wrong = (wrong >> own_row % rows_of_warp & 1u) != 0;
    float own_scale = 0.0f;
    if (own_row < planned_.work.used) {
      const float headroom = headroom_of(Traits::config, Traits::trusts_reference);
      const float reference = own_half == 0 ? lane_.reference[0] : lane_.reference[1];
      const float smaller = headroom == 0.0f ? 1.0f : prim::cuda::exp2_fast(-headroom);
      const float own_sum = own_half == 0 ? sum[0] : sum[1];
      const prim::softmax_state state{
          own_sum > 0.0f ? (reference + headroom) * ln_2 : prim::minus_infinity, own_sum * smaller};
      const query_row at = query_of(args_, planned_.work, own_row);
      const prim::softmax_result result = finished(args_.call, at.head, state);
      own_scale = result.scale * smaller * value_scale_of_head<Traits>(args_, at.head);
      if (quarter < 2 && !own_wrong) report(args_.call, planned_.work, at, result);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      scale[half] = __shfl_sync(prim::cuda::all_lanes, own_scale, (thread % 32 & ~3) | half);
    }
  }

  /// Writes the warp's rows but those that are wrong, which it returns, or leaves all of them.
  __device__ __forceinline__ unsigned finish(int thread, int row) const {
    float sum[2], scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) sum[half] = prim::cuda::sum_of_quad(lane_.sum[half]);
    const int end_of_warp = row - thread % 32 / 4 + rows_of_warp;
    const bool leaves =
        Traits::stores_boxes && args_.boxed_out && end_of_warp <= planned_.work.used;
    // What is left is looked at on the way: where nothing else is reported, that will do.
    const bool looks_later = leaves && scales_alone();
    unsigned wrong = looks_later ? 0 : wrong_rows(row, sum);
    scale_rows(thread, row, sum, wrong, scale);
    if constexpr (Traits::stores_boxes) {
      if (leaves && wrong == 0 && leave_to_copy_unit(thread, sum, scale)) return 0;
    }
    if (looks_later) wrong = wrong_rows(row, sum);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int r = row + 8 * half;
      const bool is_wrong = (wrong >> r % rows_of_warp & 1u) != 0;
      write_row(thread % 4, r, half, scale[half], r < planned_.work.used && !is_wrong);
    }
    return wrong;
  }

  /// All rows of the warp to shared memory, for the copy unit. False if they are not to be written:
  /// one of them may be wrong, or has an infinite element.
  __device__ __forceinline__ bool leave_to_copy_unit(int thread, const float (&sum)[2],
                                                     const float (&scale)[2]) const {
    const int lane = thread % prim::cuda::warp_size;
    const int warp = thread % prim::cuda::warpgroup_size / prim::cuda::warp_size;
    const std::uint32_t rows = place_of_rows(shared_, stage_, warpgroup_) +
                               warp * rows_of_warp * prim::cuda::panel_row_bytes;
    // Lane l gives the address of row l % 16 of the first eight columns or of the next.
    const int line = lane % rows_of_warp;
    const dtype type = Traits::codes_of_heads ? args_.call.out_type : Traits::config.type;
    if constexpr (Traits::has_out_place) {
      prim::cuda::wait_for_phase(prim::cuda::shared_address(&shared_.rows.have_left), stage_ ^ 1u);
    }
    std::uint32_t zero[2] = {};  // two of 16 bits, unless an element is not finite
#pragma unroll
    for (int i = 0; i < Traits::v_columns / 16; ++i) {
      std::uint32_t word[4];
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        const int from = 8 * i + 2 * part;
        word[part] = pack_out<Traits>(args_, lane_.out[from] * scale[part % 2],
                                      lane_.out[from + 1] * scale[part % 2]);
        add_zero_times(zero[part % 2], word[part], type);
      }
      const int chunk = i % 4 * 2 + lane / rows_of_warp;
      prim::cuda::store_matrices(rows + i / 4 * Traits::q_panel_bytes +
                                     line * prim::cuda::panel_row_bytes + (chunk ^ line % 8) * 16,
                                 word);
    }
    prim::cuda::show_writes_to_async_units();
    constexpr std::uint32_t without_signs = 0x7fff7fff;
    bool right = ((zero[0] | zero[1]) & without_signs) == 0;
#pragma unroll
    for (const float of_row : sum) right = right && of_row > 0.0f && of_row < 3e38f;
    if (prim::cuda::any_of_warp(!right)) return false;
    if (lane == 0) shared_.rows.wait[stage_][warpgroup_ * warps_of_warpgroup + warp] = true;
    return true;
  }

  /// Columns 8 i + 2 q and the next of a row are in lane q of the quad: exchanged, so that each
  /// lane writes eight neighbours.
  __device__ __forceinline__ void write_row(int quarter, int row, int half, float scale,
                                            bool wanted) const {
    const query_row at = query_of(args_, planned_.work, row);
    const work_tile& work = planned_.work;
    std::uint16_t* out = token_row(args_.call.out, args_.call.out_strides,
                                   entry_of(args_.call, work), work.q_begin + at.query, at.head) +
                         quarter * 8;
    const bool high = (quarter & 2) != 0;
    const bool odd = (quarter & 1) != 0;
#pragma unroll
    for (int group = 0; group < (Traits::v_columns + 31) / 32; ++group) {
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int from = (group * 4 + i) * 4 + 2 * half;
        const bool there = from < Traits::v_columns / 2;
        word[i] =
            there ? pack_out<Traits>(args_, lane_.out[from] * scale, lane_.out[from + 1] * scale)
                  : 0;
      }
      // Word i of lane q belongs to lane i: first pairs of lanes change halves, then neighbours.
      const std::uint32_t far0 =
          __shfl_xor_sync(prim::cuda::all_lanes, high ? word[0] : word[2], 2);
      const std::uint32_t far1 =
          __shfl_xor_sync(prim::cuda::all_lanes, high ? word[1] : word[3], 2);
      const std::uint32_t w0 = high ? far0 : word[0];
      const std::uint32_t w1 = high ? far1 : word[1];
      const std::uint32_t w2 = high ? word[2] : far0;
      const std::uint32_t w3 = high ? word[3] : far1;
      const std::uint32_t near0 = __shfl_xor_sync(prim::cuda::all_lanes, odd ? w0 : w1, 1);
      const std::uint32_t near1 = __shfl_xor_sync(prim::cuda::all_lanes, odd ? w2 : w3, 1);
      const uint4 eight = odd ? make_uint4(near0, w1, near1, w3) : make_uint4(w0, near0, w2, near1);
      if (!wanted || group * 32 + quarter * 8 >= Traits::v_head_dim) continue;
      if (args_.aligned_out) {
        *reinterpret_cast<uint4*>(out + group * 32) = eight;
      } else {
        const std::uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          out[group * 32 + e] = static_cast<std::uint16_t>(words[e / 2] >> (16 * (e % 2)));
        }
      }
    }
  }

  /// Rows of the warp from `first` on that see nothing, or are not used.
  __device__ __forceinline__ void write_empty_rows(int first_of_warp, int first) const {
    const int end = min(planned_.work.rows, first_of_warp + 16);
    const int lane = static_cast<int>(prim::cuda::thread_index()) % prim::cuda::warp_size;
#pragma unroll 1
    for (int row = first; row < end; ++row) {
      const query_row at = query_of(args_, planned_.work, row);
      std::uint16_t* out =
          token_row(args_.call.out, args_.call.out_strides, entry_of(args_.call, planned_.work),
                    planned_.work.q_begin + at.query, at.head);
      for (int d = lane; d < Traits::v_head_dim; d += prim::cuda::warp_size) out[d] = 0;
      if (lane == 0) {
        const bool used = row < planned_.work.used;
        report(args_.call, planned_.work, at,
               used ? finished(args_.call, at.head, {}) : prim::softmax_result{});
      }
    }
  }

  const launch_args& args_;
  const typename Traits::hooks& hooks_;
  shared_plan<Traits>& shared_;
  const planned_tile<Traits>& planned_;
  lane_tile<Traits>& lane_;
  const int warpgroup_;
  const std::uint32_t stage_;
};

}  // namespace tessera::kernels::attention::sm90
