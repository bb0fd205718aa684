// The tensors of a mean pooling call in guarded memory. Tokens that take no part (weight 0, behind
// the last sequence) hold NaN and Inf.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/api/mean_pooling.hpp>
#include <tessera/families/mean_pooling/registry.hpp>

#include "../reference/mean_pooling.hpp"
#include "compare.hpp"
#include "guarded_tensor.hpp"
#include "pooling_case.hpp"
#include "random.hpp"
#include "test_name.hpp"

namespace tessera::support {

inline status run(mean_pooling_op op, const mean_pooling_args& args,
                  const mean_pooling_options& options, const context& context = {}) {
  switch (op) {
    case mean_pooling_op::mean_pooling:
      return mean_pooling(args, options, context);
    case mean_pooling_op::mean_pooling_chunks:
      return mean_pooling_chunks(args, options, context);
    case mean_pooling_op::mean_pooling_backward:
      return mean_pooling_backward(args, options, context);
    case mean_pooling_op::mean_pooling_chunks_backward:
      return mean_pooling_chunks_backward(args, options, context);
  }
  return {status_code::invalid_argument, "op: is not an operation"};
}

class pooling_data {
 public:
  explicit pooling_data(const pooling_case& one) : case_(one) {
    const bool chunks = has_chunks(one.op);
    const bool backward = is_backward(one.op);
    make_offsets();
    make_mask();
    const int rank = chunks ? 4 : one.packed ? 2 : 3;
    std::array<std::int64_t, max_rank> shape{one.batch, one.tokens, one.heads, one.columns};
    if (rank == 3) shape = {one.batch, one.tokens, one.columns};
    if (rank == 2) shape = {one.tokens, one.columns};
    tokens_ = guarded_tensor(one.type, rank, shape, one.tokens_layout);
    std::array<std::int64_t, max_rank> means{one.batch, chunk_count(), one.heads, one.columns};
    if (!chunks) means = {one.packed ? std::int64_t(one.lengths.size()) : one.batch, one.columns};
    means_ = guarded_tensor(one.type, chunks ? 4 : 2, means, one.means_layout);
    if (one.with_x) x_ = guarded_tensor(one.type, rank, shape);
    random_source random(one.seed ^ 7);
    const float offset = random.chance(0.3) ? 30.0f : 0.0f;
    const auto next = [&](std::int64_t) { return random.bell() + offset; };
    args_.mask = mask_.view();
    args_.cu_seqlens = offsets_.view();
    if (backward) {
      args_.d_x = tokens_.view();
      args_.d_out = means_.view();
      args_.x = x_.view();
      means_.fill(next);
    } else {
      args_.x = tokens_.view();
      args_.out = means_.view();
      tokens_.fill(next);
      poison();
    }
  }

  const pooling_case& shape() const noexcept { return case_; }
  const mean_pooling_args& args() const noexcept { return args_; }
  mean_pooling_options options() const noexcept { return {.chunk_size = case_.chunk_size}; }
  mean_pooling_op op() const noexcept { return case_.op; }

  guarded_tensor& output() noexcept { return is_backward(case_.op) ? tokens_ : means_; }
  const guarded_tensor& input() const noexcept { return is_backward(case_.op) ? means_ : tokens_; }
  std::uint64_t input_digest() const {
    return offsets_.digest(mask_.digest(input().digest(x_.digest(1))));
  }

 private:
  void make_offsets() {
    if (!case_.packed) return;
    const auto count = static_cast<std::int64_t>(case_.lengths.size());
    offsets_ = guarded_tensor(dtype::i32, 1, {count + 1});
    std::int64_t sum = 0;
    offsets_.fill([&](std::int64_t n) {
      if (n > 0) sum += case_.lengths[static_cast<std::size_t>(n - 1)];
      return sum;
    });
  }

