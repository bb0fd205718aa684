// The tensors and options of page_attention, under the names that tools and files use.
//
// | tensor | shape | dtype |
// |---|---|---|
// | q | [N,Hq,D]: a token of each sequence | f32, f16, bf16 |
// | k_pages | PHTD: [P,Hkv,T,D]; HPTD: [Hkv,P,T,D]; PTHD: [P,T,Hkv,D] | that of q |
// | v_pages | the same with Dv | that of q |
// | block_table | [N,M]: page m holds keys [m T, m T + T) of sequence n | i32 |
// | seqlens_k | [N]: keys of the sequence, the token of q included; 0 to M T | i32 |
// | out | [N,Hq,Dv] | that of q |
// | lse | [N,Hq] | f32, natural logarithm |
//
// The last axis of q, pools, block_table and out has stride 1; every other stride is free. Entries
// of block_table behind ceil(seqlens_k / T) are never read, nor is what pages hold behind
// seqlens_k.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <tessera/families/attention/problem.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Views of one call. Absent views are default-constructed; all but lse are required.
struct page_attention_args {
  tensor_view q{};
  tensor_view k_pages{};
  tensor_view v_pages{};
  tensor_view block_table{};
  tensor_view seqlens_k{};

  tensor_view out{};
  tensor_view lse{};  ///< optional output: log sum exp of the row
};

/// The axes of a pool of pages, outermost first: P page, H key/value head, T token, D head dim.
enum class page_layout : std::uint8_t { PHTD, HPTD, PTHD };
inline constexpr std::array<std::string_view, 3> page_layout_names{"PHTD", "HPTD", "PTHD"};

/// The number of the axis with that letter; 0 for a layout that is none.
constexpr std::size_t pool_axis(page_layout layout, char axis) noexcept {
  const std::size_t number = name_in(page_layout_names, layout).find(axis);
  return number < 4 ? number : 0;
}

struct page_attention_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Keys before the last one that are visible. Unset: all. The last W tokens: W - 1.
  std::optional<std::int64_t> window_left{};
  /// cap * tanh(s / cap). Must be positive.
  std::optional<double> logits_soft_cap{};
  page_layout pool_layout = page_layout::PHTD;

  friend bool operator==(const page_attention_options&, const page_attention_options&) = default;
};

/// Operations on keys and values in pages.
enum class page_op : std::uint8_t { page_attention };

/// A call of one of them without its memory.
using page_problem = basic_problem<page_op, page_attention_args, page_attention_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline page_problem problem_of(const page_attention_args& args,
                               const page_attention_options& options = {},
                               page_op op = page_op::page_attention) noexcept {
  const bool unaligned = args.q.device.kind == device_kind::cuda &&
                         !(rows_are_aligned(args.q) && rows_are_aligned(args.k_pages) &&
                           rows_are_aligned(args.v_pages));
  return {.op = op, .tensors = args, .unaligned = unaligned, .options = options};
}

}  // namespace tessera
