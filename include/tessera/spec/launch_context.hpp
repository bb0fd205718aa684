// What a launcher needs besides its arguments. Plain data; the same for every family.
#pragma once

#include <cstddef>

namespace tessera {

/// Threads and scratch memory of one launch.
struct launch_context {
  int threads = 1;                 ///< at least 1
  std::byte* workspace = nullptr;  ///< 64-byte aligned; may be null where 0 bytes are needed
  std::size_t workspace_bytes = 0;
  void* stream = nullptr;  ///< GPU stream handle; unused on the CPU
};

}  // namespace tessera
