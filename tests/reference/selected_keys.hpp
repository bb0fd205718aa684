// Which keys each token of a call of deepseek_attn sees, and the call of flash_mla that this makes
// of it: one whose mask leaves nothing else.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <tessera/families/latent_attention/deepseek_attn_args.hpp>
#include <tessera/families/latent_attention/deepseek_attn_options.hpp>
#include <tessera/families/latent_attention/flash_mla_declaration.hpp>
#include <tessera/spec/check.hpp>

#include "elements.hpp"

namespace tessera::reference {

/// Of tensors in host memory.
class selected_keys {
 public:
  selected_keys(const deepseek_attn_args& args, const deepseek_attn_options& options)
      : args_(args), options_(options) {
    const std::int64_t entries = args.q.extent[0], length = args.q.extent[1];
    for (std::int64_t b = 0; b < entries; ++b) {
      for (std::int64_t t = 0; t < length; ++t) {
        lists_.push_back(args.indices.present() ? given(b, t) : largest(b, t));
      }
    }
  }

  /// The keys of token `number` of all entries, ascending.
  const std::vector<std::int64_t>& of(std::size_t number) const { return lists_[number]; }
  std::size_t tokens() const { return lists_.size(); }

 private:
  std::int64_t visible(std::int64_t t) const { return options_.causal ? t + 1 : args_.q.extent[1]; }

  std::vector<std::int64_t> given(std::int64_t b, std::int64_t t) const {
    std::vector<std::int64_t> keys;
    for (std::int64_t s = 0; s < args_.indices.extent[2]; ++s) {
      const auto key = static_cast<std::int64_t>(read(
          args_.indices,
          b * args_.indices.stride[0] + t * args_.indices.stride[1] + s * args_.indices.stride[2]));
      if (key >= 0 && key < visible(t)) keys.push_back(key);
    }
    std::ranges::sort(keys);
    keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
    return keys;
  }

  std::vector<std::int64_t> largest(std::int64_t b, std::int64_t t) const {
    std::vector<double> scores;
    for (std::int64_t key = 0; key < visible(t); ++key) scores.push_back(score(b, t, key));
    std::vector<std::int64_t> keys(scores.size());
    std::iota(keys.begin(), keys.end(), std::int64_t{0});
    std::ranges::stable_sort(keys, std::ranges::greater(), [&](std::int64_t key) {
      return scores[static_cast<std::size_t>(key)];
    });
    keys.resize(std::min(keys.size(), static_cast<std::size_t>(options_.index_topk)));
    if (options_.force_self && std::ranges::find(keys, t) == keys.end()) keys.push_back(t);
    std::ranges::sort(keys);
    return keys;
  }

  /// Without a positive index_scale, which changes no order: sums of whole numbers stay exact.
  double score(std::int64_t b, std::int64_t t, std::int64_t key) const {
    const double scale = options_.index_scale.value_or(1.0);
    const double sign = scale > 0 ? 1.0 : scale < 0 ? -1.0 : 0.0;
    const tensor_view &q = args_.q_index, &k = args_.k_index, &w = args_.index_weights;
    double sum = 0;
    for (std::int64_t j = 0; j < q.extent[2]; ++j) {
      double product = 0;
      for (std::int64_t d = 0; d < q.extent[3]; ++d) {
        product += read(q, b * q.stride[0] + t * q.stride[1] + j * q.stride[2] + d) *
                   read(k, b * k.stride[0] + key * k.stride[1] + d);
      }
      const double weight = read(w, b * w.stride[0] + t * w.stride[1] + j);
      sum += scale_at(args_.q_index_scale, {b, t, j}) * weight * std::max(0.0, sign * product);
    }
    const double score = scale_at(args_.k_index_scale, {b, key}) * sum;
    return std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
  }
  static double scale_at(const tensor_view& scales, const std::array<std::int64_t, 3>& at) {
    if (!scales.present()) return 1.0;
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * scales.stride[axis];
    return read(scales, offset);
  }

  const deepseek_attn_args& args_;
  const deepseek_attn_options& options_;
  std::vector<std::vector<std::int64_t>> lists_;
};

/// Not copied: the call points into itself.
class masked_call {
 public:
  masked_call(const deepseek_attn_args& args, const deepseek_attn_options& options,
              flash_mla_op direction)
      : keys_(args, options) {
    const std::int64_t entries = args.q.extent[0], length = args.q.extent[1];
    const std::int64_t heads = args.mask.present() ? args.mask.extent[1] : 1;
    mask_.resize(static_cast<std::size_t>(entries * heads * length * length) + 1);
    for (std::int64_t b = 0; b < entries; ++b) {
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t t = 0; t < length; ++t) {
          for (const std::int64_t key : keys_.of(static_cast<std::size_t>(b * length + t))) {
            const std::int64_t pair = ((b * heads + h) * length + t) * length + key;
            mask_[static_cast<std::size_t>(pair)] = shows(args.mask, b, h, t, key);
          }
        }
      }
    }
    options_ = {.softmax_scale = options.softmax_scale,
                .causal = options.causal,
                .window_left = options.window_left,
                .window_right = options.window_right,
                .logits_soft_cap = options.logits_soft_cap,
                .dropout_probability = options.dropout_probability,
                .dropout_seed = options.dropout_seed};
    args_ = {.ckv = args.ckv,
             .w_kc = args.w_kc,
             .w_vc = args.w_vc,
             .k_pe = args.k_pe,
             .q_pe = args.q_pe,
             .q = args.q,
             .bias_post = args.bias_post,
             .mask = view(mask_.data(), {entries, heads, length, length}),
             .sinks = args.sinks,
             .out = args.out,
             .lse = args.lse,
             .d_out = args.d_out,
             .d_lse = args.d_lse,
             .d_ckv = args.d_ckv,
             .d_w_kc = args.d_w_kc,
             .d_w_vc = args.d_w_vc,
             .d_k_pe = args.d_k_pe,
             .d_q_pe = args.d_q_pe,
             .d_q = args.d_q,
             .d_bias_post = args.d_bias_post,
             .d_sinks = args.d_sinks};
    call_ = {.op = &flash_mla_table::operations[static_cast<std::size_t>(direction)],
             .tensors = reinterpret_cast<const tensor_view*>(&args_),
             .options = &options_};
    status refused;
    static_cast<void>(checks::are_shapes(call_, 0, refused));
  }
  masked_call(const masked_call&) = delete;
  masked_call& operator=(const masked_call&) = delete;

  const selected_keys& keys() const { return keys_; }
  const bound_call& call() const { return call_; }

 private:
  /// Of the mask that the call itself has, whose axes are one long where they are all the same.
  static std::uint8_t shows(const tensor_view& mask, std::int64_t b, std::int64_t h, std::int64_t t,
                            std::int64_t key) {
    if (!mask.present()) return 1;
    const std::array<std::int64_t, 4> at{b, h, t, key};
    std::int64_t offset = 0;
    for (std::size_t axis = 0; axis < at.size(); ++axis) {
      if (mask.extent[axis] > 1) offset += at[axis] * mask.stride[axis];
    }
    return read(mask, offset) != 0 ? 1 : 0;
  }

  selected_keys keys_;
  std::vector<std::uint8_t> mask_;
  flash_mla_args args_;
  flash_mla_options options_;
  bound_call call_;
};

}  // namespace tessera::reference
