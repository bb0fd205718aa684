// Tiles of rows through the parts of a kernel: scores, their modification, softmax, values.
#pragma once

#include <cstddef>

#include <tessera/kernels/attention/cpu/gemm.hpp>
#include <tessera/kernels/attention/cpu/gemm_tiles.hpp>
#include <tessera/kernels/attention/cpu/packed_tile.hpp>
#include <tessera/kernels/attention/cpu/prefill_scratch.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::attention::cpu {

/// Scores become logits, where anything is to be done about them.
template <class Kernel, class Hooks>
[[gnu::always_inline]] inline void apply_score_mod(const query_rows<Kernel, Hooks>& queries,
                                                   row_tile rows, const key_columns& used,
                                                   const prefill_scratch<Kernel>& scratch) {
  using mods = score_mod<Kernel, Hooks>;
  const bool hides = used.seen != prim::tile_visibility::full;
  // Whole registers may hold more columns than some row sees.
  const bool whole = !hides && used.low == used.begin && used.high == used.end &&
                     queries.keys_of(rows).all.contains(used.keys());
  if (whole && !mods::changes(queries.args(), queries.units())) return;
  for (int r = 0; r < rows.rows; ++r) {
    mods::apply(queries.args(), queries.hooks(), queries.units(),
                queries.scores_of_row(rows.first + r, scratch.score_row(r), used), hides);
  }
}

/// Logits become P.
template <class Kernel, class Hooks>
void softmax(const query_rows<Kernel, Hooks>& queries, row_tile rows, const key_columns& used,
             const prefill_scratch<Kernel>& scratch) {
  const auto of_rows = [&]<int Rows>(int first) {
    softmax_tile<Kernel, Rows>(
        queries.args(), queries.units(), scratch.score_row(first), used,
        [&](int r) { return queries.position_of(rows.first + first + r); },
        scratch.softmax.from(rows.first + first), scratch.rescale + first);
  };
  if constexpr (traits<Kernel>::tiles) {
    for (int first = 0; first < rows.rows; first += prim::tile_rows) {
      of_rows.template operator()<prim::tile_rows>(first);
    }
  } else {
    prim::with_rows<traits<Kernel>::mr>(rows.rows,
                                        [&]<int Rows>() { of_rows.template operator()<Rows>(0); });
  }
}

/// The softmax of rows of tiles, without dropout, in steps of 32 weights. Its maxima are found in
/// the beginning.
template <class Kernel>
class softmax_steps {
  static constexpr int group = prim::tile_rows;
  static constexpr int step_columns = traits<Kernel>::key_step;
  using parts_type = softmax_parts<Kernel, group>;
  using row_weights = typename parts_type::row_weights;
  using reg = typename traits<Kernel>::reg;

 public:
  static constexpr int most_groups = traits<Kernel>::mr / group;
  using all_parts = parts_type[most_groups];

  softmax_steps() = default;
  TESSERA_INLINE softmax_steps(const score_units& units, row_tile rows, const key_columns& used,
                               const prefill_scratch<Kernel>& scratch, all_parts& parts)
      : parts_(parts),
        rows_(round_up(rows.rows, group)),
        low_(static_cast<std::size_t>(used.low)),
        high_(static_cast<std::size_t>(used.high)),
        column_(low_) {
    for (int first = 0; first < rows_; first += group) {
      parts_type& part = parts[first / group];
      part = parts_type(units, scratch.score_row(first), used,
                        scratch.softmax.from(rows.first + first), scratch.rescale + first);
      for (int r = 0; r < group; ++r) part.find_maximum(r);
      part.begin_weights();
    }
    weights_ = parts[0].begin_row(0);
  }

  int count() const { return rows_ * static_cast<int>((high_ - low_) / step_columns); }
  TESSERA_INLINE bool done() const { return row_ == rows_; }
  TESSERA_INLINE void step() {
    weights_.replace_two(column_);
    column_ += step_columns;
    if (column_ < high_) return;
    weights_ = next_row(parts_, row_, rows_, weights_.sum);
    ++row_;
    column_ = low_;
  }

 private:
  /// Ends a row; what the next one begins with.
  [[gnu::noinline]] static row_weights next_row(parts_type* parts, int row, int rows, reg sum) {
    parts_type& of = parts[row / group];
    of.finish_row(row % group, sum);
    if (row % group == group - 1) of.finish();
    if (++row == rows) return {nullptr, sum, sum, sum};
    return parts[row / group].begin_row(row % group);
  }

  parts_type* parts_ = nullptr;
  int rows_ = 0, row_ = 0;
  std::size_t low_ = 0, high_ = 0, column_ = 0;
  row_weights weights_;
};

/// Tiles of rows through scores, softmax and values, one after the other. `finish(rows)` ends those
/// that have seen all keys.
template <class Kernel, class Hooks, class Source, class Finish, bool Tiles = traits<Kernel>::tiles>
class row_pipeline {
 public:
  row_pipeline(const query_rows<Kernel, Hooks>& queries, const Source& source,
               const prefill_scratch<Kernel>& scratch, prim::line_queue& lines,
               const Finish& finish)
      : queries_(queries), source_(source), scratch_(scratch), lines_(lines), finish_(finish) {}

