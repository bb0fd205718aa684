// What tests need to know of sparse attention.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/families/sparse_attention/declaration.hpp>

#include "../support/random.hpp"
#include "attention_backward.hpp"
#include "attention_outputs.hpp"
#include "blocksparse_attention.hpp"
#include "operations.hpp"
#include "row_facts.hpp"
#include "store.hpp"

namespace tessera::reference {
namespace {

using blocksparse_options = blocksparse_attention_options;

template <class Args>
const Args& args_of(const bound_call& call) {
  return *reinterpret_cast<const Args*>(call.tensors);
}
template <class Args>
blocksparse_call<Args> blocksparse_of(const bound_call& call) {
  return {args_of<Args>(call), call.options_as<blocksparse_options>()};
}

std::size_t index_of(const bound_call& call, std::string_view name) {
  return static_cast<std::size_t>(std::ranges::find(call.form().tensors, name, &tensor_form::name) -
                                  call.form().tensors.begin());
}

/// Rows of `width` numbers of [B,S,H,...] in the order of [B,H,S,...].
std::vector<double> with_heads_first(const std::vector<double>& numbers, const tensor_view& view,
                                     std::int64_t width) {
  std::vector<double> moved(numbers.size());
  const std::int64_t heads = view.extent[1], tokens = view.extent[2];
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    const auto place = static_cast<std::int64_t>(n);
    const std::int64_t d = place % width, head = place / width % heads;
    const std::int64_t token = place / (width * heads) % tokens;
    const std::int64_t entry = place / (width * heads * tokens);
    moved[static_cast<std::size_t>(((entry * heads + head) * tokens + token) * width + d)] =
        numbers[n];
  }
  return moved;
}

/// The largest of each row of `width` numbers.
std::vector<double> largest_of_rows(const std::vector<double>& numbers, std::int64_t width) {
  std::vector<double> most(numbers.size() / static_cast<std::size_t>(width), 0.0);
  for (std::size_t n = 0; n < numbers.size(); ++n) {
    double& of_row = most[n / static_cast<std::size_t>(width)];
    of_row = std::max(of_row, numbers[n]);
  }
  return most;
}

template <class Precision>
expected_tensors blocksparse(const bound_call& call) {
  auto plain = blocksparse_of<blocksparse_attention_args>(call);
  const flash_result result = flash_attention<Precision>(plain.forward(), plain.options());
  const std::size_t out = index_of(call, "out");
  expected_tensors all = expected_out_and_lse(result, call, out, index_of(call, "lse"));
  const tensor_view& view = call.tensors[out];
  all[0].values = with_heads_first(all[0].values, view, view.extent[3]);
  all[0].sizes = with_heads_first(all[0].sizes, view, 1);
  all[0].logits = with_heads_first(all[0].logits, view, 1);
  return all;
}

template <class Precision>
expected_tensors blocksparse_backward(const bound_call& call) {
  auto plain = blocksparse_of<blocksparse_attention_backward_args>(call);
  const attention_backward_args args = plain.backward();
  const flash_attention_options options = plain.options();
  backward_evaluation<Precision> evaluation(args, options);
  backward_result& result = evaluation.result();
  expected_tensors all;
  const auto add = [&](std::string_view name, const gradient& from) {
    const std::size_t tensor = index_of(call, name);
    const tensor_view& view = call.tensors[tensor];
    const std::int64_t width = view.extent[3];
    const auto rows = [&](const std::vector<double>& numbers) {
      return largest_of_rows(with_heads_first(numbers, view, width), width);
    };
    all.push_back({.tensor = tensor,
                   .values = with_heads_first(from.values, view, width),
                   .sizes = rows(from.sizes),
                   .logits = rows(from.logits)});
  };
  add("d_q", result.d_q);
  add("d_k", result.d_k);
  add("d_v", result.d_v);
  const std::size_t d_sinks = index_of(call, "d_sinks");
  if (call.has(d_sinks)) {
    all.push_back({.tensor = d_sinks,
                   .values = result.d_sinks.values,
                   .sizes = result.d_sinks.sizes,
                   .logits = result.d_sinks.logits});
  }
  return all;
}

/// Near each other and in no order, sometimes below 0.
void fill_positions(const tensor_view& view, support::random_source& random) {
  const std::int64_t tokens = std::max<std::int64_t>(view.extent[1], 1);
  const bool in_order = random.chance(0.5);
  const double first = random.pick({0.0, 0.0, -20.0, 1000.0});
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    const std::int64_t place = in_order ? flat % tokens : random.below(tokens);
    store(view, offset, first + static_cast<double>(place));
  });
}

