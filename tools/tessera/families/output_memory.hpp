// Memory for the outputs of a call.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tessera/spec/tensor_view.hpp>

#include "../failure.hpp"
#include "bench/support/memory.hpp"

namespace tessera::tool {

class output_memory {
 public:
  /// Gives back what there is; `path` names the file in messages.
  void clear(const std::string& path) {
    path_ = path;
    buffers_.clear();
  }

  /// Makes the tensor row-major, its bytes all 0xff (NaN). Fails if the machine has less memory.
  void lay_out(tensor_view& view) {
    double bytes = static_cast<double>(size_of(view.type));
    for (int axis = 0; axis < view.rank; ++axis) {
      bytes *= static_cast<double>(view.extent[static_cast<std::size_t>(axis)]);
    }
    const double memory = bench::physical_bytes();
    if (bytes > memory) {
      throw failure(fmt::format("{}: an output needs {:.3g} bytes, this machine has {:.3g}", path_,
                                bytes, memory));
    }
    view.stride = contiguous_strides(view.extent, view.rank);
    buffers_.emplace_back(static_cast<std::size_t>(bytes));
    std::memset(buffers_.back().data(), 0xff, buffers_.back().size());
    view.data = buffers_.back().data();
  }

 private:
  std::string path_;
  std::vector<bench::buffer> buffers_;
};

}  // namespace tessera::tool
