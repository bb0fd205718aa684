// Gradients of blocksparse attention. Blocks of rows own d_q: they look at the tiles of keys that
// they see. Then tiles of keys own d_k and d_v: they look at the blocks of rows that see them, head
// by head of their group. Scores are computed twice, and no sum depends on threads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <tessera/families/sparse_attention/kernel_args.hpp>
#include <tessera/kernels/sparse_attention/cpu/blocksparse_forward.hpp>
#include <tessera/kernels/sparse_attention/cpu/gradient_block.hpp>
#include <tessera/kernels/sparse_attention/cpu/visible_pairs.hpp>
#include <tessera/prim/common/hooks.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::sparse_attention::cpu {

template <class Kernel, class Mask = prim::no_mask_functor>
class blocksparse_backward {
  using isa_type = typename isa::of<Kernel::config.target>::type;
  using pairs_type = visible_pairs<isa_type, Mask>;
  using block_type = gradient_block<isa_type>;

 public:
  explicit blocksparse_backward(const blocksparse_kernel_args& args, const Mask& mask = {})
      : args_(args), mask_(mask) {}

  std::size_t workspace_bytes(int threads) const {
    prim::float_carver memory(nullptr);
    static_cast<void>(launch_memory(args_, mask_, memory));
    return memory.bytes() + static_cast<std::size_t>(threads) * thread_bytes();
  }

  void run(std::byte* workspace, int threads) const {
    prim::float_carver memory(workspace);
    const launch_memory launch(args_, mask_, memory);
    launch.pairs.prepare(threads);
    std::byte* const of_threads = workspace + memory.bytes();
    const auto with_block = [&](std::int64_t items, const auto& body) {
      prim::parallel_items<isa_type>(items, threads, [&](std::int64_t item, int thread) {
        prim::float_carver own(of_threads + static_cast<std::size_t>(thread) * thread_bytes());
        block_type block(args_.head_dim, args_.v_head_dim, own);
        body(item, block);
      });
    };
    const std::int64_t blocks = launch.pairs.blocks(), tiles = launch.pairs.tiles();
    with_block(args_.batch * args_.q_heads * blocks, [&](std::int64_t item, block_type& block) {
      const std::int64_t head = item / blocks;
      differentiate_rows({head / args_.q_heads, head % args_.q_heads, blocks - 1 - item % blocks},
                         launch, block);
    });
    with_block(args_.batch * args_.kv_heads * tiles, [&](std::int64_t item, block_type& block) {
      const std::int64_t head = item / tiles;
      differentiate_keys(head / args_.kv_heads, head % args_.kv_heads, item % tiles, launch, block);
    });
    if (args_.d_sinks.data == nullptr) return;
    prim::parallel_items<isa_type>(
        args_.sink_rows * args_.sink_count, threads, [&](std::int64_t item, int) {
          differentiate_sink(item / args_.sink_count, item % args_.sink_count, launch);
        });
  }

 private:
  /// D of every row, beside who sees whom.
  struct launch_memory {
    launch_memory(const blocksparse_kernel_args& args, const Mask& mask, prim::float_carver& memory)
        : pairs(args, mask, memory),
          corrections(memory.take(args.batch * args.q_heads * args.q_len)) {}
    pairs_type pairs;
    float* corrections;
  };

  std::size_t thread_bytes() const {
    prim::float_carver memory(nullptr);
    static_cast<void>(block_type(args_.head_dim, args_.v_head_dim, memory));
    return memory.bytes();
  }
  float* corrections_of(const launch_memory& launch, const row_block& at) const {
    return launch.corrections + (at.entry * args_.q_heads + at.head) * args_.q_len + at.first();
  }

  void differentiate_rows(const row_block& at, const launch_memory& launch,
                          block_type& block) const {
    load_rows_of(at, block);
    make_corrections(at, block);
    std::copy(block.correction, block.correction + block.rows, corrections_of(launch, at));
    std::fill(block.d_q, block.d_q + block.rows * block.q_stride, 0.0f);
    for (std::int64_t tile = 0; tile < launch.pairs.tiles(); ++tile) {
      const auto seen = launch.pairs.of_tile(at.entry, at.head, at.block, tile);
      if (seen == prim::tile_visibility::skip) continue;
      load_tile(at.entry, kv_head_of(at.head), tile, block);
      compute(at, tile, seen, launch, block);
      block.add_to_queries();
    }
    store_scaled(args_.d_q, rows_from(args_.d_q, at.entry, at.head, at.first()), block.rows,
                 args_.head_dim, block.d_q, block.q_stride, args_.softmax_scale);
  }

