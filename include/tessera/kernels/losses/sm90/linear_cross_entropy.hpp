// Cross entropy of logits that are a product of hidden rows and a weight, and its gradients, with
// wgmma. No logit is stored: tiles of them become sums, or gradients.
//
//   loss:        for each chunk of classes { tiles of logits: their sums; sums of each token }
//   gradients:   the same unless sums are given, then
//                for each chunk of classes { tiles of logits: their gradients;
//                  d_hidden += gradients weight^T; d_weight = hidden^T gradients; d_bias }
//
// Products are made of the pieces of grouped_matmul/sm90; their group is the tokens that count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/grouped_matmul/sm80/sums.hpp>
#include <tessera/kernels/grouped_matmul/sm90/finished_product.hpp>
#include <tessera/kernels/grouped_matmul/sm90/panel_launch.hpp>
#include <tessera/kernels/losses/sm80/linear_steps.hpp>
#include <tessera/kernels/losses/sm80/row_launch.hpp>
#include <tessera/kernels/losses/sm90/chunks.hpp>
#include <tessera/kernels/losses/sm90/logit_tiles.hpp>
#include <tessera/kernels/losses/sm90/tile_rows.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::losses::sm90 {

using grouped_matmul::sm80::product_args;
using grouped_matmul::sm80::row_table;
using shape = grouped_matmul::sm90::tile_shape<tile_columns>;
using sm80::count_of;
using sm80::row_launch;
using sm80::whole_chunks;

/// Device memory of a launch.
template <class Element>
struct tiled_memory : sm80::linear_token_memory<Element> {
  row_table table{.segments = row_table::segments_of(1)};
  std::int32_t* targets = nullptr;
  tile_sums sums{};
  Element* d_logits = nullptr;
  std::size_t bytes = 0;

  tiled_memory(const linear_cross_entropy_kernel_args& args, bool backward, bool smoothed,
               const class_chunks& chunks, std::byte* base) {
    const std::int64_t tokens = count_of(args.tokens);
    cuda::workspace_parts parts(base);
    this->place(args, backward, parts);
    parts.take(table.rows, table.segments + 1);
    parts.take(table.tiles, table.segments + 1);
    parts.take(targets, tokens);
    sums.tokens = tokens;
    parts.take(sums.of_target, tokens);
    parts.take(sums.before, tokens);
    // Sums of tiles are gone when gradients come.
    cuda::workspace_parts of_sums(base == nullptr ? nullptr : base + parts.bytes());
    of_sums.take(sums.sums, chunks.of_sums / tile_columns * tokens);
    if (smoothed) of_sums.take(sums.differences, chunks.of_sums / tile_columns * tokens);
    cuda::workspace_parts of_gradients(base == nullptr ? nullptr : base + parts.bytes());
    if (backward) of_gradients.take(d_logits, chunks.of_gradients * tokens);
    bytes = parts.bytes() + std::max(of_sums.bytes(), of_gradients.bytes());
  }
};

/// A launch of either direction.
template <dtype Type, bool Backward>
class linear_cross_entropy_row {
  using element = element_t<Type>;
  using steps_type = sm80::linear_steps<element>;
  static constexpr int shared_bytes = static_cast<int>(sizeof(typename shape::shared_memory));
  // Rows of weights lie across the summed axis of logits, along that of d_hidden.
  static constexpr auto sum =
      &grouped_matmul::sm90::multiply_and_finish<element, shape, false, true, sum_logits>;
  static constexpr auto differentiate =
      &grouped_matmul::sm90::multiply_and_finish<element, shape, false, true,
                                                 differentiate_logits<element>>;
  static constexpr auto add =
      &grouped_matmul::sm90::multiply_and_finish<element, shape, false, false, add_sums>;
  static constexpr auto store =
      &grouped_matmul::sm90::multiply_and_finish<element, shape, true, true, store_sums<element>>;

