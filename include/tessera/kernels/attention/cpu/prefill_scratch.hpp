// Scratch memory of one thread of a prefill launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/words.hpp>

namespace tessera::kernels::attention::cpu {

/// The rows of an item, a register tile of scores (on AMX three), and tiles of keys: one in use,
/// one being packed.
template <class Kernel>
struct prefill_scratch {
  using shape = traits<Kernel>;
  static constexpr int tiles = schedule_cpu::prefill_schedule::tile_buffers;
  /// Scores beside which others become P, and P beside which both do (row_pipeline.hpp).
  static constexpr int score_buffers = shape::tiles ? 3 : 1;

  float* q;              ///< [rows][q_stride] words
  float* out;            ///< [rows][out_stride]: accumulators
  float* scores;         ///< [mr][score_stride] of each buffer; P after the softmax
  float* rescale;        ///< [mr] of each
  softmax_rows softmax;  ///< [rows] each
  float* k[tiles];       ///< panels
  float* v[tiles];
  bool* nonfinite[tiles];  ///< [block_kv]: keys whose values are kept out of the panels
  int any_out_stride;      ///< where v_head_dim is known at run time

  TESSERA_INLINE int out_stride() const {
    constexpr attention_config config = shape::config;
    return config.v_head_dim != 0 ? strides::out(config, config.v_head_dim) : any_out_stride;
  }
  TESSERA_INLINE float* q_row(int r) const { return q + std::int64_t{r} * shape::q_stride; }
  TESSERA_INLINE float* out_row(int r) const { return out + std::int64_t{r} * out_stride(); }
  TESSERA_INLINE float* score_row(int r) const { return scores + r * shape::score_stride; }

  /// The same with scores and factors in another buffer.
  TESSERA_INLINE prefill_scratch with_scores(int buffer) const {
    prefill_scratch other = *this;
    other.scores += buffer * shape::mr * shape::score_stride;
    other.rescale += buffer * shape::mr;
    return other;
  }

  /// Cuts a 64-byte aligned slice into buffers for `rows` rows. With a null slice only counts its
  /// bytes.
  static std::size_t carve(std::byte* slice, int rows, int head_dim, int v_head_dim,
                           prefill_scratch* buffers) {
    std::size_t offset = 0;
    const auto take = [&]<class Element>(Element** pointer, int count, int stride) {
      *pointer = reinterpret_cast<Element*>(slice + offset);
      const auto elements = static_cast<std::size_t>(count) * static_cast<std::size_t>(stride);
      offset += (elements * sizeof(Element) + 63) / 64 * 64;
    };
    prefill_scratch ignored{};
    prefill_scratch& b = buffers != nullptr ? *buffers : ignored;
    b.any_out_stride = strides::out(shape::config, v_head_dim);
    take(&b.q, rows, shape::q_stride);
    take(&b.out, rows, b.any_out_stride);
    take(&b.scores, score_buffers * shape::mr, shape::score_stride);
    take(&b.rescale, score_buffers * shape::mr, 1);
    take(&b.softmax.row_max, rows, 1);
    take(&b.softmax.row_sum, rows, 1);
    for (int i = 0; i < tiles; ++i) {
      take(&b.k[i], shape::block_kv, shape::words_of_head(head_dim));
      take(&b.v[i], shape::block_kv, round_up(v_head_dim, shape::width));
      take(&b.nonfinite[i], shape::block_kv, 1);
    }
    return offset;
  }
};

}  // namespace tessera::kernels::attention::cpu
