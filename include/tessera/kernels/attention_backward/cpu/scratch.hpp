// Scratch memory of one thread: a block of rows, a tile of keys, what they make of each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention_backward/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::kernels::attention_backward::cpu {

template <class Row>
struct scratch {
  using shape = traits<Row>;

  // Of the rows: words of A.
  float* q;
  float* d_out;
  float* shift;       ///< exp(s - shift) is the weight of a logit
  float* correction;  ///< what is subtracted from the gradient of a weight
  float* taint;       ///< 0, or NaN where d_out has elements that are not finite
  bool* skipped;      ///< rows that see nothing

  // Of the keys. Columns of B (summed axis: the head dim), and K as rows of B.
  float* k;
  float* v;
  float* k_panels;
  bool* nonfinite;
  float* d_k;       ///< sums, transposed: [columns of the head dim][score_stride]
  float* d_v;       ///< likewise
  float* sum_rows;  ///< [width][columns of a head dim]: some of them as rows

  // Of both.
  float* scores;          ///< [mr]: of a register tile
  float* d_weights;       ///< likewise: gradients of weights
  float* slopes;          ///< likewise: of the cap
  float* functor_slopes;  ///< likewise: of a functor
  float* d_before;        ///< [block_q]: gradients of scores before the cap
  float* d_scores;        ///< [block_q]: and behind it, where there is one
  float* functor_scores;  ///< [block_q]: what a functor is given
  float* d_logits;        ///< [block_q]: gradients of what it returns

  // Weights and gradients of scores before the cap as B (summed axis: the rows), in panels.
  float* weight_panels;
  float* d_before_panels;
  // Where a word holds two elements: weights as floats, and the gradients as words of A.
  float* weights;         ///< [mr]
  float* d_before_words;  ///< [mr]

  TESSERA_INLINE float* q_row(int r) const { return q + std::int64_t{r} * shape::q_stride; }
  TESSERA_INLINE float* d_out_row(int r) const { return d_out + std::int64_t{r} * shape::q_stride; }

  /// Cuts a 64-byte aligned slice. With a null slice only counts its bytes.
  static std::size_t carve(std::byte* slice, const attention_kernel_args& args, scratch* buffers) {
    std::size_t offset = 0;
    const auto take = [&]<class Element>(Element** pointer, int count, int stride) {
      *pointer = reinterpret_cast<Element*>(slice + offset);
      const auto elements = static_cast<std::size_t>(count) * static_cast<std::size_t>(stride);
      offset += (elements * sizeof(Element) + 63) / 64 * 64;
    };
    constexpr int rows = shape::block_q, keys = shape::block_kv;
    const int qk = shape::columns_of(shape::head_dim(args));
    const int v = shape::columns_of(shape::v_head_dim(args));
    scratch ignored{};
    scratch& b = buffers != nullptr ? *buffers : ignored;
    take(&b.q, rows, shape::q_stride);
    take(&b.d_out, rows, shape::q_stride);
    for (float** each : {&b.shift, &b.correction, &b.taint}) take(each, rows, 1);
    take(&b.skipped, rows, 1);
    take(&b.k, keys, shape::words_of_head(shape::head_dim(args)));
    take(&b.v, keys, shape::words_of_head(shape::v_head_dim(args)));
    take(&b.k_panels, keys, qk);
    take(&b.nonfinite, keys, 1);
    take(&b.d_k, qk, shape::score_stride);
    take(&b.d_v, v, shape::score_stride);
    take(&b.sum_rows, shape::width, qk > v ? qk : v);
    for (float** each : {&b.scores, &b.d_weights, &b.slopes}) {
      take(each, shape::mr, shape::score_stride);
    }
    if constexpr (shape::hooks::has_logits) {
      take(&b.functor_slopes, shape::mr, shape::score_stride);
      take(&b.functor_scores, rows, shape::score_stride);
      take(&b.d_logits, rows, shape::score_stride);
    }
    for (float** each : {&b.d_before, &b.d_scores}) take(each, rows, shape::score_stride);
    for (float** each : {&b.weight_panels, &b.d_before_panels}) {
      take(each, shape::query_panels(nullptr).words, keys);
    }
    if constexpr (shape::k_pack > 1) {
      take(&b.weights, shape::mr, shape::score_stride);
      take(&b.d_before_words, shape::mr, shape::score_word_stride);
    }
    return offset;
  }
};

}  // namespace tessera::kernels::attention_backward::cpu
