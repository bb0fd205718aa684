// What every thread block knows of a launch: its arguments, which columns and tokens are a
// thread's, and the segments of a window of tokens. Tokens are counted over all sequences.
//
// Offsets in device memory are taken as they come and clipped to the tensor: wrong ones give wrong
// means, but no access outside the tensors.
#pragma once

#include <cstdint>

#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/families/mean_pooling/schedule_sm80.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::mean_pooling::sm80 {

struct launch_args {
  mean_pooling_kernel_args call{};
  pooling_schedule_sm80 cut{};
  std::int64_t* chunks_before = nullptr;  ///< [sequences + 1]; packed chunks
  double* totals = nullptr;               ///< [sequences]: sums of the weights; masked
  float* partials = nullptr;              ///< [slots][heads * columns]: sums of pieces
};

/// The columns of a thread in a slab, and the group of lanes it belongs to.
struct thread_place {
  int lane, group;
  std::int64_t head, column;
  bool active;  ///< has columns, and tokens

  __device__ thread_place(const launch_args& args, std::int64_t slab)
      : lane(static_cast<int>(threadIdx.x) % args.cut.lanes),
        group(static_cast<int>(threadIdx.x) / args.cut.lanes),
        head(slab / args.cut.head_slabs),
        column((slab % args.cut.head_slabs * args.cut.lanes + lane) * args.cut.vector),
        active(group < args.cut.groups && column < args.call.columns) {}

  /// Offset of the thread's columns in a row.
  __device__ std::int64_t in(const pooling_strides& strides, std::int64_t entry,
                             std::int64_t row) const {
    return entry * strides.entry + row * strides.row + head * strides.head + column;
  }
};

/// The tokens of one mean.
struct segment {
  std::int64_t entry;       ///< of the batch; packed: 0
  std::int64_t first_row;   ///< token that is row 0 of the entry
  std::int64_t begin, end;  ///< tokens
  std::int64_t mean;        ///< row among the means of its entry

  __device__ std::int64_t length() const { return end - begin; }
  /// Wrong offsets may have more segments than there are means.
  __device__ bool has_mean(const mean_pooling_kernel_args& call) const {
    return static_cast<std::uint64_t>(mean) < static_cast<std::uint64_t>(call.means);
  }
};

/// The segments that have tokens in [low, high), and the empty sequences that begin there.
class segment_cursor {
 public:
  __device__ segment_cursor(const launch_args& args, std::int64_t low, std::int64_t high)
      : args_(args), low_(low), high_(high) {
    if (args.call.cu_seqlens != nullptr) {
      sequence_ = last_before(low);
    } else if (args.call.tokens > 0) {
      sequence_ = low / args.call.tokens;
    }
  }

  __device__ bool next(segment& one) {
    const mean_pooling_kernel_args& call = args_.call;
    const bool packed = call.cu_seqlens != nullptr;
    for (; sequence_ < call.sequences; ++sequence_, chunk_ = -1) {
      if (chunk_ < 0) enter();
      if (begin_ >= high_) return false;
      const std::int64_t begin = begin_ + chunk_ * step_;
      const bool empty = call.chunk == 0 && chunk_ == 0 && begin_ == end_;
      if (begin >= high_ || (begin >= end_ && !empty)) continue;
      one.entry = packed ? 0 : sequence_;
      one.first_row = packed ? 0 : begin_;
      one.begin = begin;
      one.end = end_ - begin < step_ ? end_ : begin + step_;
      one.mean = !packed           ? chunk_
                 : call.chunk == 0 ? sequence_
                                   : args_.chunks_before[sequence_] + chunk_;
      ++chunk_;
      return true;
    }
    return false;
  }

 private:
  /// The last sequence that begins before a token; 0 if none does. The warp probes together.
  __device__ std::int64_t last_before(std::int64_t token) const {
    const int lane = static_cast<int>(threadIdx.x) % prim::cuda::warp_size;
    std::int64_t first = 0;
    for (std::int64_t count = args_.call.sequences; count > 1;) {
      const std::int64_t step = (count + prim::cuda::warp_size - 1) / prim::cuda::warp_size;
      const bool before = lane * step < count && args_.call.cu_seqlens[first + lane * step] < token;
      const unsigned votes = __ballot_sync(prim::cuda::all_lanes, before);
      const std::int64_t skipped = votes != 0 ? (31 - __clz(static_cast<int>(votes))) * step : 0;
      first += skipped;
      count = count - skipped < step ? count - skipped : step;
    }
    return first;
  }

  __device__ std::int64_t clipped(std::int64_t offset, std::int64_t least) const {
    const std::int64_t most = offset < args_.cut.tokens ? offset : args_.cut.tokens;
    return most > least ? most : least;
  }

  /// Reads where the sequence lies; its first chunk is the one that holds token low.
  __device__ void enter() {
    const std::int32_t* const offset = args_.call.cu_seqlens;
    begin_ = offset != nullptr ? clipped(offset[sequence_], 0) : sequence_ * args_.call.tokens;
    end_ = offset != nullptr ? clipped(offset[sequence_ + 1], begin_) : begin_ + args_.call.tokens;
    step_ = args_.call.chunk > 0 ? args_.call.chunk : end_ > begin_ ? end_ - begin_ : 1;
    chunk_ = begin_ < low_ ? (low_ - begin_) / step_ : 0;
  }

  const launch_args& args_;
  std::int64_t low_, high_;
  std::int64_t sequence_ = 0, begin_ = 0, end_ = 0, step_ = 1;
  std::int64_t chunk_ = -1;
};

/// Weights of a launch without a mask. Reading and conversion are apart, so that many reads can be
/// in flight; bits 0 are weight 0.
struct unit_weights {
  static constexpr bool masked = false;
  __device__ unit_weights(const mean_pooling_kernel_args&, std::int64_t) {}
  __device__ std::uint32_t bits_of(std::int64_t) const { return 1; }
  __device__ float value_of(std::uint32_t bits) const { return bits != 0 ? 1.0f : 0.0f; }
};

/// Weights of one entry of a masked launch.
class mask_weights {
 public:
  static constexpr bool masked = true;
  __device__ mask_weights(const mean_pooling_kernel_args& call, std::int64_t entry)
      : call_(call), entry_(entry * call.mask_entry) {}

  __device__ std::uint32_t bits_of(std::int64_t row) const {
    const std::int64_t at = entry_ + row * call_.mask_token;
    std::uint32_t bits = 0;
    if (call_.mask_type == dtype::f32) bits = static_cast<const std::uint32_t*>(call_.mask)[at];
    if (call_.mask_type == dtype::u8) bits = static_cast<const std::uint8_t*>(call_.mask)[at];
    if (call_.mask_type == dtype::f16 || call_.mask_type == dtype::bf16) {
      bits = static_cast<const std::uint16_t*>(call_.mask)[at];
    }
    return bits;
  }
  __device__ float value_of(std::uint32_t bits) const {
    using prim::cuda::half_words;
    const auto half = static_cast<std::uint16_t>(bits);
    return call_.mask_type == dtype::f32    ? __uint_as_float(bits)
           : call_.mask_type == dtype::f16  ? half_words<f16>::unpack(half)
           : call_.mask_type == dtype::bf16 ? half_words<bf16>::unpack(half)
                                            : static_cast<float>(bits);
  }

 private:
  const mean_pooling_kernel_args& call_;
  std::int64_t entry_;
};

}  // namespace tessera::kernels::mean_pooling::sm80
