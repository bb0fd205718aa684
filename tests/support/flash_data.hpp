// The tensors of a generated case: values, strides, guard bands, and NaN or Inf wherever no row
// looks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <tessera/families/attention/args.hpp>

#include "../reference/visibility.hpp"
#include "flash_case.hpp"
#include "random.hpp"

namespace tessera::support {

/// Owns every tensor of a call; `args()` and `options()` stay valid as long as it lives.
class flash_data {
 public:
  /// Whether a mask functor lets row i of entry b and head h see key j.
  using visible_function = reference::visible_function;

  /// `visible`, if given, hides more than the tensors of the call do; what it hides is poisoned
  /// too.
  explicit flash_data(const flash_case& example, visible_function visible = {})
      : case_(example), visible_(std::move(visible)) {
    random_source random(example.seed);
    make_inputs(random);
    make_outputs();
    if (example.poison) poison_unseen();
  }
  flash_data(const flash_data&) = delete;
  flash_data& operator=(const flash_data&) = delete;

  const flash_case& shape() const noexcept { return case_; }
  const flash_attention_args& args() const noexcept { return args_; }
  const flash_attention_options& options() const noexcept { return case_.options; }

  /// Outputs back to the guard pattern.
  void reset_outputs() {
    for (guarded_tensor* output : outputs()) output->reset();
  }
  bool outputs_untouched() {
    for (guarded_tensor* output : outputs()) {
      if (!output->untouched()) return false;
    }
    return true;
  }
  /// Only elements of the outputs have been written.
  bool margins_intact() {
    for (guarded_tensor* output : outputs()) {
      if (!output->margins_intact()) return false;
    }
    return true;
  }
  /// Changes if any byte of an input, or around it, changes.
  std::uint64_t input_digest() const {
    std::uint64_t digest = 14695981039346656037u;
    for (const guarded_tensor* input :
         {&q_, &k_, &v_, &bias_pre_, &bias_post_, &mask_, &q_segments_, &kv_segments_, &sinks_,
          &q_lengths_, &k_lengths_}) {
      digest = input->digest(digest);
    }
    return digest;
  }
  std::array<guarded_tensor*, 5> outputs() {
    return {&out_, &lse_, &row_max_, &weights_, &dropout_mask_};
  }

 private:
  using extents = std::array<std::int64_t, max_rank>;
  using seen_elements = reference::seen_elements;

  void make_inputs(random_source& random) {
    make_token_tensor(q_, args_.q, case_.q_len, case_.q_heads, case_.head_dim, case_.q_layout);
    make_token_tensor(k_, args_.k, case_.kv_len, case_.kv_heads, case_.head_dim, case_.k_layout);
    make_token_tensor(v_, args_.v, case_.kv_len, case_.kv_heads, case_.v_head_dim, case_.v_layout);
    q_.fill([&](auto) { return random.bell() * static_cast<float>(case_.logit_size); });
    k_.fill([&](auto) { return random.bell(); });
    v_.fill([&](auto) { return random.bell(); });
    make_lengths();
    make_bias(bias_pre_, args_.bias_pre, case_.bias_pre, random);
    make_bias(bias_post_, args_.bias_post, case_.bias_post, random);
    make_mask(random);
    make_segments(random);
    make_sinks(random);
  }

  void make_token_tensor(guarded_tensor& tensor, tensor_view& view, std::int64_t rows,
                         std::int64_t heads, std::int64_t width, const tensor_layout& layout) {
    tensor = case_.packed
                 ? guarded_tensor(case_.type, 3, {rows, heads, width}, layout)
                 : guarded_tensor(case_.type, 4, {case_.batch, rows, heads, width}, layout);
    view = tensor.view();
  }

  void make_lengths() {
    const auto make = [&](guarded_tensor& tensor, tensor_view& view,
                          const std::vector<std::int64_t>& values) {
      tensor = guarded_tensor(dtype::i32, 1, {static_cast<std::int64_t>(values.size())});
      tensor.fill([&](std::int64_t n) { return values[static_cast<std::size_t>(n)]; });
      view = tensor.view();
    };
    const auto starts = [](const std::vector<std::int64_t>& lengths) {
      std::vector<std::int64_t> sums{0};
      for (const std::int64_t length : lengths) sums.push_back(sums.back() + length);
      return sums;
    };
    if (case_.packed) {
      make(q_lengths_, args_.cu_seqlens_q, starts(case_.q_lengths));
      make(k_lengths_, args_.cu_seqlens_k, starts(case_.k_lengths));
      return;
    }
    if (!case_.q_lengths.empty()) make(q_lengths_, args_.seqlens_q, case_.q_lengths);
    if (!case_.k_lengths.empty()) make(k_lengths_, args_.seqlens_k, case_.k_lengths);
  }

  static std::int64_t longest(const std::vector<std::int64_t>& lengths) {
    return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  }

  /// Packed score tensors are indexed by positions inside a sequence.
  extents score_extents(const score_axes& axes) const {
    const std::int64_t rows = case_.packed ? longest(case_.q_lengths) + axes.slack : case_.q_len;
    const std::int64_t keys = case_.packed ? longest(case_.k_lengths) + axes.slack : case_.kv_len;
    const extents whole{case_.batch, case_.q_heads, rows, keys};
    extents size{1, 1, 1, 1};
    for (std::size_t axis = 0; axis < 4; ++axis) {
      if (axes.spread[axis]) size[axis] = whole[axis];
    }
    return size;
  }

