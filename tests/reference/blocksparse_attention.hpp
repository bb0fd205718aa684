// The plain definition of blocksparse attention: who sees whom, pair by pair, as the mask of a
// plain attention call whose views have heads behind tokens.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <tessera/families/attention_backward/args.hpp>
#include <tessera/families/sparse_attention/blocksparse_args.hpp>
#include <tessera/families/sparse_attention/blocksparse_options.hpp>

#include "elements.hpp"

namespace tessera::reference {

/// The same tensor with its second and third axis exchanged.
inline tensor_view with_heads_last(tensor_view view) {
  std::swap(view.extent[1], view.extent[2]);
  std::swap(view.stride[1], view.stride[2]);
  return view;
}

/// A blocksparse call, forward or backward, as one of plain attention.
template <class Args>
class blocksparse_call {
 public:
  blocksparse_call(const Args& args, const blocksparse_attention_options& options)
      : args_(args), options_(options) {
    const std::int64_t batch = args.q.extent[0], heads = args.q.extent[1];
    const std::int64_t rows = args.q.extent[2], keys = args.k.extent[2];
    seen_.reserve(static_cast<std::size_t>(batch * heads * rows * keys));
    for (std::int64_t b = 0; b < batch; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t j = 0; j < keys; ++j) seen_.push_back(sees(b, h, i, j) ? 1 : 0);
        }
      }
    }
  }

  flash_attention_args forward() {
    return {.q = with_heads_last(args_.q),
            .k = with_heads_last(args_.k),
            .v = with_heads_last(args_.v),
            .mask = mask(),
            .sinks = args_.sinks,
            .out = with_heads_last(args_.out),
            .lse = args_.lse};
  }
  attention_backward_args backward() {
    return {.q = with_heads_last(args_.q),
            .k = with_heads_last(args_.k),
            .v = with_heads_last(args_.v),
            .mask = mask(),
            .sinks = args_.sinks,
            .out = with_heads_last(args_.out),
            .lse = args_.lse,
            .d_out = with_heads_last(args_.d_out),
            .d_lse = args_.d_lse,
            .d_q = with_heads_last(args_.d_q),
            .d_k = with_heads_last(args_.d_k),
            .d_v = with_heads_last(args_.d_v),
            .d_sinks = args_.d_sinks};
  }
  flash_attention_options options() const {
    return {.softmax_scale = options_.softmax_scale, .logits_soft_cap = options_.logits_soft_cap};
  }

 private:
  tensor_view mask() {
    return tessera::view(
        seen_.data(), {args_.q.extent[0], args_.q.extent[1], args_.q.extent[2], args_.k.extent[2]});
  }

  bool sees(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const {
    const bool bottom_right = options_.causal_alignment == alignment::bottom_right;
    const std::int64_t shift = bottom_right ? args_.k.extent[2] - args_.q.extent[2] : 0;
    double row = static_cast<double>(i + shift), key = static_cast<double>(j);
    if (args_.q_positions.present()) {
      row = at(args_.q_positions, b, i);
      key = at(args_.kv_positions, b, j);
    }
    if (options_.causal && key > row) return false;
    const auto beyond = [](double distance, const std::optional<std::int64_t>& reach) {
      return reach && distance > static_cast<double>(*reach);
    };
    if (beyond(row - key, options_.window_left) || beyond(key - row, options_.window_right)) {
      return false;
    }
    if (options_.chunk_size) {
      const auto size = static_cast<double>(*options_.chunk_size);
      if (std::floor(row / size) != std::floor(key / size)) return false;
    }
    double shown = 1;  // of the block: 0 hides it, of one that is 2 the mask is not looked at
    if (args_.block_mask.present()) {
      shown = at(args_.block_mask, b, h, i / options_.block_q, j / options_.block_k);
    }
    if (shown == 0) return false;
    if (args_.mask.present() && shown != 2 && at(args_.mask, b, h, i, j) == 0) return false;
    if (!args_.q_segment_ids.present()) return true;
    const tensor_view& of_keys =
        args_.kv_segment_ids.present() ? args_.kv_segment_ids : args_.q_segment_ids;
    const double id = at(args_.q_segment_ids, b, i);
    return id >= 0 && id == at(of_keys, b, j);
  }

  const Args& args_;
  const blocksparse_attention_options& options_;
  std::vector<std::uint8_t> seen_;
};

}  // namespace tessera::reference
