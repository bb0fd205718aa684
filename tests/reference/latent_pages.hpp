// A call over latents in pages as the attention call that it stands for: new latents written, those
// of each sequence in use gathered, one key head whose first columns are also the value.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <vector>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/latent_attention/latent_decode_args.hpp>
#include <tessera/families/latent_attention/latent_ragged_args.hpp>

#include "elements.hpp"

namespace tessera::reference {

/// The tensors of any operation over latents in pages.
struct latent_batch {
  tensor_view q, q_pe;  ///< [entries,Sq,H,R] and behind its columns; packed [T,H,L], [T,H,R]
  tensor_view pool, scales, pe_pool, block_table, seqlens_k, cu_seqlens_q, ckv_new, k_pe_new, sinks,
      out, lse;
  std::int64_t in_use = 0;  ///< sequences
  std::int64_t latent = 0, rope = 0, rope_column = 0;
  std::int64_t page_size = 0;
  flash_attention_options options{};
  double v_scale = 1;

  static std::int64_t entry(const tensor_view& list, std::int64_t at) {
    return static_cast<std::int64_t>(read(list, at * list.stride[0]));
  }
  static std::int64_t padded(std::int64_t columns) { return (columns + 127) / 128 * 128; }

  static latent_batch of(const flash_mla_decode_args& args,
                         const flash_mla_decode_options& options) {
    latent_batch batch;
    batch.q = args.q;
    batch.pool = args.kv_cache;
    batch.scales = args.kv_scale;
    batch.pe_pool = args.pe_cache;
    batch.block_table = args.block_table;
    batch.seqlens_k = args.seqlens_k;
    batch.sinks = args.sinks;
    batch.out = args.out;
    batch.lse = args.lse;
    batch.in_use = args.q.extent[0];
    batch.latent = options.v_dim.value_or(args.q.extent[3]);
    batch.rope = args.q.extent[3] - batch.latent;
    batch.rope_column = batch.latent;
    batch.page_size = args.kv_cache.extent[1];
    batch.options.softmax_scale = options.softmax_scale;
    batch.options.causal = options.causal;
    return batch;
  }
  static latent_batch of(const latent_ragged_args& args, const latent_ragged_options& options) {
    latent_batch batch;
    batch.q = args.q_nope;
    batch.q_pe = args.q_pe;
    batch.pool = args.kv_cache;
    batch.block_table = args.block_tables;
    batch.seqlens_k = args.kv_lens;
    batch.cu_seqlens_q = args.cu_seqlens_q;
    batch.ckv_new = args.ckv;
    batch.k_pe_new = args.k_pe;
    batch.out = args.out;
    batch.lse = args.lse;
    const bool counted = args.distribution.present() && args.distribution.data != nullptr;
    batch.in_use = counted ? entry(args.distribution, 2) : args.kv_lens.extent[0];
    batch.latent = args.q_nope.extent[2];
    batch.rope = args.q_pe.extent[2];
    batch.rope_column = padded(batch.latent);
    batch.page_size = args.kv_cache.extent[1] * args.kv_cache.extent[2];
    batch.options.softmax_scale = options.softmax_scale.value_or(1.0) *
                                  options.q_scale.value_or(1.0) * options.k_scale.value_or(1.0);
    batch.options.causal = true;
    batch.options.window_left = options.window_left;
    batch.options.logits_soft_cap = options.logits_soft_cap;
    batch.v_scale = options.v_scale.value_or(1.0);
    return batch;
  }

  bool packed() const { return cu_seqlens_q.present(); }
  std::int64_t heads() const { return q.extent[packed() ? 1 : 2]; }
  std::int64_t length(std::int64_t n) const { return entry(seqlens_k, n); }
  std::int64_t row_begin(std::int64_t n) const { return packed() ? entry(cu_seqlens_q, n) : 0; }
  std::int64_t rows(std::int64_t n) const {
    return packed() ? row_begin(n + 1) - row_begin(n) : q.extent[1];
  }
  /// Rows of a sequence that are written: its last tokens.
  std::int64_t written(std::int64_t n) const { return ckv_new.present() ? rows(n) : 0; }
  /// Elements from the pool's first to the row of token j, and from that of another tensor.
  std::int64_t slot(std::int64_t n, std::int64_t j) const { return slot_in(pool, n, j); }
  std::int64_t slot_in(const tensor_view& rows, std::int64_t n, std::int64_t j) const {
    const auto page = static_cast<std::int64_t>(
        read(block_table, n * block_table.stride[0] + j / page_size * block_table.stride[1]));
    const std::int64_t in_page = j % page_size, lanes = pool.extent[2];
    return page * rows.stride[0] + in_page / lanes * rows.stride[1] +
           in_page % lanes * rows.stride[2];
  }
  /// Column d of the key of token j, as the call leaves it.
  double key(std::int64_t n, std::int64_t j, std::int64_t d) const {
    const std::int64_t first_written = length(n) - written(n);
    const bool of_rope = d >= latent;
    const std::int64_t column = of_rope ? d - latent : d;
    if (j < first_written && of_rope) {
      return pe_pool.present() ? read(pe_pool, slot_in(pe_pool, n, j) + column)
                               : read(pool, slot(n, j) + column + rope_column);
    }
    if (j < first_written) {
      const double number = read(pool, slot(n, j) + column);
      if (!scales.present()) return number;
      return number * read(scales, slot_in(scales, n, j) +
                                       column / (latent / scales.extent[2]) * scales.stride[2]);
    }
    const tensor_view& fresh = of_rope ? k_pe_new : ckv_new;
    return read(fresh, (row_begin(n) + j - first_written) * fresh.stride[0] + column);
  }
};

/// Of tensors in host memory. `Real` is the precision of the evaluation. Not copied: it points into
/// itself.
template <class Real>
class gathered_latents {
 public:
  explicit gathered_latents(const latent_batch& batch) : batch_(batch) {
    const std::int64_t width = batch.latent + batch.rope;
    gather_queries(width);
    if (batch.packed()) {
      gather_packed(width);
    } else {
      gather_dense(width);
    }
    args_.v = args_.k;
    args_.v.extent[static_cast<std::size_t>(args_.k.rank - 1)] = batch.latent;
    args_.sinks = batch.sinks;
    args_.out = batch.out;
    args_.lse = batch.lse;
  }
  gathered_latents(const gathered_latents&) = delete;
  gathered_latents& operator=(const gathered_latents&) = delete;

