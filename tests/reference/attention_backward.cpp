// What tests need to know of the gradients of attention.
#include "attention_backward.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/declaration.hpp>

#include "../support/random.hpp"
#include "operations.hpp"
#include "row_facts.hpp"
#include "sampled_rows.hpp"
#include "store.hpp"
#include "visible_pairs.hpp"

namespace tessera::reference {
namespace {

using attention_backward_table::tensor;
using args = attention_backward_args;
using options = flash_attention_options;

const args& args_of(const bound_call& call) {
  return *reinterpret_cast<const args*>(call.tensors);
}

/// The largest of each row of `width` elements.
std::vector<double> largest_of_rows(const std::vector<double>& values, std::int64_t width) {
  const auto step = static_cast<std::size_t>(std::max<std::int64_t>(width, 1));
  std::vector<double> most(values.size() / step, 0.0);
  for (std::size_t n = 0; n < most.size() * step; ++n) {
    most[n / step] = std::max(most[n / step], values[n]);
  }
  return most;
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const args& given = args_of(call);
  backward_evaluation<Precision> evaluation(given, call.options_as<options>());
  backward_result& result = evaluation.result();
  expected_tensors all;
  const auto add = [&](std::string_view name, gradient& from, bool rows) {
    const auto index =
        static_cast<std::size_t>(std::ranges::find(call.form().tensors, name, &tensor_form::name) -
                                 call.form().tensors.begin());
    if (!call.has(index)) return;
    const tensor_view& view = call.tensors[index];
    const std::int64_t width = rows ? view.extent[static_cast<std::size_t>(view.rank - 1)] : 1;
    all.push_back({.tensor = index,
                   .values = std::move(from.values),
                   .sizes = largest_of_rows(from.sizes, width),
                   .logits = largest_of_rows(from.logits, width)});
  };
  add("d_q", result.d_q, true);
  add("d_k", result.d_k, true);
  add("d_v", result.d_v, true);
  add("d_bias_pre", result.d_bias_pre, false);
  add("d_bias_post", result.d_bias_post, false);
  add("d_sinks", result.d_sinks, false);
  return all;
}

/// What the forward call writes of the inputs that are filled already.
void fill_residual(const bound_call& call, std::size_t index) {
  const flash_attention_args forward = forward_of(args_of(call));
  flash_attention_args shown = forward;
  shown.weights = {};
  const flash_result result = flash_attention<exact>(shown, call.options_as<options>());
  const std::vector<double>& values = index == tensor("out")   ? result.out
                                      : index == tensor("lse") ? result.lse
                                                               : result.row_max;
  for_each_element(call.tensors[index], [&](std::int64_t flat, std::int64_t offset) {
    store(call.tensors[index], offset, values[static_cast<std::size_t>(flat)]);
  });
}

bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  if (index == tensor("out") || index == tensor("lse") || index == tensor("row_max")) {
    return fill_residual(call, index), true;
  }
  // The same tensors at the same places as those of the forward call.
  return index < tensor("out") && reference_of("flash_attention")->fill(call, index, random);
}

/// Statistics say which rows count; of such rows all of out, d_out and d_lse is looked at.
void mark_rows(const bound_call& call, seen_tensors seen) {
  const args& given = args_of(call);
  const flash_extents size = extents_of(forward_of(given));
  seen_elements lse(given.lse), row_max(given.row_max), d_lse(given.d_lse), out(given.out),
      d_out(given.d_out);
  for (std::int64_t b = 0; b < size.entries; ++b) {
    const used_rows rows = rows_of(forward_of(given), b);
    const auto place = [&](const tensor_view& view, std::int64_t h, std::int64_t i) {
      const std::int64_t row = rows.q_begin + i;
      return size.packed ? h * view.stride[0] + row * view.stride[1]
                         : b * view.stride[0] + h * view.stride[1] + row * view.stride[2];
    };
    const auto row_of = [&](const tensor_view& view, std::int64_t h, std::int64_t i) {
      const std::int64_t row = rows.q_begin + i;
      return size.packed ? row * view.stride[0] + h * view.stride[1]
                         : b * view.stride[0] + row * view.stride[1] + h * view.stride[2];
    };
    for (std::int64_t h = 0; h < size.q_heads; ++h) {
      for (std::int64_t i = 0; i < rows.q_length; ++i) {
        lse.mark(place(given.lse, h, i));
        if (read(given.lse, place(given.lse, h, i)) == -HUGE_VAL) continue;
        if (given.row_max.present()) row_max.mark(place(given.row_max, h, i));
        if (given.d_lse.present()) d_lse.mark(place(given.d_lse, h, i));
        out.mark(row_of(given.out, h, i), size.v_head_dim);
        d_out.mark(row_of(given.d_out, h, i), size.v_head_dim);
      }
    }
  }
  seen[tensor("lse")] = lse, seen[tensor("row_max")] = row_max, seen[tensor("d_lse")] = d_lse;
  seen[tensor("out")] = out, seen[tensor("d_out")] = d_out;
}

void mark_weights(const bound_call& call, seen_tensors seen) {
  const args& given = args_of(call);
  const flash_attention_args forward = forward_of(given);
  const flash_extents size = extents_of(forward);
  seen_elements weights(given.d_weights);
  if (!given.d_weights.present()) return;
  for (std::int64_t b = 0; b < size.entries; ++b) {
    const used_rows rows = rows_of(forward, b);
    for (std::int64_t h = 0; h < size.q_heads; ++h) {
      for (std::int64_t i = 0; i < rows.q_length; ++i) {
        for (std::int64_t j = 0; j < rows.k_length; ++j) {
          if (!sees(forward, call.options_as<options>(), rows, b, h, i, j)) continue;
          weights.mark(offset_of(given.d_weights, std::array<std::int64_t, 4>{b, h, i, j}));
        }
      }
    }
  }
  seen[tensor("d_weights")] = weights;
}

void mark_seen(const bound_call& call, seen_tensors seen) {
  mark_visible(forward_of(args_of(call)), call.options_as<options>(),
               {&seen[tensor("q")], &seen[tensor("k")], &seen[tensor("v")],
                &seen[tensor("bias_pre")], &seen[tensor("bias_post")]});
  mark_rows(call, seen);
  mark_weights(call, seen);
}

/// As the forward call has them. Residuals are those of outputs near 0 and equal weights.
double ordinary(const bound_call& call, std::size_t index, std::int64_t position,
                support::random_source& random) {
  if (index == tensor("lse") || index == tensor("row_max")) {
    return 1.0 + std::log(static_cast<double>(
                     std::max<std::int64_t>(call.dims[attention_table::dim_of("Sk")], 1)));
  }
  if (index < tensor("out")) {
    return reference_of("flash_attention")->ordinary(call, index, position, random);
  }
  return static_cast<double>(random.bell());
}

void count(const bound_call& call, call_work& work) {
  const args& given = args_of(call);
  const flash_attention_args forward = forward_of(given);
  const attention_counts counts = counts_of(forward, call.options_as<options>());
  const flash_extents size = extents_of(forward);
  put_counts(counts, counts.keys, size.kv_heads, given.k, given.v, work);
  work.flops =
      counts.visible_pairs * 2.0 * static_cast<double>(3 * size.head_dim + 2 * size.v_head_dim);
}

/// Heads, but not where random numbers count them.
std::span<const std::string_view> independent(const bound_call& call) {
  static constexpr std::array<std::string_view, 2> heads{"Hq", "Hkv"};
  if (call.options_as<options>().dropout_probability > 0) return {};
  return heads;
}

constexpr std::array<std::string_view, 3> residuals{"out", "lse", "row_max"};

/// The name without what says backward.
constexpr std::string_view forward_name(std::string_view op) {
  return op.substr(0, op.size() - std::string_view("_backward").size());
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &evaluated<exact>,
          .as_stored = &evaluated<as_stored>,
          .fill = &fill,
          .residuals = residuals,
          .residuals_of = forward_name(op),
          .mark_seen = &mark_seen,
          .row_extent = &head_dim_of_row<attention_backward_config>,
          .ordinary = &ordinary,
          .independent = &independent,
          .count = &count};
}
constexpr std::array table{reference_named("flash_attention_backward"),
                           reference_named("attention_backward"),
                           reference_named("scaled_dot_product_attention_backward")};

}  // namespace

std::span<const operation_reference> attention_backward_references() noexcept {
  return table;
}

}  // namespace tessera::reference
