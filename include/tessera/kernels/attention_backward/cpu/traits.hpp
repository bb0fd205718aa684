// What follows from a row's config on the CPU: the forward kernel whose scores it computes again,
// and the shapes of buffers.
#pragma once

#include <cstdint>

#include <tessera/families/attention_backward/config.hpp>
#include <tessera/families/attention_backward/kernel_args.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/families/attention_backward/schedule_cpu.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/kernels/cpu_row.hpp>
#include <tessera/prim/common/hook_gradients.hpp>
#include <tessera/prim/cpu/gemm/tiled_product.hpp>

namespace tessera::kernels::attention_backward::cpu {

namespace forward = kernels::attention::cpu;

/// The forward kernel of a row: its tile, every feature.
template <class Row>
struct score_kernel {
  static_assert(cpu_row_is_legal<Row, broken_rule(Row::config)>::value);
  static constexpr attention_config config = scores_of(resolved(Row::config));
};

/// A row with functors of the caller's.
template <class Row, class Hooks>
struct hooked_row {
  static constexpr attention_backward_config config = Row::config;
  using hooks = Hooks;
};

template <class Row>
struct hooks_of_row {
  using type = flash_hooks<>;
};
template <class Row, class Hooks>
struct hooks_of_row<hooked_row<Row, Hooks>> {
  using type = Hooks;
};

/// Strides count 32-bit words.
template <class Row>
struct traits : forward::traits<score_kernel<Row>> {
  using kernel = score_kernel<Row>;
  using base = forward::traits<kernel>;
  using hooks = typename hooks_of_row<Row>::type;
  using logits = decltype(hooks::logits);
  static_assert(!hooks::has_logits || prim::has_slope<logits>,
                "gradients need the derivative of a functor of logits: give it a member "
                "with_slope(float score, const tessera::position& at) that returns a "
                "tessera::score_with_slope");
  static constexpr bool has_parameters = prim::has_parameters<logits>;
  using query_rows = forward::query_rows<kernel, hooks>;
  using mods = forward::score_mod<kernel, hooks>;
  using base::block_q, base::block_kv, base::width;
  static constexpr int k_pack = base::words::k_pack;
  /// What rows of a register tile begin at multiples of: they become words of B, and of tiles whole
  /// ones.
  static constexpr int whole_rows = base::tiles ? k_pack * prim::tile_width : k_pack;

  /// Rows of weights and of gradients of scores, keys beside each other, also in words; and words
  /// of a head dim's columns, queries beside each other.
  static constexpr int score_stride = base::score_stride;
  static constexpr int score_word_stride = block_kv / k_pack + 16;
  static constexpr int query_word_stride = block_q / k_pack + 16;

  /// Slopes of a cap amplify what is rounded in a score, and more is where there is no FMA.
  static constexpr int score_chain =
      base::config.target == backend::cpu_generic ? 16 : base::score_chain;

  /// A block of weights, or of gradients of scores, as B.
  static TESSERA_INLINE typename base::panels query_panels(float* data) {
    return {data, block_q / k_pack, block_kv};
  }
  static TESSERA_INLINE int columns_of(int head_dim) { return forward::round_up(head_dim, width); }
  /// Words that products take for `used`, those behind being zeros.
  static TESSERA_INLINE int product_words(int used) {
    return base::tiles ? forward::round_up(used, prim::tile_width) : used;
  }

  /// C = A B or C += A B by the row's own instructions.
  template <prim::product_kind Kind, int AStride>
  static void multiply(const float* a, int rows, const typename base::panels& b,
                       prim::product_range words, prim::product_range columns, float* c,
                       std::int64_t c_stride, int chain = prim::any_length) {
    if constexpr (base::tiles) {
      prim::tiled_product<Kind, prim::tiles>(a, rows, AStride, b, words, columns, c, c_stride);
    } else {
      prim::product<Kind, typename base::words, base::mr, AStride>(a, rows, b, words, columns, c,
                                                                   c_stride, chain);
    }
  }
};

}  // namespace tessera::kernels::attention_backward::cpu