  const flash_attention_args& args() const noexcept { return args_; }

 private:
  static tensor_view made(std::initializer_list<std::int64_t> extent, std::vector<Real>& memory) {
    tensor_view view = shaped(std::is_same_v<Real, double> ? dtype::f64 : dtype::f32, extent);
    view.stride = contiguous_strides(view.extent, view.rank);
    memory.assign(static_cast<std::size_t>(view.elements()) + 1, Real{0});
    view.data = memory.data();
    return view;
  }

  /// Rope parts behind the other columns.
  void gather_queries(std::int64_t width) {
    const tensor_view& q = batch_.q;
    args_.q = batch_.packed() ? made({q.extent[0], q.extent[1], width}, q_)
                              : made({q.extent[0], q.extent[1], q.extent[2], width}, q_);
    const std::int64_t own = q.extent[static_cast<std::size_t>(q.rank - 1)];
    for_each_element(args_.q, [&](std::int64_t flat, std::int64_t) {
      const std::int64_t d = flat % width, row = flat / width;
      const auto offset = [&](const tensor_view& of) {
        const std::int64_t h = row % batch_.heads(), token = row / batch_.heads();
        if (batch_.packed()) return token * of.stride[0] + h * of.stride[1];
        return token / of.extent[1] * of.stride[0] + token % of.extent[1] * of.stride[1] +
               h * of.stride[2];
      };
      q_[static_cast<std::size_t>(flat)] = static_cast<Real>(
          d < own ? read(q, offset(q) + d) : read(batch_.q_pe, offset(batch_.q_pe) + d - own));
    });
  }

  void fill_key(std::int64_t n, std::int64_t j, std::int64_t row, std::int64_t width) {
    for (std::int64_t d = 0; d < width; ++d) {
      k_[static_cast<std::size_t>(row * width + d)] = static_cast<Real>(batch_.key(n, j, d));
    }
  }
  void gather_dense(std::int64_t width) {
    const std::int64_t keys = batch_.block_table.extent[1] * batch_.page_size;
    args_.k = made({batch_.in_use, keys, 1, width}, k_);
    args_.seqlens_k = batch_.seqlens_k;
    for (std::int64_t n = 0; n < batch_.in_use; ++n) {
      for (std::int64_t j = 0; j < batch_.length(n); ++j) fill_key(n, j, n * keys + j, width);
    }
  }
  void gather_packed(std::int64_t width) {
    cu_seqlens_k_ = {0};
    for (std::int64_t n = 0; n <= batch_.in_use; ++n) {
      cu_seqlens_q_.push_back(static_cast<std::int32_t>(batch_.row_begin(n)));
      if (n == batch_.in_use) break;
      cu_seqlens_k_.push_back(cu_seqlens_k_.back() + static_cast<std::int32_t>(batch_.length(n)));
    }
    args_.cu_seqlens_q = view(cu_seqlens_q_.data(), {batch_.in_use + 1});
    args_.cu_seqlens_k = view(cu_seqlens_k_.data(), {batch_.in_use + 1});
    args_.k = made({cu_seqlens_k_.back(), 1, width}, k_);
    for (std::int64_t n = 0; n < batch_.in_use; ++n) {
      const std::int64_t first = cu_seqlens_k_[static_cast<std::size_t>(n)];
      for (std::int64_t j = 0; j < batch_.length(n); ++j) fill_key(n, j, first + j, width);
    }
  }

  latent_batch batch_;
  flash_attention_args args_;
  std::vector<std::int32_t> cu_seqlens_q_, cu_seqlens_k_;
  std::vector<Real> q_, k_;
};

}  // namespace tessera::reference
