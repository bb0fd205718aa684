// From gradients of keys and values to those of latents and weights: the products of an expansion,
// backwards.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/backward_memory.hpp>
#include <tessera/kernels/latent_attention/cpu/expand.hpp>
#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>

namespace tessera::kernels::latent_attention::cpu {

template <class Isa>
TESSERA_INLINE void add_row(float* to, const float* from, std::int64_t columns) {
  using vec = prim::simd<Isa>;
  for (std::int64_t d = 0; d < columns; d += vec::width) {
    vec::store(to + d, vec::add(vec::load(to + d), vec::load(from + d)));
  }
}

template <class Kernel>
class latent_gradients {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using panels = typename shape::panels;
  static constexpr auto add = prim::product_kind::add;

 public:
  latent_gradients(const latent_attention_kernel_args& args, const launch_sums<Kernel>& sums,
                   const pair_memory<Kernel>& pairs)
      : args_(args), of_(args), sums_(sums), pairs_(pairs) {}

  /// w_kc and w_vc of a pair with latent columns beside each other. A latent column whose weights
  /// are not finite is zeros: who sees it has a gradient that is no number already.
  void transpose_weights(std::int64_t pair, std::int64_t kv_head,
                         const backward_scratch<Kernel>& scratch) const {
    const auto transpose = [&](const latent_rows& weights, std::int64_t columns, float* row,
                               const panels& to) {
      for (int r = 0; r < args_.latent; ++r) {
        prim::load_row<isa_type>(weights, weights.at(0, r, kv_head), columns, row);
        const bool finite = !has_nonfinite<isa_type>(row, shape::columns_of(columns));
        for (int d = 0; d < to.words; ++d) {
          *(to.at(d, r / vec::width * vec::width) + r % vec::width) = finite ? row[d] : 0.0f;
        }
      }
    };
    transpose(args_.w_kc, args_.nope, scratch.expand.keys, pairs_.transposed_keys(pair));
    transpose(args_.w_vc, args_.value, scratch.expand.values, pairs_.transposed_values(pair));
  }

  /// Adds what a pair's tile of keys has for its latents and rope parts.
  void add_tokens(std::int64_t pair, std::int64_t entry, std::int64_t tile,
                  const backward_scratch<Kernel>& scratch) const {
    const key_range keys = pairs_.tile(pair, tile).keys;
    const std::int64_t token = entry * args_.length + keys.key0;
    float* const d_ckv = sums_.d_ckv + token * of_.latent_columns;
    const auto multiply = [&](const float* rows, std::int64_t stride, std::int64_t columns,
                              const panels& weights) {
      const slabs<Kernel> a(scratch.a, shape::block_keys, columns);
      for (int c = 0; c < keys.count; ++c) a.load(c, rows + c * stride);
      a.template multiply<add>(keys.count, weights, of_.latent_columns, d_ckv, of_.latent_columns);
    };
    multiply(pairs_.d_k_row(pair, keys.key0), of_.key_columns, args_.nope,
             pairs_.transposed_keys(pair));
    multiply(pairs_.d_v_row(pair, keys.key0), of_.value_columns, args_.value,
             pairs_.transposed_values(pair));
    if (args_.rope == 0) return;
    for (int c = 0; c < keys.count; ++c) {
      const float* const rope = pairs_.d_k_row(pair, keys.key0 + c) + args_.nope;
      float* const sum = sums_.d_k_pe + (token + c) * of_.rope_columns;
      for (std::int64_t d = 0; d < args_.rope; ++d) sum[d] += rope[d];
      if (!args_.shared_rope) continue;
      add_row<isa_type>(sums_.d_q_pe + (token + c) * of_.rope_columns,
                        pairs_.d_q_pe_row(pair, keys.key0 + c), of_.rope_columns);
    }
  }

