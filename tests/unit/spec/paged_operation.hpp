// An operation that there is not, declared as decoding from a pool of pages is: the layout is an
// option, lengths say how many entries of the table are used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/lower.hpp>

namespace tessera::testing {

struct paged_args {
  tensor_view q{}, k_pages{}, block_table{}, seqlens_k{}, out{}, lse{};
};
enum class pool_axes : std::uint8_t { PHTD, PTHD };
struct paged_options {
  pool_axes pool_layout = pool_axes::PHTD;
};

namespace paged_table {

inline constexpr std::array dims{
    dim{.symbol = "N", .label = "sequences"},
    dim{.symbol = "P", .label = "pages"},
    dim{.symbol = "T", .label = "page size", .least = 1},
    dim{.symbol = "M", .label = "pages of a sequence"},
    dim{.symbol = "Hq", .label = "heads", .least = 1},
    dim{.symbol = "Hkv", .label = "heads", .least = 1},
    dim{.symbol = "D", .label = "head_dim", .least = 1, .most = 256},
};
inline constexpr std::array<std::string_view, 2> layouts{"PHTD", "PTHD"};
inline constexpr std::array tensor_texts{
    tensor_text{.name = "q", .shapes = {"N Hq D", "N Hq D"}, .types = floating_types},
    tensor_text{.name = "k_pages", .shapes = {"P Hkv T D", "P T Hkv D"}, .like = "q"},
    tensor_text{.name = "block_table",
                .shapes = {"N M", "N M"},
                .types = dtype::i32,
                .holds = tensor_contents::page_numbers,
                .counts = "P",
                .used_by = "seqlens_k",
                .page = "T"},
    tensor_text{.name = "seqlens_k", .shapes = {"N", "N"}, .types = dtype::i32},
    tensor_text{
        .name = "out", .shapes = {"N Hq D", "N Hq D"}, .like = "q", .use = tensor_use::output},
    tensor_text{.name = "lse",
                .shapes = {"N Hq", "N Hq"},
                .types = dtype::f32,
                .use = tensor_use::output,
                .free = true},
};
inline constexpr auto shapes = declared::shapes_in<layouts.size()>(tensor_texts, dims);
inline constexpr auto tensors = declared::tensors_in(tensor_texts, shapes, dims);
inline constexpr std::array option_forms{
    option_form{.name = "pool_layout", .type = option_type::choice, .enumerators = layouts}};
inline constexpr paged_options defaults{};
inline constexpr std::array multiples{multiple_rule{4, 5}};
inline constexpr signature form{
    .tensors = tensors,
    .shapes = declared::each_once<shapes>,
    .dims = dims,
    .layouts = layouts,
    .options = option_forms,
    .default_options = &defaults,
    .multiples = multiples,
    .layout_of =
        [](const bound_call& call) {
          return static_cast<int>(call.options_as<paged_options>().pool_layout);
        },
    .options_bytes = sizeof(paged_options),
};
inline constexpr lowering how{};
inline constexpr std::array operations{declared::operation_of(
    "decode_pages", 0, form, how, "q! k_pages! block_table! seqlens_k! out! lse")};

}  // namespace paged_table

}  // namespace tessera::testing
