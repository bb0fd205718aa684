// What decode works in and on: scratch memory of one head, and the rows and keys of an entry.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/attention/common/prefix.hpp>
#include <tessera/kernels/attention/common/sequence.hpp>
#include <tessera/kernels/attention/cpu/softmax.hpp>
#include <tessera/kernels/attention/cpu/traits.hpp>

namespace tessera::kernels::attention::cpu {

/// Scratch memory of one head of a decode item: decode_schedule::head_bytes.
template <class Kernel>
struct decode_scratch {
  using shape = traits<Kernel>;
  int rows;              ///< that there is room for
  float* q;              ///< [rows][q_stride] words; for tiles as decode_tiles packs them
  float* scores;         ///< [rows][score_stride]; P after the softmax
  float* sums;           ///< [rows][strides::sums], columns in the order of interleaved words
  float* rescale;        ///< [rows]
  softmax_rows softmax;  ///< [rows] each

  TESSERA_INLINE float* score_row(int r) const { return scores + r * shape::score_stride; }

  /// The sums of rows [begin, end) follow their maxima where these have moved.
  TESSERA_INLINE void rescale_sums(int begin, int end, int sum_stride) const {
    using vec = typename shape::vec;
    for (int r = begin; r < end; ++r) {
      if (rescale[r] == 1.0f) continue;
      const typename shape::reg factor = vec::broadcast(rescale[r]);
      float* sum = sums + r * sum_stride;
      for (int d = 0; d < sum_stride; d += shape::width) {
        vec::store(sum + d, vec::mul(vec::load(sum + d), factor));
      }
    }
  }

  static decode_scratch at(std::byte* slice, int rows, int v_head_dim) {
    decode_scratch b;
    b.rows = rows;
    b.q = reinterpret_cast<float*>(slice);
    b.scores = b.q + rows * shape::q_stride;
    b.sums = b.scores + rows * shape::score_stride;
    b.rescale = b.sums + rows * strides::sums(shape::config, v_head_dim);
    b.softmax = {b.rescale + rows, b.rescale + 2 * rows};
    return b;
  }
};

/// Rows and keys of decode: of a sequence, or what the sequences of a group have in common.
template <class Kernel>
struct decode_entry {
  prim::sequence seq{};
  prim::row_visibility<traits<Kernel>::config.mask> visible{};
  std::int64_t first_key = 0;   ///< keys before it are those of a group
  std::int64_t first_part = 0;  ///< of its splits, among the parts of a row

  /// Sequence `index`; without the keys that it shares.
  static decode_entry of(const attention_kernel_args& args, std::int64_t index) {
    decode_entry entry;
    entry.seq = sequence_of(args, index);
    entry.visible = visibility_of<traits<Kernel>::config.mask>(args, entry.seq);
    if (!reads_prefixes_once(args)) return entry;
    const std::int64_t prefix = prefix_of_sequence(args, index);
    if (prefix >= 0) entry.first_key = keys_of_prefix(args, prefix);
    return entry;
  }
  /// The keys that group `prefix` shares, whose parts lie behind those of sequences.
  static decode_entry of_prefix(const attention_kernel_args& args, std::int64_t prefix,
                                std::int64_t splits) {
    decode_entry entry;
    entry.seq =
        sequence_of_prefix(args, prefix, 1, [&](std::int64_t n) { return sequence_of(args, n); });
    entry.visible = visibility_of_prefix<traits<Kernel>::config.mask>(entry.seq);
    entry.first_part = splits;
    return entry;
  }
};

}  // namespace tessera::kernels::attention::cpu