  /// Adds what a pair has for the weights of its head: latents transposed times gradients.
  void add_weights(std::int64_t pair, std::int64_t entry, std::int64_t kv_head,
                   const backward_scratch<Kernel>& scratch) const {
    float* const d_w_kc = sums_.d_w_kc + kv_head * args_.latent * of_.nope_columns;
    float* const d_w_vc = sums_.d_w_vc + kv_head * args_.latent * of_.value_columns;
    for (std::int64_t number = 0; number < of_.tiles; ++number) {
      const key_range keys = pairs_.tile(pair, number).keys;
      transpose_latents(entry, keys, scratch);
      const auto multiply = [&](const float* rows, std::int64_t stride, std::int64_t columns,
                                float* to) {
        const panels b{scratch.b, shape::block_keys, static_cast<int>(columns)};
        for (int c = 0; c < keys.count; ++c) pack_row(rows + c * stride, c, b);
        prim::product<add, typename shape::words, shape::mr, shape::score_stride>(
            scratch.latents_transposed, static_cast<int>(args_.latent), b, {0, keys.count},
            {0, b.columns}, to, columns);
      };
      // Columns of rope behind a whole register of others add to nothing that is kept.
      multiply(pairs_.d_k_row(pair, keys.key0), of_.key_columns, of_.nope_columns, d_w_kc);
      multiply(pairs_.d_v_row(pair, keys.key0), of_.value_columns, of_.value_columns, d_w_vc);
    }
  }

  /// Writes the sums.
  void store_tokens(std::int64_t entry, std::int64_t token) const {
    const std::int64_t at = entry * args_.length + token;
    prim::store_row<isa_type>(args_.d_ckv, args_.d_ckv.at(entry, token), args_.latent,
                              sums_.d_ckv + at * of_.latent_columns);
    if (args_.rope == 0) return;
    prim::store_row<isa_type>(args_.d_k_pe, args_.d_k_pe.at(entry, token), args_.rope,
                              sums_.d_k_pe + at * of_.rope_columns);
    if (!args_.shared_rope) return;
    prim::store_row<isa_type>(args_.d_q_pe, args_.d_q_pe.at(entry, token), args_.rope,
                              sums_.d_q_pe + at * of_.rope_columns);
  }
  void store_weights(std::int64_t kv_head) const {
    for (std::int64_t r = 0; r < args_.latent; ++r) {
      const std::int64_t at = kv_head * args_.latent + r;
      prim::store_row<isa_type>(args_.d_w_kc, args_.d_w_kc.at(0, r, kv_head), args_.nope,
                                sums_.d_w_kc + at * of_.nope_columns);
      prim::store_row<isa_type>(args_.d_w_vc, args_.d_w_vc.at(0, r, kv_head), args_.value,
                                sums_.d_w_vc + at * of_.value_columns);
    }
  }

 private:
  /// Latent columns as rows of A. Latents that are not finite are zeros: keys that somebody sees
  /// have gradients that are no numbers then.
  void transpose_latents(std::int64_t entry, const key_range& keys,
                         const backward_scratch<Kernel>& scratch) const {
    constexpr int width = vec::width;
    const std::int64_t columns = of_.latent_columns;
    const int rows = static_cast<int>(shape::columns_of(keys.count));
    for (int c = 0; c < rows; ++c) {
      float* const row = scratch.latents + c * columns;
      if (c < keys.count) {
        prim::load_row<isa_type>(args_.ckv, args_.ckv.at(entry, keys.key0 + c), args_.latent, row);
      }
      if (c >= keys.count || has_nonfinite<isa_type>(row, columns)) std::fill_n(row, columns, 0.0f);
    }
    for (std::int64_t r0 = 0; r0 < columns; r0 += width) {
      for (int c0 = 0; c0 < rows; c0 += width) {
        typename vec::reg tile[width];
        for (int i = 0; i < width; ++i)
          tile[i] = vec::load(scratch.latents + (c0 + i) * columns + r0);
        vec::transpose(tile);
        for (int i = 0; i < width; ++i) {
          vec::store(scratch.latents_transposed + (r0 + i) * shape::score_stride + c0, tile[i]);
        }
      }
    }
  }

  const latent_attention_kernel_args& args_;
  backward_extents<Kernel> of_;
  const launch_sums<Kernel>& sums_;
  const pair_memory<Kernel>& pairs_;
};

}  // namespace tessera::kernels::latent_attention::cpu
