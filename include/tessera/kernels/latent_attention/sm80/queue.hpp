// The kernels of a launch, one behind the other on its stream, and those that make keys and values.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/key_selection.hpp>
#include <tessera/kernels/latent_attention/sm80/launch_memory.hpp>
#include <tessera/kernels/latent_attention/sm80/products.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::latent_attention::sm80 {

class queue {
 public:
  explicit queue(void* stream) : stream_(static_cast<cudaStream_t>(stream)) {}

  /// Nothing happens behind a failure, or for no blocks.
  template <class... Parameters, class... Arguments>
  void enqueue(void (*kernel)(Parameters...), std::int64_t blocks, int threads, int shared_bytes,
               const Arguments&... arguments) {
    if (code_ != cudaSuccess || blocks <= 0) return;
    code_ = prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), threads, shared_bytes, stream_,
                                      false, arguments...);
  }
  void multiply_all(const product_args& args) {
    enqueue(&multiply<tile_threads>, args.blocks(), tile_threads, 0, args);
  }
  cudaError_t code() const { return code_; }

 private:
  cudaStream_t stream_;
  cudaError_t code_ = cudaSuccess;
};

/// Of a launch over pages: new latents are written, blocks of `rows` rows numbered.
inline void write_and_place(const latent_attention_kernel_args& args, const forward_memory& memory,
                            int rows, queue& to) {
  if (args.ckv_new.data != nullptr) {
    to.enqueue(&write_latents<tile_threads>, args.length, tile_threads, 0, args);
  }
  if (memory.starts != nullptr) {
    to.enqueue(&place_row_blocks<prim::cuda::warp_size>, 1, prim::cuda::warp_size, 0, args,
               memory.starts, rows);
  }
}

/// Keys and values of each pair, and the lists of tokens.
inline void make_keys(const latent_attention_kernel_args& args, const key_memory& memory,
                      queue& to) {
  const auto expand = [&](const latent_rows& weights, std::int64_t columns, float* made) {
    product_args product;
    product.terms[0].a = {.data = args.ckv.data,
                          .type = args.ckv.type,
                          .outer = args.ckv.entry,
                          .line = args.ckv.token,
                          .depth = 1};
    product.terms[0].b = {.data = weights.data,
                          .type = weights.type,
                          .inner = weights.head,
                          .line = 1,
                          .depth = weights.token};
    product.terms[0].depth = args.latent;
    product.to = made;
    product.to_type = dtype::f32;
    product.to_inner = args.length * columns;
    product.to_outer = args.kv_heads * product.to_inner;
    product.to_row = columns;
    product.outers = args.entries;
    product.inners = args.kv_heads;
    product.rows = args.length;
    product.columns = columns;
    to.multiply_all(product);
  };
  expand(args.w_kc, args.nope, memory.expanded.keys);
  expand(args.w_vc, args.value, memory.expanded.values);
  if (memory.selection.listed != nullptr) {
    to.enqueue(&select_keys<tile_threads>, memory.selection.blocks, tile_threads, 0, args,
               memory.selection);
  }
}

/// From gradients of keys and values to those of latents and weights. Latents and weights that are
/// not finite are 0: who sees them has gradients that are no numbers already.
inline void multiply_gradients(const latent_attention_kernel_args& args, const gradient_sums& sums,
                               queue& to) {
  const std::int64_t width = args.nope + args.rope;
  product_args latents;
  const auto term = [&](const latent_rows& weights, const float* gradients, std::int64_t row,
                        std::int64_t columns) {
    product_term made;
    made.a = {.data = gradients,
              .type = dtype::f32,
              .outer = args.kv_heads * args.length * row,
              .sum = args.length * row,
              .line = row,
              .depth = 1};
    made.b = {.data = weights.data,
              .type = weights.type,
              .sum = weights.head,
              .line = weights.token,
              .depth = 1,
              .finite = true};
    made.depth = columns;
    return made;
  };
  latents.terms[0] = term(args.w_kc, sums.d_keys, width, args.nope);
  latents.terms[1] = term(args.w_vc, sums.d_values, args.value, args.value);
  latents.sums = args.kv_heads;
  latents.to = args.d_ckv.data;
  latents.to_type = args.d_ckv.type;
  latents.to_outer = args.d_ckv.entry;
  latents.to_row = args.d_ckv.token;
  latents.outers = args.entries;
  latents.rows = args.length;
  latents.columns = args.latent;
  to.multiply_all(latents);

  const auto weights = [&](const latent_rows& made, const float* gradients, std::int64_t row,
                           std::int64_t columns) {
    product_args product;
    product.terms[0].a = {.data = args.ckv.data,
                          .type = args.ckv.type,
                          .sum = args.ckv.entry,
                          .line = 1,
                          .depth = args.ckv.token,
                          .finite = true};
    product.terms[0].b = {.data = gradients,
                          .type = dtype::f32,
                          .inner = args.length * row,
                          .sum = args.kv_heads * args.length * row,
                          .line = 1,
                          .depth = row};
    product.terms[0].depth = args.length;
    product.sums = args.entries;
    product.to = made.data;
    product.to_type = made.type;
    product.to_inner = made.head;
    product.to_row = made.token;
    product.inners = args.kv_heads;
    product.rows = args.latent;
    product.columns = columns;
    to.multiply_all(product);
  };
  weights(args.d_w_kc, sums.d_keys, width, args.nope);
  weights(args.d_w_vc, sums.d_values, args.value, args.value);
}

}  // namespace tessera::kernels::latent_attention::sm80
