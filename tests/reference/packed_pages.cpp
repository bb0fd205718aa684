#include "packed_pages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera::reference {
namespace {

/// A view of four axes of another one.
tensor_view axes_of(const tensor_view& pool, const std::array<std::int64_t, 4>& extent,
                    const std::array<std::int64_t, 4>& stride) {
  tensor_view view = pool;
  view.rank = 4;
  view.extent = {}, view.stride = {};
  std::ranges::copy(extent, view.extent.begin());
  std::ranges::copy(stride, view.stride.begin());
  return view;
}

template <class Options>
tensor_view pool_of(const tensor_view& pool, const Options& options) {
  const auto axis = [&](char letter) { return pool_axis(options.pool_layout, letter); };
  const bool slots = options.pool_layout == page_layout::PT_HD;
  const std::int64_t page_size = page_tokens(pool, options);
  const std::int64_t pages = slots ? pool.extent[0] / page_size : pool.extent[axis('P')];
  const std::int64_t token_stride = pool.stride[slots ? 0 : axis('T')];
  return axes_of(
      pool, {pages, page_size, pool.extent[axis('H')], pool.extent[axis('D')]},
      {page_distance(pool, options), token_stride, pool.stride[axis('H')], pool.stride[axis('D')]});
}

/// Channel `first`, then every second one.
tensor_view channels_of(const tensor_view& pool, std::int64_t first, std::int64_t heads,
                        std::int64_t head_dim) {
  const bool lanes = pool.rank == 5;
  const std::int64_t of_group = lanes ? pool.extent[3] : 1;
  const auto place = [&](std::int64_t channel) {
    return channel / of_group * pool.stride[2] + (lanes ? channel % of_group * pool.stride[3] : 0);
  };
  const std::int64_t step = place(first + 2) - place(first);
  tensor_view view = axes_of(pool, {pool.extent[0], pool.extent[1], heads, head_dim},
                             {pool.stride[0], pool.stride[1], step, pool.stride[lanes ? 4 : 3]});
  if (view.data != nullptr) {
    view.data = static_cast<std::byte*>(view.data) +
                place(first) * static_cast<std::int64_t>(size_of(view.type));
  }
  return view;
}

template <class Args, class Options>
void set_common(const Args& args, const Options& options, paged_batch& batch) {
  batch.q = args.q;
  batch.block_table = args.block_table;
  batch.seqlens_k = args.seqlens_k;
  batch.cu_seqlens_q = args.cu_seqlens_q;
  batch.num_seqs = args.num_seqs;
  batch.k_new = args.k_new;
  batch.v_new = args.v_new;
  batch.sinks = args.sinks;
  batch.k_scales = args.k_scales;
  batch.v_scales = args.v_scales;
  batch.k_token_scales = args.k_token_scales;
  batch.v_token_scales = args.v_token_scales;
  batch.out = args.out;
  batch.lse = args.lse;
  batch.v_scale = options.v_scale.value_or(1.0);
  const double root = std::sqrt(static_cast<double>(args.q.extent[2]));
  batch.options.softmax_scale =
      options.softmax_scale.value_or(1.0 / root) * options.k_scale.value_or(1.0);
  batch.options.causal = true;
  batch.options.window_left = options.window_left;
  batch.options.logits_soft_cap = options.logits_soft_cap;
}

double largest_of(dtype type) {
  if (type == dtype::f16) return 65504;
  return type == dtype::bf16 ? 0x1.fep127 : std::numeric_limits<float>::max();
}

}  // namespace

paged_batch paged_batch::of(const unified_attention_args& args,
                            const unified_attention_options& options) {
  paged_batch batch;
  set_common(args, options, batch);
  batch.k_pages = pool_of(args.k_pages, options);
  batch.v_pages = pool_of(args.v_pages, options);
  batch.alibi_slopes = args.alibi_slopes;
  batch.qq_bias = args.qq_bias;
  return batch;
}

paged_batch paged_batch::of(const ragged_page_args& args, const ragged_page_options& options) {
  paged_batch batch;
  set_common(args, options, batch);
  const std::int64_t heads =
      args.k_new.present() ? args.k_new.extent[1] : args.kv_pages.extent[2] / 2;
  batch.k_pages = channels_of(args.kv_pages, 0, heads, args.q.extent[2]);
  batch.v_pages = channels_of(args.kv_pages, 1, heads, args.q.extent[2]);
  const bool grouped = args.kv_pages.rank == 5;
  batch.heads = grouped ? args.kv_pages.extent[2] * args.kv_pages.extent[3] / 2 : heads;
  batch.columns = args.kv_pages.extent[static_cast<std::size_t>(args.kv_pages.rank - 1)];
  batch.q_scale = options.q_scale;
  *batch.options.softmax_scale *= options.q_scale.value_or(1.0);
  return batch;
}

std::int64_t paged_batch::sequences() const {
  return num_seqs.present() ? entry(num_seqs, 0) : seqlens_k.extent[0];
}

