// A block of query rows against tiles of latents, which are the keys of all heads and, their first
// columns, the values:
//
//   S^T = K Q^T: rows of latents as they are times the queries, which are packed once for all tiles
//   O  += P V:   the same rows, of f32 as they are, of bf16 in pairs of keys
//
// by register tiles, or AMX tiles (absorbed_tiles.hpp; of few rows absorbed_in_place.hpp).
//
// Packing a latent for both uses would take longer than multiplying it with a few heads.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/absorbed_in_place.hpp>
#include <tessera/kernels/latent_attention/cpu/absorbed_tiles.hpp>
#include <tessera/kernels/latent_attention/cpu/expand.hpp>
#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/pages.hpp>
#include <tessera/kernels/latent_attention/cpu/query_rows.hpp>
#include <tessera/kernels/latent_attention/cpu/row_sums.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/float_carver.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/gemm/pack.hpp>
#include <tessera/prim/cpu/gemm/strided_product.hpp>
#include <tessera/prim/cpu/gemm/word_reader.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Scratch memory of a block of rows and a tile of latents.
template <class Kernel>
struct absorbed_scratch {
  using shape = traits<Kernel>;
  using words = typename shape::latent_words;
  using latent_slabs = slabs<Kernel, words>;
  using element = typename latent_slabs::element;
  /// Of panels of queries, which are whole.
  static constexpr int query_columns(int rows) {
    constexpr int nr = shape::panels::nr;
    return (rows + nr - 1) / nr * nr;
  }
  /// Of a sum over `length` elements: on tiles, those behind the last are zeros.
  static constexpr int words_of(int length) {
    return shape::on_tiles ? absorbed_tiles<Kernel>::words_of(length)
                           : prim::words_for<words>(length);
  }
  /// Of a row of S^T: no power of two.
  static constexpr int score_columns = shape::block_rows + 3 * shape::width;

  absorbed_scratch(const latent_attention_kernel_args& args, prim::float_carver& carver) {
    const std::int64_t width = args.nope + args.rope;
    query_stride = (width + 63) / 64 * 64;
    queries = carver.take<element>(shape::block_rows * query_stride);
    q = carver.take(words_of(static_cast<int>(width)) * query_columns(shape::block_rows));
    latents = carver.take(latent_slabs::floats(shape::block_keys, width));
    values = words::k_pack == 1
                 ? latents
                 : carver.take(slabs<Kernel>::floats(shape::block_keys / words::k_pack,
                                                     shape::columns_of(args.value)));
    latent_row = carver.take(
        words::k_pack == 1 ? elements_stride(args.nope) + elements_stride(args.rope) : 0);
    nonfinite = carver.take(shape::block_keys);
    transposed = carver.take(shape::block_keys * score_columns);
    scores = carver.take(shape::columns_of(shape::block_rows) * shape::score_stride);
    out = carver.take(shape::block_rows * shape::sum_stride(args.value));
  }

  std::int64_t query_stride;
  element* queries;   ///< rows
  float* q;           ///< their panels
  float* latents;     ///< slabs of a tile
  float* values;      ///< those of a row for each word of keys
  float* latent_row;  ///< one of 8 bits, or with scales
  float *nonfinite, *transposed, *scores, *out;
};

template <class Kernel>
class absorbed_block {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  using scratch_type = absorbed_scratch<Kernel>;
  using words = typename scratch_type::words;
  using element = typename scratch_type::element;

 public:
  absorbed_block(const latent_attention_kernel_args& args, const query_rows<Kernel>& rows,
                 const scratch_type& scratch)
      : args_(args),
        rows_(rows),
        scratch_(scratch),
        q_{scratch.q, scratch_type::words_of(width()), scratch_type::query_columns(rows.count())},
        latents_(scratch.latents, shape::block_keys, width()),
        values_(scratch.values, shape::block_keys / words::k_pack, args.value),
        sums_(args, rows, scratch.scores, scratch.out),
        in_place_(args, latents_, scratch.values) {
    for (int r = 0; r < rows.count(); ++r) {
      element* const to = scratch.queries + r * scratch.query_stride;
      copy(args.q, rows.at(args.q, r), args.nope, to);
      if (args.rope > 0) copy(args.q_pe, rows.at(args.q_pe, r), args.rope, to + args.nope);
    }
    if constexpr (shape::on_tiles) clear_behind_columns();
    prim::pack_transposed<words>(prim::strided_rows<element>{scratch.queries, scratch.query_stride},
                                 {0, rows.count()}, width(), q_);
  }
  absorbed_block(const absorbed_block&) = delete;
  absorbed_block& operator=(const absorbed_block&) = delete;

