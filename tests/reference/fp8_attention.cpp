// What tests need to know of fp8_attention: flash_attention of each group of heads, whose scales
// are numbers of the softmax scale and of out.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/fp8_declaration.hpp>

#include "../support/random.hpp"
#include "attention_outputs.hpp"
#include "flash_attention.hpp"
#include "operations.hpp"
#include "row_facts.hpp"
#include "sampled_rows.hpp"
#include "store.hpp"
#include "visible_pairs.hpp"

namespace tessera::reference {
namespace {

using fp8_table::tensor;

const fp8_attention_args& args_of(const bound_call& call) {
  return *reinterpret_cast<const fp8_attention_args*>(call.tensors);
}

flash_attention_options options_of(const bound_call& call) {
  const auto& wanted = call.options_as<fp8_attention_options>();
  flash_attention_options all;
  all.softmax_scale = wanted.softmax_scale;
  all.causal = wanted.causal;
  all.causal_alignment = wanted.causal_alignment;
  all.window_left = wanted.window_left;
  all.window_right = wanted.window_right;
  return all;
}

/// The call without its scales.
flash_attention_args unscaled(const fp8_attention_args& args) {
  flash_attention_args all;
  all.q = args.q;
  all.k = args.k;
  all.v = args.v;
  all.sinks = args.sinks;
  all.cu_seqlens_q = args.cu_seqlens_q;
  all.cu_seqlens_k = args.cu_seqlens_k;
  all.seqlens_q = args.seqlens_q;
  all.seqlens_k = args.seqlens_k;
  all.out = args.out;
  all.lse = args.lse;
  return all;
}

double scale_of(const tensor_view& scales, std::int64_t head) {
  return scales.present() ? read(scales, head * scales.stride[0]) : 1.0;
}

/// Heads [first, first + count) of an axis.
tensor_view heads_of(tensor_view view, std::int64_t axis, std::int64_t first, std::int64_t count) {
  const auto at = static_cast<std::size_t>(axis);
  if (!view.present()) return view;
  if (view.data != nullptr) {
    view.data = static_cast<std::byte*>(view.data) +
                first * view.stride[at] * static_cast<std::int64_t>(size_of(view.type));
  }
  view.extent[at] = count;
  return view;
}

/// One head of k and v, and the query heads that share it, as a call of flash_attention.
struct group_call {
  flash_attention_args args;
  flash_attention_options options;
  double value_scale = 1.0;
};
group_call group_of(const bound_call& call, std::int64_t kv_head) {
  const fp8_attention_args& given = args_of(call);
  const flash_extents size = extents_of(unscaled(given));
  const std::int64_t group = size.q_heads / size.kv_heads;
  const std::int64_t axis = size.packed ? 1 : 2;
  group_call part{unscaled(given), options_of(call), scale_of(given.v_scales, kv_head)};
  part.args.q = heads_of(given.q, axis, kv_head * group, group);
  part.args.k = heads_of(given.k, axis, kv_head, 1);
  part.args.v = heads_of(given.v, axis, kv_head, 1);
  part.args.out = heads_of(given.out, axis, kv_head * group, group);
  part.args.lse = heads_of(given.lse, size.packed ? 0 : 1, kv_head * group, group);
  if (given.sinks.present() && given.sinks.extent[0] != 1) {
    part.args.sinks = heads_of(given.sinks, 0, kv_head * group, group);
  }
  const double usual = 1.0 / std::sqrt(static_cast<double>(size.head_dim));
  part.options.softmax_scale = part.options.softmax_scale.value_or(usual) *
                               scale_of(given.q_scales, kv_head) *
                               scale_of(given.k_scales, kv_head);
  return part;
}

/// The matrix unit keeps 14 bits of sums of products of 8 bits, where f32 has 24: errors of
/// logits are so much larger.
constexpr double unit_of_sums = 0x1p10;

/// Writes `part`, of `count` heads of a row, into heads [first, ...) of rows of `heads`.
template <class Number>
void put_heads(std::vector<Number>& all, const std::vector<Number>& part, std::int64_t heads,
               std::int64_t first, std::int64_t count, std::int64_t width) {
  if (count * width == 0) return;
  const auto rows = static_cast<std::int64_t>(part.size()) / (count * width);
  all.resize(static_cast<std::size_t>(rows * heads * width));
  for (std::int64_t row = 0; row < rows; ++row) {
    std::copy_n(part.begin() + row * count * width, count * width,
                all.begin() + (row * heads + first) * width);
  }
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const flash_extents size = extents_of(unscaled(args_of(call)));
  const std::int64_t group = size.q_heads / size.kv_heads;
  const std::int64_t statistics = size.q_rows;  // of a head
  flash_result all;
  for (std::int64_t g = 0; g < size.kv_heads; ++g) {
    const group_call part = group_of(call, g);
    const flash_result own =
        multiplied(flash_attention<Precision>(part.args, part.options), part.value_scale);
    put_heads(all.out, own.out, size.q_heads, g * group, group, size.v_head_dim);
    put_heads(all.out_size, own.out_size, size.q_heads, g * group, group, 1);
    put_heads(all.out_logit_size, own.out_logit_size, size.q_heads, g * group, group, 1);
    put_heads(all.lse, own.lse, size.q_heads, g * group, group, statistics);
    put_heads(all.lse_logit_size, own.lse_logit_size, size.q_heads, g * group, group, statistics);
  }
  for (double& logits : all.out_logit_size) logits *= unit_of_sums;
  for (double& logits : all.lse_logit_size) logits *= unit_of_sums;
  return expected_out_and_lse(all, call, tensor("out"), tensor("lse"));
}

/// Numbers of mean 0, at times large queries; scales near 1, at times none near.
bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  const std::string_view name = call.form().tensors[index].name;
  const tensor_view& view = call.tensors[index];
  if (view.type == dtype::f8_e4m3) {
    const double size = name == "q" && random.chance(0.1) ? 16.0 : 1.0;
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, size * static_cast<double>(random.bell()));
    });
    return true;
  }
  if (!name.ends_with("_scales")) return false;
  const double usual = random.pick({1.0, 1.0, 0.25, 4.0});
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    store(view, offset, usual * random.pick({0.5, 0.75, 1.0, 1.25, 2.0}));
  });
  return true;
}

