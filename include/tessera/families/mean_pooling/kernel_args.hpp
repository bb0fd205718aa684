// What a mean pooling kernel receives: raw pointers, element strides and sizes of one launch. Made
// from validated views by `lower`; a kernel checks nothing again.
#pragma once

#include <cstdint>

#include <tessera/spec/dtype.hpp>

namespace tessera {

/// Strides, in elements, of a tensor indexed by (entry, row, head); the last axis is contiguous.
struct pooling_strides {
  std::int64_t entry = 0;
  std::int64_t row = 0;
  std::int64_t head = 0;
};

/// Arguments of one launch, forward or backward. `tokens` are the rows that are averaged, `means`
/// the rows with one element for many of them.
struct mean_pooling_kernel_args {
  const void* from = nullptr;  ///< forward: x; backward: d_out
  void* to = nullptr;          ///< forward: out; backward: d_x
  pooling_strides token_strides{}, mean_strides{};

  const void* mask = nullptr;  ///< null: every token weighs 1
  dtype mask_type = dtype::none;
  std::int64_t mask_entry = 0, mask_token = 0;

  const std::int32_t* cu_seqlens = nullptr;  ///< packed; contiguous

  std::int64_t sequences = 0;  ///< entries, or sequences when packed
  std::int64_t tokens = 0;     ///< of an entry; packed: in total
  std::int64_t chunk = 0;      ///< tokens of a chunk; 0: one mean for the whole sequence
  std::int64_t heads = 0;      ///< 1 where the heads of a token lie side by side
  std::int64_t columns = 0;    ///< of a head
  std::int64_t means = 0;      ///< rows of means of an entry; packed: in total
};

}  // namespace tessera
