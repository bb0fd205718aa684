// Tensors for a problem of page_attention: pools of ordinary values, pages of the sequences in a
// shuffled order, full lengths. Rounds read different pieces of larger pools, as a server does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include <tessera/families/attention/page_args.hpp>

#include "bench/support/memory.hpp"
#include "tests/reference/dense_pages.hpp"
#include "tests/support/guarded_tensor.hpp"
#include "tests/support/random.hpp"

namespace tessera::bench {

/// Attention on the keys and values of the sequences, all of them full, in one piece.
inline flash_problem dense_problem(const page_problem& paged) {
  flash_problem dense{.tensors = reference::dense_shapes(paged.tensors, paged.options),
                      .options = reference::dense_options(paged.options)};
  dense.tensors.seqlens_k = {};
  return dense;
}

class page_workload {
 public:
  /// The pools are pieces of memory of at least `cold_bytes` together; 0: exactly their own.
  explicit page_workload(const page_problem& problem, std::size_t cold_bytes = 0,
                         std::uint64_t seed = 1)
      : options_(problem.options), random_(seed) {
    const page_attention_args& shapes = problem.tensors;
    args_.q = values(shapes.q);
    page_axis_ = pool_axis(options_.pool_layout, 'P');
    pages_ = shapes.k_pages.extent[page_axis_];
    const std::size_t once = bytes_of(shapes.k_pages) + bytes_of(shapes.v_pages);
    if (once > 0) pieces_ = 1 + cold_bytes / once;
    args_.k_pages = pool(shapes.k_pages);
    args_.v_pages = pool(shapes.v_pages);
    args_.block_table = allocate(shapes.block_table);
    args_.seqlens_k = allocate(shaped(dtype::i32, {shapes.q.extent[0]}));
    shuffle_pages();
    const std::int64_t page_size =
        shapes.k_pages.extent[pool_axis(options_.pool_layout, 'T')];
    const std::int64_t full = pages_ > 0 ? shapes.block_table.extent[1] * page_size : 0;
    for (std::int64_t n = 0; n < args_.seqlens_k.elements(); ++n) {
      static_cast<std::int32_t*>(args_.seqlens_k.data)[n] = static_cast<std::int32_t>(full);
    }
    inputs_ = memory_.size();
    tensor_view out = shapes.q;
    out.extent[2] = shapes.v_pages.extent[3];
    args_.out = allocate(out);
    args_.lse = allocate(shaped(dtype::f32, {shapes.q.extent[0], shapes.q.extent[1]}));
  }

  const page_attention_options& options() const noexcept { return options_; }

  /// The arguments of a round; rounds cycle through the pieces.
  page_attention_args args(std::size_t round = 0) const {
    constexpr std::size_t prime = 7919;
    page_attention_args moved = args_;
    const auto piece = static_cast<std::int64_t>(round * prime % pieces_);
    for (tensor_view* view : {&moved.k_pages, &moved.v_pages}) {
      view->data =
          static_cast<std::byte*>(view->data) + piece * pages_ * view->stride[page_axis_] *
                                                    static_cast<std::int64_t>(size_of(view->type));
    }
    return moved;
  }

  /// The memory in which inputs and outputs lie, those of all rounds.
  std::vector<std::span<const std::byte>> input_blocks() const {
    std::vector<std::span<const std::byte>> list;
    for (std::size_t i = 0; i < inputs_; ++i)
      list.emplace_back(memory_[i].data(), memory_[i].size());
    return list;
  }
  std::vector<std::span<std::byte>> output_blocks() const {
    std::vector<std::span<std::byte>> list;
    for (std::size_t i = inputs_; i < memory_.size(); ++i) {
      list.emplace_back(memory_[i].data(), memory_[i].size());
    }
    return list;
  }

 private:
  static std::size_t bytes_of(const tensor_view& shape) {
    return static_cast<std::size_t>(shape.elements()) * size_of(shape.type);
  }

  tensor_view allocate(const tensor_view& shape) {
    tensor_view view = without_memory(shape);
    memory_.emplace_back(bytes_of(view));
    view.data = memory_.back().data();
    view.stride = contiguous_strides(view.extent, view.rank);
    return view;
  }

  /// Draws the first elements and repeats them behind: large tensors are made as fast as memory.
  tensor_view values(const tensor_view& shape) {
    constexpr std::int64_t most_drawn = std::int64_t{1} << 22;
    const tensor_view view = allocate(shape);
    const std::int64_t count = view.elements(), drawn = std::min(count, most_drawn);
    for (std::int64_t i = 0; i < drawn; ++i) {
      support::store(view, i, static_cast<double>(random_.bell()));
    }
    auto* const data = static_cast<std::byte*>(view.data);
    const std::size_t piece = static_cast<std::size_t>(drawn) * size_of(view.type);
    for (std::size_t done = piece; done < bytes_of(view); done += piece) {
      std::memcpy(data + done, data, std::min(piece, bytes_of(view) - done));
    }
    return view;
  }

  tensor_view pool(tensor_view shape) {
    shape.extent[page_axis_] *= static_cast<std::int64_t>(pieces_);
    tensor_view view = values(shape);
    view.extent[page_axis_] = pages_;
    return view;
  }

  /// Entry i of the table is page i of a shuffled pool; pools that are too small are shared.
  void shuffle_pages() {
    std::vector<std::int32_t> order(static_cast<std::size_t>(std::max<std::int64_t>(pages_, 1)));
    std::iota(order.begin(), order.end(), 0);
    for (std::size_t i = order.size(); i > 1; --i) {
      const auto other = static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(i)));
      std::swap(order[i - 1], order[other]);
    }
    auto* const numbers = static_cast<std::int32_t*>(args_.block_table.data);
    for (std::int64_t i = 0; i < args_.block_table.elements(); ++i) {
      numbers[i] = order[static_cast<std::size_t>(i) % order.size()];
    }
  }

  std::vector<buffer> memory_;  // inputs first
  std::size_t inputs_ = 0;
  page_attention_options options_;
  support::random_source random_;
  page_attention_args args_{};  // pools: the first piece
  std::size_t page_axis_ = 0;
  std::int64_t pages_ = 0;
  std::size_t pieces_ = 1;
};

}  // namespace tessera::bench
