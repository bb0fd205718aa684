// One call on the device: tensors copied there, kernel run, outputs copied back to where the host's
// views point. Device tensors lie in blocks of their own between margins that must not change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include <tessera/spec/flash_attention/args.hpp>
#include <tessera/spec/flash_attention/instance.hpp>
#include <tessera/spec/flash_attention/lower.hpp>
#include <tessera/spec/flash_attention/lower_memory.hpp>

namespace tessera::device_test {

status write_dropout_mask(const tensor_view& mask, const flash_kernel_args& args);

inline void require(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
  }
}

/// The bytes from the first to the last element of a view, margins not included.
struct byte_span {
  std::byte* begin = nullptr;
  std::size_t size = 0;
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

/// A copy of a tensor's bytes in device memory, at the same place modulo 256.
class device_tensor {
 public:
  explicit device_tensor(const tensor_view& view) : host_(span_of(view)) {
    if (host_.size == 0) return;
    shift_ = margin + reinterpret_cast<std::uintptr_t>(host_.begin) % 256;
    void* memory = nullptr;
    require(cudaMalloc(&memory, bytes()), "cudaMalloc");
    memory_ = static_cast<std::byte*>(memory);
    require(cudaMemset(memory_, 0xFF, bytes()), "cudaMemset");
    require(cudaMemcpy(memory_ + shift_, host_.begin, host_.size, cudaMemcpyHostToDevice),
            "cudaMemcpy");
  }
  device_tensor(device_tensor&& other) noexcept
      : host_(other.host_), shift_(other.shift_), memory_(other.memory_) {
    other.memory_ = nullptr;
  }
  device_tensor& operator=(device_tensor&&) = delete;
  ~device_tensor() { cudaFree(memory_); }

  /// Where a host address inside the tensor lies on the device.
  void* at(const void* host) const {
    if (memory_ == nullptr) return nullptr;
    return memory_ + shift_ + (static_cast<const std::byte*>(host) - host_.begin);
  }

  /// Copies an output back; false if its margins were written.
  bool fetch() const {
    if (memory_ == nullptr) return true;
    std::vector<std::byte> all(bytes());
    require(cudaMemcpy(all.data(), memory_, bytes(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    std::memcpy(host_.begin, all.data() + shift_, host_.size);
    for (std::size_t n = 0; n < all.size(); ++n) {
      const bool inside = n >= shift_ && n < shift_ + host_.size;
      if (!inside && all[n] != std::byte{0xFF}) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t margin = 1024;
  std::size_t bytes() const { return shift_ + host_.size + margin; }

  byte_span host_;
  std::size_t shift_ = 0;
  std::byte* memory_ = nullptr;
};

inline int multiprocessors() {
  int count = 0;
  require(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0), "device attribute");
  return count;
}

/// What a call came to.
struct call_result {
  status done;
  bool margins_intact = true;
};

/// The arguments of a call with device pointers; owns the device memory.
class device_call {
 public:
  device_call(flash_op op, const flash_attention_args& args,
              const flash_attention_options& options) {
    throw_if_failed(lower(op, args, options, lowered_));
    mask_ = args.dropout_mask;
    for (const checks::flash_tensor_role& role : checks::flash_tensor_roles) {
      const tensor_view& view = args.*role.member;
      if (!view.present() || tensors_.contains(view.data)) continue;
      tensors_.emplace(view.data, entry{device_tensor(view), role.output});
    }
    const auto move = [&](auto& pointer) {
      if (pointer == nullptr) return;
      const auto found = tensors_.find(pointer);
      using target = std::remove_reference_t<decltype(pointer)>;
      void* there = found == tensors_.end() ? nullptr : found->second.tensor.at(pointer);
      // An empty tensor has no memory; present ones must stay distinguishable from absent ones.
      pointer = static_cast<target>(there != nullptr ? there : const_cast<void*>(nowhere()));
    };
    flash_kernel_args& c = lowered_;
    move(c.q), move(c.k), move(c.v), move(c.out);
    move(c.lse.data), move(c.row_max.data);
    move(c.bias_pre.data), move(c.bias_post.data), move(c.mask.data);
    move(c.q_segments.data), move(c.kv_segments.data);
    move(c.sinks), move(c.weights);
    move(c.cu_seqlens_q), move(c.cu_seqlens_k), move(c.seqlens_q), move(c.seqlens_k);
    if (mask_.present()) move(mask_.data);
  }

  const flash_kernel_args& lowered() const { return lowered_; }

  /// Runs a row and copies outputs back.
  call_result run(const flash_instance& row, int sms) {
    call_result result;
    const std::size_t bytes = row.workspace_bytes(lowered_, sms);
    void* workspace = nullptr;
    require(cudaMalloc(&workspace, bytes + 256), "cudaMalloc");
    require(cudaMemset(workspace, 0xFF, bytes + 256), "cudaMemset");
    result.done = row.launch(lowered_, {.threads = sms,
                                        .workspace = static_cast<std::byte*>(workspace),
                                        .workspace_bytes = bytes});
    if (result.done && mask_.present()) result.done = write_dropout_mask(mask_, lowered_);
    require(cudaDeviceSynchronize(), "kernel");
    for (const auto& [host, one] : tensors_) {
      if (one.output) result.margins_intact = one.tensor.fetch() && result.margins_intact;
    }
    std::vector<std::byte> past(256);
    require(cudaMemcpy(past.data(), static_cast<std::byte*>(workspace) + bytes, past.size(),
                       cudaMemcpyDeviceToHost),
            "cudaMemcpy");
    for (const std::byte one : past) {
      result.margins_intact = result.margins_intact && one == std::byte{0xFF};
    }
    require(cudaFree(workspace), "cudaFree");
    return result;
  }

 private:
  struct entry {
    device_tensor tensor;
    bool output;
  };
  static const void* nowhere() { return reinterpret_cast<const void*>(std::uintptr_t{256}); }

  flash_kernel_args lowered_{};
  tensor_view mask_{};
  std::map<const void*, entry> tensors_;
};

}  // namespace tessera::device_test
