// Who is in a step, as tensors: the pages of each sequence, its length, its rows, and which of them
// have the same first pages. The same for all layers.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

#include <tessera/spec/tensor_view.hpp>

#include "run_place.hpp"
#include "tools/replay/scheduler.hpp"

namespace tessera::tool {

/// Extents of the tensors of a call. Powers of two, or the most there can be: a plan serves many
/// steps, as a captured graph would.
struct batch_shape {
  std::int64_t tokens = 0;
  std::int64_t sequences = 0;
  std::int64_t pages = 0;   ///< of the longest sequence
  std::int64_t groups = 0;  ///< of sequences that have the same first pages, or do not

  friend auto operator<=>(const batch_shape&, const batch_shape&) = default;
};

class step_lists {
 public:
  step_lists(const replay::serving_limits& limits, std::int64_t longest_table, run_place& place);

  /// Writes the lists of a step and sends them. Sequences that generate come first. Before the
  /// first step shapes are those of the largest one.
  void load(const replay::step& step);

  const batch_shape& shape() const noexcept { return shape_; }
  tensor_view table() const { return view(table_.data(), {shape_.sequences, shape_.pages}); }
  tensor_view lengths() const { return view(lengths_.data(), {shape_.sequences}); }
  tensor_view starts() const { return view(starts_.data(), {shape_.sequences + 1}); }
  /// Sequences that generate, twice, and all; or the last of these numbers alone.
  tensor_view counts(std::int64_t entries) const {
    return view(counts_.data() + 3 - entries, {entries});
  }
  /// Where shape().groups is not 0: the sequences of each group, and the pages that they share.
  tensor_view group_starts() const { return view(group_starts_.data(), {shape_.groups + 1}); }
  tensor_view group_pages() const { return view(group_pages_.data(), {shape_.groups}); }

 private:
  void load_groups(const replay::step& step);

  replay::serving_limits limits_;
  std::int64_t longest_table_;
  run_place& place_;
  batch_shape shape_;
  std::span<std::int32_t> table_, lengths_, starts_, counts_, group_starts_, group_pages_;
};

}  // namespace tessera::tool
