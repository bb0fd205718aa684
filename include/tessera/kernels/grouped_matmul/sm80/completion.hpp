// What the options of a product make of elements of its result before they are rounded: the
// activation, its scale, the multiplier and the residual.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>
#include <tessera/prim/cuda/warp.hpp>

namespace tessera::kernels::grouped_matmul::sm80 {

/// Everything is as it was where nothing `exists`. Matrices are of the size of the result.
struct completion {
  grouped_matrix multiplier{}, residual{};
  product_activation activation = product_activation::none;
  float scale = 1;
  bool exists = false;

  static completion of(const grouped_matmul_kernel_args& args) {
    return {args.multiplier, args.residual, args.activation, args.out_scale, args.has_epilogue()};
  }
};

/// Whether anything is compiled in.
template <class Epilogue>
inline constexpr bool is_epilogue = !std::is_same_v<Epilogue, no_epilogue>;

template <class Activation, int Count>
__device__ __forceinline__ void apply(const Activation& activation, float (&x)[Count]) {
#pragma unroll
  for (float& each : x) each = activation(each, {});
}

/// 1 / (1 + exp(-x)), to a few units in the last place.
__device__ __forceinline__ float quick_sigmoid(float x) {
  constexpr float log2_e = 1.44269504f;
  return prim::cuda::reciprocal_fast(1.0f + prim::cuda::exp2_fast(-log2_e * x));
}
struct quick_silu {
  __device__ __forceinline__ float operator()(float x, const product_position&) const {
    return x * quick_sigmoid(x);
  }
};
/// (1 + tanh(u)) / 2 is the sigmoid of 2 u.
struct quick_gelu_tanh {
  __device__ __forceinline__ float operator()(float x, const product_position&) const {
    using exact = epilogue::gelu_tanh;
    return x * quick_sigmoid(2 * exact::slope * x * fmaf(exact::cubic * x, x, 1.0f));
  }
};

/// Whether values are few instructions away from what they become.
__host__ __device__ constexpr bool is_quick(product_activation activation) {
  return activation != product_activation::gelu;
}

/// The activation of values, but gelu, and their scale.
template <int Count>
__device__ __forceinline__ void activate_quickly(const completion& how, float (&x)[Count]) {
  if (how.activation == product_activation::relu) apply(epilogue::relu{}, x);
  if (how.activation == product_activation::silu) apply(quick_silu{}, x);
  if (how.activation == product_activation::gelu_tanh) apply(quick_gelu_tanh{}, x);
#pragma unroll
  for (float& each : x) each *= how.scale;
}

/// The activation of values, and their scale.
template <int Count>
__device__ __forceinline__ void activate(const completion& how, float (&x)[Count]) {
  if (how.activation == product_activation::gelu) apply(epilogue::gelu{}, x);
  activate_quickly(how, x);
}

}  // namespace tessera::kernels::grouped_matmul::sm80
