// An operation that there is not: a cache in pages, written in place, with quantized tokens. It
// uses what the vocabulary of declarations has and no operation of the library uses yet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/spec/check.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera::testing {

/// Members in the order of `tensor_texts`.
struct cache_args {
  tensor_view tokens{}, scales{}, cache{}, updated{}, pages{}, lengths{}, groups{}, table{},
      codes{}, factors{};
};
enum class rounding : std::uint8_t { nearest, down };
struct cache_options {
  std::int64_t block = 4;
  rounding mode = rounding::nearest;
  std::optional<double> gain{};
  bool wide = false;
};
struct cache_kernel_args {
  const void* tokens = nullptr;
  void* cache = nullptr;
  std::int64_t rows = 0, row_stride = 0, page_stride = 0, total = -1;
  int columns = 0;
  dtype scale_type = dtype::none;
};

namespace cache_table {

inline std::int64_t sum_of_groups(const bound_call& call) {
  const tensor_view& groups = call.tensors[6];
  std::int64_t sum = 0;
  for (std::int64_t g = 0; g < groups.extent[0]; ++g) {
    sum += static_cast<const std::int32_t*>(groups.data)[g * groups.stride[0]];
  }
  return sum;
}

inline constexpr std::array dims{
    dim{.symbol = "R", .label = "rows"},
    dim{.symbol = "D", .label = "columns", .least = 1, .most = 64},
    dim{.symbol = "K",
        .label = "number of blocks",
        .source = dim_source::formula,
        .of = "D",
        .value =
            [](const bound_call& call) {
              const std::int64_t block = call.options_as<cache_options>().block;
              return (call.dims[1] + block - 1) / block;
            }},
    dim{.symbol = "G", .label = "groups"},
    dim{.symbol = "P", .label = "pages", .least = 1},
    dim{.symbol = "Z", .label = "tokens of a page", .least = 1},
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "M", .label = "slots"},
    dim{.symbol = "S",
        .label = "entries",
        .source = dim_source::contents,
        .value = &sum_of_groups,
        .owner = "the sum of groups"},
};
inline constexpr std::array<std::string_view, 8> layouts{"plain", "paged", "l2", "l3",
                                                         "l4",    "l5",    "l6", "stacked"};
inline constexpr std::array tensor_texts{
    tensor_text{.name = "tokens",
                .shapes = {"R D", "R D", "-", "-", "-", "-", "-", "2 R D"},
                .types = dtype::i8 | dtype::f8_e4m3 | dtype::f8_e5m2,
                .contiguous_rows = true,
                .aligned_rows = true},
    tensor_text{.name = "scales",
                .shapes = {"R? K", "R? K", "-", "-", "-", "-", "-", "2 R? K"},
                .types = dtype::f8_e8m0 | dtype::f32},
    tensor_text{.name = "cache",
                .shapes = {"R+ D", "P Z D", "-", "-", "-", "-", "-", "2 R+ D"},
                .like = "tokens",
                .use = tensor_use::input_and_output},
    tensor_text{.name = "updated",
                .shapes = {"R+ D", "P Z D", "-", "-", "-", "-", "-", "2 R+ D"},
                .like = "tokens",
                .use = tensor_use::output,
                .shares = "tokens",
                .free = true},
    tensor_text{.name = "pages",
                .shapes = {"-", "N M", "-", "-", "-", "-", "-", "-"},
                .types = dtype::i32,
                .holds = tensor_contents::page_numbers,
                .counts = "P",
                .used_by = "lengths",
                .page = "Z",
                .elsewhere = "is given, only caches in pages have a list of them"},
    tensor_text{.name = "lengths",
                .shapes = {"-", "N", "-", "-", "-", "-", "-", "-"},
                .types = dtype::i32,
                .contiguous_rows = true,
                .elsewhere = "is given, only caches in pages have lengths"},
    tensor_text{.name = "groups",
                .shapes = {"G", "G", "-", "-", "-", "-", "-", "G"},
                .types = dtype::i32,
                .holds = tensor_contents::group_sizes,
                .counts = "R"},
    tensor_text{.name = "table",
                .shapes = {"S 3", "S 3", "-", "-", "-", "-", "-", "S 3"},
                .types = dtype::f32},
    tensor_text{.name = "codes",
                .shapes = {"R D", "R D", "-", "-", "-", "-", "-", "2 R D"},
                .types = dtype::u4x2 | dtype::u8 | dtype::i8,
                .shape_of = "tokens"},
    tensor_text{.name = "factors",
                .shapes = {"K", "K", "-", "-", "-", "-", "-", "K"},
                .types = dtype::f32,
                .holds = tensor_contents::positive},
};
inline constexpr auto shapes = declared::shapes_in<layouts.size()>(tensor_texts, dims);
inline constexpr auto tensors = declared::tensors_in(tensor_texts, shapes, dims);
static_assert(sizeof(cache_args) == tensors.size() * sizeof(tensor_view));

