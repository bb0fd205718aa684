// The tensors of a call in device memory: copied there between margins that must not change, at the
// same places modulo 256, and outputs copied back to where the host's views point.
//
// One block of memory holds them all, so that a call costs one copy in each direction. With
// TESSERA_TEST_EXACT_MEMORY=1 every tensor is an allocation of its own that ends with its last
// element, for tools that watch each access.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::device_test {

inline void require(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
  }
}

struct free_on_device {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};
using device_bytes = std::unique_ptr<std::byte, free_on_device>;

inline device_bytes allocate_on_device(std::size_t bytes) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  return device_bytes(static_cast<std::byte*>(memory));
}

/// The bytes from the first to the last element of a view.
struct byte_span {
  std::byte* begin = nullptr;
  std::size_t size = 0;
  std::byte* end() const { return begin + size; }
};
inline byte_span span_of(const tensor_view& view) {
  if (!view.present() || view.elements() == 0) return {};
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (int axis = 0; axis < view.rank; ++axis) {
    const auto a = static_cast<std::size_t>(axis);
    const std::int64_t reach = (view.extent[a] - 1) * view.stride[a];
    (reach < 0 ? low : high) += reach;
  }
  const auto size = static_cast<std::int64_t>(size_of(view.type));
  return {static_cast<std::byte*>(view.data) + low * size,
          static_cast<std::size_t>((high - low + 1) * size)};
}

/// The tensors, those on `from` as views of another device, their addresses as they are.
inline std::vector<tensor_view> said_to_be_on(device_id device,
                                              std::span<const tensor_view> tensors,
                                              device_id from = {}) {
  std::vector<tensor_view> there(tensors.begin(), tensors.end());
  for (tensor_view& view : there) {
    if (view.present() && view.device == from) view.device = device;
  }
  return there;
}
/// The same for a struct of args.
template <class Args>
Args said_to_be_on(device_id device, Args args, device_id from = {}) {
  const std::span<tensor_view> views(tensors_of(args), sizeof(Args) / sizeof(tensor_view));
  std::ranges::copy(said_to_be_on(device, std::span<const tensor_view>(views), from),
                    views.begin());
  return args;
}

/// Device memory that grows and is kept for the next call. Belongs to the device that was current
/// when it grew.
class device_block {
 public:
  std::byte* of(std::size_t bytes) {
    if (bytes > capacity_) {
      memory_.reset();
      capacity_ = 0;
      memory_ = allocate_on_device(bytes + bytes / 2);
      capacity_ = bytes + bytes / 2;
    }
    return memory_.get();
  }

 private:
  device_bytes memory_{};
  std::size_t capacity_ = 0;
};

/// What bytes are where no tensor lies.
inline constexpr std::byte margin_byte{0xFF};

class device_image {
 public:
  /// Takes memory on the current device for the tensors of a call, as many as there are forms,
  /// whose host memory must outlive the image. `kept`, if given, is used by one image at a time.
  device_image(std::span<const tensor_form> forms, const tensor_view* tensors,
               device_block* kept = nullptr)
      : forms_(forms), host_(tensors, tensors + forms.size()), exact_(wants_exact()) {
    find_regions();
    if (exact_) {
      for (region& block : regions_) {
        block.memory = allocate_on_device(block.shift + block.host.size);
        block.device = block.memory.get() + block.shift;
      }
    } else {
      image_.assign(total_, margin_byte);
      block_ = (kept != nullptr ? *kept : own_).of(total_);
      for (region& block : regions_) block.device = block_ + block.offset;
    }
  }

  /// The same tensors on the device.
  std::vector<tensor_view> tensors(device_id device) const {
    std::vector<tensor_view> there = said_to_be_on(device, std::span<const tensor_view>(host_));
    for (tensor_view& view : there) {
      if (!view.present()) continue;
      const byte_span span = span_of(view);
      // An empty tensor has no memory; its address is nobody's, and as aligned as before.
      const auto address = reinterpret_cast<std::uintptr_t>(view.data);
      view.data = span.size == 0
                      ? reinterpret_cast<void*>(std::uintptr_t{256} + address % 256)
                      : at(span.begin) + (static_cast<std::byte*>(view.data) - span.begin);
    }
    return there;
  }

