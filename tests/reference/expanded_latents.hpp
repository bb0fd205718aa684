// A call of flash_mla as the attention call that it stands for: keys and values of each head made
// of the latents, rope parts behind the other columns, all in the precision of the evaluation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/flash_mla_args.hpp>
#include <tessera/families/latent_attention/flash_mla_options.hpp>

#include "elements.hpp"

namespace tessera::reference {

inline flash_attention_options attention_options(const flash_mla_options& options) {
  flash_attention_options same;
  same.softmax_scale = options.softmax_scale;
  same.causal = options.causal;
  same.window_left = options.window_left;
  same.window_right = options.window_right;
  same.logits_soft_cap = options.logits_soft_cap;
  same.dropout_probability = options.dropout_probability;
  same.dropout_seed = options.dropout_seed;
  return same;
}

/// Of rows for the matrix unit whose keys and values are tensors; see
/// operation_reference::row_extent.
inline std::int64_t dense_row_extent(const void* config, std::string_view dim) {
  const auto& row = *static_cast<const latent_attention_config*>(config);
  const bool dense = row.type != dtype::none && row.form != latent_form::absorbed;
  return dense && dim == "dv" ? dense_value : 0;
}

/// Of tensors in host memory. `Real` is what keys and values are computed in, `stored` the type
/// that they are rounded to. Not copied: it points into itself.
template <class Real>
class expanded_latents {
 public:
  explicit expanded_latents(const flash_mla_args& args, dtype stored = dtype::f64)
      : given_(args),
        stored_(stored),
        rope_(args.k_pe.present() ? args.k_pe.extent[2] : 0),
        nope_(args.w_kc.extent[2]) {
    const std::int64_t entries = args.q.extent[0], length = args.q.extent[1];
    const std::int64_t heads = args.q.extent[2], kv_heads = args.w_kc.extent[1];
    args_.q = made({entries, length, heads, nope_ + rope_}, q_);
    args_.k = made({entries, length, kv_heads, nope_ + rope_}, k_);
    args_.v = made({entries, length, kv_heads, args.w_vc.extent[2]}, v_);
    args_.bias_post = args.bias_post;
    args_.mask = args.mask;
    args_.sinks = args.sinks;
    args_.out = args.out;
    args_.lse = args.lse;
    for (std::int64_t b = 0; b < entries; ++b) {
      for (std::int64_t s = 0; s < length; ++s) {
        for (std::int64_t h = 0; h < heads; ++h) fill_query(b, s, h);
        for (std::int64_t g = 0; g < kv_heads; ++g) fill_key(b, s, g);
      }
    }
  }
  expanded_latents(const expanded_latents&) = delete;
  expanded_latents& operator=(const expanded_latents&) = delete;

  const flash_attention_args& args() const noexcept { return args_; }
  std::int64_t rope() const noexcept { return rope_; }
  std::int64_t nope() const noexcept { return nope_; }

 private:
  static tensor_view made(std::initializer_list<std::int64_t> extent, std::vector<Real>& memory) {
    tensor_view view = shaped(std::is_same_v<Real, double> ? dtype::f64 : dtype::f32, extent);
    view.stride = contiguous_strides(view.extent, view.rank);
    memory.resize(static_cast<std::size_t>(view.elements()) + 1);
    view.data = memory.data();
    return view;
  }
  static Real& element(const tensor_view& view, std::int64_t b, std::int64_t s, std::int64_t h,
                       std::int64_t d) {
    return static_cast<Real*>(
        view.data)[b * view.stride[0] + s * view.stride[1] + h * view.stride[2] + d];
  }
  static Real given(const tensor_view& view, std::int64_t i, std::int64_t j, std::int64_t k) {
    return static_cast<Real>(
        read(view, i * view.stride[0] + j * view.stride[1] + k * view.stride[2]));
  }

  void fill_query(std::int64_t b, std::int64_t s, std::int64_t h) {
    const tensor_view& q = given_.q;
    const std::int64_t row = b * q.stride[0] + s * q.stride[1] + h * q.stride[2];
    const std::int64_t own = q.extent[3];
    for (std::int64_t d = 0; d < nope_ + rope_; ++d) {
      element(args_.q, b, s, h, d) =
          d < own ? static_cast<Real>(read(q, row + d)) : given(given_.q_pe, b, s, d - own);
    }
  }

  void fill_key(std::int64_t b, std::int64_t s, std::int64_t g) {
    const auto product = [&](const tensor_view& weights, std::int64_t d) {
      Real sum = 0;
      for (std::int64_t r = 0; r < given_.ckv.extent[2]; ++r) {
        sum += given(given_.ckv, b, s, r) * given(weights, r, g, d);
      }
      return stored_ == dtype::f64
                 ? sum
                 : static_cast<Real>(rounded_to(stored_, static_cast<float>(sum)));
    };
    for (std::int64_t d = 0; d < nope_; ++d) {
      element(args_.k, b, s, g, d) = product(given_.w_kc, d);
    }
    for (std::int64_t d = 0; d < rope_; ++d) {
      element(args_.k, b, s, g, nope_ + d) = given(given_.k_pe, b, s, d);
    }
    for (std::int64_t d = 0; d < given_.w_vc.extent[2]; ++d) {
      element(args_.v, b, s, g, d) = product(given_.w_vc, d);
    }
  }

  const flash_mla_args& given_;
  dtype stored_;
  std::int64_t rope_, nope_;
  flash_attention_args args_;
  std::vector<Real> q_, k_, v_;
};

}  // namespace tessera::reference