  /// Latents of the block's sequence, which some row sees; those of `next` are asked for beside.
  void add(const key_range& keys, const key_range& next) {
    if constexpr (shape::on_tiles) {
      if (is_in_place()) return add_in_place(keys, next);
    }
    load(keys);
    // Beside tiles it takes longer to ask for lines than to let the processor look ahead.
    if constexpr (!shape::on_tiles) ask_for(next, keys.count);
    const auto rows = static_cast<int>(shape::columns_of(rows_.count()));
    if constexpr (shape::on_tiles) {
      absorbed_tiles<Kernel>::multiply_scores(latents_, keys.count, q_, rows,
                                              {scratch_.transposed, scratch_type::score_columns});
    } else {
      latents_.template multiply<prim::product_kind::overwrite>(
          keys.count, q_, rows, scratch_.transposed, scratch_type::score_columns,
          [&] { lines_.step(); });
    }
    turn_scores(keys.count, rows);
    const bool finite = has_finite_scores(keys.count) || clear_nonfinite(keys.count);
    for (int r = 0; r < rows_.count(); ++r) sums_.rescale(r, sums_.weigh(r, keys));
    if (!finite) sums_.add_nonfinite(keys.count, scratch_.nonfinite);
    if constexpr (words::k_pack > 1) make_words(keys.count);
    add_values(keys.count);
  }

  /// Nothing is added behind it.
  summed_rows summed() {
    if constexpr (shape::on_tiles) {
      for (int r = 0; is_in_place() && r < rows_.count(); ++r) {
        in_place_.order_columns(sums_.out(r));
      }
    }
    return sums_.summed();
  }

 private:
  int width() const { return static_cast<int>(args_.nope + args_.rope); }
  bool is_in_place() const { return absorbed_in_place<Kernel>::takes(args_, rows_.count()); }

  /// The same where latents are read where they lie.
  void add_in_place(const key_range& keys, const key_range& next) {
    in_place_.find(rows_.sequence().index, keys);
    load(keys, in_place_.first_copied());
    clear_behind_keys(keys.count);
    latent_lines lines;
    in_place_.list(rows_.sequence().index, next, lines);
    lines.spread(in_place_.steps_beside());
    const auto beside = [&] { lines.step(); };
    const word_rows products{scratch_.transposed, scratch_type::score_columns};
    in_place_.multiply_scores(q_, products, beside);
    bool finite = has_finite_scores(keys.count);
    if (!finite) {
      // Of latents, or of the first query alone, which changes nothing for the others.
      load(keys);
      in_place_.read_copies();
      finite = clear_nonfinite(keys.count);
    }
    const auto set_weights = [&](int r, int key, reg weights) {
      in_place_.set_weights(r, key, weights);
    };
    const std::uint32_t left =
        finite ? sums_.weigh_columns(keys, products, set_weights) : row_sums<Kernel>::all_rows;
    if (left != 0) {
      turn_scores(keys.count, prim::tile_rows);
      const auto for_each_left = [&](const auto& body) {
        for (int r = 0; r < rows_.count(); ++r) {
          if ((left >> r & 1u) != 0) body(r);
        }
      };
      for_each_left([&](int r) { sums_.rescale(r, sums_.weigh(r, keys)); });
      if (!finite) sums_.add_nonfinite(keys.count, scratch_.nonfinite);
      for_each_left([&](int r) { in_place_.set_weights(r, sums_.scores(r)); });
    }
    in_place_.add_values({sums_.out(0), sums_.stride()}, beside);
  }

  static void copy(const latent_rows& from, std::int64_t offset, std::int64_t columns,
                   element* to) {
    if constexpr (words::k_pack == 1) {
      prim::load_row<isa_type>(from, offset, columns, to);
    } else {
      std::copy_n(static_cast<const element*>(from.data) + offset, columns, to);
    }
  }

  /// Words of queries and latents behind the last of a row become zeros, which they stay.
  void clear_behind_columns() const {
    std::fill_n(scratch_.q, std::int64_t{q_.words} * q_.columns, 0.0f);
    for (int c = 0; c < shape::block_keys; ++c) {
      std::fill_n(latents_.at(c, width() - 1) + 1, q_.words * words::k_pack - width(), element{});
    }
  }

