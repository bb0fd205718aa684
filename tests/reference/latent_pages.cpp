// What tests need to know of the operations over latents in pages.
#include "latent_pages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/families/latent_attention/latent_decode_declaration.hpp>
#include <tessera/families/latent_attention/latent_ragged_declaration.hpp>

#include "../support/random.hpp"
#include "attention_outputs.hpp"
#include "flash_attention.hpp"
#include "operations.hpp"
#include "pool_elements.hpp"

namespace tessera::reference {
namespace {

latent_batch batch_of(const bound_call& call) {
  if (&call.form() == &latent_decode_table::form) {
    return latent_batch::of(*reinterpret_cast<const flash_mla_decode_args*>(call.tensors),
                            call.options_as<flash_mla_decode_options>());
  }
  return latent_batch::of(*reinterpret_cast<const latent_ragged_args*>(call.tensors),
                          call.options_as<latent_ragged_options>());
}

std::size_t number_of(const bound_call& call, std::string_view name) {
  return static_cast<std::size_t>(
      declared::index_of(call.form().tensors, name, &tensor_form::name));
}

/// The pool behind a call that writes it: the rows of new tokens, nothing else.
expected_tensor written_pool(const bound_call& call, const latent_batch& batch) {
  expected_tensor pool{
      .tensor = number_of(call, "kv_cache"), .values = to_doubles(batch.pool), .copied = true};
  tensor_view flat = batch.pool;
  flat.stride = contiguous_strides(flat.extent, flat.rank);
  latent_batch in_order = batch;
  in_order.pool = flat;
  for (std::int64_t n = 0; n < batch.in_use; ++n) {
    for (std::int64_t j = batch.length(n) - batch.written(n); j < batch.length(n); ++j) {
      for (std::int64_t d = 0; d < batch.latent + batch.rope; ++d) {
        const std::int64_t column = d < batch.latent ? d : d - batch.latent + batch.rope_column;
        pool.values[static_cast<std::size_t>(in_order.slot(n, j) + column)] = batch.key(n, j, d);
      }
    }
  }
  return pool;
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const latent_batch batch = batch_of(call);
  const gathered_latents<typename Precision::real> gathered(batch);
  flash_result result = flash_attention<Precision>(gathered.args(), batch.options);
  for (double& element : result.out) element *= batch.v_scale;
  for (double& size : result.out_size) size *= batch.v_scale;
  expected_tensors all =
      expected_out_and_lse(result, call, number_of(call, "out"), number_of(call, "lse"));
  if (batch.ckv_new.present()) all.push_back(written_pool(call, batch));
  return all;
}

bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  return fill_codes(call.tensors[index], random) ||
         reference_of("flash_attention")->fill(call, index, random);
}

/// Latents of sequences in use that some row sees and that were there before the call; queries and
/// new latents of rows that stand at one.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const latent_batch batch = batch_of(call);
  const std::string_view queries = batch.packed() ? "q_nope" : "q";
  seen_elements q(batch.q), q_pe(batch.q_pe), pool(batch.pool), ckv(batch.ckv_new),
      k_pe(batch.k_pe_new), scales(batch.scales), pe_pool(batch.pe_pool);
  const auto mark_row = [&](seen_elements& of, const tensor_view& rows, std::int64_t n,
                            std::int64_t token) {
    if (!rows.present()) return;
    for (std::int64_t h = 0; h < batch.heads(); ++h) {
      const std::int64_t row =
          batch.packed() ? (batch.row_begin(n) + token) * rows.stride[0] + h * rows.stride[1]
                         : n * rows.stride[0] + token * rows.stride[1] + h * rows.stride[2];
      of.mark(row, rows.extent[static_cast<std::size_t>(rows.rank - 1)]);
    }
  };
  for (std::int64_t n = 0; n < batch.in_use; ++n) {
    const std::int64_t rows = batch.rows(n), length = batch.length(n), context = length - rows;
    const std::int64_t first = batch.options.causal ? std::max<std::int64_t>(-context, 0) : 0;
    if (first >= rows || length == 0) continue;
    for (std::int64_t i = first; i < rows; ++i) {
      mark_row(q, batch.q, n, i);
      mark_row(q_pe, batch.q_pe, n, i);
      if (batch.written(n) == 0) continue;
      const std::int64_t token = batch.row_begin(n) + i;
      ckv.mark(token * batch.ckv_new.stride[0], batch.latent);
      k_pe.mark(token * batch.k_pe_new.stride[0], batch.rope);
    }
    const std::int64_t before = std::min(batch.options.window_left.value_or(length), length);
    for (std::int64_t j = std::max<std::int64_t>(std::max<std::int64_t>(context, 0) - before, 0);
         j < length - batch.written(n); ++j) {
      pool.mark(batch.slot(n, j), batch.latent);
      if (batch.scales.present()) {
        scales.mark(batch.slot_in(batch.scales, n, j), batch.scales.extent[2]);
      }
      if (batch.rope == 0) continue;
      if (batch.pe_pool.present()) {
        pe_pool.mark(batch.slot_in(batch.pe_pool, n, j), batch.rope);
      } else {
        pool.mark(batch.slot(n, j) + batch.rope_column, batch.rope);
      }
    }
  }
  seen[number_of(call, queries)] = std::move(q);
  seen[number_of(call, "kv_cache")] = std::move(pool);
  if (batch.scales.present()) seen[number_of(call, "kv_scale")] = std::move(scales);
  if (batch.pe_pool.present()) seen[number_of(call, "pe_cache")] = std::move(pe_pool);
  if (!batch.packed()) return;
  seen[number_of(call, "q_pe")] = std::move(q_pe);
  seen[number_of(call, "ckv")] = std::move(ckv);
  seen[number_of(call, "k_pe")] = std::move(k_pe);
}

