// What is asked of mean pooling at run time: dtypes, sizes and options, no pointers. Plain data.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/mean_pooling/args.hpp>
#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/options.hpp>

namespace tessera {

/// Operations served by the mean pooling family.
enum class mean_pooling_op : std::uint8_t {
  mean_pooling,
  mean_pooling_chunks,
  mean_pooling_backward,
  mean_pooling_chunks_backward,
};

/// Their names, in the order of the enumerators.
inline constexpr std::array<std::string_view, 4> mean_pooling_ops{
    "mean_pooling", "mean_pooling_chunks", "mean_pooling_backward", "mean_pooling_chunks_backward"};

constexpr std::string_view name_of(mean_pooling_op op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < mean_pooling_ops.size() ? mean_pooling_ops[index] : "invalid";
}

constexpr bool is_backward(mean_pooling_op op) noexcept {
  return op == mean_pooling_op::mean_pooling_backward ||
         op == mean_pooling_op::mean_pooling_chunks_backward;
}

constexpr bool has_chunks(mean_pooling_op op) noexcept {
  return op == mean_pooling_op::mean_pooling_chunks ||
         op == mean_pooling_op::mean_pooling_chunks_backward;
}

/// The shapes of the tensors of `mean_pooling_args` (x stands for d_x in the backward operations;
/// out follows from it) and the options that a kernel choice may depend on.
struct mean_pooling_problem {
  mean_pooling_op op = mean_pooling_op::mean_pooling;
  tensor_shape x{};
  tensor_shape mask{};
  tensor_shape cu_seqlens{};
  mean_pooling_options options{};

  friend bool operator==(const mean_pooling_problem&, const mean_pooling_problem&) = default;
};

constexpr bool is_packed(const mean_pooling_problem& problem) noexcept {
  return problem.cu_seqlens.present();
}

/// The sizes of a problem, read off its shapes.
struct mean_pooling_sizes {
  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of all sequences
  std::int64_t columns = 0;    ///< of a token, over all heads
  std::int64_t chunk = 0;      ///< 0: whole sequences
  friend constexpr bool operator==(const mean_pooling_sizes&, const mean_pooling_sizes&) = default;
};

constexpr mean_pooling_sizes sizes_of(const mean_pooling_problem& problem) noexcept {
  const auto& x = problem.x.extent;
  mean_pooling_sizes sizes;
  if (has_chunks(problem.op)) {
    sizes = {x[0], x[0] * x[1], x[2] * x[3], problem.options.chunk_size};
  } else if (is_packed(problem)) {
    sizes = {0, x[0], x[1], 0};
  } else {
    sizes = {x[0], x[0] * x[1], x[2], 0};
  }
  if (is_packed(problem)) {
    sizes.sequences = std::max<std::int64_t>(problem.cu_seqlens.extent[0] - 1, 0);
  }
  return sizes;
}

/// Exact part of a table key: two problems with different identities never share a choice.
struct mean_pooling_identity {
  dtype type = dtype::none;
  pooling_pass pass = pooling_pass::forward;
  bool chunks = false;
  bool packed = false;
  bool weighted = false;
  friend constexpr bool operator==(const mean_pooling_identity&,
                                   const mean_pooling_identity&) = default;
};

/// Bucketed part of a table key: base-2 logarithms, rounded up; 0 stands for 0 and 1.
struct mean_pooling_bucket {
  std::uint8_t sequences = 0;
  std::uint8_t length = 0;   ///< mean tokens of a sequence
  std::uint8_t columns = 0;  ///< of a token, over all heads
  std::uint8_t chunk = 0;
  friend constexpr bool operator==(const mean_pooling_bucket&,
                                   const mean_pooling_bucket&) = default;
};

struct mean_pooling_key {
  mean_pooling_identity identity{};
  mean_pooling_bucket bucket{};
  friend constexpr bool operator==(const mean_pooling_key&, const mean_pooling_key&) = default;
};

constexpr pooling_pass pass_of(mean_pooling_op op) noexcept {
  return is_backward(op) ? pooling_pass::backward : pooling_pass::forward;
}

}  // namespace tessera
