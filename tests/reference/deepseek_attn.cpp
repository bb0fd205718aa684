// What tests need to know of deepseek_attn: it is flash_mla under a mask.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/families/latent_attention/deepseek_attn_declaration.hpp>

#include "../support/random.hpp"
#include "expanded_latents.hpp"
#include "operations.hpp"
#include "selected_keys.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

using deepseek_attn_table::tensor;

/// The call of flash_mla that stands for another, and what is known of its operation.
struct stand_in : masked_call {
  explicit stand_in(const bound_call& call)
      : masked_call(
            *reinterpret_cast<const deepseek_attn_args*>(call.tensors),
            call.options_as<deepseek_attn_options>(),
            call.op->place == 0 ? flash_mla_op::flash_mla : flash_mla_op::flash_mla_backward),
        known(*reference_of(this->call().op->name)) {}

  const operation_reference& known;
};

/// The tensor of a form that is called as tensor `index` of another.
std::size_t same_tensor(const signature& from, std::size_t index, const signature& to) {
  return static_cast<std::size_t>(
      declared::index_of(to.tensors, from.tensors[index].name, &tensor_form::name));
}

expected_tensors outputs(const bound_call& call, const stand_in& other, expected_tensors all) {
  for (expected_tensor& output : all) {
    output.tensor = same_tensor(other.call().form(), output.tensor, call.form());
  }
  const auto selected = static_cast<std::size_t>(tensor("selected_indices"));
  if (!call.has(selected)) return all;
  const auto slots = static_cast<std::size_t>(call.tensors[selected].extent[2]);
  expected_tensor lists{.tensor = selected, .values = {}};
  for (std::size_t n = 0; n < other.keys().tokens(); ++n) {
    lists.values.resize(n * slots);
    for (const std::int64_t key : other.keys().of(n)) {
      lists.values.push_back(static_cast<double>(key));
    }
    lists.values.resize((n + 1) * slots, -1.0);
  }
  all.push_back(std::move(lists));
  return all;
}
expected_tensors exact_outputs(const bound_call& call) {
  const stand_in other(call);
  return outputs(call, other, other.known.exact(other.call()));
}
expected_tensors stored_outputs(const bound_call& call) {
  const stand_in other(call);
  return outputs(call, other, other.known.as_stored(other.call()));
}

/// What the indexer reads are small whole numbers: scores are exact, and many of them equal.
bool fill(const bound_call& call, std::size_t index, support::random_source& random) {
  const std::string_view name = call.form().tensors[index].name;
  if (name == "out" || name == "lse") {
    const stand_in other(call);
    return other.known.fill(other.call(), same_tensor(call.form(), index, other.call().form()),
                            random);
  }
  if (name == "bias_post" || name == "mask" || name == "sinks") {
    return reference_of("flash_attention")->fill(call, index, random);
  }
  if (name.find("index") == std::string_view::npos || name == "indices") return false;
  for_each_element(call.tensors[index], [&](std::int64_t, std::int64_t offset) {
    store(call.tensors[index], offset, static_cast<double>(random.between(-3, 3)));
  });
  return true;
}

/// As under the mask; the indexer looks at all that it has.
void mark_seen(const bound_call& call, seen_tensors seen) {
  const stand_in other(call);
  std::array<seen_elements, max_tensors> of_other;
  other.known.mark_seen(other.call(), of_other);
  for (std::size_t i = 0; i < other.call().form().tensors.size(); ++i) {
    if (!of_other[i].known() || !other.call().has(i)) continue;
    if (i == static_cast<std::size_t>(flash_mla_table::tensor("mask"))) continue;
    seen[same_tensor(other.call().form(), i, call.form())] = std::move(of_other[i]);
  }
}

/// Each token meets each key, in the indexer with all of its columns.
double steps(const bound_call& call) {
  using deepseek_attn_table::dim_of;
  const auto extent = [&](std::int8_t dim) {
    return static_cast<double>(call.dims[static_cast<std::size_t>(dim)]);
  };
  const double pairs = extent(dim_of("B")) * extent(dim_of("S")) * extent(dim_of("S"));
  return call.has(tensor("q_index")) ? pairs * extent(dim_of("Hi")) * extent(dim_of("Di")) : pairs;
}

/// Of each score a product and its share of the sum, besides what is done under the mask.
void count(const bound_call& call, call_work& work) {
  const stand_in other(call);
  other.known.count(other.call(), work);
  const tensor_view& index = call.tensors[tensor("q_index")];
  if (!index.present()) return;
  const double length = static_cast<double>(index.extent[1]);
  const bool causal = call.options_as<deepseek_attn_options>().causal;
  const double pairs = causal ? length * (length + 1) / 2 : length * length;
  work.flops += 2.0 * static_cast<double>(index.extent[0]) * pairs *
                static_cast<double>(index.extent[2] * index.extent[3]);
}

/// Heads, but not where random numbers count them.
std::span<const std::string_view> independent(const bound_call& call) {
  if (call.options_as<deepseek_attn_options>().dropout_probability > 0) return {};
  static constexpr std::array<std::string_view, 2> heads{"Hq", "Hkv"};
  return heads;
}

constexpr std::array<std::string_view, 2> residuals{"out", "lse"};
constexpr std::array table{operation_reference{.op = "deepseek_attn",
                                               .exact = &exact_outputs,
                                               .as_stored = &stored_outputs,
                                               .fill = &fill,
                                               .mark_seen = &mark_seen,
                                               .steps = &steps,
                                               .row_extent = &dense_row_extent,
                                               .independent = &independent,
                                               .count = &count},
                           operation_reference{.op = "deepseek_attn_backward",
                                               .exact = &exact_outputs,
                                               .as_stored = &stored_outputs,
                                               .fill = &fill,
                                               .residuals = residuals,
                                               .residuals_of = "deepseek_attn",
                                               .mark_seen = &mark_seen,
                                               .steps = &steps,
                                               .count = &count}};

}  // namespace

std::span<const operation_reference> deepseek_attn_references() noexcept {
  return table;
}

}  // namespace tessera::reference