inline constexpr std::array<std::string_view, 2> modes{"nearest", "down"};
inline constexpr std::array option_forms{
    option_form{.name = "block",
                .offset = offsetof(cache_options, block),
                .type = option_type::integer,
                .limit = option_limit::at_least,
                .least = 1},
    option_form{.name = "mode",
                .offset = offsetof(cache_options, mode),
                .type = option_type::choice,
                .enumerators = modes},
    option_form{.name = "gain",
                .offset = offsetof(cache_options, gain),
                .type = option_type::optional_number,
                .limit = option_limit::positive_float},
    option_form{.name = "wide", .offset = offsetof(cache_options, wide)},
};
inline constexpr cache_options defaults{};
inline constexpr std::array rules{
    tensor_rule{3, [](const bound_call& call) { return !call.options_as<cache_options>().wide; },
                "is given, wide is true; wide caches are written in place"}};
inline constexpr std::array multiples{multiple_rule{0, 3}};

inline constexpr signature form{
    .tensors = tensors,
    .shapes = declared::each_once<shapes>,
    .dims = dims,
    .layouts = layouts,
    .options = option_forms,
    .default_options = &defaults,
    .rules = rules,
    .multiples = multiples,
    .layout_of =
        [](const bound_call& call) {
          return call.has(4) || call.has(5) ? 1 : call.tensors[0].rank == 3 ? 7 : 0;
        },
    .hook =
        [](const bound_call& call, status& failure) {
          return call.has(4) == call.has(5) ||
                 checks::refuse(failure, "lengths: is ", call.has(5) ? "given" : "absent",
                                ", pages is not; caches in pages have both");
        },
    .options_bytes = sizeof(cache_options),
};

constexpr cache_kernel_args kernel_defaults() noexcept {
  return {.total = 0};
}
inline constexpr auto sizes = declared::sizes_in(
    std::array{size_text{"R", offsetof(cache_kernel_args, rows)},
               size_text{"N|G|D", offsetof(cache_kernel_args, total)},
               size_text{"D", offsetof(cache_kernel_args, columns), sizeof(int)}},
    form);
inline constexpr auto bindings = declared::bindings_in(
    std::array{
        binding_text{"tokens",
                     offsetof(cache_kernel_args, tokens),
                     {{{"R", offsetof(cache_kernel_args, row_stride)}}}},
        binding_text{"cache",
                     offsetof(cache_kernel_args, cache),
                     {{{"P", offsetof(cache_kernel_args, page_stride)}}}},
    },
    form);
inline constexpr lowering how{
    .bytes = sizeof(cache_kernel_args),
    .begin = [](void* to) noexcept { ::new (to) cache_kernel_args(kernel_defaults()); },
    .sizes = sizes,
    .bindings = bindings,
    .finish =
        [](const bound_call& call, void* to) {
          auto& filled = *static_cast<cache_kernel_args*>(to);
          filled.scale_type = call.tensors[1].type;
        }};
inline constexpr std::string_view all_tensors =
    "tokens! cache! scales updated lengths pages groups table codes factors";
inline constexpr std::array operations{
    declared::operation_of("fill_cache", 0, form, how, all_tensors),
    declared::operation_of("fill_plainly", 1, form, how, "tokens! cache! scales", "block wide"),
};

}  // namespace cache_table

/// A legal call: 6 rows of 8 columns, and memory for every tensor.
struct cache_call {
  alignas(16) std::array<std::int8_t, 512> tokens{}, cache{}, updated{}, codes{};
  std::array<std::uint8_t, 64> scales{};
  std::array<std::int32_t, 8> pages{0, 2, -7, 1, -5, 9}, lengths{5, 2}, groups{2, 3};
  std::array<float, 64> table{};
  std::array<float, 8> factors{0.5f, 2.0f};

  const operation* op = &cache_table::operations[0];
  cache_options options{};
  cache_args args{.tokens = of(tokens, dtype::i8, {6, 8}), .cache = of(cache, dtype::i8, {6, 8})};

  template <class Memory>
  static tensor_view of(Memory& memory, dtype type, std::initializer_list<std::int64_t> extent) {
    tensor_view view = shaped(type, extent);
    view.data = memory.data();
    view.stride = contiguous_strides(view.extent, view.rank);
    return view;
  }
  /// 2 sequences with up to 3 pages of 3 tokens each, of 3 there are.
  void in_pages() {
    args.cache = of(cache, dtype::i8, {3, 3, 8});
    args.pages = of(pages, dtype::i32, {2, 3});
    args.lengths = of(lengths, dtype::i32, {2});
  }
  std::string refusal(cache_kernel_args* to = nullptr) {
    cache_kernel_args lowered;
    bound_call call{.op = op, .tensors = tensors_of(args), .options = &options};
    return lower_call(call, cache_table::how, to != nullptr ? to : &lowered).message();
  }
};

}  // namespace tessera::testing
