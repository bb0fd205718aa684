// What tests need to know of the operations over batches of sequences with keys in pages.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/ragged_page_declaration.hpp>
#include <tessera/families/attention/unified_declaration.hpp>

#include "../support/random.hpp"
#include "attention_outputs.hpp"
#include "flash_attention.hpp"
#include "operations.hpp"
#include "packed_pages.hpp"
#include "row_facts.hpp"
#include "sampled_rows.hpp"
#include "visible_pairs.hpp"

namespace tessera::reference {
namespace {

bool has_two_pools(const bound_call& call) {
  return &call.form() == &unified_table::form || &call.form() == &unified_table::written_form;
}

paged_batch batch_of(const bound_call& call) {
  if (has_two_pools(call)) {
    return paged_batch::of(*reinterpret_cast<const unified_attention_args*>(call.tensors),
                           call.options_as<unified_attention_options>());
  }
  return paged_batch::of(*reinterpret_cast<const ragged_page_args*>(call.tensors),
                         call.options_as<ragged_page_options>());
}

std::size_t number_of(const bound_call& call, std::string_view name) {
  const auto tensors = call.form().tensors;
  const auto known = std::ranges::find(tensors, name, &tensor_form::name);
  return static_cast<std::size_t>(known - tensors.begin());
}

/// The new tokens of a batch to its pools, and the scales of their slots.
void write_new_tokens(const paged_batch& batch) {
  const auto write = [&](const tensor_view& pool, const tensor_view& fresh,
                         const tensor_view& scales) {
    const std::int64_t width = std::max(batch.columns, fresh.extent[2]);
    const std::int64_t heads = std::max(batch.heads, fresh.extent[1]);
    for (std::int64_t n = 0; n < batch.sequences(); ++n) {
      for (std::int64_t i = 0; i < batch.rows(n); ++i) {
        const std::int64_t position = batch.length(n) - batch.rows(n) + i;
        for (std::int64_t h = 0; h < heads; ++h) {
          const std::int64_t token = batch.row_begin(n) + i;
          const std::int64_t to = batch.offset(pool, n, position, h);
          const std::int64_t from = token * fresh.stride[0] + h * fresh.stride[1];
          const std::int64_t columns = h < fresh.extent[1] ? fresh.extent[2] : 0;
          const bool same = pool.type == fresh.type;
          if (same) gather_row(fresh, from, {}, pool, to, columns);
          float scale = 1;
          if (!same && scales.present() && columns > 0) {
            scale = scale_of_new_row(fresh, from, 1.0f, pool.type);
            store(scales,
                  place_of_scale(scales, batch.page_size(), batch.page(n, position),
                                 position % batch.page_size(), h),
                  static_cast<double>(scale));
          }
          for (std::int64_t d = same ? columns : 0; d < width; ++d) {
            store(pool, to + d,
                  d < columns ? nearest_code(pool.type, read(fresh, from + d), scale) : 0.0);
          }
        }
      }
    }
  };
  write(batch.k_pages, batch.k_new, batch.k_token_scales);
  write(batch.v_pages, batch.v_new, batch.v_token_scales);
}

/// The pools that a call writes, as they are behind it.
expected_tensors written_pools(const bound_call& call) {
  expected_tensors all;
  const auto forms = call.form().tensors;
  std::vector<tensor_view> tensors(call.tensors, call.tensors + forms.size());
  std::vector<std::vector<std::byte>> memory(forms.size());
  for (std::size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].use != tensor_use::input_and_output || !call.has(i)) continue;
    const tensor_view pool = tensors[i];
    const std::size_t size = size_of(pool.type);
    memory[i].resize(std::max<std::size_t>(static_cast<std::size_t>(pool.elements()) * size, 1));
    tensors[i].data = memory[i].data();
    tensors[i].stride = contiguous_strides(pool.extent, pool.rank);
    for_each_element(pool, [&](std::int64_t flat, std::int64_t offset) {
      std::memcpy(
          memory[i].data() + static_cast<std::size_t>(flat) * size,
          static_cast<const std::byte*>(pool.data) + offset * static_cast<std::int64_t>(size),
          size);
    });
    all.push_back({.tensor = i, .values = {}, .copied = true});
  }
  if (all.empty()) return all;
  bound_call copy = call;
  copy.tensors = tensors.data();
  write_new_tokens(batch_of(copy));
  for (expected_tensor& pool : all) pool.values = to_doubles(tensors[pool.tensor]);
  return all;
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const paged_batch batch = batch_of(call);
  const packed_pages packed(batch, gathering::keys_and_values,
                            std::is_same_v<Precision, as_stored>);
  const flash_result result = with_rounded_values(
      multiplied(flash_attention<Precision>(packed.args(), packed.options(), packed.hooks()),
                 batch.v_scale),
      batch.v_token_scales, batch.q.type);
  expected_tensors all =
      expected_out_and_lse(result, call, number_of(call, "out"), number_of(call, "lse"));
  for (expected_tensor& pool : written_pools(call)) all.push_back(std::move(pool));
  return all;
}

/// A few masks among the new tokens, slopes of any size.
bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  if (fill_codes(call.tensors[tensor], random)) return true;
  const std::string_view name = call.form().tensors[tensor].name;
  if (fill_token_scales(name, call.tensors[tensor], random)) return true;
  const bool slopes = name == "alibi_slopes";
  if (!slopes && name != "qq_bias") return false;
  const double hidden = random.pick({0.0, 0.1, 0.4});
  for_each_element(call.tensors[tensor], [&](std::int64_t, std::int64_t offset) {
    const double bell = static_cast<double>(random.bell());
    const bool hides = !slopes && random.chance(hidden);
    store(call.tensors[tensor], offset,
          hides    ? -HUGE_VAL
          : slopes ? bell * random.pick({1.0, 0.25, 0.0078125})
                   : 2.0 * bell);
  });
  return true;
}

