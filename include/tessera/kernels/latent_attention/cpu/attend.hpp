// A block of query rows against tiles of keys: scores, the running softmax, weighted values.
//
// T. Dao, "FlashAttention-2", arXiv:2307.08691, on register tiles.
#pragma once

#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/row_sums.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/gemm/product.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Keys as columns and values as rows of the products of a tile.
template <class Kernel>
struct key_tile {
  key_range keys{};
  typename traits<Kernel>::panels k{};  ///< [width of a key, block_keys]
  typename traits<Kernel>::panels v{};  ///< [block_keys, value columns]
  /// Not 0: the key's values are zeros here, for some of them are not finite. Null: all are.
  const float* nonfinite = nullptr;
};

/// Scratch memory of a block of rows.
template <class Kernel>
struct attend_scratch {
  using shape = traits<Kernel>;

  attend_scratch(const latent_attention_kernel_args& args, prim::float_carver& carver) {
    const std::int64_t width = args.nope + args.rope;
    query = carver.take(shape::columns_of(width) + shape::width);
    q = carver.take(slabs<Kernel>::floats(shape::block_rows, width));
    scores = carver.take(std::int64_t{shape::block_rows} * shape::score_stride);
    out = carver.take(shape::block_rows * shape::columns_of(args.value));
  }

  float* query;  ///< of one row
  float* q;      ///< slabs
  float* scores;
  float* out;  ///< what is summed
};

template <class Kernel>
class attend_block {
  using shape = traits<Kernel>;

 public:
  attend_block(const latent_attention_kernel_args& args, const query_rows<Kernel>& rows,
               const attend_scratch<Kernel>& scratch)
      : args_(args),
        rows_(rows),
        q_(scratch.q, shape::block_rows, args.nope + args.rope),
        sums_(args, rows, scratch.scores, scratch.out) {
    for (int r = 0; r < rows.count(); ++r) {
      rows.load_query(r, scratch.query);
      q_.load(r, scratch.query);
    }
  }
  attend_block(const attend_block&) = delete;
  attend_block& operator=(const attend_block&) = delete;

  /// The keys of a tile, which some row sees.
  void add(const key_tile<Kernel>& tile) {
    q_.template multiply<prim::product_kind::overwrite>(rows_.count(), tile.k,
                                                        shape::columns_of(tile.keys.count),
                                                        sums_.scores(0), shape::score_stride);
    for (int r = 0; r < rows_.count(); ++r) sums_.rescale(r, sums_.weigh(r, tile.keys));
    prim::product<prim::product_kind::add, typename shape::words, shape::mr, shape::score_stride>(
        sums_.scores(0), rows_.count(), tile.v, {0, tile.keys.count},
        {0, static_cast<int>(sums_.stride())}, sums_.out(0), sums_.stride());
    if (tile.nonfinite != nullptr) sums_.add_nonfinite(tile.keys.count, tile.nonfinite);
  }

  /// Writes the finished rows.
  void store() { store_sums(args_, rows_, sums_.summed()); }

 private:
  const latent_attention_kernel_args& args_;
  const query_rows<Kernel>& rows_;
  slabs<Kernel> q_;
  row_sums<Kernel> sums_;
};

}  // namespace tessera::kernels::latent_attention::cpu
