// Tensors for a problem, filled reproducibly with ordinary values: what the benches and the `model`
// command run when there is no file. Where keys and values would stay in the cache, they are a
// moving piece of longer ones, so that successive rounds read memory as a server does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/problem.hpp>

#include "bench/support/memory.hpp"
#include "tests/support/random.hpp"

namespace tessera::bench {

/// How the tokens of packed tensors are shared out among the sequences.
enum class length_profile : std::uint8_t {
  equal,
  zipf,  ///< as 1, 1/2, 1/3, ... in a scattered order
};

class workload {
 public:
  /// Allocates and fills every tensor of the problem. Keys and values lie in memory of at least
  /// `cold_bytes` together, of which each round uses another piece; 0: exactly their own.
  explicit workload(const flash_problem& problem, std::size_t cold_bytes = 0,
                    std::uint64_t seed = 1, length_profile lengths = length_profile::equal)
      : options_(problem.options), random_(seed) {
    args_.q = values(problem.tensors.q);
    fill_scores(problem);
    fill_ids(problem);
    args_.sinks = values(problem.tensors.sinks);
    fill_lengths(problem, lengths);
    fill_keys(problem, cold_bytes);
    inputs_ = memory_.size();
    make_outputs(problem);
  }

  /// The memory in which inputs and outputs lie, those of all rounds.
  std::vector<std::span<const std::byte>> input_blocks() const {
    return blocks<const std::byte>(0, inputs_);
  }
  std::vector<std::span<std::byte>> output_blocks() const {
    return blocks<std::byte>(inputs_, memory_.size());
  }

  const flash_attention_options& options() const noexcept { return options_; }

  /// The arguments of a round; rounds cycle through the pieces, far jumps in between.
  flash_attention_args args(std::size_t round = 0) const {
    constexpr std::size_t prime = 7919;
    flash_attention_args one = args_;
    const std::int64_t tokens = static_cast<std::int64_t>(round * prime % pieces_) * step_;
    for (tensor_view* view : {&one.k, &one.v}) {
      const auto axis = static_cast<std::size_t>(view->rank - 3);
      view->data = static_cast<std::byte*>(view->data) +
                   tokens * view->stride[axis] * static_cast<std::int64_t>(size_of(view->type));
    }
    return one;
  }

 private:
  template <class Byte>
  std::vector<std::span<Byte>> blocks(std::size_t begin, std::size_t end) const {
    std::vector<std::span<Byte>> list;
    for (std::size_t i = begin; i < end; ++i)
      list.emplace_back(memory_[i].data(), memory_[i].size());
    return list;
  }

  static std::size_t bytes_of(const tensor_view& shape) {
    if (!shape.present()) return 0;
    std::size_t bytes = size_of(shape.type);
    for (int axis = 0; axis < shape.rank; ++axis) {
      bytes *= static_cast<std::size_t>(shape.extent[static_cast<std::size_t>(axis)]);
    }
    return bytes;
  }

