// The two products of a register tile of rows with a packed tile of keys: scores from Q and K,
// accumulators from P and V. Only the columns that some row sees are computed and read. Rows whose
// products are of AMX tiles: gemm_tiles.hpp.
#pragma once

#include <cstdint>

#include <tessera/kernels/attention/cpu/gemm_tiles.hpp>
#include <tessera/kernels/attention/cpu/prefill_scratch.hpp>
#include <tessera/kernels/attention/cpu/query_rows.hpp>
#include <tessera/kernels/attention/cpu/score_mod.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/microkernel.hpp>
#include <tessera/prim/cpu/gemm/microkernel_half.hpp>
#include <tessera/prim/cpu/line_queue.hpp>

namespace tessera::kernels::attention::cpu {

/// Steps of a line_queue beside the products of a register tile of rows with a whole tile of keys,
/// at least; of an item's first tile on AMX those of scores alone.
template <class Kernel>
int steps_of_products(const attention_kernel_args& args) {
  using shape = traits<Kernel>;
  const int v_registers = round_up(shape::v_head_dim(args), shape::width) / shape::width;
  const int of_scores = shape::block_kv / shape::nr;
  const int of_values = (v_registers + shape::vectors - 1) / shape::vectors;
  if constexpr (shape::tiles) return of_scores + of_values;
  const int q_words = prim::words_for<typename shape::words>(shape::head_dim(args));
  constexpr int v_words = shape::block_kv / shape::words::k_pack;
  return of_scores * prim::steps_beside(q_words, prim::even_chain(q_words, shape::score_chain)) +
         of_values * prim::steps_beside(v_words, shape::output_chain);
}

/// scores[Rows, low ... high) = Q K^T. What a config fixes is read from there, so that it is a
/// constant of the loops.
template <class Kernel, int Rows>
void gemm_qk_rows(const attention_kernel_args& args, const float* q, float* k_panels,
                  const key_columns& used, float* scores, prim::line_queue& lines) {
  using shape = traits<Kernel>;
  const typename shape::panels k = shape::k_panels(args, k_panels);
  const int chain = prim::even_chain(k.words, shape::score_chain);
  const auto multiply = [&]<int Vectors>(int column) {
    using kernel =
        prim::microkernel<typename shape::isa_type, typename shape::words, Rows, Vectors>;
    kernel::template multiply<shape::q_stride, shape::nr>(q, k.at(0, column), k.words, chain,
                                                          scores + column, shape::score_stride,
                                                          [&] { lines.step(); });
  };
  int column = used.low;
  if (column % shape::nr != 0) {
    multiply.template operator()<1>(column);
    column += shape::width;
  }
  for (; column + shape::nr <= used.high; column += shape::nr) {
    multiply.template operator()<shape::vectors>(column);
  }
  if (column < used.high) multiply.template operator()<1>(column);
}

template <class Kernel>
TESSERA_INLINE void gemm_qk(const attention_kernel_args& args, row_tile rows, float* k_panels,
                            const key_columns& used, const prefill_scratch<Kernel>& scratch,
                            prim::line_queue& lines) {
  if constexpr (traits<Kernel>::tiles) {
    gemm_qk_tiles<Kernel>(args, rows, k_panels, used, scratch, lines, [] {});
  } else {
    prim::with_rows<traits<Kernel>::mr>(rows.rows, [&]<int Rows>() {
      gemm_qk_rows<Kernel, Rows>(args, scratch.q_row(rows.first), k_panels, used, scratch.scores,
                                 lines);
    });
  }
}

/// How many whole registers of value columns share a microkernel with the last one, which is at
/// most half full; -1 where it is fuller or there are no half registers.
template <class Kernel>
TESSERA_INLINE int whole_beside_half(int v_head_dim) {
  using shape = traits<Kernel>;
  if constexpr (!prim::half_registers<typename shape::isa_type>::present) return -1;
  const int registers = round_up(v_head_dim, shape::width) / shape::width;
  if (v_head_dim - (registers - 1) * shape::width > shape::width / 2) return -1;
  return registers == 1 ? 0 : registers % shape::vectors == 0 ? 1 : 2;
}

/// out[Rows] = rescale out[Rows] + P V.
template <class Kernel, int Rows>
class gemm_pv_rows {
  using shape = traits<Kernel>;
  using isa_type = typename shape::isa_type;
  using words = typename shape::words;
  static constexpr int width = shape::width;

 public:
  gemm_pv_rows(const prefill_scratch<Kernel>& scratch, int first_row, const float* v_panels,
               const key_columns& used, prim::line_queue& lines)
      : scratch_(scratch),
        out_(scratch.out_row(first_row)),
        v_(v_panels),
        v_words_(round_up(used.count, width) / words::k_pack),
        low_(used.begin / words::k_pack),
        high_((used.end + words::k_pack - 1) / words::k_pack),
        lines_(lines) {}

