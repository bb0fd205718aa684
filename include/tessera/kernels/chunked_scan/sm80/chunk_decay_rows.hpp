// What a thread of the gradients of decays reads of the tokens of its channel: decays, queries and
// keys.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_decay_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/tokens.hpp>
#include <tessera/prim/cuda/fetch.hpp>
#include <tessera/prim/cuda/numbers.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

template <class Element, class Shape>
class decay_rows {
 protected:
  using memory = decay_memory<Shape>;

  __device__ __forceinline__ decay_rows(const chunked_scan_kernel_args& call, memory& shared,
                                        const sequence& all, std::int64_t head)
      : call_(call),
        shared_(shared),
        channel_(static_cast<int>(threadIdx.x) % Shape::columns),
        is_second_(static_cast<int>(threadIdx.x) >= Shape::columns) {
    if (call_.g_gamma != nullptr) {
      gamma_ = call_.g_gamma[all.number * call_.gamma_sequence + head * call_.gamma_head];
    }
  }

  __device__ __forceinline__ int own_channel() const { return first_channel_ + channel_; }

  static constexpr int batch = 8;  ///< tokens whose loads are under way

  /// Log decays of `batch` tokens from step `first` on, to base 2; of those from `end` on 0.
  __device__ __forceinline__ void load_decays(std::int64_t first, std::int64_t end,
                                              float (&decays)[batch]) const {
    float x[batch];
#pragma unroll
    for (float& log_decay : x) log_decay = gamma_;
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
  /// Brings decays of channels of the chunk near, which are read a few at a time.
  __device__ __forceinline__ void fetch_decays() const {
    if (call_.gk.data == nullptr) return;
    const int bytes = static_cast<int>(size_of(call_.gk.type));
    constexpr int line = 128;
    const int lines = (Shape::columns * bytes + line - 1) / line;
    const auto* const first = static_cast<const unsigned char*>(call_.gk.data);
    for (int i = static_cast<int>(threadIdx.x); i < count_ * lines; i += Shape::threads) {
      const int channel = first_channel_ + i % lines * (line / bytes);
      if (channel >= call_.keys) continue;
      prim::cuda::fetch_line(first + (shared_.rows_gk.at(first_ + i / lines) + channel) * bytes);
    }
  }
  /// Logarithms of the decays of half of the chunk's tokens, which are the thread's, and their sum;
  /// whether this, or one on the way to it, is more than factors of rows have.
  __device__ __forceinline__ bool put_decays() const {
    constexpr int own = Shape::tokens / 2;
    constexpr float most = 80.0f;  // of half a chunk: no factor of decays leaves [2^-80, 2^80]
    float sum = 0.0f;
    bool beyond = false;
#pragma unroll 1
    for (int first = is_second_ ? own : 0, end = first + own; first < end; first += batch) {
      float decays[batch];
      load_decays(first_ + first, first_ + count_, decays);
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        shared_.decays[first + i][channel_] = decays[i];
        sum += decays[i];
        beyond = beyond || !(fabsf(sum) <= most);
      }
    }
    shared_.of_products.halves[is_second_ ? 1 : 0][channel_] = sum;
    return beyond;
  }
  /// The same as factors.
  __device__ __forceinline__ void raise_decays() const {
    constexpr int own = Shape::tokens / 2;
    const int first = is_second_ ? own : 0;
#pragma unroll 4
    for (int t = first; t < first + own; ++t) {
      shared_.decays[t][channel_] = prim::cuda::exp2_fast(shared_.decays[t][channel_]);
    }
  }
  __device__ __forceinline__ float decay(int t) const {
    return shared_.decays[t][channel_];
  }
  /// Where the channel's number of a token lies.
  __device__ __forceinline__ std::uint32_t place_of(int t) const {
    return Shape::value_rows::offset(static_cast<std::uint32_t>(t),
                                     static_cast<std::uint32_t>(channel_ / 8)) +
           static_cast<std::uint32_t>(channel_ % 8 * 2);
  }
  /// Behind the last token 0.
  __device__ __forceinline__ float number(const unsigned char* rows, int t) const {
    return prim::cuda::float_of(*reinterpret_cast<const Element*>(rows + place_of(t)));
  }
  __device__ __forceinline__ float query(int t) const {
    return call_.scale * number(shared_.q, t);
  }
  __device__ __forceinline__ float key(int t) const {
    return number(shared_.k, t);
  }
  /// The derivative of a log decay by what it is the -exp of, itself; one that leaves nothing has
  /// none.
  __device__ __forceinline__ float slope(int t) const {
    const float x = log_decay_of_raw(prim::cuda::number_at(
        call_.gk.data, call_.gk.type, shared_.rows_gk.at(first_ + t) + own_channel()));
    return log2_decay(x) > -64.0f ? x : 0.0f;
  }

  const chunked_scan_kernel_args& call_;
  memory& shared_;
  int channel_;  ///< of the block's
  bool is_second_;
  int first_channel_ = 0;   ///< of the block
  std::int64_t first_ = 0;  ///< token of the chunk
  int count_ = 0;           ///< its tokens
  float gamma_ = 0.0f;
};

}  // namespace tessera::kernels::chunked_scan::sm80
