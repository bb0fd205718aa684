// What tests need to know of the attention operations.
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include <tessera/families/attention/config.hpp>
#include <tessera/families/attention/declaration.hpp>

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

using attention_table::tensor;
using args = flash_attention_args;
using options = flash_attention_options;

const args& args_of(const bound_call& call) {
  return *reinterpret_cast<const args*>(call.tensors);
}

/// The largest weight of each row of scores.
std::vector<double> row_weights(const std::vector<double>& weights, std::size_t rows) {
  std::vector<double> most(rows, 0.0);
  const std::size_t width = rows > 0 ? weights.size() / rows : 0;
  for (std::size_t at = 0; at < weights.size(); ++at) {
    most[at / width] = std::max(most[at / width], weights[at]);
  }
  return most;
}

template <class Precision>
expected_tensors evaluated(const bound_call& call) {
  const args& given = args_of(call);
  const flash_result result = flash_attention<Precision>(given, call.options_as<options>());
  expected_tensors all = expected_out_and_lse(result, call, tensor("out"), tensor("lse"));
  if (call.has(tensor("row_max")))
    all.push_back(expected_statistic(result, result.row_max, tensor("row_max")));
  if (call.has(tensor("weights"))) {
    all.push_back({tensor("weights"), result.weights,
                   row_weights(result.weights, result.lse.size()), result.lse_logit_size});
  }
  if (call.has(tensor("dropout_mask"))) {
    all.push_back({.tensor = tensor("dropout_mask"),
                   .values = {result.dropout_mask.begin(), result.dropout_mask.end()}});
  }
  return all;
}

/// A tensor shaped like the scores: some elements hide, sometimes whole rows do.
void fill_scores(const tensor_view& view, support::random_source& random) {
  const bool mask = view.type == dtype::u8;
  const double hidden = mask ? random.pick({0.05, 0.3}) : random.pick({0.0, 0.05, 0.3});
  const std::uint64_t rows = random.chance(0.15) ? random.bits() & random.bits() : 0;
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    const std::int64_t row = flat / view.extent[3];
    const bool hides = (rows >> (row % 64) & 1u) != 0 || random.chance(hidden);
    const double shown = mask ? random.pick({1, 1, 1, 2, 255}) : 2.0 * random.bell();
    store(view, offset, !hides ? shown : mask ? 0.0 : -HUGE_VAL);
  });
}

/// Stretches of the same few ids, padding and ids that come back among them.
void fill_ids(const tensor_view& view, support::random_source& random) {
  int id = 0;
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    if (random.chance(0.08)) id = random.pick({-1, 0, 1, 1, 2, 2, 7, -3});
    store(view, offset, id);
  });
}

void fill_sinks(const tensor_view& view, support::random_source& random) {
  const bool extreme = random.chance(0.2);
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const bool far = extreme && random.chance(0.5);
    const double near = 2.0 * static_cast<double>(random.bell());
    store(view, offset, far ? random.pick({1e4, -1e4, -HUGE_VAL, 60.0}) : near);
  });
}

bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  const tensor_view& view = call.tensors[index];
  const std::string_view name = call.form().tensors[index].name;
  if (name == "bias_pre" || name == "bias_post" || name == "mask")
    return fill_scores(view, random), true;
  if (name == "q_segment_ids" || name == "kv_segment_ids") return fill_ids(view, random), true;
  if (name == "sinks") return fill_sinks(view, random), true;
  return false;
}

void mark_seen(const bound_call& call, seen_tensors seen) {
  mark_visible(args_of(call), call.options_as<options>(),
               {&seen[tensor("q")], &seen[tensor("k")], &seen[tensor("v")],
                &seen[tensor("bias_pre")], &seen[tensor("bias_post")]});
}

/// Masks show three of four; segments are of equal length, eight in a row of tokens.
double ordinary(const bound_call& call, std::size_t index, std::int64_t position,
                support::random_source& random) {
  if (index == tensor("mask")) return random.chance(0.75) ? 1 : 0;
  if (index == tensor("q_segment_ids") || index == tensor("kv_segment_ids")) {
    const std::int64_t tokens = call.tensors[index].extent[1];
    const std::int64_t segment = position % tokens * 8 / tokens;
    return static_cast<double>(segment);
  }
  return static_cast<double>(random.bell());
}

output_sample sample(const bound_call& call, const tensor_view* computed, const sample_plan& plan) {
  args shown = args_of(call);
  shown.out = computed[tensor("out")];
  return sampled_rows(shown, call.options_as<options>(), tensor("out"), plan);
}

void count(const bound_call& call, call_work& work) {
  const args& shown = args_of(call);
  const attention_counts counts = counts_of(shown, call.options_as<options>());
  put_counts(counts, counts.keys, extents_of(shown).kv_heads, shown.k, shown.v, work);
}

/// Rows behind each other see windows behind each other.
read_part part_read(const bound_call& call) {
  const auto& wanted = call.options_as<options>();
  if (!wanted.window_left || !(wanted.causal || wanted.window_right)) return {};
  const std::int64_t rows = call.dims[attention_table::dim_of("Sq")];
  const std::int64_t keys = call.dims[attention_table::dim_of("Sk")];
  const std::int64_t right = wanted.causal ? 0 : std::min(*wanted.window_right, keys);
  return {"Sk", std::min(*wanted.window_left, keys) + right + rows};
}

constexpr operation_reference reference_named(std::string_view op) {
  return {.op = op,
          .exact = &evaluated<exact>,
          .as_stored = &evaluated<as_stored>,
          .fill = &fill,
          .mark_seen = &mark_seen,
          .row_extent = &head_dim_of_row<attention_config>,
          .ordinary = &ordinary,
          .sample = &sample,
          .count = &count,
          .part_read = &part_read};
}
constexpr std::array table{reference_named("flash_attention"), reference_named("attention"),
                           reference_named("scaled_dot_product_attention")};

}  // namespace

std::span<const operation_reference> attention_references() noexcept {
  return table;
}

}  // namespace tessera::reference
