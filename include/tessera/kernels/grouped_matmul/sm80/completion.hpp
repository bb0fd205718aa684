// What the options of a product make of elements of its result before they are rounded: the
// activation, its scale, the multiplier and the residual.
#pragma once

#include <cstdint>
#include <type_traits>

#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/kernel_args.hpp>

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

/// The activation of values, and their scale.
template <int Count>
__device__ __forceinline__ void activate(const completion& how, float (&x)[Count]) {
  switch (how.activation) {
    case product_activation::none:
      break;
    case product_activation::relu:
      apply(epilogue::relu{}, x);
      break;
    case product_activation::silu:
      apply(epilogue::silu{}, x);
      break;
    case product_activation::gelu:
      apply(epilogue::gelu{}, x);
      break;
    case product_activation::gelu_tanh:
      apply(epilogue::gelu_tanh{}, x);
      break;
  }
#pragma unroll
  for (float& each : x) each *= how.scale;
}

}  // namespace tessera::kernels::grouped_matmul::sm80
