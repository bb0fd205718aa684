// Memory for the outputs of a call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include <tessera/spec/tensor_view.hpp>

#include "../command.hpp"
#include "bench/support/memory.hpp"

namespace tessera::tool {

class output_memory {
 public:
  /// Gives back what there is; `path` names the file in messages.
  void clear(const std::string& path) {
    path_ = path;
    buffers_.clear();
  }

  /// A row-major tensor whose bytes are all 0xff (NaN). Fails if the machine has less memory.
  tensor_view add(dtype type, std::initializer_list<std::int64_t> extent) {
    tensor_view view;
    view.type = type;
    view.rank = static_cast<std::int8_t>(extent.size());
    std::copy(extent.begin(), extent.end(), view.extent.begin());
    const double bytes = std::accumulate(
        extent.begin(), extent.end(), static_cast<double>(size_of(type)),
        [](double product, std::int64_t size) { return product * static_cast<double>(size); });
    const double memory =
        static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    if (bytes > memory) {
      throw failure(fmt::format("{}: an output needs {:.3g} bytes, this machine has {:.3g}", path_,
                                bytes, memory));
    }
    view.stride = contiguous_strides(view.extent, view.rank);
    buffers_.emplace_back(static_cast<std::size_t>(bytes));
    std::memset(buffers_.back().data(), 0xff, buffers_.back().size());
    view.data = buffers_.back().data();
    return view;
  }

 private:
  std::string path_;
  std::vector<bench::buffer> buffers_;
};

}  // namespace tessera::tool
