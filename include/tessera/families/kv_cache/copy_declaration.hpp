// kv_cache_copy, declared: pages of pools, and those that they are copied onto.
#pragma once

#include <tessera/families/kv_cache/append_declaration.hpp>

namespace tessera::kv_cache_table {

// Copying. What the axes inside a page are makes no difference.

inline constexpr std::array copy_dims{
    pages,
    page_size,
    dim{.symbol = "H", .label = "key/value heads", .most = most},
    dim{.symbol = "C", .label = "channels", .most = most},
    dim{.symbol = "L", .label = "lanes", .most = most},
    head_dim,
    value_dim,
    dim{.symbol = "A", .label = "pages to copy", .most = most},
};
consteval auto tensors_to_copy() {
  auto all = tensor_texts;
  for (tensor_text& text : all) {
    if (!text.name.ends_with("_pages")) text = {.name = text.name, .shapes = everywhere("-")};
    if (text.name == "k_pages") {
      text.shapes = {"P H T D", "H P T D", "P T H D", "P*T:slots H D", "-", "-"};
    }
    if (text.name == "v_pages") {
      text.shapes = {"P H T Dv", "H P T Dv", "P T H Dv", "P*T:slots H Dv", "-", "-"};
    }
    if (text.name == "kv_pages") text.shapes = {"-", "-", "-", "-", "P T C D", "P T C L D"};
    if (text.name != "source_pages" && text.name != "target_pages") continue;
    text.shapes = everywhere("A");
    text.holds = tensor_contents::indices;
    text.counts = "P";
    if (text.name == "target_pages") text.apart = "source_pages";
  }
  return all;
}
inline constexpr auto copy_texts = tensors_to_copy();
inline constexpr signature copy_form =
    declared::signature_of<kv_cache_problem, copy_texts, copy_dims, cache_layout_names>({
        .options = option_forms,
        .layout_of = &declared::layout_named<&options::pool_layout>,
        .hook = &says_page_size_once,
    });

inline constexpr std::size_t copy = offsetof(kernel, copy);
inline constexpr std::size_t k_runs = copy + offsetof(kv_copy_args, k_runs);
inline constexpr std::size_t v_runs = copy + offsetof(kv_copy_args, v_runs);
constexpr std::size_t extent_at(std::size_t runs, std::size_t axis) {
  return runs + offsetof(page_runs, extents) + axis * sizeof(std::int64_t);
}
/// In elements; `finish_copy` makes bytes of them.
consteval std::array<stride_text, 4> run_strides_of(std::size_t runs) {
  const std::size_t strides = runs + offsetof(page_runs, strides);
  return {{{"P", runs + offsetof(page_runs, page)},
           {"T", strides},
           {"H|C", strides + sizeof(std::int64_t)},
           {"L", strides + 2 * sizeof(std::int64_t)}}};
}
inline constexpr auto copy_bindings = declared::bindings_in(
    std::array{binding_text{"k_pages", copy + offsetof(kv_copy_args, k), run_strides_of(k_runs)},
               binding_text{"v_pages", copy + offsetof(kv_copy_args, v), run_strides_of(v_runs)},
               binding_text{"kv_pages", copy + offsetof(kv_copy_args, k), run_strides_of(k_runs)},
               binding_text{"source_pages", copy + offsetof(kv_copy_args, source_pages)},
               binding_text{"target_pages", copy + offsetof(kv_copy_args, target_pages)}},
    copy_form);
inline constexpr auto copy_sizes = declared::sizes_in(
    std::array{size_text{"P", copy + offsetof(kv_copy_args, page_count)},
               size_text{"A", copy + offsetof(kv_copy_args, copies)},
               size_text{"T", extent_at(k_runs, 0)}, size_text{"T", extent_at(v_runs, 0)},
               size_text{"H|C", extent_at(k_runs, 1)}, size_text{"H", extent_at(v_runs, 1)},
               size_text{"L", extent_at(k_runs, 2)},
               size_text{"D", k_runs + offsetof(page_runs, run)},
               size_text{"Dv", v_runs + offsetof(page_runs, run)}},
    copy_form);

/// From elements to bytes; axes that lie side by side become one run.
inline void join_runs(page_runs& runs, std::int64_t bytes) {
  runs.page *= bytes;
  runs.run *= bytes;
  for (std::int64_t& stride : runs.strides) stride *= bytes;
  // The axis with the shortest stride last; those of one element do not count.
  for (int turn = 0; turn < 3; ++turn) {
    for (int i = 0; i < 2; ++i) {
      const auto reach = [&](int axis) {
        return runs.extents[axis] > 1 ? std::abs(runs.strides[axis]) : 0;
      };
      if (reach(i) >= reach(i + 1)) continue;
      std::swap(runs.extents[i], runs.extents[i + 1]);
      std::swap(runs.strides[i], runs.strides[i + 1]);
    }
  }
  for (int axis = 2; axis >= 0; --axis) {
    if (runs.extents[axis] != 1) {
      if (runs.strides[axis] != runs.run) return;
      runs.run *= runs.extents[axis];
      runs.extents[axis] = 1;
    }
    runs.strides[axis] = 0;
  }
}

inline void finish_copy(const bound_call& call, void* to) {
  kv_copy_args& filled = static_cast<kernel*>(to)->copy;
  const bool two = !call.has(kv_pages);
  if (!two) filled.v_runs = {};
  const auto bytes = static_cast<std::int64_t>(size_of(call.tensors[two ? 2 : kv_pages].type));
  for (page_runs* runs : {&filled.k_runs, &filled.v_runs}) {
    if (call.options_as<options>().pool_layout == cache_layout::PT_HD) {
      runs->strides[0] = runs->page;
      runs->page *= runs->extents[0];
    }
    join_runs(*runs, bytes);
  }
}
inline constexpr lowering lower_copy =
    declared::lowering_of<kernel_defaults>(copy_sizes, copy_bindings, &finish_copy);

}  // namespace tessera::kv_cache_table