bool fill_blocksparse(const bound_call& call, std::size_t index, support::random_source& random) {
  const std::string_view name = call.form().tensors[index].name;
  const tensor_view& view = call.tensors[index];
  if (name == "q_positions" || name == "kv_positions") return fill_positions(view, random), true;
  if (name == "block_mask") {
    const double shown = random.pick({0.1, 0.5, 0.9});
    for_each_element(view, [&](std::int64_t, std::int64_t offset) {
      store(view, offset, random.chance(shown) ? random.pick({1, 2, 255}) : 0);
    });
    return true;
  }
  return reference_of("flash_attention")->fill(call, index, random);
}

bool fill_blocksparse_backward(const bound_call& call, std::size_t index,
                               support::random_source& random) {
  const std::string_view name = call.form().tensors[index].name;
  if (name != "out" && name != "lse") return fill_blocksparse(call, index, random);
  auto plain = blocksparse_of<blocksparse_attention_backward_args>(call);
  const flash_result result = flash_attention<exact>(plain.forward(), plain.options());
  const tensor_view& view = call.tensors[index];
  const std::vector<double> values =
      name == "lse" ? result.lse : with_heads_first(result.out, view, view.extent[3]);
  for_each_element(view, [&](std::int64_t flat, std::int64_t offset) {
    store(view, offset, values[static_cast<std::size_t>(flat)]);
  });
  return true;
}

template <class Args>
void mark_blocksparse(const bound_call& call, seen_tensors seen) {
  auto plain = blocksparse_of<Args>(call);
  const flash_attention_args args = plain.forward();
  seen_elements biases[2];
  mark_visible(args, plain.options(),
               {&seen[index_of(call, "q")], &seen[index_of(call, "k")], &seen[index_of(call, "v")],
                &biases[0], &biases[1]});
}

/// Statistics say which rows count; of such rows all of out, d_out and d_lse is looked at.
void mark_blocksparse_backward(const bound_call& call, seen_tensors seen) {
  mark_blocksparse<blocksparse_attention_backward_args>(call, seen);
  const auto& args = args_of<blocksparse_attention_backward_args>(call);
  seen_elements d_lse(args.d_lse), out(args.out), d_out(args.d_out), lse(args.lse);
  for_each_element(args.lse, [&](std::int64_t flat, std::int64_t offset) {
    lse.mark(offset);
    if (read(args.lse, offset) == -HUGE_VAL) return;
    const std::int64_t i = flat % args.lse.extent[2],
                       h = flat / args.lse.extent[2] % args.lse.extent[1];
    const std::int64_t b = flat / (args.lse.extent[2] * args.lse.extent[1]);
    const auto row_of = [&](const tensor_view& view) {
      return b * view.stride[0] + h * view.stride[1] + i * view.stride[2];
    };
    if (args.d_lse.present()) d_lse.mark(row_of(args.d_lse));
    out.mark(row_of(args.out), args.out.extent[3]);
    d_out.mark(row_of(args.d_out), args.d_out.extent[3]);
  });
  seen[index_of(call, "lse")] = lse, seen[index_of(call, "out")] = out;
  seen[index_of(call, "d_out")] = d_out;
  if (args.d_lse.present()) seen[index_of(call, "d_lse")] = d_lse;
}

constexpr std::array<std::string_view, 2> residuals{"out", "lse"};

constexpr std::array table{
    operation_reference{.op = "blocksparse_attention",
                        .exact = &blocksparse<exact>,
                        .as_stored = &blocksparse<as_stored>,
                        .fill = &fill_blocksparse,
                        .mark_seen = &mark_blocksparse<blocksparse_attention_args>,
                        .row_extent = &head_dim_of_row<sparse_attention_config>},
    operation_reference{.op = "blocksparse_attention_backward",
                        .exact = &blocksparse_backward<exact>,
                        .as_stored = &blocksparse_backward<as_stored>,
                        .fill = &fill_blocksparse_backward,
                        .residuals = residuals,
                        .mark_seen = &mark_blocksparse_backward,
                        .row_extent = &head_dim_of_row<sparse_attention_config>}};

}  // namespace

std::span<const operation_reference> sparse_attention_references() noexcept {
  return table;
}

}  // namespace tessera::reference
