// Tensors for a problem, filled reproducibly with ordinary values: what the benches and the `model`
// command run when there is no file. Keys and values exist in several copies where one would stay
// in the cache, so that successive rounds read memory as a server does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/problem.hpp>

#include "bench/support/memory.hpp"
#include "tests/support/random.hpp"

namespace tessera::bench {

class workload {
 public:
  /// Allocates and fills every tensor of the problem. Key and value copies together take at least
  /// `cold_bytes`; 0: one copy.
  explicit workload(const flash_problem& problem, std::size_t cold_bytes = 0,
                    std::uint64_t seed = 1)
      : options_(problem.options), random_(seed) {
    args_.q = values(problem.q);
    fill_scores(problem);
    fill_ids(problem);
    args_.sinks = values(problem.sinks);
    fill_lengths(problem);
    const std::size_t once = bytes_of(problem.k) + bytes_of(problem.v);
    const std::size_t copies =
        std::clamp<std::size_t>(once == 0 ? 1 : (cold_bytes + once - 1) / once, 1, 1024);
    const tensor_view k = values(problem.k);
    const tensor_view v = values(problem.v);
    keys_and_values_.emplace_back(k, v);
    while (keys_and_values_.size() < copies) keys_and_values_.emplace_back(copy(k), copy(v));
    make_outputs(problem);
  }

  const flash_attention_options& options() const noexcept { return options_; }

  /// The arguments of a round; rounds cycle through the copies of keys and values.
  flash_attention_args args(std::size_t round = 0) const {
    flash_attention_args one = args_;
    const auto& [k, v] = keys_and_values_[round % keys_and_values_.size()];
    one.k = k;
    one.v = v;
    return one;
  }

 private:
  static std::size_t bytes_of(const tensor_shape& shape) {
    if (!shape.present()) return 0;
    std::size_t bytes = size_of(shape.type);
    for (int axis = 0; axis < shape.rank; ++axis) {
      bytes *= static_cast<std::size_t>(shape.extent[static_cast<std::size_t>(axis)]);
    }
    return bytes;
  }

  tensor_view allocate(const tensor_shape& shape) {
    if (!shape.present()) return {};
    memory_.emplace_back(bytes_of(shape));
    tensor_view view;
    view.data = memory_.back().data();
    view.type = shape.type;
    view.rank = shape.rank;
    view.extent = shape.extent;
    view.stride = contiguous_strides(shape.extent, shape.rank);
    return view;
  }

  tensor_view copy(const tensor_view& from) {
    tensor_view to = allocate(from.shape());
    std::memcpy(to.data, from.data, bytes_of(from.shape()));
    return to;
  }

  template <class Element, class Draw>
  static void fill(const tensor_view& view, const Draw& draw) {
    auto* data = static_cast<Element*>(view.data);
    for (std::int64_t index = 0; index < view.elements(); ++index) data[index] = draw(index);
  }

  /// Mean 0, variance 1: with the default scale, logits of variance 1.
  tensor_view values(const tensor_shape& shape) {
    const tensor_view view = allocate(shape);
    if (view.type == dtype::f32) fill<float>(view, [&](std::int64_t) { return random_.bell(); });
    if (view.type == dtype::f16) fill<f16>(view, [&](std::int64_t) { return f16(random_.bell()); });
    if (view.type == dtype::bf16) {
      fill<bf16>(view, [&](std::int64_t) { return bf16(random_.bell()); });
    }
    return view;
  }

  void fill_scores(const flash_problem& problem) {
    args_.bias_pre = values(problem.bias_pre);
    args_.bias_post = values(problem.bias_post);
    args_.mask = allocate(problem.mask);
    if (args_.mask.present()) {
      fill<std::uint8_t>(args_.mask,
                         [&](std::int64_t) { return std::uint8_t{random_.chance(0.75)}; });
    }
  }

  /// Segments of equal length, eight in a row of tokens.
  void fill_ids(const flash_problem& problem) {
    const auto ids = [&](const tensor_shape& shape) {
      const tensor_view view = allocate(shape);
      if (!view.present()) return view;
      const std::int64_t tokens = std::max<std::int64_t>(view.extent[1], 1);
      fill<std::int32_t>(view, [&](std::int64_t index) {
        return static_cast<std::int32_t>(index % tokens * 8 / tokens);
      });
      return view;
    };
    args_.q_segment_ids = ids(problem.q_segment_ids);
    args_.kv_segment_ids = ids(problem.kv_segment_ids);
  }

  /// Packed sequences of equal length; padded entries that are full.
  void fill_lengths(const flash_problem& problem) {
    const auto offsets = [&](const tensor_shape& shape, std::int64_t tokens) {
      const tensor_view view = allocate(shape);
      if (!view.present()) return view;
      const std::int64_t sequences = std::max<std::int64_t>(view.extent[0] - 1, 1);
      fill<std::int32_t>(view, [&](std::int64_t index) {
        return static_cast<std::int32_t>(tokens * index / sequences);
      });
      return view;
    };
    args_.cu_seqlens_q = offsets(problem.cu_seqlens_q, problem.q.extent[0]);
    args_.cu_seqlens_k = offsets(problem.cu_seqlens_k, problem.k.extent[0]);
    const auto lengths = [&](const tensor_shape& shape, std::int64_t tokens) {
      const tensor_view view = allocate(shape);
      if (!view.present()) return view;
      fill<std::int32_t>(view, [&](std::int64_t) { return static_cast<std::int32_t>(tokens); });
      return view;
    };
    args_.seqlens_q = lengths(problem.seqlens_q, problem.q.extent[1]);
    args_.seqlens_k = lengths(problem.seqlens_k, problem.k.extent[1]);
  }

  void make_outputs(const flash_problem& problem) {
    tensor_shape out = problem.q;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    out.extent[last] = problem.v.extent[last];
    args_.out = allocate(out);
    std::memset(args_.out.data, 0, bytes_of(out));
    const auto& q = problem.q.extent;
    const tensor_shape lse = is_packed(problem) ? tensor_shape{dtype::f32, 2, {q[1], q[0]}}
                                                : tensor_shape{dtype::f32, 3, {q[0], q[2], q[1]}};
    args_.lse = allocate(lse);
    if (!problem.options.normalize) args_.row_max = allocate(lse);
    args_.weights = allocate(problem.weights);
  }

  std::vector<buffer> memory_;
  flash_attention_options options_;
  support::random_source random_;
  flash_attention_args args_{};  // without k and v
  std::vector<std::pair<tensor_view, tensor_view>> keys_and_values_;
};

}  // namespace tessera::bench
