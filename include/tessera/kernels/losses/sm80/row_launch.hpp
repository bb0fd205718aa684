// Launches over rows of classes: how many threads a row has, what of it stays in shared memory, the
// workspace of a loss, the kernels before and behind.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/losses/sm80/row_units.hpp>
#include <tessera/kernels/losses/sm80/tokens.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::losses::sm80 {

/// Shared memory for a row that is read twice, at most: what every GPU has.
inline constexpr int most_kept_bytes = 96 * 1024;

/// Units of a row in shared memory, as the tensor's elements: a thread finds what it put.
class kept_row {
 public:
  __device__ __forceinline__ kept_row(uint4* words, dtype type, int units)
      : words_(words), type_(type), units_(units) {}

  __device__ __forceinline__ void put(std::int64_t unit, const float (&x)[unit_size]) const {
    prim::cuda::with_elements(static_cast<void*>(words_), type_, [&]<class Element>(Element*) {
      prim::cuda::element_vector<Element, unit_size> all;
#pragma unroll
      for (int i = 0; i < unit_size; i += 2) {
        prim::cuda::store_pair(all.x + i, x[i], x[i + 1]);
      }
      const auto* const from = reinterpret_cast<const uint4*>(&all);
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(all) / 16); ++i) {
        words_[i * units_ + unit] = from[i];
      }
    });
  }
  __device__ __forceinline__ void get(std::int64_t unit, float (&x)[unit_size]) const {
    prim::cuda::with_elements(static_cast<void*>(words_), type_, [&]<class Element>(Element*) {
      prim::cuda::element_vector<Element, unit_size> all;
      auto* const to = reinterpret_cast<uint4*>(&all);
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(all) / 16); ++i) {
        to[i] = words_[i * units_ + unit];
      }
#pragma unroll
      for (int i = 0; i < unit_size; ++i) x[i] = prim::cuda::float_of(all.x[i]);
    });
  }

 private:
  uint4* words_;
  dtype type_;
  int units_;
};

/// Blocks for rows. Sizes alone decide, not how many rows there are: no row's bits depend on the
/// others.
struct row_grid {
  std::int64_t blocks = 0;
  int threads = 256;
  int shared_bytes = 0;
  int kept_units = 0;
  bool by_warp = false;

  /// A warp for rows of so many classes, at most `most` threads for others.
  static row_grid of(const loss_tokens& tokens, int most, std::int64_t most_of_warp) {
    row_grid grid;
    const std::int64_t rows = count_of(tokens);
    grid.by_warp = tokens.classes <= most_of_warp;
    grid.blocks = grid.by_warp ? (rows + grid.threads / 32 - 1) / (grid.threads / 32) : rows;
    if (!grid.by_warp && tokens.classes > 256 * unit_size * 2) grid.threads = most;
    return grid;
  }

  /// The same for rows of one type or two that are read twice. Short ones stay in the first-level
  /// cache.
  static row_grid of_kept(const loss_tokens& tokens, dtype type, dtype beside = dtype::none) {
    row_grid grid = of(tokens, 512, 4096);
    if (grid.by_warp) return grid;
    const std::int64_t unit_bytes =
        unit_size * static_cast<std::int64_t>(size_of(type) + size_of(beside));
    const std::int64_t units = (tokens.classes + 2 * unit_size - 1) / unit_size;
    grid.kept_units = static_cast<int>(std::min<std::int64_t>(units, most_kept_bytes / unit_bytes));
    grid.shared_bytes = static_cast<int>(grid.kept_units * unit_bytes);
    return grid;
  }
};

/// Device memory of a launch: values of tokens, or the sum of their weights.
struct row_memory {
  token_value* values = nullptr;
  double* weight_sum = nullptr;
  std::size_t bytes = 0;

  row_memory() = default;
  row_memory(const loss_tokens& tokens, bool backward, std::byte* base) {
    cuda::workspace_parts parts(base);
    place(tokens, backward, parts);
    bytes = parts.bytes();
  }
  /// Among other parts.
  void place(const loss_tokens& tokens, bool backward, cuda::workspace_parts& parts) {
    if (backward) {
      parts.take(weight_sum, 1);
    } else {
      parts.take(values, count_of(tokens));
    }
  }
};

/// Kernels of a launch, one behind the other.
class row_launch {
 public:
  row_launch(const loss_tokens& tokens, cudaStream_t stream) : tokens_(tokens), stream_(stream) {}

  cudaError_t code() const { return code_; }

  template <class... Parameters, class... Arguments>
  void enqueue(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes,
               const Arguments&... arguments) {
    if (code_ != cudaSuccess || blocks == 0) return;
    code_ = prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), threads, shared_bytes, stream_,
                                      false, arguments...);
  }
  template <class... Parameters, class... Arguments>
  void run(void (*kernel)(Parameters...), const row_grid& grid, const Arguments&... arguments) {
    enqueue(kernel, grid.blocks, grid.threads, grid.shared_bytes, arguments...);
  }
  /// Blocks in clusters of so many, one for each of `count` rows; of one block: none.
  template <class... Parameters, class... Arguments>
  void enqueue_clusters(void (*kernel)(Parameters...), std::int64_t count, int blocks, int threads,
                        int shared_bytes, const Arguments&... arguments) {
    if (blocks == 1) return enqueue(kernel, count, threads, shared_bytes, arguments...);
    if (code_ != cudaSuccess || count == 0) return;
    code_ = prim::cuda::launch_clusters(kernel, cuda::grid_of(count * blocks), blocks, threads,
                                        shared_bytes, stream_, false, arguments...);
  }
  /// What launches of others came to.
  void add(cudaError_t code) {
    if (code_ == cudaSuccess) code_ = code;
  }
  void clear(void* memory, std::size_t bytes) {
    if (code_ == cudaSuccess) code_ = cudaMemsetAsync(memory, 0, bytes, stream_);
  }
  /// The weights of all tokens, where gradients are those of a mean.
  void sum_weights(const row_memory& memory) {
    if (tokens_.reduction != loss_reduction::mean || count_of(tokens_) == 0) return;
    enqueue(&total_weights, 1, total_threads, 0, tokens_, memory.weight_sum);
  }
  /// What tokens come to.
  void total(const row_memory& memory, const token_rows& beside, float* accuracy) {
    enqueue(&total_values, 1, total_threads, 0, tokens_, beside, accuracy,
            static_cast<const token_value*>(memory.values));
  }

 private:
  const loss_tokens& tokens_;
  cudaStream_t stream_;
  cudaError_t code_ = cudaSuccess;
};

}  // namespace tessera::kernels::losses::sm80
