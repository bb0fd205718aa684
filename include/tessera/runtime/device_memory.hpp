// Memory, streams and clocks of GPUs for programs that do not call the CUDA runtime themselves,
// such as the tools. Nothing here waits for more than one stream. Every refusal is
// status_code::device with the driver's words; without CUDA in the build it says so.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// Memory of a GPU, 256-byte aligned: taken, and given back, in the order of a stream, which must
/// live as long (null: the default stream).
class device_buffer {
 public:
  device_buffer() = default;
  device_buffer(device_buffer&& other) noexcept { swap(other); }
  device_buffer& operator=(device_buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~device_buffer();

  static result<device_buffer> allocate(device_id device, std::size_t bytes,
                                        void* stream = nullptr);

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  void swap(device_buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  device_id device_{};
  void* stream_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Copies after the earlier work of the stream and returns when it is done. Each side lies in host
/// memory or on `device`.
status copy_memory(device_id device, void* to, const void* from, std::size_t bytes,
                   void* stream = nullptr);

/// Sets bytes on `device`, in the order of the stream.
status fill_memory(device_id device, void* to, int byte, std::size_t bytes, void* stream = nullptr);

/// Waits for the work of a stream; the refusal is what went wrong in it.
status wait_for(device_id device, void* stream);

/// A stream of its own, which does not wait for the default stream.
class device_stream {
 public:
  device_stream() = default;
  device_stream(device_stream&& other) noexcept { swap(other); }
  device_stream& operator=(device_stream&& other) noexcept {
    swap(other);
    return *this;
  }
  ~device_stream();

  static result<device_stream> make(device_id device);

  void* handle() const noexcept { return stream_; }

 private:
  void swap(device_stream& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
  }

  device_id device_{};
  void* stream_ = nullptr;
};

/// Measures what lies between two marks in a stream, by the clock of the GPU.
class device_timer {
 public:
  device_timer() = default;
  device_timer(device_timer&& other) noexcept { swap(other); }
  device_timer& operator=(device_timer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~device_timer();

  static result<device_timer> make(device_id device);

  status start(void* stream);
  status stop(void* stream);
  /// Waits for the second mark.
  result<double> seconds();

 private:
  void swap(device_timer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(begin_, other.begin_);
    std::swap(end_, other.end_);
  }

  device_id device_{};
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

/// Does something while `device`, a GPU, is the calling thread's current one, as launches need it.
status with_device(device_id device, const std::function<status()>& work);

/// Versions of the driver and of the CUDA runtime inside the library, 13000 for 13.0.
struct cuda_versions {
  int driver = 0;   ///< 0: no driver answers
  int runtime = 0;  ///< 0: the library was built without CUDA
};
cuda_versions find_cuda_versions() noexcept;

}  // namespace tessera
