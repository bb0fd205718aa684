// In which order decode reads the keys of a split, so that memory is read at its full speed. Either
// in the order of memory, a few keys of all heads of an item and then the next few, with requests
// to the second-level cache in exactly that order ahead of use; or, with one or two query rows a
// key, where the hardware's prefetcher alone is faster, as four straight lines side by side.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>
#include <tessera/prim/common/visibility.hpp>
#include <tessera/prim/cpu/gemm/rows.hpp>

namespace tessera::kernels::attention::cpu {

/// Rows of one head, `offset` elements behind those of another that lie anywhere. An address is one
/// register: of the sum of two GCC 12 makes loads that go through the stack.
template <class Element>
struct rows_of_head {
  using element = Element;
  const Element* const* of_first_head;
  std::int64_t offset;
  TESSERA_INLINE const Element* row(std::int64_t i) const {
    const Element* address = of_first_head[i] + offset;
    __asm__("" : "+r"(address));
    return address;
  }
};

/// Columns [column, column + count) of a tile of scores: column + i is row i.
template <class Rows>
struct key_step {
  Rows rows;
  int column = 0;
  int count = 0;
  /// For each key a row to ask for meanwhile; or null. Buffered rows have none.
  const typename Rows::element* const* ahead = nullptr;
};

/// Heads [begin, begin + count) of an item, of `all`.
struct head_range {
  int begin = 0;
  int count = 0;
  int all = 0;
};

/// Walks over the rows of some heads in the order of memory, all heads of a key and then those of
/// the next. A run of keys takes one look-up; the last key stands for those behind it.
template <class Tokens>
class row_walk {
  using stored = typename Tokens::stored;

 public:
  /// From `key` on; `last` is the last one.
  TESSERA_INLINE row_walk(const Tokens& tokens, const head_range& heads, std::int64_t key,
                          std::int64_t last)
      : tokens_(tokens),
        heads_(heads),
        key_(key),
        last_(last),
        last_head_((heads.count - 1) * tokens.head_stride()),
        to_next_key_(tokens.stride() - last_head_),
        row_(row_of_key()) {
    if constexpr (!one_run) {
      page_ = tokens.page_of(key);
      left_in_page_ = (page_ + 1) * tokens.page_size() - key;
    }
  }
  /// The next rows.
  template <int Count>
  TESSERA_INLINE void take(const stored* (&rows)[Count]) {
    const stored* row = row_;
    int head = head_;
    for (int i = 0; i < Count; ++i) {
      rows[i] = row;
      if (++head < heads_.count) {
        row += tokens_.head_stride();
      } else {
        head = 0;
        row = first_row_of_next_key(row);
      }
    }
    row_ = row;
    head_ = head;
  }

 private:
  static constexpr bool one_run = [] {
    if constexpr (Tokens::in_place) return Tokens::is_one_run;
    return false;
  }();

  TESSERA_INLINE const stored* row_of_key() const {
    return tokens_.row(key_ < last_ ? key_ : last_, heads_.begin);
  }
  /// The first row, of an item's heads, of the key behind that of `last_row`.
  TESSERA_INLINE const stored* first_row_of_next_key(const stored* last_row) {
    ++key_;
    if constexpr (one_run) {
      return row_of_key();
    } else {
      if (key_ > last_) return last_row - last_head_;
      if (--left_in_page_ > 0) return last_row + to_next_key_;
      left_in_page_ = tokens_.page_size();
      return tokens_.page_row(++page_, heads_.begin);
    }
  }

  const Tokens& tokens_;
  head_range heads_;
  std::int64_t key_, last_;
  std::int64_t last_head_;    ///< from the first row of a key to its last one
  std::int64_t to_next_key_;  ///< from its last row to the next key, in a page
  std::int64_t page_ = 0, left_in_page_ = 0;
  int head_ = 0;
  const stored* row_;
};

/// The order of memory, `Keys` keys of a head at a time.
template <int Keys>
struct memory_order {
  static constexpr int keys_of_step = Keys;
  static constexpr bool all_seen = false;
  static constexpr bool one_head = false;
  head_range heads;
  std::int64_t end;  ///< of the split
  int distance;      ///< of requests, keys

  /// Steps through the keys [key0, key0 + count) of one tensor.
  template <class Tokens>
  class sweep {
    using stored = typename Tokens::stored;

   public:
    TESSERA_INLINE sweep(const memory_order& order, const Tokens& tokens, std::int64_t key0,
                         int count)
        : tokens_(tokens),
          heads_(order.heads),
          key0_(key0),
          count_(count),
          asked_(tokens, order.heads, key0 + (order.distance < Keys ? Keys : order.distance),
                 order.end - 1) {}