  /// visit(key of the range, its columns, tensor, offset in it) for all parts of the latents from
  /// `first` on.
  template <class Visit>
  void for_each_part(const key_range& keys, int first, const Visit& visit) const {
    const std::int64_t sequence = rows_.sequence().index;
    const auto latent = static_cast<int>(args_.latent);
    for (int c = first; c < keys.count; ++c) {
      const std::int64_t j = keys.key0 + c;
      visit(c, prim::product_range{0, latent}, args_.ckv,
            slot_of<Kernel>(args_, args_.ckv, sequence, j));
      if (args_.rope == 0) continue;
      visit(c, prim::product_range{latent, width()}, args_.k_pe,
            slot_of<Kernel>(args_, args_.k_pe, sequence, j));
    }
  }
  /// A latent of 8 bits, or with scales, and its rope part.
  void load_widened(int c, std::int64_t j) const {
    const std::int64_t sequence = rows_.sequence().index;
    float* const row = scratch_.latent_row;
    load_elements<isa_type>(args_.ckv, slot_of<Kernel>(args_, args_.ckv, sequence, j), args_.latent,
                            row);
    if (args_.ckv_scale.data != nullptr) {
      const float* const scales = static_cast<const float*>(args_.ckv_scale.data) +
                                  slot_of<Kernel>(args_, args_.ckv_scale, sequence, j);
      for (std::int64_t d = 0, group = 0; d < args_.latent; ++group) {
        for (const std::int64_t end = d + args_.scale_width; d < end; ++d) row[d] *= scales[group];
      }
    }
    if (args_.rope > 0) {
      load_elements<isa_type>(args_.k_pe, slot_of<Kernel>(args_, args_.k_pe, sequence, j),
                              args_.rope, row + args_.latent);
    }
    latents_.load(c, row);
  }
  void load(const key_range& keys, int first = 0) const {
    if constexpr (words::k_pack == 1) {
      if (!args_.has_plain_latents()) {
        for (int c = first; c < keys.count; ++c) load_widened(c, keys.key0 + c);
        return;
      }
    }
    for_each_part(keys, first,
                  [&](int c, prim::product_range columns, const latent_rows& from,
                      std::int64_t offset) { latents_.load_columns(c, columns, from, offset); });
  }
  /// Zeros in the latents that fill up a group of sixteen.
  void clear_behind_keys(int keys) const {
    for (int c = keys; c % prim::tile_rows != 0; ++c) {
      for (int d = 0; d < width(); ++d) *latents_.at(c, d) = {};
    }
  }

  void queue(const key_range& next) {
    lines_.clear();
    for_each_part(
        next, 0,
        [&](int, prim::product_range columns, const latent_rows& from, std::int64_t offset) {
          const auto size = static_cast<std::int64_t>(size_of(from.type));
          lines_.add(static_cast<const std::byte*>(from.data) + offset * size,
                     (columns.end - columns.begin) * size);
        });
  }
  /// Beside the products with `keys` keys.
  void ask_for(const key_range& next, int keys) {
    queue(next);
    const auto columns = static_cast<int>(shape::columns_of(args_.value));
    const int tiles =
        std::max(columns / shape::panels::nr, 1) * ((rows_.count() + shape::mr - 1) / shape::mr);
    const int words_of_keys = prim::words_for<words>(keys);
    // A key with one number of each row has no step to spread them over.
    const int steps = latents_.steps_beside(keys, rows_.count()) +
                      tiles * prim::steps_beside(words_of_keys, prim::any_length);
    lines_.spread(std::max(steps, 1));
  }

  void turn_scores(int keys, int rows) const {
    prim::transpose_rows<isa_type>({scratch_.transposed, scratch_type::score_columns},
                                   static_cast<int>(shape::columns_of(keys)), rows,
                                   {scratch_.scores, shape::score_stride});
  }

  /// Every element of a latent is a factor of its scores: what is not finite leaves none finite.
  bool has_finite_scores(int keys) const {
    float sum = 0.0f;
    for (int c = 0; c < keys; ++c) {
      sum += 0.0f * scratch_.transposed[c * scratch_type::score_columns];
    }
    return sum == 0.0f;
  }

