// Some heads of a sequence, whose tokens go by segments of chunks: what gradients by chunks count.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/kernels/recurrence/cpu/staged_rows.hpp>
#include <tessera/kernels/recurrence/cpu/state_products.hpp>
#include <tessera/prim/common/host_device.hpp>

namespace tessera::kernels::recurrence {

template <class Isa, std::int64_t SegmentTokens>
class head_segments {
  static_assert(SegmentTokens % chunk_tokens == 0);

 protected:
  /// At most `heads` of them, of `all_heads`.
  TESSERA_INLINE head_segments(std::int64_t first_head, std::int64_t heads, std::int64_t all_heads,
                               std::int64_t length)
      : segments_((length + SegmentTokens - 1) / SegmentTokens),
        first_head_(first_head),
        heads_(std::min(all_heads - first_head, heads)),
        length_(length) {}

  template <class Body>
  TESSERA_INLINE void for_each_head(const Body& body) const {
    for (std::int64_t member = 0; member < heads_; ++member) body(member);
  }
  TESSERA_INLINE std::int64_t head_of(std::int64_t member) const { return first_head_ + member; }
  /// The first token of a chunk of a segment.
  TESSERA_INLINE std::int64_t first_of(std::int64_t segment, std::int64_t chunk) const {
    return segment * SegmentTokens + chunk * chunk_tokens;
  }
  TESSERA_INLINE std::int64_t tokens_of(std::int64_t segment) const {
    return std::min(length_ - first_of(segment, 0), SegmentTokens);
  }
  TESSERA_INLINE std::int64_t chunks_of(std::int64_t segment) const {
    return (tokens_of(segment) + chunk_tokens - 1) / chunk_tokens;
  }
  /// Of the chunk that begins there.
  TESSERA_INLINE std::int64_t tokens_from(std::int64_t first) const {
    return std::min<std::int64_t>(length_ - first, chunk_tokens);
  }

  /// Stages rows of a segment, whose heads share pages, if there is more than one head: a function
  /// of the tensor's number, its rows, how many heads read one of them, its columns, and the rows
  /// that take their place.
  auto staging(std::int64_t segment, const sequence& one, const staged_memory& memory) const {
    const std::int64_t first = first_of(segment, 0), count = tokens_of(segment);
    const std::int64_t token = std::min(one.token(first), one.token(first + count - 1));
    return [this, &memory, entry = one.entry, token, count](
               int tensor, const auto& from, std::int64_t group, std::int64_t columns, auto& to) {
      if (heads_ == 1) return;
      to = stage_rows<Isa>(from, {entry, token, count, first_head_ / group, heads_ / group},
                           columns, memory.of(tensor));
    };
  }

  std::int64_t segments_;

 private:
  std::int64_t first_head_, heads_, length_;
};

}  // namespace tessera::kernels::recurrence