void mark_seen(const bound_call& call, seen_tensors seen) {
  seen_elements no_bias_pre, no_bias_post;
  mark_visible(
      unscaled(args_of(call)), options_of(call),
      {&seen[tensor("q")], &seen[tensor("k")], &seen[tensor("v")], &no_bias_pre, &no_bias_post});
}

double ordinary(const bound_call& call, std::size_t index, std::int64_t,
                support::random_source& random) {
  if (call.form().tensors[index].name.ends_with("_scales")) return 0.25;
  return 4.0 * static_cast<double>(random.bell());
}

output_sample sample(const bound_call& call, const tensor_view* computed, const sample_plan& plan) {
  fp8_attention_args shown = args_of(call);
  shown.out = computed[tensor("out")];
  bound_call moved = call;
  moved.tensors = reinterpret_cast<const tensor_view*>(&shown);
  const std::int64_t last = extents_of(unscaled(shown)).kv_heads - 1;
  const group_call part = group_of(moved, last);
  return multiplied(sampled_rows(part.args, part.options, tensor("out"), plan), part.value_scale);
}

void count(const bound_call& call, call_work& work) {
  const flash_attention_args shown = unscaled(args_of(call));
  const attention_counts counts = counts_of(shown, options_of(call));
  put_counts(counts, counts.keys, extents_of(shown).kv_heads, shown.k, shown.v, work);
}

constexpr std::array table{operation_reference{.op = "fp8_attention",
                                               .exact = &evaluated<exact>,
                                               .as_stored = &evaluated<as_stored>,
                                               .fill = &fill,
                                               .mark_seen = &mark_seen,
                                               .row_extent = &head_dim_of_row<attention_config>,
                                               .ordinary = &ordinary,
                                               .sample = &sample,
                                               .count = &count}};

}  // namespace

std::span<const operation_reference> fp8_references() noexcept {
  return table;
}

}  // namespace tessera::reference
