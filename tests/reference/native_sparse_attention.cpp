// What tests need to know of native sparse attention.
#include "native_sparse_attention.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include <tessera/families/sparse_attention/declaration.hpp>

#include "../support/random.hpp"
#include "native_sparse_gradients.hpp"
#include "operations.hpp"
#include "row_facts.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

template <class Args, class Options = native_sparse_attention_options>
native_call call_of(const bound_call& call) {
  return native_call::of(*reinterpret_cast<const Args*>(call.tensors), call.options_as<Options>());
}
native_call selection_of(const bound_call& call) {
  return call_of<block_selection_args, block_selection_options>(call);
}

template <class Precision>
expected_tensors outputs(const bound_call& call) {
  using native_sparse_table::tensor;
  const tensor_view& selected = call.tensors[tensor("selected_blocks")];
  const std::int64_t slots = selected.present() ? selected.extent[3] : 0;
  native_result result = native_outputs<Precision>(call_of<native_sparse_attention_args>(call),
                                                   call.tensors[tensor("out")].type, slots);
  expected_tensors all{{.tensor = tensor("out"),
                        .values = std::move(result.out),
                        .sizes = std::move(result.out_size),
                        .logits = std::move(result.logits)}};
  if (selected.present()) {
    all.push_back({.tensor = tensor("selected_blocks"), .values = std::move(result.selected)});
  }
  return all;
}

template <class Precision>
expected_tensors selections(const bound_call& call) {
  const std::size_t selected = block_selection_table::tensor("selected_blocks");
  return {{.tensor = selected,
           .values =
               native_selection<Precision>(selection_of(call), call.tensors[selected].extent[3])}};
}

/// A gradient as its tensor stores it; errors are relative to the largest terms of a row.
template <class Precision>
expected_tensor expected_from(const bound_call& call, std::size_t tensor, const gradient& from) {
  const tensor_view& view = call.tensors[tensor];
  const auto width =
      static_cast<std::size_t>(view.rank == 4 ? std::max<std::int64_t>(view.extent[3], 1) : 1);
  expected_tensor expected{.tensor = tensor, .values = {}};
  for (std::size_t n = 0; n < from.values.size(); ++n) {
    expected.values.push_back(static_cast<double>(
        Precision::rounded(view.type, static_cast<typename Precision::real>(from.values[n]))));
    if (n % width == 0) expected.sizes.push_back(0), expected.logits.push_back(0);
    expected.sizes.back() = std::max(expected.sizes.back(), from.sizes[n]);
    expected.logits.back() = std::max(expected.logits.back(), from.logits[n]);
  }
  return expected;
}

template <class Precision>
expected_tensors gradients(const bound_call& call) {
  using native_sparse_table::backward_tensor;
  const native_call given = call_of<native_sparse_attention_backward_args>(call);
  const native_backward<Precision> found(given, call.tensors[backward_tensor("d_out")]);
  expected_tensors all;
  const auto add = [&](std::size_t tensor, const gradient& from) {
    if (call.has(tensor)) all.push_back(expected_from<Precision>(call, tensor, from));
  };
  add(backward_tensor("d_q"), found.result.d_q);
  add(backward_tensor("d_k"), found.result.d_k);
  add(backward_tensor("d_v"), found.result.d_v);
  add(backward_tensor("d_g_slc"), found.result.d_gates[0]);
  add(backward_tensor("d_g_cmp"), found.result.d_gates[1]);
  add(backward_tensor("d_g_swa"), found.result.d_gates[2]);
  return all;
}

/// Numbers of blocks, of none and of blocks that there are not, in any order; of many slots most
/// have none, or each token would look at all others again and again.
void fill_blocks(const bound_call& call, const tensor_view& view, support::random_source& random) {
  const std::int64_t size = call.options_as<native_sparse_attention_options>().block_size;
  const std::int64_t blocks = std::max<std::int64_t>((view.extent[1] + size - 1) / size, 1);
  const double missing = std::max(0.1, 1.0 - 24.0 / static_cast<double>(view.extent[3]));
  for_each_element(view, [&](std::int64_t, std::int64_t offset) {
    const bool none = random.chance(missing);
    store(
        view, offset,
        static_cast<double>(none ? random.pick<std::int64_t>({-1, -1, blocks, INT32_MAX, INT32_MIN})
                                 : random.below(blocks)));
  });
}

