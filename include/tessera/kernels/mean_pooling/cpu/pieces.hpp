// How the tokens of a launch are cut. A segment is what one mean is made of: a sequence or a chunk.
// A piece is a run of tokens of one segment, summed in one go. A work item is a range of tokens and
// has the pieces that begin in it, so that items weigh the same however long the sequences are.
//
// All of it follows from the sizes of a token and the lengths of the sequences: a result has the
// same bits for every number of threads and whatever else is in the batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/mean_pooling/kernel_args.hpp>
#include <tessera/kernels/mean_pooling/cpu/traits.hpp>

namespace tessera::kernels::mean_pooling::cpu {

/// The tokens of one mean. Tokens count inside their entry, which is 0 for packed tensors.
struct segment {
  std::int64_t entry = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t mean_entry = 0;
  std::int64_t mean_row = 0;
  std::int64_t before = 0;  ///< tokens of the launch before the entry

  TESSERA_INLINE std::int64_t tokens() const { return end - begin; }
};

/// Cuts one launch.
template <class Row>
class pieces {
 public:
  /// `chunks_before[n]`: chunks of the sequences before n; needed for packed chunks only.
  pieces(const mean_pooling_kernel_args& args, const std::int64_t* chunks_before)
      : args_(args), chunks_before_(chunks_before) {
    const std::int64_t bytes = std::max<std::int64_t>(
        args.heads * args.columns * std::int64_t{sizeof(typename traits<Row>::element)}, 1);
    piece_ = std::clamp<std::int64_t>(piece_bytes / bytes, 16, most_piece_tokens);
    item_ = std::max<std::int64_t>(item_bytes / bytes, piece_);
    all_ = args.cu_seqlens != nullptr ? args.tokens : args.sequences * args.tokens;
  }

  /// Ranges of tokens; the last one also finds empty sequences behind all tokens.
  std::int64_t items() const { return all_ / item_ + 1; }
  std::int64_t item_begin(std::int64_t item) const { return item * item_; }
  std::int64_t item_end(std::int64_t item) const {
    return item + 1 == items() ? INT64_MAX : (item + 1) * item_;
  }

  std::int64_t count_of(const segment& one) const { return (one.tokens() + piece_ - 1) / piece_; }
  std::int64_t piece_begin(const segment& one, std::int64_t index) const {
    return one.begin + index * piece_;
  }
  std::int64_t piece_end(const segment& one, std::int64_t index) const {
    return std::min(one.begin + (index + 1) * piece_, one.end);
  }

  /// Where the sum of a piece of a segment of several is kept. Segments of several pieces begin
  /// more than a piece apart, and so do the first pieces of all, and the others of all.
  std::int64_t slot_of(const segment& one, std::int64_t index) const {
    return (one.before + piece_begin(one, index)) / piece_ * 2 + (index > 0 ? 1 : 0);
  }
  /// Slots that any lengths of these sizes need.
  std::int64_t slots() const {
    const std::int64_t longest =
        args_.chunk > 0 ? std::min(args_.chunk, args_.tokens) : args_.tokens;
    return longest > piece_ ? 2 * (all_ / piece_ + 1) : 0;
  }

  /// False if every segment has exactly one piece.
  bool needs_merge() const {
    const bool may_be_empty =
        args_.chunk == 0 && (args_.cu_seqlens != nullptr || args_.tokens == 0);
    return slots() > 0 || may_be_empty;
  }

  /// Calls visit(segment) for the segments that begin in the item's range, empty ones included.
  template <class Visit>
  TESSERA_INLINE void for_each_segment(std::int64_t item, const Visit& visit) const {
    for_each_sequence(item, [&](std::int64_t n, std::int64_t from, std::int64_t before) {
      const std::int64_t length = end_of(n) - begin_of(n);
      if (args_.chunk == 0) {
        if (from <= 0) visit(segment_of(n, 0, length));
        return;
      }
      for (std::int64_t chunk = (from + args_.chunk - 1) / args_.chunk;
           chunk * args_.chunk < std::min(length, before); ++chunk) {
        visit(segment_of(n, chunk, length));
      }
    });
  }