/// Latents that nobody reads are no bytes.
void count(const bound_call& call, call_work& work) {
  const latent_batch batch = batch_of(call);
  const bool known =
      batch.seqlens_k.data != nullptr && (!batch.packed() || batch.cu_seqlens_q.data != nullptr);
  if (!known) return;
  double pairs = 0, unread = 0;
  for (std::int64_t n = 0; n < batch.in_use; ++n) {
    const std::int64_t rows = batch.rows(n), length = batch.length(n);
    const std::int64_t before = std::min(batch.options.window_left.value_or(length), length);
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t position = length - rows + i;
      const std::int64_t end = batch.options.causal ? position + 1 : length;
      const std::int64_t begin = std::max<std::int64_t>(position - before, 0);
      pairs += static_cast<double>(std::max<std::int64_t>(end - begin, 0));
    }
    const std::int64_t first = std::max<std::int64_t>(length - rows - before, 0);
    unread += static_cast<double>(rows > 0 ? first : length);
  }
  work.visible_pairs = pairs * static_cast<double>(batch.heads());
  work.flops = 2.0 * work.visible_pairs * static_cast<double>(2 * batch.latent + batch.rope);
  work.bytes -= unread * static_cast<double>(batch.pool.extent[3]) *
                static_cast<double>(size_of(batch.pool.type));
}

std::span<const std::string_view> independent(const bound_call&) {
  static constexpr std::array<std::string_view, 1> heads{"H"};
  return heads;
}

/// Rows of a type take latents of up to 512 columns and 64 of a rope part, by eights. Without v_dim
/// all columns of a latent are values.
std::int64_t decode_extent(const void* config, std::string_view dim) {
  const auto& row = *static_cast<const latent_attention_config*>(config);
  return row.type != dtype::none && dim == "W" ? 136 : 0;
}
std::int64_t ragged_extent(const void* config, std::string_view dim) {
  const auto& row = *static_cast<const latent_attention_config*>(config);
  if (row.type == dtype::none) return 0;
  return dim == "L" ? widest_latent : dim == "R" ? widest_rope : 0;
}

constexpr operation_reference reference_named(std::string_view op,
                                              std::int64_t (*row_extent)(const void*,
                                                                         std::string_view)) {
  return {.op = op,
          .exact = &evaluated<exact>,
          .as_stored = &evaluated<as_stored>,
          .fill = &fill,
          .mark_seen = &mark_seen,
          .row_extent = row_extent,
          .independent = &independent,
          .count = &count};
}
constexpr std::array table{reference_named("flash_mla_decode", &decode_extent),
                           reference_named("multi_latent_ragged_page_attention", &ragged_extent)};

}  // namespace

std::span<const operation_reference> latent_page_references() noexcept {
  return table;
}

}  // namespace tessera::reference