  /// Decides which elements of a score-shaped tensor hide: some at random, some whole rows.
  static bool hides(const score_axes& axes, const extents& size, std::int64_t flat,
                    std::uint64_t row_bits, random_source& random) {
    const std::int64_t row = size[3] > 0 ? flat / size[3] : 0;
    if (axes.hides_rows && ((row_bits >> (row % 64)) & 1u) != 0) return true;
    return random.chance(axes.hidden);
  }

  void make_bias(guarded_tensor& tensor, tensor_view& view, const std::optional<score_axes>& axes,
                 random_source& random) {
    if (!axes) return;
    const extents size = score_extents(*axes);
    tensor = guarded_tensor(axes->type, 4, size, case_.bias_layout);
    const std::uint64_t rows = random.bits() & random.bits();
    tensor.fill([&](std::int64_t flat) {
      return hides(*axes, size, flat, rows, random) ? -HUGE_VALF : 2.0f * random.bell();
    });
    view = tensor.view();
  }

  void make_mask(random_source& random) {
    if (!case_.mask) return;
    const extents size = score_extents(*case_.mask);
    mask_ = guarded_tensor(dtype::u8, 4, size, case_.mask_layout);
    const std::uint64_t rows = random.bits() & random.bits();
    mask_.fill([&](std::int64_t flat) -> std::int64_t {
      return hides(*case_.mask, size, flat, rows, random) ? 0 : random.pick({1, 1, 1, 2, 255});
    });
    args_.mask = mask_.view();
  }

  void make_segments(random_source& random) {
    if (case_.segments == segment_kind::none) return;
    const auto make = [&](guarded_tensor& tensor, tensor_view& view, std::int64_t length) {
      tensor = guarded_tensor(dtype::i32, 2, {case_.batch, length}, case_.segment_layout);
      std::int64_t id = 0;
      tensor.fill([&](std::int64_t) {
        if (random.chance(0.08)) id = random.pick({-1, 0, 1, 1, 2, 2, 7, -3});
        return id;
      });
      view = tensor.view();
    };
    make(q_segments_, args_.q_segment_ids, case_.q_len);
    if (case_.segments == segment_kind::separate) {
      make(kv_segments_, args_.kv_segment_ids, case_.kv_len);
    }
  }

  void make_sinks(random_source& random) {
    if (case_.sink_count == 0) return;
    sinks_ =
        guarded_tensor(dtype::f32, 2, {case_.sinks_per_head ? case_.q_heads : 1, case_.sink_count});
    sinks_.fill([&](std::int64_t) {
      if (case_.extreme_sinks && random.chance(0.5)) {
        return random.pick({1e4f, -1e4f, -HUGE_VALF, 60.0f});
      }
      return 2.0f * random.bell();
    });
    args_.sinks = sinks_.view();
  }

  void make_outputs() {
    make_token_tensor(out_, args_.out, case_.q_len, case_.q_heads, case_.v_head_dim,
                      case_.out_layout);
    const auto statistic = [&](guarded_tensor& tensor, tensor_view& view) {
      tensor = case_.packed
                   ? guarded_tensor(dtype::f32, 2, {case_.q_heads, case_.q_len}, case_.lse_layout)
                   : guarded_tensor(dtype::f32, 3, {case_.batch, case_.q_heads, case_.q_len},
                                    case_.lse_layout);
      view = tensor.view();
    };
    if (case_.wants_lse) statistic(lse_, args_.lse);
    if (case_.wants_row_max) statistic(row_max_, args_.row_max);
    const extents scores = score_extents({});
    if (case_.weights != dtype::none) {
      weights_ = guarded_tensor(case_.weights, 4, scores, case_.weights_layout);
      args_.weights = weights_.view();
    }
    if (case_.wants_dropout_mask) {
      dropout_mask_ = guarded_tensor(dtype::u8, 4, scores);
      args_.dropout_mask = dropout_mask_.view();
    }
  }

  void poison_unseen() {
    seen_elements q, k, v, pre, post;
    reference::mark_visible(args_, case_.options, {&q, &k, &v, &pre, &post}, visible_);
    poison(args_.q, q, case_.head_dim);
    poison(args_.k, k, case_.head_dim);
    poison(args_.v, v, case_.v_head_dim);
    poison(args_.bias_pre, pre, 1);
    poison(args_.bias_post, post, 1);
  }

  /// Overwrites unseen elements; `width` elements from each multiple of `width` share one flag.
  /// A bias of -inf decides what is seen, so it stays.
  static void poison(const tensor_view& view, const seen_elements& seen, std::int64_t width) {
    if (!view.present()) return;
    constexpr std::array<double, 3> poisons{std::numeric_limits<double>::quiet_NaN(), HUGE_VAL,
                                            -HUGE_VAL};
    reference::for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      if (seen[offset]) return;
      if (width == 1 && reference::read(view, offset) == -HUGE_VAL) return;
      const std::int64_t kind = (flat / width + flat % width) % (width == 1 ? 2 : 3);
      store(view, offset, poisons[static_cast<std::size_t>(kind)]);
    });
  }

  flash_case case_;
  visible_function visible_;
  flash_attention_args args_{};
  guarded_tensor q_, k_, v_, bias_pre_, bias_post_, mask_, q_segments_, kv_segments_, sinks_;
  guarded_tensor q_lengths_, k_lengths_;
  guarded_tensor out_, lse_, row_max_, weights_, dropout_mask_;
};

}  // namespace tessera::support
