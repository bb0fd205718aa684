// What tests need to know of attention over keys in pages.
#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/page_declaration.hpp>

#include "attention_outputs.hpp"
#include "dense_pages.hpp"
#include "flash_attention.hpp"
#include "operations.hpp"
#include "pool_elements.hpp"
#include "row_facts.hpp"
#include "sampled_rows.hpp"
#include "visible_pairs.hpp"

namespace tessera::reference {
namespace {

const page_attention_args& args_of(const bound_call& call) {
  return *reinterpret_cast<const page_attention_args*>(call.tensors);
}

page_op op_of(const bound_call& call) {
  return static_cast<page_op>(call.op->place);
}

consteval std::size_t number_of(std::string_view name) {
  return static_cast<std::size_t>(
      declared::index_of(paged_table::form.tensors, name, &tensor_form::name));
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const dense_pages dense(op_of(call), args_of(call), call.options_as<page_attention_options>(),
                          std::is_same_v<Precision, as_stored>);
  const double v_scale = call.options_as<page_attention_options>().v_scale.value_or(1.0);
  const flash_result result = with_rounded_values(
      multiplied(flash_attention<Precision>(dense.args(), dense.options()), v_scale),
      args_of(call).v_token_scales, args_of(call).q.type);
  return expected_out_and_lse(result, call, number_of("out"), number_of("lse"));
}

bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  return fill_codes(call.tensors[tensor], random) ||
         fill_token_scales(call.form().tensors[tensor].name, call.tensors[tensor], random);
}

/// The keys of each sequence inside the windows of its rows, and the queries that stand at keys.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const page_attention_args& args = args_of(call);
  const auto& options = call.options_as<page_attention_options>();
  const auto stride_of = [&](const tensor_view& pool, char axis) {
    return pool.stride[pool_axis(options.pool_layout, axis)];
  };
  const std::int64_t page_size = page_tokens(args.k_pages, options);
  const std::int64_t heads = args.k_pages.extent[pool_axis(options.pool_layout, 'H')];
  const bool chunk = op_of(call) == page_op::prefill_page_attention;
  const std::int64_t rows = chunk ? args.q.extent[0] : 1;  // of a sequence
  constexpr std::array pools{number_of("k_pages"), number_of("v_pages")};
  seen_elements& queries = seen[number_of("q")];
  queries = seen_elements(args.q);
  constexpr std::array scales{number_of("k_token_scales"), number_of("v_token_scales")};
  for (const std::size_t tensor : {pools[0], pools[1], scales[0], scales[1]}) {
    if (call.has(tensor)) seen[tensor] = seen_elements(call.tensors[tensor]);
  }
  const auto number_at = [](const tensor_view& view, std::int64_t offset) {
    return static_cast<std::int64_t>(read(view, offset));
  };
  for (std::int64_t n = 0; n < args.block_table.extent[0]; ++n) {
    const std::int64_t length = number_at(args.seqlens_k, n * args.seqlens_k.stride[0]);
    const std::int64_t first_row = std::max<std::int64_t>(rows - length, 0);  // at key 0 or later
    for (std::int64_t row = first_row; row < rows; ++row) {
      const std::int64_t token = chunk ? row : n;
      for (std::int64_t h = 0; h < args.q.extent[1]; ++h) {
        queries.mark(token * args.q.stride[0] + h * args.q.stride[1], args.q.extent[2]);
      }
    }
    const std::int64_t position = std::max<std::int64_t>(length - rows, 0);  // of the first
    const std::int64_t before = std::min(options.window_left.value_or(length), length);
    const std::int64_t first_key = std::max<std::int64_t>(position - before, 0);
    for (std::int64_t j = first_row < rows ? first_key : length; j < length; ++j) {
      const tensor_view& table = args.block_table;
      const std::int64_t page =
          number_at(table, n * table.stride[0] + j / page_size * table.stride[1]);
      for (const std::size_t pool : pools) {
        const tensor_view& view = call.tensors[pool];
        for (std::int64_t h = 0; h < heads; ++h) {
          seen[pool].mark(page * page_distance(view, options) +
                              j % page_size * stride_of(view, 'T') + h * stride_of(view, 'H'),
                          view.extent[pool_axis(options.pool_layout, 'D')]);
        }
      }
      for (const std::size_t tensor : scales) {
        for (std::int64_t h = 0; call.has(tensor) && h < heads; ++h) {
          seen[tensor].mark(
              place_of_scale(call.tensors[tensor], page_size, page, j % page_size, h));
        }
      }
    }
  }
}

output_sample sample(const bound_call& call, const tensor_view* computed, const sample_plan& plan) {
  page_attention_args shown = args_of(call);
  shown.out = computed[number_of("out")];
  const auto& wanted = call.options_as<page_attention_options>();
  const dense_pages dense(op_of(call), shown, wanted), stored(op_of(call), shown, wanted, true);
  return multiplied(
      sampled_rows(dense.args(), stored.args(), dense.options(), number_of("out"), plan),
      call.options_as<page_attention_options>().v_scale.value_or(1.0));
}

/// Pages count as the keys and values that they hold for the sequences, inside their windows.
void count(const bound_call& call, call_work& work) {
  const page_attention_args& args = args_of(call);
  const auto& options = call.options_as<page_attention_options>();
  double held = 0;
  for (const double length : to_doubles(args.seqlens_k)) held += length;
  put_counts(
      counts_of(dense_shapes(op_of(call), args, options), dense_options(op_of(call), options)),
      held, args.k_pages.extent[pool_axis(options.pool_layout, 'H')], args.k_pages, args.v_pages,
      work);
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &evaluated<exact>,
          .as_stored = &evaluated<as_stored>,
          .fill = &fill,
          .mark_seen = &mark_seen,
          .row_extent = &extent_of_paged_row,
          .sample = &sample,
          .count = &count};
}
constexpr std::array table{reference_named("page_attention"), reference_named("decode_attention"),
                           reference_named("prefill_page_attention")};

}  // namespace

std::span<const operation_reference> paged_references() noexcept {
  return table;
}

}  // namespace tessera::reference
