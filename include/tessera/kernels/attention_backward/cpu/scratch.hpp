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

  // Of the rows. Words of A, and panels of B whose summed axis is the rows.
  float* q;
  float* d_out;
  float* q_panels;
  float* d_out_panels;
  float* shift;       ///< exp(s - shift) is the weight of a logit
  float* correction;  ///< what is subtracted from the gradient of a weight
  float* taint;       ///< 0, or NaN where d_out has elements that are not finite
  bool* skipped;      ///< rows that stay out of the panels

  // Of the keys. Columns of B (summed axis: the head dim), and K as rows of B.
  float* k;
  float* v;
  float* k_panels;
  bool* nonfinite;
  float* d_k;  ///< sums, [block_kv][columns of the head dim]
  float* d_v;

  // Of both.
  float* scores;           ///< [mr]: of a register tile
  float* d_weights;        ///< likewise: gradients of weights
  float* slopes;           ///< likewise: of the cap
  float* functor_slopes;   ///< likewise: of a functor
  float* weights;          ///< [block_q]
  float* d_before;         ///< [block_q]: gradients of scores before the cap
  float* d_scores;         ///< [block_q]: and behind it
  float* functor_scores;   ///< [block_q]: what a functor is given
  float* d_logits;         ///< [block_q]: gradients of what it returns
  float* d_before_words;   ///< the first as words
  float* weights_of_keys;  ///< transposed, words
  float* d_before_of_keys;

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
    take(&b.q_panels, rows, qk);
    take(&b.d_out_panels, rows, v);
    for (float** each : {&b.shift, &b.correction, &b.taint}) take(each, rows, 1);
    take(&b.skipped, rows, 1);
    take(&b.k, keys, prim::words_for<typename shape::words>(shape::head_dim(args)));
    take(&b.v, keys, prim::words_for<typename shape::words>(shape::v_head_dim(args)));
    take(&b.k_panels, keys, qk);
    take(&b.nonfinite, keys, 1);
    take(&b.d_k, keys, qk);
    take(&b.d_v, keys, v);
    for (float** each : {&b.scores, &b.d_weights, &b.slopes}) {
      take(each, shape::mr, shape::score_stride);
    }
    if constexpr (shape::hooks::has_logits) {
      take(&b.functor_slopes, shape::mr, shape::score_stride);
      take(&b.functor_scores, rows, shape::score_stride);
      take(&b.d_logits, rows, shape::score_stride);
    }
    for (float** each : {&b.weights, &b.d_before, &b.d_scores}) {
      take(each, rows, shape::score_stride);
    }
    take(&b.d_before_words, rows, shape::score_word_stride);
    take(&b.weights_of_keys, keys, shape::query_word_stride);
    take(&b.d_before_of_keys, keys, shape::query_word_stride);
    return offset;
  }
};

}  // namespace tessera::kernels::attention_backward::cpu