 public:
  linear_cross_entropy_row(const losses_kernel_args& args, int multiprocessors,
                           std::byte* workspace)
      : args_(args.linear_cross_entropy),
        multiprocessors_(multiprocessors),
        smoothed_(sm80::entropy_terms::of(args_.form, args_.tokens.classes).elsewhere != 0),
        rows_of_cluster_(grouped_matmul::sm90::rows_of_cluster<shape>(count_of(args_.tokens))),
        chunks_(class_chunks::of({count_of(args_.tokens), args_.columns, args_.tokens.classes},
                                 multiprocessors)),
        memory_(args_, Backward, smoothed_, chunks_, workspace) {}

  static auto entries() {
    const auto steps = steps_type::entries();
    if constexpr (Backward) {
      return cuda::joined(
          steps,
          std::array{cuda::entry_of(sum, shared_bytes), cuda::entry_of(differentiate, shared_bytes),
                     cuda::entry_of(add, shared_bytes), cuda::entry_of(store, shared_bytes),
                     cuda::entry_of(place), cuda::entry_of(&place_targets),
                     cuda::entry_of(&merge_tiles),
                     cuda::entry_of(&grouped_matmul::sm80::sum_rows)});
    } else {
      return cuda::joined(steps,
                          std::array{cuda::entry_of(sum, shared_bytes), cuda::entry_of(place),
                                     cuda::entry_of(&place_targets), cuda::entry_of(&merge_tiles)});
    }
  }
  std::size_t bytes() const { return memory_.bytes; }

  cudaError_t launch(cudaStream_t stream) {
    row_launch rows(args_.tokens, stream);
    const steps_type steps(args_, memory_, rows, lies_backwards());
    const std::int64_t tokens = count_of(args_.tokens);
    stream_ = stream;
    steps.gather();
    rows.enqueue(&place_targets, (tokens + sm80::token_threads - 1) / sm80::token_threads,
                 sm80::token_threads, 0, args_.tokens, memory_.active, memory_.targets);
    if (tokens > 0) rows.enqueue(place, 1, 32, 0, group(), memory_.table, rows_of_cluster_);
    if (!Backward || args_.logit_sums.data == nullptr) sum_all(rows);
    if constexpr (Backward) {
      steps.prepare_gradients();
      if (tokens == 0) {
        steps.clear_parameters();
      } else {
        make_gradients(rows);
        steps.scatter();
      }
    } else {
      steps.evaluate();
    }
    return rows.code();
  }

 private:
  static constexpr auto place = grouped_matmul::sm80::place_groups;

  /// Sums of all logits of each token.
  void sum_all(row_launch& rows) const {
    const std::int64_t tokens = count_of(args_.tokens), classes = args_.tokens.classes;
    for (std::int64_t first = 0; tokens > 0 && first < classes; first += chunks_.of_sums) {
      const tiled_classes chunk{first, std::min(chunks_.of_sums, classes - first), tile_columns};
      multiply(rows, sum, logits(chunk), sum_logits{head(chunk), memory_.targets, memory_.sums});
      rows.enqueue(&merge_tiles, (tokens + merging_tokens - 1) / merging_tokens,
                   merging_tokens * merging_warps, 0, memory_.sums, chunk, memory_.active,
                   static_cast<const std::int32_t*>(memory_.targets), memory_.known);
    }
  }

  void make_gradients(row_launch& rows) const {
    const std::int64_t tokens = count_of(args_.tokens), classes = args_.tokens.classes;
    rows.clear(memory_.d_hidden,
               static_cast<std::size_t>(tokens * whole_chunks(args_.columns)) * sizeof(float));
    for (std::int64_t first = 0; first < classes; first += chunks_.of_gradients) {
      const tiled_classes chunk{first, std::min(chunks_.of_gradients, classes - first),
                                tile_columns};
      multiply(rows, differentiate, logits(chunk),
               differentiate_logits<element>{head(chunk), memory_.gradients});
      multiply(rows, add, gradient_of_hidden(chunk), add_sums{});
      multiply(rows, store, gradient_of_weight(chunk), store_sums<element>{});
      if (args_.d_bias.data == nullptr) continue;
      grouped_matmul_kernel_args bias = group();
      bias.d_out = d_logits();
      bias.d_rhs_bias = sm80::part_of(args_.d_bias, first);
      bias.n = chunk.count;
      using namespace grouped_matmul::sm80;
      rows.enqueue(&sum_rows, ceil_div(bias.n, sum_columns), sum_threads, 0, bias, memory_.table);
    }
  }