    /// Columns one after the other, from 0 on.
    TESSERA_INLINE void start(int column) {
      column_ = column;
      const int left = count_ - column;
      keys_ = left < Keys ? left : Keys;
      if constexpr (finds_rows) {
        const std::int64_t key = key0_ + column;
        straight_ = Keys <= most_straight_keys && tokens_.contiguous_run(key) >= keys_;
        if (straight_) {
          found_[0] = tokens_.row(key, heads_.begin);
        } else {
          tokens_.find(key, keys_, heads_.begin, found_);
        }
      }
    }
    /// Of the item's head `h`, from 0 on, one after the other: use(its key_step).
    template <class Use>
    TESSERA_INLINE void step(int h, const Use& use) {
      asked_.take(ahead_);
      const std::int64_t key = key0_ + column_;
      const int head = heads_.begin + h;
      if constexpr (finds_rows) {
        const std::int64_t offset = h * tokens_.head_stride();
        if constexpr (Keys <= most_straight_keys) {
          if (straight_) {
            use(key_step<prim::strided_rows<stored>>{
                {found_[0] + offset, tokens_.stride()}, column_, keys_, ahead_});
            return;
          }
        }
        use(key_step<rows_of_head<stored>>{{found_, offset}, column_, keys_, ahead_});
      } else if constexpr (Tokens::in_place) {
        use(key_step<decltype(tokens_.rows(0, 0))>{tokens_.rows(key, head), column_, keys_,
                                                   ahead_});
      } else {
        for (int k = 0; k < Keys; ++k) tokens_.prefetch(ahead_[k]);
        use(key_step<decltype(tokens_.load(0, 0, 0, 0))>{tokens_.load(key, 0, keys_, head), column_,
                                                         keys_});
      }
    }

   private:
    /// The keys of a step lie anywhere and are found once for all heads.
    static constexpr bool finds_rows = [] {
      if constexpr (Tokens::in_place) return !Tokens::is_one_run;
      return false;
    }();
    /// Steps of more keys are those of tiles, which see by themselves how far rows are apart.
    static constexpr int most_straight_keys = 16;

    const Tokens& tokens_;
    head_range heads_;
    std::int64_t key0_;
    int count_;
    row_walk<Tokens> asked_;
    int column_ = 0;
    int keys_ = 0;
    bool straight_ = false;  ///< the keys of a step are of one run
    const stored* ahead_[Keys];
    const stored* found_[Keys];  ///< where finds_rows
  };
};

/// The same for one of the item's heads alone.
template <int Keys>
struct head_order : memory_order<Keys> {
  static constexpr bool one_head = true;
  int head;
};

/// Keys [begin, begin + keys) of a split, one run, as `count` streams side by side. A tile of
/// scores holds the next few keys of each: column c is key first(key0, c) of stream c % count, so
/// that neighbouring columns are `distance()` keys apart.
struct stream_order {
  static constexpr int count = 4;
  static constexpr int keys_of_step = count;
  static constexpr bool all_seen = true;
  static constexpr bool one_head = false;
  static constexpr std::int64_t most_keys = 1 << 20;
  head_range heads;
  std::int64_t begin = 0;
  std::int64_t keys = 0;  ///< whole tiles
  std::int64_t end = 0;   ///< of the split
  int keys_ahead = 0;     ///< distance of requests

  TESSERA_INLINE std::int64_t distance() const { return keys / count; }
  /// The key of column `column`, a multiple of count, of the tile that starts at key0.
  TESSERA_INLINE std::int64_t first(std::int64_t key0, int column) const {
    return begin + (key0 - begin + column) / count;
  }

  template <class Tokens>
  class sweep {
    using element = typename Tokens::element;

   public:
    TESSERA_INLINE sweep(const stream_order& order, const Tokens& tokens, std::int64_t key0, int)
        : order_(order), tokens_(tokens), key0_(key0) {}

    TESSERA_INLINE void start(int column) { column_ = column; }
    /// One key of each stream. The prefetcher needs requests where the item leaves gaps only.
    template <class Use>
    TESSERA_INLINE void step(int h, const Use& use) {
      const head_range& served = order_.heads;
      const std::int64_t first_key = order_.first(key0_, column_);
      key_step<prim::strided_rows<element>> at{
          tokens_.run_rows(first_key, served.begin + h, order_.distance()), column_, count,
          nullptr};
      if (served.count == served.all) {
        use(at);
        return;
      }
      const int asked = (order_.keys_ahead + count - 1) / count;
      for (int k = 0; k < count; ++k) {
        std::int64_t key = first_key + k * order_.distance() + asked;
        key = key < order_.end ? key : order_.end - 1;
        ahead_[k] = tokens_.row(key, served.begin + h);
      }
      at.ahead = ahead_;
      use(at);
    }

   private:
    const stream_order& order_;
    const Tokens& tokens_;
    std::int64_t key0_;
    int column_ = 0;
    const element* ahead_[count];
  };
};

}  // namespace tessera::kernels::attention::cpu