/// Where blocks are selected by their scores, these differ by far more than they are rounded, or
/// not at all: keys of a block are the same, and differ from others in one channel.
bool fill_selected(const native_call& call, std::string_view name, const tensor_view& view,
                   support::random_source& random) {
  if (name == "q") {
    for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
      const auto number = static_cast<double>(random.bell());
      store(view, offset, flat % view.extent[3] == 0 ? 0.5 + 0.2 * std::fabs(number) : number);
    });
    return true;
  }
  if (name != "k") return false;
  const std::int64_t size = call.options.block_size;
  for (const native_sequence& tokens : native_sequences(view, call.offsets)) {
    for (std::int64_t t = 0; t < tokens.length; ++t) {
      for (std::int64_t h = 0; h < view.extent[2]; ++h) {
        const std::int64_t level = (t / size + 1) * (37 + h) % 311;
        const std::int64_t begin = tokens.entry * view.stride[0] +
                                   (tokens.begin + t) * view.stride[1] + h * view.stride[2];
        for (std::int64_t d = 0; d < view.extent[3]; ++d) {
          store(view, begin + d,
                d == 0 ? 4.0 * static_cast<double>(level) / 311 : std::cos(static_cast<double>(d)));
        }
      }
    }
  }
  return true;
}

bool fill(const bound_call& call, std::size_t tensor, support::random_source& random) {
  const std::string_view name = call.form().tensors[tensor].name;
  const tensor_view& view = call.tensors[tensor];
  if (name == "block_indices" || name == "selected_blocks") {
    return fill_blocks(call, view, random), true;
  }
  if (name == "block_counts") {
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, static_cast<double>(random.below(9) - 1));
    });
    return true;
  }
  if (name.starts_with("g_")) {
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, static_cast<double>(random.uniform()));
    });
    return true;
  }
  if (call.op->name != "native_sparse_attention") return false;
  const native_call known = call_of<native_sparse_attention_args>(call);
  return known.selects && fill_selected(known, name, view, random);
}
bool fill_selection(const bound_call& call, std::size_t tensor, support::random_source& random) {
  return fill_selected(selection_of(call), call.form().tensors[tensor].name, call.tensors[tensor],
                       random);
}

/// Scores of means twice, and the means.
void count_selection(const bound_call& call, call_work& work) {
  const native_call known = selection_of(call);
  const std::int64_t size = known.options.block_size;
  double pairs = 0;
  for (const native_sequence& tokens : native_sequences(known.q, known.offsets)) {
    for (std::int64_t block = 1; block <= tokens.length / size; ++block) {
      pairs += static_cast<double>(tokens.length + 1 - block * size);
    }
  }
  const auto heads = static_cast<double>(known.q.extent[2]);
  const auto width = static_cast<double>(known.q.extent[3]);
  work.visible_pairs = pairs * heads;
  work.flops = 4 * pairs * heads * width + static_cast<double>(known.k.elements());
}

/// Keys and values of blocks that are averaged, of selected blocks, and of windows; where blocks
/// are selected by their scores, all tokens.
template <class Args>
void mark_seen(const bound_call& call, seen_tensors seen) {
  const native_call given = call_of<Args>(call);
  if (given.selects) return;
  const native_evaluation<exact> evaluation(given);
  seen_elements k(given.k), v(given.v);
  const auto mark = [&](seen_elements& of, const tensor_view& view, const native_sequence& tokens,
                        std::int64_t token, std::int64_t head) {
    of.mark(tokens.entry * view.stride[0] + (tokens.begin + token) * view.stride[1] +
                head * view.stride[2],
            view.extent[3]);
  };
  for (const native_sequence& tokens : native_sequences(given.q, given.offsets)) {
    for (std::int64_t t = 0; t < tokens.length; ++t) {
      for (std::int64_t g = 0; g < given.k.extent[2]; ++g) {
        const auto mark_keys = [&](const native_keys& keys) {
          for (const native_key key : keys) {
            for (std::int64_t j = key.begin; j < key.end; ++j) {
              mark(k, given.k, tokens, j, g);
              mark(v, given.v, tokens, j, g);
            }
          }
        };
        evaluation.for_each_branch(
            evaluation.blocks_of(tokens, t, g), t,
            [&](const native_keys& keys, const tensor_view&, int) { mark_keys(keys); });
      }
    }
  }
  for (std::size_t i = 0; i < seen.size() && i < call.form().tensors.size(); ++i) {
    if (call.form().tensors[i].name == "k") seen[i] = k;
    if (call.form().tensors[i].name == "v") seen[i] = v;
  }
}

constexpr std::array table{
    operation_reference{.op = "native_sparse_attention",
                        .exact = &outputs<exact>,
                        .as_stored = &outputs<as_stored>,
                        .fill = &fill,
                        .mark_seen = &mark_seen<native_sparse_attention_args>,
                        .row_extent = &head_dim_of_row<sparse_attention_config>},
    operation_reference{.op = "block_selection",
                        .exact = &selections<exact>,
                        .as_stored = &selections<as_stored>,
                        .fill = &fill_selection,
                        .row_extent = &head_dim_of_row<sparse_attention_config>,
                        .count = &count_selection},
    operation_reference{.op = "native_sparse_attention_backward",
                        .exact = &gradients<exact>,
                        .as_stored = &gradients<as_stored>,
                        .fill = &fill,
                        .mark_seen = &mark_seen<native_sparse_attention_backward_args>}};

}  // namespace

std::span<const operation_reference> native_sparse_references() noexcept {
  return table;
}

}  // namespace tessera::reference