  grouped_matmul_kernel_args group() const {
    return sm80::product_of_active(args_, memory_.active);
  }
  logit_head head(const tiled_classes& chunk) const {
    const grouped_matrix bias = sm80::part_of(args_.bias, chunk.first);
    return {bias.data, bias.type, args_.soft_cap, chunk.first};
  }
  grouped_matrix hidden() const {
    return sm80::rows_at(memory_.hidden, Type, whole_chunks(args_.columns));
  }
  grouped_matrix d_logits() const {
    return sm80::rows_at(memory_.d_logits, Type, chunks_.of_gradients);
  }

  // Products.

  /// Rows of the weight come one in front of the other. The copy unit only goes forward: columns of
  /// hidden rows are in that order then, and so are rows of both gradients.
  bool lies_backwards() const { return args_.weight.row < 0 && args_.columns > 1; }
  grouped_matrix in_order(const parameter_rows& of, std::int64_t first) const {
    grouped_matrix rows = sm80::part_of(of, first);
    if (args_.columns == 1) rows.row = whole_chunks(args_.tokens.classes);
    if (!lies_backwards()) return rows;
    const auto size = static_cast<std::int64_t>(size_of(of.type));
    rows.data = static_cast<std::byte*>(rows.data) + (args_.columns - 1) * of.row * size;
    rows.row = -of.row;
    return rows;
  }
  static grouped_matmul::sm80::factor operand(const grouped_matrix& matrix, bool across) {
    return {.matrix = matrix, .across = across, .direct = true};
  }
  product_args logits(const tiled_classes& chunk) const {
    return {.a = operand(hidden(), false),
            .b = operand(in_order(args_.weight, chunk.first), true),
            .to = d_logits(),
            .table = memory_.table,
            .rows = count_of(args_.tokens),
            .columns = chunk.count,
            .depth = args_.columns};
  }
  product_args gradient_of_hidden(const tiled_classes& chunk) const {
    return {.a = operand(d_logits(), false),
            .b = operand(in_order(args_.weight, chunk.first), false),
            .to = sm80::rows_at(memory_.d_hidden, dtype::f32, whole_chunks(args_.columns)),
            .table = memory_.table,
            .rows = count_of(args_.tokens),
            .columns = args_.columns,
            .depth = chunk.count};
  }
  product_args gradient_of_weight(const tiled_classes& chunk) const {
    return {.a = operand(hidden(), true),
            .b = operand(d_logits(), true),
            .to = in_order(args_.d_weight, chunk.first),
            .table = memory_.table,
            .sums_rows = true,
            .rows = args_.columns,
            .columns = chunk.count,
            .depth = count_of(args_.tokens)};
  }

  template <class Finish>
  void multiply(row_launch& rows, void (*kernel)(grouped_matmul::sm90::product_launch, Finish),
                const product_args& args, const Finish& finish) const {
    const int high =
        args.sums_rows ? grouped_matmul::sm90::rows_of_cluster<shape>(args.rows) : rows_of_cluster_;
    rows.add(grouped_matmul::sm90::launch_panels<shape>(kernel, args, high, multiprocessors_,
                                                        stream_, finish));
  }

  const linear_cross_entropy_kernel_args& args_;
  int multiprocessors_;
  bool smoothed_;
  int rows_of_cluster_;
  class_chunks chunks_;
  tiled_memory<element> memory_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace tessera::kernels::losses::sm90