  void differentiate_keys(std::int64_t entry, std::int64_t kv_head, std::int64_t tile,
                          const launch_memory& launch, block_type& block) const {
    const std::int64_t group = args_.q_heads / args_.kv_heads;
    load_tile(entry, kv_head, tile, block);
    std::fill(block.d_k, block.d_k + block.keys * block.q_stride, 0.0f);
    std::fill(block.d_v, block.d_v + block.keys * block.v_stride, 0.0f);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t number = 0; number < launch.pairs.blocks(); ++number) {
        const row_block at{entry, head, number};
        const auto seen = launch.pairs.of_tile(entry, head, number, tile);
        if (seen == prim::tile_visibility::skip) continue;
        load_rows_of(at, block);
        const float* const corrections = corrections_of(launch, at);
        std::copy(corrections, corrections + block.rows, block.correction);
        compute(at, tile, seen, launch, block);
        block.add_to_keys();
      }
    }
    const std::int64_t key = tile * block_keys;
    store_scaled(args_.d_k, rows_from(args_.d_k, entry, kv_head, key), block.keys, args_.head_dim,
                 block.d_k, block.q_stride, args_.softmax_scale);
    store_scaled(args_.d_v, rows_from(args_.d_v, entry, kv_head, key), block.keys, args_.v_head_dim,
                 block.d_v, block.v_stride, 1.0f);
  }

  std::int64_t kv_head_of(std::int64_t head) const {
    return head / (args_.q_heads / args_.kv_heads);
  }

  /// Operands of a block of rows; those that see nothing are left out.
  void load_rows_of(const row_block& at, block_type& block) const {
    block.load_queries(args_.q, at.rows(args_.q_len),
                       rows_from(args_.q, at.entry, at.head, at.first()));
    block.load_gradients(args_.d_out, rows_from(args_.d_out, at.entry, at.head, at.first()));
    const auto lse = rows_from(args_.lse, at.entry, at.head, at.first());
    for (int r = 0; r < block.rows; ++r) {
      block.lse[r] = args_.lse.data[lse(r)];
      if (block.lse[r] == prim::minus_infinity) block.leave_out(r);
    }
  }
  /// D of the rows of a block; `d_v` is free for a row of out.
  void make_corrections(const row_block& at, block_type& block) const {
    using vec = prim::simd<isa_type>;
    const auto out = rows_from(args_.out, at.entry, at.head, at.first());
    const auto lse = rows_from(args_.lse, at.entry, at.head, at.first());
    const auto d_lse = rows_from(args_.d_lse, at.entry, at.head, at.first());
    for (int r = 0; r < block.rows; ++r) {
      block.correction[r] = 0.0f;
      if (args_.lse.data[lse(r)] == prim::minus_infinity) continue;
      prim::load_row<isa_type>(args_.out, out(r), args_.v_head_dim, block.d_v);
      auto sum = vec::zero();
      for (std::int64_t d = 0; d < block.v_stride; d += vec::width) {
        sum = vec::fma(vec::load(block.d_out + r * block.v_stride + d), vec::load(block.d_v + d),
                       sum);
      }
      block.correction[r] =
          vec::sum(sum) - (args_.d_lse.data == nullptr ? 0.0f : args_.d_lse.data[d_lse(r)]);
    }
  }

  void load_tile(std::int64_t entry, std::int64_t kv_head, std::int64_t tile,
                 block_type& block) const {
    const std::int64_t key = tile * block_keys;
    block.load_keys(args_.k, keys_of_tile(tile, args_.kv_len),
                    rows_from(args_.k, entry, kv_head, key));
    block.load_values(args_.v, rows_from(args_.v, entry, kv_head, key));
    block.arrange_values();
  }

  /// Weights and gradients of the scores of a block and a tile that are loaded.
  void compute(const row_block& at, std::int64_t tile, prim::tile_visibility seen,
               const launch_memory& launch, block_type& block) const {
    block.compute_scores({args_.softmax_scale, args_.soft_cap}, block.slopes);
    if (seen == prim::tile_visibility::full) {
      for (int r = 0; r < block.rows; ++r) block.hide_outside(r, 0, block.keys);
    } else {
      launch.pairs.hide(at.entry, at.head, at.block, tile, block);
    }
    block.compute_gradients(args_.soft_cap != 0.0f);
  }

  template <class OffsetOf>
  static void store_scaled(const sparse_rows& tensor, const OffsetOf& offset_of, int rows,
                           std::int64_t width, float* from, std::int64_t stride, float scale) {
    using vec = prim::simd<isa_type>;
    for (std::int64_t at = 0; scale != 1.0f && at < rows * stride; at += vec::width) {
      vec::store(from + at, vec::mul(vec::load(from + at), vec::broadcast(scale)));
    }
    for (int r = 0; r < rows; ++r) {
      prim::store_row<isa_type>(tensor, offset_of(r), width, from + r * stride);
    }
  }

  /// Minus the sum of exp(sink - lse) D over the rows of a head, or of all heads.
  void differentiate_sink(std::int64_t row, std::int64_t number,
                          const launch_memory& launch) const {
    const std::int64_t begin = args_.sink_rows == 1 ? 0 : row;
    const std::int64_t end = args_.sink_rows == 1 ? args_.q_heads : row + 1;
    double sum = 0;
    for (std::int64_t entry = 0; entry < args_.batch; ++entry) {
      for (std::int64_t head = begin; head < end; ++head) {
        const auto lse_of = rows_from(args_.lse, entry, head, 0);
        const float* const corrections = corrections_of(launch, {entry, head, 0});
        const float sink = args_.sinks.data[head * args_.sinks.head + number * args_.sinks.sink];
        for (std::int64_t i = 0; i < args_.q_len; ++i) {
          const float lse = args_.lse.data[lse_of(i)];
          if (lse == prim::minus_infinity) continue;
          const double weight = sink == lse ? 1.0 : std::exp(static_cast<double>(sink) - lse);
          sum += weight * static_cast<double>(corrections[i]);
        }
      }
    }
    args_.d_sinks.data[row * args_.d_sinks.head + number * args_.d_sinks.sink] =
        static_cast<float>(-sum);
  }

  const blocksparse_kernel_args args_;
  const Mask mask_;
};

}  // namespace tessera::kernels::sparse_attention::cpu