std::int64_t paged_batch::page(std::int64_t n, std::int64_t j) const {
  return static_cast<std::int64_t>(
      read(block_table, n * block_table.stride[0] + j / page_size() * block_table.stride[1]));
}

std::int64_t paged_batch::offset(const tensor_view& pool, std::int64_t n, std::int64_t j,
                                 std::int64_t head) const {
  return page(n, j) * pool.stride[0] + j % page_size() * pool.stride[1] + head * pool.stride[2];
}

packed_pages::packed_pages(const paged_batch& batch, gathering what, bool as_stored)
    : batch_(batch), as_stored_(as_stored), options_(batch.options) {
  args_.q = batch.q;
  args_.out = batch.out;
  args_.lse = batch.lse;
  args_.sinks = batch.sinks;
  count_keys();
  const auto tokens = [&](const tensor_view& pool) {
    return shaped(gathered_type(pool.type), {cu_seqlens_k_.back(), pool.extent[2], pool.extent[3]});
  };
  args_.k = tokens(batch.k_pages);
  args_.v = tokens(batch.v_pages);
  if (what == gathering::nothing) return;
  if (batch.q_scale) divide_queries();
  gather({batch.k_pages, batch.k_new, batch.k_scales, batch.k_token_scales}, args_.k, keys_);
  gather({batch.v_pages, batch.v_new, batch.v_scales, batch.v_token_scales}, args_.v, values_);
}

void packed_pages::count_keys() {
  const std::int64_t sequences = batch_.sequences();
  cu_seqlens_k_ = {0};
  for (std::int64_t n = 0; n <= sequences; ++n) {
    cu_seqlens_q_.push_back(static_cast<std::int32_t>(batch_.row_begin(n)));
    if (n == sequences) break;
    cu_seqlens_k_.push_back(cu_seqlens_k_.back() + static_cast<std::int32_t>(batch_.length(n)));
  }
  args_.cu_seqlens_q = view(cu_seqlens_q_.data(), {sequences + 1});
  args_.cu_seqlens_k = view(cu_seqlens_k_.data(), {sequences + 1});
}

void packed_pages::divide_queries() {
  const tensor_view& from = batch_.q;
  args_.q.stride = contiguous_strides(from.extent, from.rank);
  queries_.resize(static_cast<std::size_t>(from.elements()) * size_of(from.type));
  args_.q.data = queries_.data();
  const double most = largest_of(from.type);
  const dtype pool = batch_.k_pages.type;
  for_each_element(from, [&](std::int64_t flat, std::int64_t offset) {
    double divided = read(from, offset) / *batch_.q_scale;
    if (!std::isnan(divided)) divided = std::clamp(divided, -most, most);
    if (is_code_type(pool)) {
      divided = nearest_element(pool, static_cast<double>(static_cast<float>(divided)));
    }
    store(args_.q, flat, divided);
  });
}

/// The last keys of a sequence are its rows of `fresh`, where there are some.
void packed_pages::gather(const pool_tensors& from_tensors, tensor_view& tokens,
                          std::vector<std::byte>& memory) const {
  const auto& [pool, fresh, scales, token_scales] = from_tensors;
  tokens.stride = contiguous_strides(tokens.extent, tokens.rank);
  const std::size_t size = size_of(tokens.type);
  memory.resize(std::max<std::size_t>(static_cast<std::size_t>(tokens.elements()) * size, 1));
  tokens.data = memory.data();
  std::int64_t to = 0;
  for (std::int64_t n = 0; n < batch_.sequences(); ++n) {
    const std::int64_t written = fresh.present() ? batch_.rows(n) : 0;
    const std::int64_t first_written = batch_.length(n) - written;
    for (std::int64_t j = 0; j < batch_.length(n); ++j) {
      for (std::int64_t h = 0; h < pool.extent[2]; ++h, to += pool.extent[3]) {
        const bool is_new = j >= first_written;
        const tensor_view& from = is_new ? fresh : pool;
        const std::int64_t token = batch_.row_begin(n) + j - first_written;
        const std::int64_t at =
            is_new ? token * fresh.stride[0] + h * fresh.stride[1] : batch_.offset(pool, n, j, h);
        const std::int64_t page_size = batch_.page_size();
        code_scales scale{scale_of_head(scales, h), 1.0,
                          rounded_type(as_stored_, token_scales, batch_.q.type)};
        if (from.type == pool.type) {
          scale.of_token =
              scale_of_slot(token_scales, page_size, batch_.page(n, j), j % page_size, h);
          gather_row(from, at, scale, tokens, to, pool.extent[3]);
          continue;
        }
        const float own =
            token_scales.present() ? scale_of_new_row(fresh, at, 1.0f, pool.type) : 1.0f;
        scale.of_token = static_cast<double>(own);
        for (std::int64_t d = 0; d < pool.extent[3]; ++d) {  // rounded as it is written
          store(tokens, to + d, scale(nearest_code(pool.type, read(from, at + d), own)));
        }
      }
    }
  }
}

}  // namespace tessera::reference
