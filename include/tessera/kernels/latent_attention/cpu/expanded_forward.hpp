// Attention whose keys and values are made of latents. A pair is a batch entry and a key/value
// head:
//
//   for as many pairs at a time as there are threads {
//     for each tile of keys { expand }
//     for each block of rows { for each tile of keys { scores; softmax; weighted values } }
//   }
//
// What is computed of a pair depends on nothing else, so no bit depends on threads or batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/attend.hpp>
#include <tessera/kernels/latent_attention/cpu/expand.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::latent_attention::cpu {

template <class Kernel>
class expanded_forward {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;

 public:
  explicit expanded_forward(const latent_attention_kernel_args& args)
      : args_(args),
        pairs_(args.entries * args.kv_heads),
        rows_(args.length * (args.heads / args.kv_heads)),
        tiles_((args.length + shape::block_keys - 1) / shape::block_keys),
        blocks_((rows_ + shape::block_rows - 1) / shape::block_rows) {}

  std::size_t workspace_bytes(int threads) const {
    return memory(args_, nullptr, wave(threads), tiles_).bytes +
           static_cast<std::size_t>(threads) * thread_memory(args_, nullptr).bytes;
  }

  void run(std::byte* workspace, int threads) const {
    const std::int64_t most = wave(threads);
    const memory of_pairs(args_, workspace, most, tiles_);
    std::byte* const of_threads = workspace + of_pairs.bytes;
    const std::size_t step = thread_memory(args_, nullptr).bytes;
    const auto scratch = [&](int thread) {
      return thread_memory(args_, of_threads + static_cast<std::size_t>(thread) * step);
    };
    for (std::int64_t first = 0; first < pairs_; first += most) {
      const std::int64_t count = std::min(most, pairs_ - first);
      prim::parallel_items<isa_type>(count, threads, [&](std::int64_t pair, int thread) {
        of_pairs.weights(pair).pack(args_, (first + pair) % args_.kv_heads, scratch(thread).expand);
      });
      prim::parallel_items<isa_type>(count * tiles_, threads, [&](std::int64_t item, int thread) {
        expand_tile(of_pairs, first, item / tiles_, item % tiles_, scratch(thread));
      });
      prim::parallel_items<isa_type>(count * blocks_, threads, [&](std::int64_t item, int thread) {
        // The last rows of a causal call see most keys.
        const std::int64_t block = blocks_ - 1 - item / count;
        attend(of_pairs, first, item % count, block, scratch(thread));
      });
    }
  }

 private:
  /// Pairs whose keys and values are there at the same time.
  std::int64_t wave(int threads) const {
    return latent_schedule::wave(pairs_, memory(args_, nullptr, 1, tiles_).bytes, threads);
  }

  /// Weights, keys and values of the pairs of a wave.
  struct memory {
    memory(const latent_attention_kernel_args& launch, std::byte* base, std::int64_t pairs,
           std::int64_t tiles_of_pair)
        : args(launch), tiles(tiles_of_pair) {
      prim::float_carver carver(base);
      all_weights = carver.take(pairs * head_weights<Kernel>::floats(args));
      keys = carver.take(pairs * tiles * k_floats());
      values = carver.take(pairs * tiles * v_floats());
      nonfinite = carver.take(pairs * tiles * marks);
      bytes = carver.bytes();
    }
    std::int64_t k_floats() const { return shape::block_keys * (args.nope + args.rope); }
    std::int64_t v_floats() const { return shape::block_keys * shape::columns_of(args.value); }

    head_weights<Kernel> weights(std::int64_t pair) const {
      return {args, all_weights + pair * head_weights<Kernel>::floats(args)};
    }
    /// Where a tile lies; `nonfinite` are its marks, and behind them whether there are some.
    key_tile<Kernel> tile(std::int64_t pair, std::int64_t number) const {
      const std::int64_t at = pair * tiles + number, key0 = number * shape::block_keys;
      const auto left = std::min<std::int64_t>(shape::block_keys, args.length - key0);
      key_tile<Kernel> found;
      found.keys = {key0, static_cast<int>(left)};
      found.k = {keys + at * k_floats(), static_cast<int>(args.nope + args.rope),
                 shape::block_keys};
      found.v = {values + at * v_floats(), shape::block_keys,
                 static_cast<int>(shape::columns_of(args.value))};
      found.nonfinite = nonfinite + at * marks;
      return found;
    }

    static constexpr std::int64_t marks = shape::block_keys + 16;
    const latent_attention_kernel_args& args;
    std::int64_t tiles;
    float *all_weights, *keys, *values, *nonfinite;
    std::size_t bytes;
  };

  /// Of a thread: either an expansion or a block of rows.
  struct thread_memory {
    thread_memory(const latent_attention_kernel_args& args, std::byte* base)
        : carver(base), expand(args, carver), attend(args, carver), bytes(carver.bytes()) {}
    prim::float_carver carver;
    expand_scratch<Kernel> expand;
    attend_scratch<Kernel> attend;
    std::size_t bytes;
  };

  void expand_tile(const memory& of_pairs, std::int64_t first, std::int64_t pair,
                   std::int64_t number, const thread_memory& scratch) const {
    const key_tile<Kernel> tile = of_pairs.tile(pair, number);
    const expand_scratch<Kernel>& rows = scratch.expand;
    expand(args_, of_pairs.weights(pair), (first + pair) / args_.kv_heads, tile.keys, rows);
    pack_key_columns<Kernel>(rows.keys, expand_scratch<Kernel>::key_stride(args_), tile.keys.count,
                             tile.k);
    auto* const marks = const_cast<float*>(tile.nonfinite);
    const bool finite =
        pack_finite_rows<Kernel>(rows.values, tile.v.columns, tile.keys.count, marks, tile.v);
    marks[shape::block_keys] = finite ? 0.0f : 1.0f;
  }

  void attend(const memory& of_pairs, std::int64_t first, std::int64_t pair, std::int64_t block,
              const thread_memory& scratch) const {
    const std::int64_t begin = block * shape::block_rows;
    const auto count = static_cast<int>(std::min<std::int64_t>(shape::block_rows, rows_ - begin));
    const prim::sequence seq{
        .index = (first + pair) / args_.kv_heads, .q_len = args_.length, .k_len = args_.length};
    const query_rows<Kernel> rows(args_, seq, (first + pair) % args_.kv_heads, begin, count);
    attend_block<Kernel> sums(args_, rows, scratch.attend);
    const prim::key_interval seen = rows.keys_of_some();
    for (std::int64_t number = seen.begin / shape::block_keys;
         number * shape::block_keys < seen.end; ++number) {
      key_tile<Kernel> tile = of_pairs.tile(pair, number);
      if (rows.lists_none_of(tile.keys.key0, tile.keys.count)) continue;
      if (tile.nonfinite[shape::block_keys] == 0.0f) tile.nonfinite = nullptr;
      sums.add(tile);
    }
    sums.store();
  }

  const latent_attention_kernel_args& args_;
  std::int64_t pairs_;
  std::int64_t rows_;    ///< of a pair
  std::int64_t tiles_;   ///< of the keys of a pair
  std::int64_t blocks_;  ///< of its rows
};

}  // namespace tessera::kernels::latent_attention::cpu