  void run(const attention_kernel_args& args) const {
    const int v_head_dim = shape::v_head_dim(args);
    const int registers = round_up(v_head_dim, width) / width;
    const int beside = whole_beside_half<Kernel>(v_head_dim);
    const int alone = beside < 0 ? registers : registers - 1 - beside;
    int vector = 0;
    for (; vector + shape::vectors <= alone; vector += shape::vectors) {
      multiply<shape::vectors>(vector);
    }
    if (vector < alone) multiply<1>(vector);
    if constexpr (prim::half_registers<isa_type>::present) {
      if (beside == 0) multiply_with_half<0>(vector);
      if (beside == 1) multiply_with_half<1>(vector);
      if (beside == 2) multiply_with_half<2>(vector);
    }
  }

 private:
  TESSERA_INLINE const float* panel(int vector) const {
    return v_ + std::int64_t{vector} * width * v_words_;
  }

  /// `Vectors` registers of columns, a panel, from register `vector` on.
  template <int Vectors>
  TESSERA_INLINE void multiply(int vector) const {
    using kernel = prim::microkernel<isa_type, words, Rows, Vectors>;
    kernel::template rescale_and_add<shape::score_stride>(
        scratch_.scores + low_, panel(vector) + low_ * kernel::nr, high_ - low_,
        shape::output_chain, scratch_.rescale, out_ + vector * width, scratch_.out_stride(),
        [this] { lines_.step(); });
  }

  /// The last registers of columns, `Whole` and a half one, from register `vector` on.
  template <int Whole>
  TESSERA_INLINE void multiply_with_half(int vector) const {
    static_assert(shape::vectors == 2);
    // Two whole registers fill their panel, and the half one lies in a panel of its own.
    constexpr int stride = Whole == 0 ? width : 2 * width;
    constexpr int rest_stride = Whole == 1 ? 2 * width : width;
    const float* rest = Whole == 1 ? panel(vector) + width : panel(vector + Whole);
    // Sums, a row of values and a broadcast must fit the 32 registers.
    constexpr int parts = Rows * (Whole + 1) + Whole + 2 <= 32 ? 1 : 2;
    constexpr int rows = Rows / parts;
    static_assert(rows * parts == Rows);
    using kernel = prim::microkernel_and_half<isa_type, rows, Whole>;
    for (int r = 0; r < Rows; r += rows) {
      lines_.step();
      kernel::template rescale_and_add<shape::score_stride, stride, rest_stride>(
          scratch_.score_row(r) + low_, panel(vector) + low_ * stride, rest + low_ * rest_stride,
          high_ - low_, shape::output_chain, scratch_.rescale + r,
          out_ + std::int64_t{r} * scratch_.out_stride() + vector * width, scratch_.out_stride());
    }
  }

  const prefill_scratch<Kernel>& scratch_;
  float* out_;
  const float* v_;  ///< panels
  int v_words_;     ///< of a column
  int low_, high_;  ///< words of P and V in use
  prim::line_queue& lines_;
};

template <class Kernel>
TESSERA_INLINE void gemm_pv(const attention_kernel_args& args, row_tile rows, float* v_panels,
                            const key_columns& used, const prefill_scratch<Kernel>& scratch,
                            prim::line_queue& lines) {
  if constexpr (traits<Kernel>::tiles) {
    gemm_pv_tiles<Kernel>(args, rows, v_panels, used, scratch, lines, [] {});
  } else {
    prim::with_rows<traits<Kernel>::mr>(rows.rows, [&]<int Rows>() {
      gemm_pv_rows<Kernel, Rows>(scratch, rows.first, v_panels, used, lines).run(args);
    });
  }
}

/// Keys whose values stayed out of the panels: added row by row, where the row has use for them.
template <class Kernel, class Hooks, class Rows>
void add_nonfinite_values(const query_rows<Kernel, Hooks>& queries, row_tile rows,
                          const Rows& values, const key_columns& used, const bool* nonfinite,
                          const prefill_scratch<Kernel>& scratch) {
  using words = typename traits<Kernel>::words;
  const int v_head_dim = traits<Kernel>::v_head_dim(queries.args());
  for (int key = used.begin; key < used.end; ++key) {
    if (!nonfinite[key]) continue;
    const auto* const value = values.row(key);
    for (int r = 0; r < rows.rows; ++r) {
      const float weight = words::element(scratch.score_row(r), key);
      if (weight == 0.0f && !queries.uses(rows.first + r, used.key0 + key)) continue;
      float* out = scratch.out_row(rows.first + r);
      for (int d = 0; d < v_head_dim; ++d) {
        out[d] += weight * static_cast<float>(value[d]);
      }
    }
  }
}

}  // namespace tessera::kernels::attention::cpu
