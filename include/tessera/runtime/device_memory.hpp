// Memory, streams and clocks of GPUs for programs that do not call the CUDA runtime themselves,
// such as the tools. Nothing here waits for more than one stream. Every refusal is
// status_code::device with the driver's words; without CUDA in the build it says so.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// How something on a GPU is given back.
struct device_deleter {
  device_id device{};
  void* stream = nullptr;  ///< in whose order
  void (*drop)(void* what, void* stream) noexcept = nullptr;

  void operator()(void* what) const noexcept;
};
using device_handle = std::unique_ptr<void, device_deleter>;

/// Memory of a GPU, 256-byte aligned: taken, and given back, in the order of a stream, which must
/// live as long (null: the default stream).
class device_buffer {
 public:
  static result<device_buffer> allocate(device_id device, std::size_t bytes,
                                        void* stream = nullptr);

  std::byte* data() const noexcept { return static_cast<std::byte*>(memory_.get()); }
  std::size_t size() const noexcept { return size_; }

 private:
  device_handle memory_;
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
  static result<device_stream> make(device_id device);

  void* handle() const noexcept { return stream_.get(); }

 private:
  device_handle stream_;
};

/// Measures what lies between two marks in a stream, by the clock of the GPU.
class device_timer {
 public:
  static result<device_timer> make(device_id device);

  status start(void* stream);
  status stop(void* stream);
  /// Waits for the second mark.
  result<double> seconds();

 private:
  device_id device() const noexcept { return begin_.get_deleter().device; }

  device_handle begin_, end_;
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
