// Copies of a call's tensors in the memory of a GPU.
#pragma once

#include <cstddef>
#include <vector>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::tool {

/// Device memory for tensors of the host, all copied in the order of one stream.
class device_tensors {
 public:
  device_tensors(device_id device, void* stream) : device_(device), stream_(stream) {}

  /// The tensor with the same strides on the device, its bytes copied there; absent for absent
  /// ones.
  result<tensor_view> add(const tensor_view& host);

  /// Copies back what `add` gave for this tensor, where there is such.
  status fetch(const tensor_view& host) const;

 private:
  struct copied {
    std::byte* host = nullptr;  ///< the first byte
    device_buffer memory;
  };

  device_id device_;
  void* stream_;
  std::vector<copied> copies_;
};

}  // namespace tessera::tool