  tensor_view allocate(const tensor_view& shape) {
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

  /// Draws the first elements and repeats them behind: large tensors are made as fast as memory.
  template <class Element, class Draw>
  static void fill(const tensor_view& view, const Draw& draw) {
    constexpr std::int64_t most_drawn = std::int64_t{1} << 22;
    auto* data = static_cast<Element*>(view.data);
    const std::int64_t count = view.elements();
    const std::int64_t drawn = std::min(count, most_drawn);
    for (std::int64_t index = 0; index < drawn; ++index) data[index] = draw(index);
    for (std::int64_t done = drawn; done < count; done += drawn) {
      std::memcpy(data + done, data,
                  static_cast<std::size_t>(std::min(drawn, count - done)) * sizeof(Element));
    }
  }

  /// Integers that follow from their position.
  template <class Draw>
  static void number(const tensor_view& view, const Draw& draw) {
    auto* data = static_cast<std::int32_t*>(view.data);
    for (std::int64_t index = 0; index < view.elements(); ++index) data[index] = draw(index);
  }

  /// Mean 0, variance 1: with the default scale, logits of variance 1.
  tensor_view values(const tensor_view& shape) {
    const tensor_view view = allocate(shape);
    if (view.type == dtype::f32) fill<float>(view, [&](std::int64_t) { return random_.bell(); });
    if (view.type == dtype::f16) fill<f16>(view, [&](std::int64_t) { return f16(random_.bell()); });
    if (view.type == dtype::bf16) {
      fill<bf16>(view, [&](std::int64_t) { return bf16(random_.bell()); });
    }
    return view;
  }

  void fill_scores(const flash_problem& problem) {
    args_.bias_pre = values(problem.tensors.bias_pre);
    args_.bias_post = values(problem.tensors.bias_post);
    args_.mask = allocate(problem.tensors.mask);
    if (args_.mask.present()) {
      fill<std::uint8_t>(args_.mask,
                         [&](std::int64_t) { return std::uint8_t{random_.chance(0.75)}; });
    }
  }

  /// Segments of equal length, eight in a row of tokens.
  void fill_ids(const flash_problem& problem) {
    const auto ids = [&](const tensor_view& shape) {
      const tensor_view view = allocate(shape);
      if (!view.present()) return view;
      const std::int64_t tokens = std::max<std::int64_t>(view.extent[1], 1);
      number(view, [&](std::int64_t index) {
        return static_cast<std::int32_t>(index % tokens * 8 / tokens);
      });
      return view;
    };
    args_.q_segment_ids = ids(problem.tensors.q_segment_ids);
    args_.kv_segment_ids = ids(problem.tensors.kv_segment_ids);
  }

  /// Where sequence `index` of `sequences` begins among `tokens`. Zipf: the sequence at place i has
  /// rank (i * 7 + 3) mod sequences, so that long and short ones mix.
  static std::int64_t begin_of(std::int64_t index, std::int64_t sequences, std::int64_t tokens,
                               length_profile lengths) {
    if (lengths == length_profile::equal) return tokens * index / sequences;
    double before = 0, all = 0;
    for (std::int64_t i = 0; i < sequences; ++i) {
      const std::int64_t step = sequences % 7 == 0 ? 1 : 7;
      const double share = 1.0 / static_cast<double>((i * step + 3) % sequences + 1);
      before += i < index ? share : 0.0;
      all += share;
    }
    return static_cast<std::int64_t>(before / all * static_cast<double>(tokens) + 0.5);
  }

  /// Packed sequences by the profile; padded entries that are full.
  void fill_lengths(const flash_problem& problem, length_profile lengths) {
    const auto offsets = [&](const tensor_view& shape, std::int64_t tokens) {
      const tensor_view view = allocate(shape);
      if (!view.present()) return view;
      const std::int64_t sequences = std::max<std::int64_t>(view.extent[0] - 1, 1);
      number(view, [&](std::int64_t index) {
        return static_cast<std::int32_t>(begin_of(index, sequences, tokens, lengths));
      });
      return view;
    };
    args_.cu_seqlens_q = offsets(problem.tensors.cu_seqlens_q, problem.tensors.q.extent[0]);
    args_.cu_seqlens_k = offsets(problem.tensors.cu_seqlens_k, problem.tensors.k.extent[0]);
    const auto full = [&](const tensor_view& shape, std::int64_t tokens) {
      const tensor_view view = allocate(shape);
      if (!view.present()) return view;
      number(view, [&](std::int64_t) { return static_cast<std::int32_t>(tokens); });
      return view;
    };
    args_.seqlens_q = full(problem.tensors.seqlens_q, problem.tensors.q.extent[1]);
    args_.seqlens_k = full(problem.tensors.seqlens_k, problem.tensors.k.extent[1]);
  }

  /// Tokens that one round reads: all, or those of the last row's window.
  static std::int64_t tokens_of_round(const flash_problem& problem, std::int64_t tokens) {
    const flash_attention_options& options = problem.options;
    if (!options.window_left || !(options.causal || options.window_right)) return tokens;
    const std::int64_t right = options.causal ? 0 : *options.window_right;
    return std::min({*options.window_left, tokens}) + std::min(right, tokens) + 1;
  }

  void fill_keys(const flash_problem& problem, std::size_t cold_bytes) {
    const auto axis = static_cast<std::size_t>(problem.tensors.k.rank - 3);
    const std::int64_t tokens = problem.tensors.k.extent[axis];
    step_ = std::max<std::int64_t>(std::min(tokens_of_round(problem, tokens), tokens), 1);
    const std::size_t once = bytes_of(problem.tensors.k) + bytes_of(problem.tensors.v);
    if (once > 0 && cold_bytes > once) {
      const std::size_t per_token = once / static_cast<std::size_t>(tokens);
      const std::size_t per_piece =
          std::max<std::size_t>(per_token, 1) * static_cast<std::size_t>(step_);
      pieces_ = 1 + (cold_bytes - once + per_piece - 1) / per_piece;
    }
    const auto piece_of = [&](tensor_view shape) {
      shape.extent[axis] += static_cast<std::int64_t>(pieces_ - 1) * step_;
      tensor_view view = values(shape);
      view.extent[axis] = tokens;
      return view;
    };
    args_.k = piece_of(problem.tensors.k);
    args_.v = piece_of(problem.tensors.v);
  }

  void make_outputs(const flash_problem& problem) {
    tensor_view out = problem.tensors.q;
    const auto last = static_cast<std::size_t>(out.rank - 1);
    out.extent[last] = problem.tensors.v.extent[last];
    args_.out = allocate(out);
    std::memset(args_.out.data, 0, bytes_of(out));
    const auto& q = problem.tensors.q.extent;
    const tensor_view lse = problem.tensors.cu_seqlens_q.present()
                                ? shaped(dtype::f32, {q[1], q[0]})
                                : shaped(dtype::f32, {q[0], q[2], q[1]});
    args_.lse = allocate(lse);
    if (!problem.options.normalize) args_.row_max = allocate(lse);
    args_.weights = allocate(problem.tensors.weights);
  }

  std::vector<buffer> memory_;  // inputs first
  std::size_t inputs_ = 0;
  flash_attention_options options_;
  support::random_source random_;
  flash_attention_args args_{};  // k and v: the first piece
  std::size_t pieces_ = 1;
  std::int64_t step_ = 1;  // tokens from piece to piece
};

}  // namespace tessera::bench