  void make_mask() {
    if (case_.mask == mask_content::none) return;
    mask_ = guarded_tensor(case_.mask_type, 2, {case_.batch, case_.tokens}, case_.mask_layout);
    random_source random(case_.seed ^ 3);
    mask_.fill([&](std::int64_t flat) {
      const std::int64_t token = flat % case_.tokens;
      const std::int64_t entry = flat / case_.tokens;
      if (case_.masked_out_entry && entry == 0) return 0.0;
      switch (case_.mask) {
        case mask_content::none:
          break;
        case mask_content::zeros_and_ones:
          return random.chance(0.5) ? 1.0 : 0.0;
        case mask_content::padding:
          return token < case_.tokens / (entry + 1) ? 1.0 : 0.0;
        case mask_content::weights:
          return static_cast<double>(random.below(4)) + (token == 0 ? 1.0 : 0.0);
        case mask_content::signed_weights:
          // Integers whose sum is far from 0, so that what is divided by is well determined.
          return case_.mask_type != dtype::u8 && random.chance(0.2) ? -1.0 : 2.0;
      }
      return 1.0;
    });
  }

  std::int64_t chunk_count() const {
    const auto chunks = [&](std::int64_t tokens) {
      return (tokens + case_.chunk_size - 1) / case_.chunk_size;
    };
    if (!case_.packed) return chunks(case_.tokens);
    return std::accumulate(
        case_.lengths.begin(), case_.lengths.end(), std::int64_t{0},
        [&](std::int64_t sum, std::int64_t length) { return sum + chunks(length); });
  }

  /// NaN and Inf where no token takes part.
  void poison() {
    random_source random(case_.seed ^ 5);
    const auto last = static_cast<std::size_t>(tokens_.view().rank - 1);
    const std::int64_t width =
        tokens_.view().extent[last] * (has_chunks(case_.op) ? case_.heads : 1);
    const std::int64_t used =
        std::accumulate(case_.lengths.begin(), case_.lengths.end(), std::int64_t{0});
    const tensor_view& view = tokens_.view();
    reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      const std::int64_t row = flat / width;
      const bool behind = case_.packed && row >= used;
      const bool masked =
          mask_.present() &&
          reference::read(mask_.view(), row / case_.tokens * mask_.view().stride[0] +
                                            row % case_.tokens * mask_.view().stride[1]) == 0.0;
      if (!behind && !masked) return;
      store(view, offset,
            random.chance(0.5) ? std::numeric_limits<double>::quiet_NaN()
                               : std::numeric_limits<double>::infinity());
    });
  }

  pooling_case case_;
  guarded_tensor tokens_, means_, mask_, offsets_, x_;
  mean_pooling_args args_{};
};

/// The verdict on one call: one sentence if its output is wrong; empty if it is right.
///
/// The scale of an element's error is the size of the terms that make it, its row's largest, at
/// least 1 % of the tensor's; the bound is twice the error of the definition in float, at least the
/// floor of the dtype. Errors below 2^-24 / floor, the smallest f16, never count.
class pooling_expectation {
 public:
  pooling_expectation(mean_pooling_op op, const mean_pooling_args& args,
                      const mean_pooling_options& options)
      : name_(is_backward(op) ? "d_x" : "out"),
        truth_(reference::mean_pooling<>(op, args, options)),
        peer_(reference::mean_pooling<reference::pooling_as_stored>(op, args, options)) {}

  std::string complaint(const tensor_view& ours) const {
    const double floor = floor_of(name_, ours.type);
    const auto last = static_cast<std::size_t>(ours.rank - 1);
    const std::size_t width =
        static_cast<std::size_t>(std::max<std::int64_t>(ours.extent[last], 1));
    const double least = std::max(0.01 * largest(truth_.sizes), 0x1p-24 / floor);
    std::vector<double> scale;
    for (std::size_t begin = 0; begin < truth_.sizes.size(); begin += width) {
      const std::span<const double> sizes(truth_.sizes);
      scale.push_back(
          std::max(least, largest(sizes.subspan(begin, std::min(width, sizes.size() - begin)))));
    }
    const auto unit = [&](std::size_t index) { return scale[index / width]; };
    const comparison peer = compare_in_units(peer_.values, truth_.values, unit);
    const comparison found = judged(
        compare_in_units(reference::to_doubles(ours), truth_.values, unit), peer.error, floor);
    return found.passed ? "" : sentence_of(found, name_, ours.shape());
  }

  const reference::pooling_result& truth() const noexcept { return truth_; }

 private:
  std::string_view name_;
  reference::pooling_result truth_;
  reference::pooling_result peer_;
};

}  // namespace tessera::support
