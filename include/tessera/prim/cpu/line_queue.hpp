// Cache lines that a kernel will need soon, asked for a few at a time beside its products. A core
// tracks only some twenty misses: asked for in one burst, the lines beyond stall it as if they were
// read. Rows of a tensor of many heads lie in pages of their own, whose addresses take longer to
// translate than a core can look ahead; it translates several at once, so that the first lines of
// a few rows go together.
#pragma once

#include <cstdint>

#include <tessera/prim/common/host_device.hpp>

namespace tessera::prim {

class line_queue {
 public:
  /// Forgets what was not asked for.
  TESSERA_INLINE void clear() {
    rows_ = row_ = line_ = 0;
    lines_ = 0;
  }

  /// `bytes` bytes from `data` on. Beyond `most_rows` rows nothing is kept: they are read when they
  /// are needed.
  TESSERA_INLINE void add(const void* data, std::int64_t bytes) {
    if (rows_ == most_rows) return;
    row_data_[rows_] = static_cast<const char*>(data);
    row_lines_[rows_] = static_cast<int>((bytes + line_bytes - 1) / line_bytes);
    lines_ += row_lines_[rows_++];
  }

  /// Spreads what is queued over `steps` calls of `step`.
  TESSERA_INLINE void spread(int steps) { each_step_ = (lines_ + steps - 1) / steps; }

  TESSERA_INLINE void step() {
    for (int i = 0; i < each_step_ && row_ < rows_; ++i) {
      if (line_ == 0 && row_ % rows_together == 0) ask_for_first_lines();
      TESSERA_PREFETCH_L2(row_data_[row_] + line_ * line_bytes);
      if (++line_ == row_lines_[row_]) {
        ++row_;
        line_ = 0;
      }
    }
  }

 private:
  TESSERA_INLINE void ask_for_first_lines() const {
    const int end = row_ + rows_together < rows_ ? row_ + rows_together : rows_;
    for (int r = row_; r < end; ++r) TESSERA_PREFETCH_L2(row_data_[r]);
  }

  static constexpr int line_bytes = 64;
  static constexpr int rows_together = 4;
  static constexpr int most_rows = 128;
  const char* row_data_[most_rows];
  int row_lines_[most_rows];
  int rows_ = 0;
  int row_ = 0, line_ = 0;  ///< next to be asked for
  int lines_ = 0;           ///< of all rows
  int each_step_ = 0;
};

}  // namespace tessera::prim