  /// Zeros instead of values that are not finite; marks their keys with 1, others with 0. True if
  /// there are none.
  bool clear_nonfinite(int keys) const {
    bool finite = true;
    const auto value = static_cast<int>(args_.value);
    for (int c = 0; c < keys; ++c) {
      float sum = 0.0f;
      for (int d = 0; d < value; ++d) sum += 0.0f * static_cast<float>(*latents_.at(c, d));
      scratch_.nonfinite[c] = sum == 0.0f ? 0.0f : 1.0f;
      if (sum == 0.0f) continue;
      finite = false;
      for (int d = 0; d < value; ++d) *latents_.at(c, d) = {};
    }
    return finite;
  }

  /// Weights and values of pairs of keys, rounded to bf16, as words. Those behind the last keys are
  /// zeros.
  void make_words(int keys) const {
    const int used = prim::words_for<words>(keys), all = scratch_type::words_of(keys);
    for (int r = 0; r < rows_.count(); ++r) {
      float* const row = sums_.scores(r);
      for (int c = 0; c < keys; c += vec::width) words::store_words(row, c, vec::load(row + c));
      std::fill(row + used, row + all, 0.0f);
    }
    const auto value = static_cast<int>(args_.value);
    for (int word = 0; word < all; ++word) {
      const int key = word * words::k_pack;
      for (int column = 0; column < value; column += slabs<Kernel>::depth) {
        const int count = std::min(slabs<Kernel>::depth, value - column);
        const element* const even = key < keys ? latents_.at(key, column) : nullptr;
        const element* const odd = key + 1 < keys ? latents_.at(key + 1, column) : nullptr;
        float* const to = values_.at(word, column);
        for (int d = 0; d < count; d += vec::width) {
          const element* const pair[] = {even == nullptr ? even : even + d,
                                         odd == nullptr ? odd : odd + d};
          vec::store(to + d, prim::word_reader<words>::read_rows(pair, vec::width));
        }
      }
    }
  }

  /// O += P V, a register tile at a time.
  void add_values(int keys) {
    const auto columns = static_cast<int>(shape::columns_of(args_.value));
    if constexpr (shape::on_tiles) {
      return absorbed_tiles<Kernel>::add_values(
          {sums_.scores(0), shape::score_stride}, rows_.count(), values_,
          scratch_type::words_of(keys), columns, {sums_.out(0), sums_.stride()});
    }
    const int count = prim::words_for<words>(keys);
    for (int column = 0; column < columns;) {
      const int in_slab = slabs<Kernel>::depth - column % slabs<Kernel>::depth;
      if (std::min(in_slab, columns - column) >= shape::panels::nr) {
        add_columns<shape::vectors>(column, count);
        column += shape::panels::nr;
      } else {
        add_columns<1>(column, count);
        column += vec::width;
      }
    }
  }

  template <int Vectors>
  void add_columns(int column, int count) {
    const auto add = [&]<int Rows>(int first) {
      float unchanged[Rows];
      std::fill_n(unchanged, Rows, 1.0f);
      prim::microkernel<isa_type, words, Rows, Vectors>::template rescale_and_add<
          shape::score_stride, slabs<Kernel>::stride>(
          sums_.scores(first), values_.at(0, column), count, prim::any_length, unchanged,
          sums_.out(first) + column, sums_.stride(), [&] { lines_.step(); });
    };
    // Two tiles of eight rows are faster than a large one and one of two.
    constexpr int narrow = 8;
    const int rest = rows_.count() % shape::mr;
    if (shape::mr > narrow && rest > 0 && rest < shape::mr / 2 && rows_.count() % narrow == 0) {
      prim::for_each_row_tile<narrow>(rows_.count(), add);
    } else {
      prim::for_each_row_tile<shape::mr>(rows_.count(), add);
    }
  }

  const latent_attention_kernel_args& args_;
  const query_rows<Kernel>& rows_;
  const scratch_type& scratch_;
  typename shape::panels q_;
  slabs<Kernel, words> latents_;
  slabs<Kernel> values_;
  row_sums<Kernel> sums_;
  [[no_unique_address]] absorbed_in_place<Kernel> in_place_;
  [[no_unique_address]] typename shape::tile_scope scope_;
  prim::line_queue lines_;  ///< of the next tile
};

}  // namespace tessera::kernels::latent_attention::cpu