  /// Calls visit(segment, index) for the pieces that begin in the item's range.
  template <class Visit>
  TESSERA_INLINE void for_each_piece(std::int64_t item, const Visit& visit) const {
    for_each_sequence(item, [&](std::int64_t n, std::int64_t from, std::int64_t before) {
      const std::int64_t length = end_of(n) - begin_of(n);
      const std::int64_t step = args_.chunk > 0 ? args_.chunk : std::max<std::int64_t>(length, 1);
      const std::int64_t end = std::min(length, before);
      for (std::int64_t chunk = from / step; chunk * step < end; ++chunk) {
        const segment one = segment_of(n, chunk, length);
        const std::int64_t inside = std::max<std::int64_t>(from - chunk * step, 0);
        for (std::int64_t index = (inside + piece_ - 1) / piece_;
             chunk * step + index * piece_ < std::min(end, chunk * step + one.tokens()); ++index) {
          visit(one, index);
        }
      }
    });
  }

 private:
  // 512 KiB of tokens are one piece: its sum, written once and read once, is less than a hundredth
  // of that. No more than 512 tokens, which bounds the rounding errors of a running sum.
  static constexpr std::int64_t piece_bytes = 512 << 10;
  static constexpr std::int64_t most_piece_tokens = 512;
  // 256 KiB take 10 us or more of a core, against 0.1 to 0.3 us for handing out an item.
  static constexpr std::int64_t item_bytes = 256 << 10;

  std::int64_t begin_of(std::int64_t n) const {
    return args_.cu_seqlens != nullptr ? args_.cu_seqlens[n] : n * args_.tokens;
  }
  std::int64_t end_of(std::int64_t n) const {
    return args_.cu_seqlens != nullptr ? args_.cu_seqlens[n + 1] : (n + 1) * args_.tokens;
  }

  segment segment_of(std::int64_t n, std::int64_t chunk, std::int64_t length) const {
    const bool packed = args_.cu_seqlens != nullptr;
    const std::int64_t first = packed ? begin_of(n) : 0;
    const std::int64_t step = args_.chunk > 0 ? args_.chunk : length;
    segment one;
    one.entry = packed ? 0 : n;
    one.begin = first + chunk * step;
    one.end = first + std::min((chunk + 1) * step, length);
    one.mean_entry = packed ? 0 : n;
    one.mean_row = !packed ? chunk : args_.chunk > 0 ? chunks_before_[n] + chunk : n;
    one.before = packed ? 0 : begin_of(n);
    return one;
  }

  /// Calls visit(n, from, before) for the sequences that have tokens [from, before) in the item's
  /// range, counted inside the sequence, or are empty and begin in it.
  template <class Visit>
  TESSERA_INLINE void for_each_sequence(std::int64_t item, const Visit& visit) const {
    const std::int64_t low = item_begin(item);
    const std::int64_t high = item_end(item);
    std::int64_t n = 0;
    if (args_.cu_seqlens != nullptr) {
      const std::int32_t* const begin = args_.cu_seqlens;
      n = std::lower_bound(begin, begin + args_.sequences, low) - begin;
      n = std::max<std::int64_t>(n - 1, 0);
    } else if (args_.tokens > 0) {
      n = low / args_.tokens;
    }
    for (; n < args_.sequences && begin_of(n) < high; ++n) {
      const std::int64_t begin = begin_of(n);
      if (begin < low && end_of(n) <= low) continue;
      visit(n, std::max<std::int64_t>(low - begin, 0),
            high == INT64_MAX ? INT64_MAX : high - begin);
    }
  }

  const mean_pooling_kernel_args& args_;
  const std::int64_t* chunks_before_;
  std::int64_t piece_ = 1;
  std::int64_t item_ = 1;
  std::int64_t all_ = 0;
};

}  // namespace tessera::kernels::mean_pooling::cpu