  /// Rows, the columns of the tile that they see, and whether they are their last ones.
  TESSERA_INLINE void add(const packed_tile<Kernel>& tile, row_tile rows, const key_columns& used,
                          bool last) {
    const attention_kernel_args& args = queries_.args();
    gemm_qk<Kernel>(args, rows, tile.k, used, scratch_, lines_);
    apply_score_mod(queries_, rows, used, scratch_);
    softmax(queries_, rows, used, scratch_);
    gemm_pv<Kernel>(args, rows, tile.v, used, scratch_, lines_);
    if (!tile.finite) {
      add_nonfinite_values(queries_, rows, source_.v.rows(tile.keys.key0, queries_.kv_head()), used,
                           tile.nonfinite, scratch_);
    }
    if (last) finish_(rows);
  }
  /// Ends rows that see nothing of the last tile.
  TESSERA_INLINE void finish_unseen(row_tile rows) { finish_(rows); }
  /// True if values of a tile before this one are still to be read.
  TESSERA_INLINE bool reads_before(const packed_tile<Kernel>& /*tile*/) const { return false; }
  TESSERA_INLINE void finish_before(const packed_tile<Kernel>& /*tile*/) {}
  TESSERA_INLINE void finish() {}

 private:
  const query_rows<Kernel, Hooks>& queries_;
  const Source& source_;
  const prefill_scratch<Kernel>& scratch_;
  prim::line_queue& lines_;
  const Finish& finish_;
};

/// Where products are of AMX tiles, which have units of their own, the softmax of some rows goes on
/// beside the scores of the next ones and the values of those before, also where the tile of keys
/// changes.
template <class Kernel, class Hooks, class Source, class Finish>
class row_pipeline<Kernel, Hooks, Source, Finish, true> {
  using shape = traits<Kernel>;
  static constexpr int buffers = prefill_scratch<Kernel>::score_buffers;

 public:
  row_pipeline(const query_rows<Kernel, Hooks>& queries, const Source& source,
               const prefill_scratch<Kernel>& scratch, prim::line_queue& lines,
               const Finish& finish)
      : queries_(queries), source_(source), lines_(lines), finish_(finish) {
    for (int i = 0; i < buffers; ++i) stages_[i].scratch = scratch.with_scores(i);
  }

  void add(const packed_tile<Kernel>& tile, row_tile rows, const key_columns& used, bool last) {
    stage& added = stages_[next_];
    added.tile = tile;
    added.rows = rows;
    added.used = used;
    added.last = last;
    advance(&added);
  }
  void finish_unseen(row_tile rows) {
    finish();
    finish_(rows);
  }
  bool reads_before(const packed_tile<Kernel>& tile) const {
    const stage* const oldest = weighted_ != nullptr ? weighted_ : scored_;
    return oldest != nullptr && oldest->tile.keys.key0 != tile.keys.key0;
  }
  void finish_before(const packed_tile<Kernel>& tile) {
    while (reads_before(tile)) advance(nullptr);
  }
  void finish() {
    while (scored_ != nullptr || weighted_ != nullptr) advance(nullptr);
  }

 private:
  /// Rows on their way.
  struct stage {
    packed_tile<Kernel> tile;
    row_tile rows;
    key_columns used;
    bool last = false;
    prefill_scratch<Kernel> scratch;
  };

  /// Every stage goes on to its next part: weights of the one that has scores are made beside the
  /// products of both others.
  void advance(stage* added) {
    const attention_kernel_args& args = queries_.args();
    typename softmax_steps<Kernel>::all_parts parts;
    softmax_steps<Kernel> steps;
    if (scored_ != nullptr) {
      if (shape::has(attention_feature::dropout) && args.dropout) {
        softmax(queries_, scored_->rows, scored_->used, scored_->scratch);
      } else {
        steps = softmax_steps<Kernel>(queries_.units(), scored_->rows, scored_->used,
                                      scored_->scratch, parts);
      }
    }
    const int count = steps.count();
    int products = 0;
    if (added != nullptr) {
      products += qk_extents<Kernel>(args, added->used).products(added->rows.rows);
    }
    if (weighted_ != nullptr) {
      products += pv_extents<Kernel>(args, weighted_->used).products(weighted_->rows.rows);
    }
    int due = 0;
    const auto beside = [&]() __attribute__((always_inline)) {
      for (due += count; due >= products; due -= products) steps.step();
    };
    if (added != nullptr) {
      gemm_qk_tiles<Kernel>(args, added->rows, added->tile.k, added->used, added->scratch, lines_,
                            beside);
      apply_score_mod(queries_, added->rows, added->used, added->scratch);
    }
    if (weighted_ != nullptr) add_values(*weighted_, beside);
    while (!steps.done()) steps.step();
    weighted_ = scored_;
    scored_ = added;
    next_ = (next_ + 1) % buffers;
  }
  template <class Beside>
  TESSERA_INLINE void add_values(const stage& of, const Beside& beside) {
    gemm_pv_tiles<Kernel>(queries_.args(), of.rows, of.tile.v, of.used, of.scratch, lines_, beside);
    if (!of.tile.finite) {
      add_nonfinite_values(queries_, of.rows, source_.v.rows(of.tile.keys.key0, queries_.kv_head()),
                           of.used, of.tile.nonfinite, of.scratch);
    }
    if (of.last) finish_(of.rows);
  }

  const query_rows<Kernel, Hooks>& queries_;
  const Source& source_;
  prim::line_queue& lines_;
  const Finish& finish_;
  stage stages_[buffers];
  int next_ = 0;
  stage* scored_ = nullptr;    ///< whose scores are there
  stage* weighted_ = nullptr;  ///< whose P is
};

}  // namespace tessera::kernels::attention::cpu
