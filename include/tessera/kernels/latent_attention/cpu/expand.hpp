// Latents become the keys and values of a head: two products with its weights, the shared rope part
// beside the keys.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// A row of floats, zeros up to a whole register behind it, becomes row `row` of B.
template <class Isa, int Vectors>
TESSERA_INLINE void pack_row(const float* from, int row, const prim::panels<Isa, Vectors>& to) {
  using vec = prim::simd<Isa>;
  for (int column = 0; column < to.columns; column += vec::width) {
    vec::store(to.at(row, column), vec::load(from + column));
  }
}

/// Whether some of `count` floats, zeros up to a whole register behind them, is NaN or infinite.
template <class Isa>
TESSERA_INLINE bool has_nonfinite(const float* row, std::int64_t count) {
  using vec = prim::simd<Isa>;
  auto marks = vec::zero();
  for (std::int64_t at = 0; at < count; at += vec::width) {
    marks =
        prim::word_reader<prim::f32_words<Isa>>::accumulate_nonfinite(vec::load(row + at), marks);
  }
  return vec::sum(marks) != 0.0f;
}

/// Scratch memory of an expansion.
template <class Kernel>
struct expand_scratch {
  using shape = traits<Kernel>;

  static std::int64_t key_stride(const latent_attention_kernel_args& args) {
    return shape::columns_of(args.nope + args.rope) + shape::width;
  }
  expand_scratch(const latent_attention_kernel_args& args, prim::float_carver& carver) {
    latents = carver.take(slabs<Kernel>::floats(shape::block_keys, args.latent));
    keys = carver.take(shape::block_keys * key_stride(args));
    values = carver.take(shape::block_keys * shape::columns_of(args.value));
  }

  float* latents;  ///< slabs
  float* keys;     ///< [block_keys, key_stride]
  float* values;   ///< [block_keys, columns of a value]
};

/// w_kc and w_vc of a key/value head as rows of B.
template <class Kernel>
struct head_weights {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  typename shape::panels k{};  ///< [latent columns, columns of a key without rope]
  typename shape::panels v{};  ///< [latent columns, columns of a value]

  static std::int64_t floats(const latent_attention_kernel_args& args) {
    return args.latent * (shape::columns_of(args.nope) + shape::columns_of(args.value));
  }
  head_weights(const latent_attention_kernel_args& args, float* memory) {
    const auto latent = static_cast<int>(args.latent);
    k = {memory, latent, static_cast<int>(shape::columns_of(args.nope))};
    v = {memory + shape::panels::floats(latent, k.columns), latent,
         static_cast<int>(shape::columns_of(args.value))};
  }
  void pack(const latent_attention_kernel_args& args, std::int64_t kv_head,
            const expand_scratch<Kernel>& scratch) const {
    for (int r = 0; r < k.words; ++r) {
      prim::load_row<isa_type>(args.w_kc, args.w_kc.at(0, r, kv_head), args.nope, scratch.keys);
      pack_row(scratch.keys, r, k);
      prim::load_row<isa_type>(args.w_vc, args.w_vc.at(0, r, kv_head), args.value, scratch.values);
      pack_row(scratch.values, r, v);
    }
  }
};

/// Keys and values of tokens of an entry, as rows of floats in the scratch memory. Rows are zeros
/// up to a whole register.
template <class Kernel>
void expand(const latent_attention_kernel_args& args, const head_weights<Kernel>& weights,
            std::int64_t entry, const key_range& keys, const expand_scratch<Kernel>& to) {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using enum prim::product_kind;
  const slabs<Kernel> latents(to.latents, shape::block_keys, args.latent);
  for (int c = 0; c < keys.count; ++c) {
    latents.load(c, args.ckv, args.ckv.at(entry, keys.key0 + c));
  }
  const std::int64_t stride = expand_scratch<Kernel>::key_stride(args);
  latents.template multiply<overwrite>(keys.count, weights.k, weights.k.columns, to.keys, stride);
  latents.template multiply<overwrite>(keys.count, weights.v, weights.v.columns, to.values,
                                       weights.v.columns);
  if (args.rope == 0) return;
  for (int c = 0; c < keys.count; ++c) {
    float* const rope = to.keys + c * stride + args.nope;
    prim::load_row<isa_type>(args.k_pe, args.k_pe.at(entry, keys.key0 + c), args.rope, rope);
    std::fill(rope + args.rope, to.keys + (c + 1) * stride, 0.0f);
  }
}

/// Keys as columns of B.
template <class Kernel>
void pack_key_columns(const float* keys, std::int64_t stride, int count,
                      const typename traits<Kernel>::panels& to) {
  using words = typename traits<Kernel>::words;
  prim::pack_transposed<words>(prim::strided_rows<float>{keys, stride}, {0, count}, to.words, to);
}

/// A row of floats as row `row` of B, zeros instead of one that is not finite; false: it is not.
template <class Kernel>
bool pack_finite_row(float* from, int row, const typename traits<Kernel>::panels& to) {
  const bool finite = !has_nonfinite<typename traits<Kernel>::isa_type>(from, to.columns);
  if (!finite) std::fill_n(from, to.columns, 0.0f);
  pack_row(from, row, to);
  return finite;
}

/// Rows of floats as rows of B, zeros instead of those that are not finite. Marks these with 1,
/// others with 0; true if there are none.
template <class Kernel>
bool pack_finite_rows(float* rows, std::int64_t stride, int count, float* nonfinite,
                      const typename traits<Kernel>::panels& to) {
  bool all_finite = true;
  for (int r = 0; r < count; ++r) {
    const bool finite = pack_finite_row<Kernel>(rows + r * stride, r, to);
    nonfinite[r] = finite ? 0.0f : 1.0f;
    all_finite = all_finite && finite;
  }
  return all_finite;
}

}  // namespace tessera::kernels::latent_attention::cpu
