// The tensors and options of attention over keys in pages, under the names that tools and files
// use. N sequences with a token each; prefill_page_attention: a chunk of C tokens of one sequence.
//
// | tensor | shape; of prefill_page_attention | dtype |
// |---|---|---|
// | q | [N,Hq,D]; [C,Hq,D] | f32, f16, bf16 |
// | k_pages | axes by pool_layout: [P,Hkv,T,D], ... | that of q; f8_e4m3, f8_e5m2, i8 |
// | v_pages | the same with Dv | that of k_pages |
// | block_table | [N,M]; [1,M]: page m holds keys [m T, m T + T) of the sequence | i32 |
// | seqlens_k | [N]; [1]: keys of the sequence, the tokens of q included; 0 to M T | i32 |
// | k_scales, v_scales | [Hkv]: what a pool of 8 bits was divided by, head by head | f32 |
// | k_token_scales, v_token_scales | [P,T,Hkv], (PT)HD: [P T,Hkv]: the same, slot by slot | f32 |
// | out | [N,Hq,Dv]; [C,Hq,Dv] | that of q |
// | lse | [N,Hq]; [Hq,C] | f32, natural logarithm |
// | cu_prefix_seqs | [F+1]: sequences of the groups that share pages; starts at 0 | i32 |
// | prefix_pages | [F]: pages that a group shares, before that of the last key | i32 |
//
// The last axis of q, pools, block_table and out has stride 1; every other stride is free, of
// scales of tokens too: those of a head are read fastest where slots lie side by side. Entries of
// block_table behind ceil(seqlens_k / T) are never read, nor what pages hold behind seqlens_k.
//
// Sequences cu_prefix_seqs[g] to cu_prefix_seqs[g + 1] - 1 have the same first prefix_pages[g]
// entries of block_table, which are read once for all of them (cascade attention); results are
// those without it, up to rounding. With a window, and under the policy batch_invariant, each
// sequence reads its own. On GPUs it pays where sequences share more keys than they have of their
// own, and all of theirs are half a gigabyte or more: fewer are read sooner from the L2 cache.
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

/// Views of one call. Absent views are default-constructed; all but scales, lse and prefixes are
/// required.
struct page_attention_args {
  tensor_view q{};
  tensor_view k_pages{};
  tensor_view v_pages{};
  tensor_view block_table{};
  tensor_view seqlens_k{};
  tensor_view k_scales{};  ///< optional, pools of 8 bits: beside the option k_scale
  tensor_view v_scales{};

  tensor_view out{};
  tensor_view lse{};  ///< optional output: log sum exp of the row

  tensor_view cu_prefix_seqs{};  ///< optional, both: groups of sequences with the same first pages
  tensor_view prefix_pages{};
  tensor_view k_token_scales{};  ///< optional, pools of 8 bits: beside k_scale and k_scales
  tensor_view v_token_scales{};
};

/// The axes of a pool of pages, outermost first: P page, H key/value head, T token, D head dim.
/// PT_HD, called "(PT)HD": pages and tokens are one axis, of slots: [P T,Hkv,D]. The last two are
/// one pool for keys and values (ragged_page_args.hpp): C channel, L lane of a group of channels.
enum class page_layout : std::uint8_t { PHTD, HPTD, PTHD, PT_HD, PTCD, PTCLD };
inline constexpr std::array<std::string_view, 6> page_layout_names{"PHTD",   "HPTD", "PTHD",
                                                                   "(PT)HD", "PTCD", "PTCLD"};

/// The number of the axis with that letter; 0 for a layout that is none.
constexpr std::size_t pool_axis(page_layout layout, char axis) noexcept {
  std::size_t number = 0;
  bool joined = false;
  for (const char letter : name_in(page_layout_names, layout)) {
    if (letter == axis) return number;
    if (letter == '(') joined = true;
    if (letter == ')') joined = false;
    if (letter != '(' && !joined) ++number;
  }
  return 0;
}

struct page_attention_options {
  /// Multiplies q.k before everything else. Unset: 1 / sqrt(D). Must be finite.
  std::optional<double> softmax_scale{};
  /// Keys before the last one that are visible. Unset: all. The last W tokens: W - 1.
  std::optional<std::int64_t> window_left{};
  /// cap * tanh(s / cap). Must be positive.
  std::optional<double> logits_soft_cap{};
  page_layout pool_layout = page_layout::PHTD;
  /// Tokens of a page of a (PT)HD pool. Other pools have an axis that says it: 0.
  std::int64_t page_size = 0;
  /// Scores are multiplied by k_scale, out by v_scale: what keys and values of the pools were
  /// divided by when they were written. Must be positive.
  std::optional<double> k_scale{};
  std::optional<double> v_scale{};

  friend bool operator==(const page_attention_options&, const page_attention_options&) = default;
};

/// Tokens of a page, and the distance of pages in elements of a pool; options have pool_layout and
/// page_size.
template <class Options>
constexpr std::int64_t page_tokens(const tensor_view& pool, const Options& options) noexcept {
  return options.pool_layout == page_layout::PT_HD
             ? options.page_size
             : pool.extent[pool_axis(options.pool_layout, 'T')];
}
template <class Options>
constexpr std::int64_t page_distance(const tensor_view& pool, const Options& options) noexcept {
  const std::int64_t stride = pool.stride[pool_axis(options.pool_layout, 'P')];
  return options.pool_layout == page_layout::PT_HD ? stride * options.page_size : stride;
}

/// Operations on keys and values in pages. The first two are one operation: decode_attention is its
/// name where requests have lists of the slots of their tokens.
enum class page_op : std::uint8_t { page_attention, decode_attention, prefill_page_attention };

/// A call of one of them without its memory.
using page_problem = basic_problem<page_op, page_attention_args, page_attention_options>;

/// The shapes and options of a call. Copies; validates nothing.
inline page_problem problem_of(const page_attention_args& args,
                               const page_attention_options& options = {},
                               page_op op = page_op::page_attention) noexcept {
  return {.op = op,
          .tensors = args,
          .unaligned = are_unaligned(args.q, args.k_pages, args.v_pages),
          .options = options};
}

}  // namespace tessera