  /// The same as a struct of args.
  template <class Args>
  Args args(device_id device) const {
    Args there;
    std::ranges::copy(tensors(device), tensors_of(there));
    return there;
  }

  /// Copies every tensor to the device, outputs as they are, in the order of the stream.
  void send(cudaStream_t stream) {
    for (const region& block : regions_) {
      if (exact_) {
        require(cudaMemcpyAsync(block.device, block.host.begin, block.host.size,
                                cudaMemcpyHostToDevice, stream),
                "cudaMemcpyAsync");
      } else {
        std::memcpy(image_.data() + block.offset, block.host.begin, block.host.size);
      }
    }
    if (!exact_) {
      require(cudaMemcpyAsync(block_, image_.data(), total_, cudaMemcpyHostToDevice, stream),
              "cudaMemcpyAsync");
    }
    require(cudaStreamSynchronize(stream), "copying to the device");
  }

  /// Waits for the stream and copies outputs back. False if anything else has changed: an input, a
  /// margin.
  bool fetch(cudaStream_t stream) {
    require(cudaStreamSynchronize(stream), "kernel");
    bool intact = true;
    std::vector<std::byte> now;
    if (!exact_) {
      now.resize(total_);
      require(cudaMemcpy(now.data(), block_, total_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    }
    for (const region& block : regions_) {
      if (exact_) {
        now.resize(block.host.size);
        require(cudaMemcpy(now.data(), block.device, block.host.size, cudaMemcpyDeviceToHost),
                "cudaMemcpy");
      }
      const std::byte* const begin = exact_ ? now.data() : now.data() + block.offset;
      if (block.output) {
        std::memcpy(block.host.begin, begin, block.host.size);
        if (!exact_) std::memcpy(image_.data() + block.offset, begin, block.host.size);
      } else {
        intact = intact && std::memcmp(block.host.begin, begin, block.host.size) == 0;
      }
    }
    return intact && (exact_ || now == image_);
  }

 private:
  /// Host memory of one tensor, or of several that overlap.
  struct region {
    byte_span host{};
    bool output = false;
    std::size_t shift = 0;   ///< from a multiple of 256
    std::size_t offset = 0;  ///< in the block
    std::byte* device = nullptr;
    device_bytes memory{};
  };
  static constexpr std::size_t margin = 1024;

  static bool wants_exact() {
    const char* text = std::getenv("TESSERA_TEST_EXACT_MEMORY");
    return text != nullptr && std::string_view(text) == "1";
  }

  void find_regions() {
    for (std::size_t tensor = 0; tensor < forms_.size(); ++tensor) {
      const byte_span span = span_of(host_[tensor]);
      if (span.size == 0) continue;
      region block;
      block.host = span;
      block.output = forms_[tensor].is_output();
      regions_.push_back(std::move(block));
    }
    std::sort(regions_.begin(), regions_.end(),
              [](const region& a, const region& b) { return a.host.begin < b.host.begin; });
    std::vector<region> joined;
    for (region& next : regions_) {
      if (joined.empty() || joined.back().host.end() <= next.host.begin) {
        joined.push_back(std::move(next));
        continue;
      }
      region& last = joined.back();
      const auto reach = static_cast<std::size_t>(next.host.end() - last.host.begin);
      last.host.size = std::max(last.host.size, reach);
      last.output = last.output || next.output;
    }
    regions_ = std::move(joined);
    for (region& block : regions_) {
      block.shift = reinterpret_cast<std::uintptr_t>(block.host.begin) % 256;
      block.offset = (total_ + margin + 255) / 256 * 256 + block.shift;
      total_ = block.offset + block.host.size;
    }
    total_ += margin;
  }

  std::byte* at(const std::byte* host) const {
    for (const region& block : regions_) {
      if (host >= block.host.begin && host < block.host.end()) {
        return block.device + (host - block.host.begin);
      }
    }
    throw std::logic_error("a tensor outside the memory of the call");
  }

  std::span<const tensor_form> forms_;
  std::vector<tensor_view> host_;
  bool exact_;
  std::vector<region> regions_;
  std::vector<std::byte> image_;
  std::size_t total_ = 0;
  device_block own_{};
  std::byte* block_ = nullptr;
};

}  // namespace tessera::device_test