/// Groups of four channels lie four lanes apart.
bool has_tied_strides(const bound_call& call, std::size_t tensor) {
  return call.tensors[tensor].rank == 5 && is_code_type(call.tensors[tensor].type);
}

/// Slopes and biases as models have them.
double ordinary(const bound_call& call, std::size_t tensor, std::int64_t at,
                support::random_source& random) {
  if (call.form().tensors[tensor].name == "alibi_slopes") {
    return std::exp2(-8.0 * static_cast<double>(at + 1) /
                     static_cast<double>(call.tensors[tensor].extent[0]));
  }
  const dtype type = call.tensors[tensor].type;
  const double bell = static_cast<double>(random.bell());
  return type == dtype::i8 ? nearest_element(type, 32.0 * bell) : bell;
}

struct key_of_sequence {
  std::int64_t sequence, key;
};
void mark_scales_of_slot(const bound_call& call, const paged_batch& batch,
                         const std::array<std::size_t, 2>& tensors, key_of_sequence at,
                         seen_tensors seen) {
  const std::int64_t page_size = batch.page_size();
  for (const std::size_t tensor : tensors) {
    for (std::int64_t h = 0; call.has(tensor) && h < batch.k_pages.extent[2]; ++h) {
      seen[tensor].mark(place_of_scale(call.tensors[tensor], page_size,
                                       batch.page(at.sequence, at.key), at.key % page_size, h));
    }
  }
}

/// The keys of each sequence inside the windows of its rows that were there before the call, and
/// the queries that stand at keys.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const paged_batch batch = batch_of(call);
  seen_elements& queries = seen[number_of(call, "q")];
  queries = seen_elements(batch.q);
  const bool two = has_two_pools(call);
  const std::size_t first = number_of(call, two ? "k_pages" : "kv_pages");
  const std::array<std::size_t, 2> numbers{first, two ? first + 1 : first};
  const std::array<const tensor_view*, 2> pools{&batch.k_pages, &batch.v_pages};
  for (const std::size_t number : numbers) seen[number] = seen_elements(call.tensors[number]);
  const std::array<std::size_t, 2> scales{number_of(call, "k_token_scales"),
                                          number_of(call, "v_token_scales")};
  for (const std::size_t number : scales) {
    if (call.has(number)) seen[number] = seen_elements(call.tensors[number]);
  }
  for (std::int64_t n = 0; n < batch.sequences(); ++n) {
    const std::int64_t length = batch.length(n), rows = batch.rows(n);
    const std::int64_t context = length - rows;
    const std::int64_t first_row = std::max<std::int64_t>(-context, 0);
    for (std::int64_t row = first_row; row < rows; ++row) {
      for (std::int64_t h = 0; h < batch.q.extent[1]; ++h) {
        queries.mark((batch.row_begin(n) + row) * batch.q.stride[0] + h * batch.q.stride[1],
                     batch.q.extent[2]);
      }
    }
    if (first_row >= rows) continue;
    const std::int64_t position = std::max<std::int64_t>(context, 0);
    const std::int64_t before = std::min(batch.options.window_left.value_or(length), length);
    const std::int64_t end = batch.k_new.present() ? context : length;
    for (std::int64_t j = std::max<std::int64_t>(position - before, 0); j < length; ++j) {
      if (j < end || batch.k_new.type == batch.k_pages.type) {
        mark_scales_of_slot(call, batch, scales, {n, j}, seen);
      }
      if (j >= end) continue;
      for (std::size_t which = 0; which < pools.size(); ++which) {
        const tensor_view& pool = *pools[which];
        const std::int64_t base =
            (static_cast<const std::byte*>(pool.data) -
             static_cast<const std::byte*>(call.tensors[numbers[which]].data)) /
            static_cast<std::int64_t>(size_of(pool.type));
        for (std::int64_t h = 0; h < pool.extent[2]; ++h) {
          seen[numbers[which]].mark(base + batch.offset(pool, n, j, h), pool.extent[3]);
        }
      }
    }
  }
}

output_sample sample(const bound_call& call, const tensor_view* computed, const sample_plan& plan) {
  paged_batch batch = batch_of(call);
  const std::size_t out = number_of(call, "out");
  batch.out = computed[out];
  const packed_pages packed(batch);
  const packed_pages stored(batch, gathering::keys_and_values, true);
  return multiplied(
      sampled_rows(packed.args(), stored.args(), packed.options(), out, plan, packed.hooks()),
      batch.v_scale);
}

void count(const bound_call& call, call_work& work) {
  const paged_batch batch = batch_of(call);
  if (batch.seqlens_k.data == nullptr || batch.cu_seqlens_q.data == nullptr) return;
  double held = 0;
  for (const double length : to_doubles(batch.seqlens_k)) held += length;
  const packed_pages shapes(batch, gathering::nothing);
  put_counts(counts_of(shapes.args(), shapes.options()), held, batch.k_pages.extent[2],
             batch.k_pages, batch.v_pages, work);
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &evaluated<exact>,
          .as_stored = &evaluated<as_stored>,
          .fill = &fill,
          .has_tied_strides = &has_tied_strides,
          .mark_seen = &mark_seen,
          .row_extent = &extent_of_paged_row,
          .ordinary = &ordinary,
          .sample = &sample,
          .count = &count};
}
constexpr std::array table{
    reference_named("unified_attention"), reference_named("chunked_prefill_paged_decode"),
    reference_named("ragged_page_attention_v2"), reference_named("ragged_page_attention_v3")};

}  // namespace

std::span<const operation_reference> paged_batch_references() noexcept {
  return table;
}

}  // namespace tessera::reference
