// Tensors of mean pooling for the benches, and the verdict on what a call makes of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tessera/families/mean_pooling/lower.hpp>
#include <tessera/families/mean_pooling/problem.hpp>

#include "bench/support/memory.hpp"
#include "tests/reference/mean_pooling.hpp"
#include "tests/support/compare.hpp"
#include "tests/support/guarded_tensor.hpp"
#include "tests/support/random.hpp"

namespace tessera::bench {

/// The tensors of a problem. Tokens lie in memory of at least `cold_bytes`, of which each round
/// uses another piece.
class pooling_workload {
 public:
  pooling_workload(const mean_pooling_problem& problem, std::size_t cold_bytes)
      : problem_(problem) {
    const bool backward = is_backward(problem.op);
    make_offsets();
    if (problem.tensors.mask.present()) fill(args_.mask = make(problem.tensors.mask, 1), 1.0f);
    const tensor_view means = make(shape_of_means(), 1);
    const std::size_t bytes = bytes_of(problem.tensors.x);
    pieces_ = 1 + cold_bytes / std::max<std::size_t>(bytes, 1);
    const tensor_view tokens = make(problem.tensors.x, pieces_);
    (backward ? args_.d_x : args_.x) = tokens;
    (backward ? args_.d_out : args_.out) = means;
    fill(backward ? means : tokens, 0.0f);
    auto* const first = static_cast<std::byte*>(tokens.data);
    for (std::size_t piece = 1; piece < pieces_; ++piece) {
      std::memcpy(first + piece * bytes, first, bytes);
    }
  }

  mean_pooling_args args(std::size_t round = 0) const {
    mean_pooling_args one = args_;
    tensor_view& tokens = is_backward(problem_.op) ? one.d_x : one.x;
    tokens.data =
        static_cast<std::byte*>(tokens.data) + round % pieces_ * bytes_of(problem_.tensors.x);
    return one;
  }

  /// Memory of the tensors.
  std::vector<std::span<std::byte>> blocks() const {
    std::vector<std::span<std::byte>> all;
    for (const buffer& one : memory_) all.emplace_back(one.data(), one.size());
    return all;
  }

  /// Bytes of every input and output.
  double bytes() const {
    const mean_pooling_args one = args();
    double sum = 0;
    for (const tensor_view* view : {&one.x, &one.out, &one.d_out, &one.d_x, &one.mask}) {
      if (view->present()) sum += static_cast<double>(bytes_of(*view));
    }
    return sum;
  }

 private:
  static std::size_t bytes_of(const tensor_view& shape) {
    std::size_t bytes = size_of(shape.type);
    for (int axis = 0; axis < shape.rank; ++axis) {
      bytes *= static_cast<std::size_t>(shape.extent[static_cast<std::size_t>(axis)]);
    }
    return bytes;
  }

  tensor_view make(const tensor_view& shape, std::size_t copies) {
    memory_.emplace_back(bytes_of(shape) * copies);
    tensor_view view;
    view.data = memory_.back().data();
    view.type = shape.type;
    view.rank = shape.rank;
    view.extent = shape.extent;
    view.stride = contiguous_strides(view.extent, view.rank);
    return view;
  }

  /// Values that repeat after a prime number of elements: no two tokens near each other are equal.
  static void fill(const tensor_view& view, float offset) {
    constexpr std::int64_t period = 1'000'003;
    support::random_source random(1);
    const std::int64_t drawn = std::min(view.elements(), period);
    for (std::int64_t n = 0; n < drawn; ++n) {
      support::store(view, n, static_cast<double>(random.bell() * 0.25f + offset));
    }
    auto* const data = static_cast<std::byte*>(view.data);
    const std::size_t all = bytes_of(view);
    const std::size_t once = static_cast<std::size_t>(drawn) * size_of(view.type);
    for (std::size_t at = once; at < all; at += once) {
      std::memcpy(data + at, data, std::min(once, all - at));
    }
  }

  /// Sequences of equal length.
  void make_offsets() {
    if (!problem_.tensors.cu_seqlens.present()) return;
    args_.cu_seqlens = make(problem_.tensors.cu_seqlens, 1);
    const std::int64_t count = problem_.tensors.cu_seqlens.extent[0] - 1;
    const std::int64_t tokens = problem_.tensors.x.extent[has_chunks(problem_.op) ? 1 : 0];
    auto* const offset = static_cast<std::int32_t*>(args_.cu_seqlens.data);
    for (std::int64_t n = 0; n <= count; ++n) {
      offset[n] = static_cast<std::int32_t>(tokens * n / std::max<std::int64_t>(count, 1));
    }
  }

  tensor_view shape_of_means() const {
    mean_pooling_args shapes = args_;
    tensor_view& tokens = is_backward(problem_.op) ? shapes.d_x : shapes.x;
    tokens.type = problem_.tensors.x.type;
    tokens.rank = problem_.tensors.x.rank;
    tokens.extent = problem_.tensors.x.extent;
    const auto pooled = reference::pooled_of(problem_.op, shapes, problem_.options);
    const auto count = static_cast<std::int64_t>(pooled.size());
    const auto& x = problem_.tensors.x.extent;
    if (has_chunks(problem_.op))
      return shaped(problem_.tensors.x.type, {x[0], count / x[0], x[2], x[3]});
    return shaped(problem_.tensors.x.type,
                  {count, x[static_cast<std::size_t>(problem_.tensors.x.rank - 1)]});
  }

  mean_pooling_problem problem_;
  std::vector<buffer> memory_;
  mean_pooling_args args_{};
  std::size_t pieces_ = 1;
};

/// Judges the first columns of the last head of every sequence; the message is empty if they are
/// right.
inline support::comparison verify(const mean_pooling_problem& problem, mean_pooling_args args) {
  constexpr std::int64_t most = 4;
  for (tensor_view* view : {&args.x, &args.out, &args.d_out, &args.d_x}) {
    if (!view->present()) continue;
    const auto last = static_cast<std::size_t>(view->rank - 1);
    view->extent[last] = std::min(view->extent[last], most);
    if (!has_chunks(problem.op)) continue;
    const std::int64_t skipped = (view->extent[2] - 1) * view->stride[2];
    view->data = static_cast<std::byte*>(view->data) +
                 skipped * static_cast<std::int64_t>(size_of(view->type));
    view->extent[2] = 1;
  }
  const tensor_view& ours = is_backward(problem.op) ? args.d_x : args.out;
  const auto truth = reference::mean_pooling<>(problem.op, args, problem.options);
  const auto peer =
      reference::mean_pooling<reference::pooling_as_stored>(problem.op, args, problem.options);
  const double scale = support::largest(truth.sizes);
  const auto unit = [&](std::size_t) { return scale; };
  return support::judged(support::compare_in_units(reference::to_doubles(ours), truth.values, unit),
                         support::compare_in_units(peer.values, truth.values, unit).error,
                         support::floor_of(is_backward(problem.op) ? "d_x" : "out", ours.type));
}

}  // namespace tessera::bench
