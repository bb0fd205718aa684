// What a thread of a channel reads of its tokens: decays, queries and keys, where pairs of tokens
// go one by one.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_block.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

template <class Element, class Shape>
class decay_rows {
 protected:
  using memory = decay_memory<Shape>;

  __device__ __forceinline__ explicit decay_rows(const decay_block<Element, Shape>& block)
      : block_(block),
        call_(block.call),
        shared_(block.shared),
        channel_(static_cast<int>(threadIdx.x) % Shape::columns),
        is_second_(static_cast<int>(threadIdx.x) >= Shape::columns),
        count_(block.count) {}

  __device__ __forceinline__ int own_channel() const { return block_.first_channel + channel_; }

  static constexpr int batch = 8;  ///< tokens whose loads are under way

  /// Log decays of `batch` tokens from step `first` on, to base 2; of those from `end` on 0.
  __device__ __forceinline__ void load_decays(std::int64_t first, std::int64_t end,
                                              float (&decays)[batch]) const {
    float x[batch];
#pragma unroll
    for (float& log_decay : x) log_decay = block_.gamma;
    const auto add = [&](const chunked_scan_rows& rows, const ordered_rows& order, int column,
                         bool raw) {
      if (rows.data == nullptr) return;
      prim::cuda::with_elements(rows.data, rows.type, [&](const auto* elements) {
        float more[batch];
#pragma unroll
        for (int i = 0; i < batch; ++i) {
          more[i] =
              first + i < end ? prim::cuda::float_of(elements[order.at(first + i) + column]) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < batch; ++i) x[i] += raw ? log_decay_of_raw(more[i]) : more[i];
      });
    };
    add(call_.g, shared_.rows_g, 0, false);
    add(call_.gk, shared_.rows_gk, own_channel(), call_.raw_decay);
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      decays[i] = first + i < end ? log2_decay(x[i]) : 0.0f;
    }
  }
  /// Decays of half of the chunk's tokens, which are the thread's.
  __device__ __forceinline__ void put_decays() const {
    constexpr int own = Shape::tokens / 2;
#pragma unroll 1
    for (int first = is_second_ ? own : 0, end = first + own; first < end; first += batch) {
      float decays[batch];
      load_decays(block_.first + first, block_.first + count_, decays);
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        shared_.of_pairs.decays[first + i][channel_] = prim::cuda::exp2_fast(decays[i]);
      }
    }
  }
  __device__ __forceinline__ float decay(int t) const {
    return shared_.of_pairs.decays[t][channel_];
  }
  /// Behind the last token 0.
  __device__ __forceinline__ float number(const unsigned char* rows, int t) const {
    const std::uint32_t place = Shape::value_rows::offset(static_cast<std::uint32_t>(t),
                                                          static_cast<std::uint32_t>(channel_ / 8));
    return prim::cuda::float_of(*reinterpret_cast<const Element*>(
        rows + place + static_cast<std::uint32_t>(channel_ % 8 * 2)));
  }
  __device__ __forceinline__ float query(int t) const {
    return call_.scale * number(shared_.q, t);
  }
  __device__ __forceinline__ float key(int t) const {
    return number(shared_.k, t);
  }

  const decay_block<Element, Shape>& block_;
  const chunked_scan_kernel_args& call_;
  memory& shared_;
  int channel_;  ///< of the block's
  bool is_second_;
  int count_;
};

}  // namespace tessera::kernels::chunked_scan::sm80
