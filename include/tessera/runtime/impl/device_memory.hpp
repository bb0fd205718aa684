// Memory, streams and clocks of GPUs: the device of each is made current around every call.
#pragma once

#include <cstddef>
#include <functional>

#include <tessera/runtime/device_memory.hpp>
#include <tessera/runtime/impl/cuda/calls.hpp>
#include <tessera/spec/sentence.hpp>

namespace tessera {

namespace {

/// Does something while `device`, a GPU, is current.
template <class Work>
status on_device(device_id device, const Work& work) {
  if (device.kind != device_kind::cuda) {
    return refusal(status_code::device, {"device: is ", device, ", must be a GPU: cuda:0, ..."});
  }
  const impl::cuda::current_device scope(device.ordinal);
  return scope.entered() ? work() : scope.entered();
}

}  // namespace

device_buffer::~device_buffer() {
  if (data_ == nullptr) return;
  static_cast<void>(on_device(device_, [this] {
    impl::cuda::release(data_, stream_);
    return status();
  }));
}

result<device_buffer> device_buffer::allocate(device_id device, std::size_t bytes, void* stream) {
  device_buffer made;
  void* memory = nullptr;
  if (bytes > 0) {
    const auto work = [&] { return impl::cuda::allocate(bytes, stream, memory); };
    if (status done = on_device(device, work); !done) return done;
  }
  made.device_ = device;
  made.stream_ = stream;
  made.data_ = static_cast<std::byte*>(memory);
  made.size_ = bytes;
  return made;
}

status copy_memory(device_id device, void* to, const void* from, std::size_t bytes, void* stream) {
  return on_device(device, [&] { return impl::cuda::copy(to, from, bytes, stream); });
}

status fill_memory(device_id device, void* to, int byte, std::size_t bytes, void* stream) {
  return on_device(device, [&] { return impl::cuda::fill(to, byte, bytes, stream); });
}

status wait_for(device_id device, void* stream) {
  return on_device(device, [&] { return impl::cuda::wait(stream); });
}

device_stream::~device_stream() {
  if (stream_ == nullptr) return;
  static_cast<void>(on_device(device_, [this] {
    impl::cuda::drop_stream(stream_);
    return status();
  }));
}

result<device_stream> device_stream::make(device_id device) {
  device_stream made;
  made.device_ = device;
  const status done = on_device(device, [&] { return impl::cuda::make_stream(made.stream_); });
  if (!done) return done;
  return made;
}

device_timer::~device_timer() {
  if (begin_ == nullptr && end_ == nullptr) return;
  static_cast<void>(on_device(device_, [this] {
    impl::cuda::drop_event(begin_);
    impl::cuda::drop_event(end_);
    return status();
  }));
}

result<device_timer> device_timer::make(device_id device) {
  device_timer made;
  made.device_ = device;
  const status done = on_device(device, [&] {
    status first = impl::cuda::make_event(made.begin_);
    return first ? impl::cuda::make_event(made.end_) : first;
  });
  if (!done) return done;
  return made;
}

status device_timer::start(void* stream) {
  return on_device(device_, [&] { return impl::cuda::record(begin_, stream); });
}

status device_timer::stop(void* stream) {
  return on_device(device_, [&] { return impl::cuda::record(end_, stream); });
}

result<double> device_timer::seconds() {
  double seconds = 0;
  const status done =
      on_device(device_, [&] { return impl::cuda::seconds_between(begin_, end_, seconds); });
  if (!done) return done;
  return seconds;
}

status with_device(device_id device, const std::function<status()>& work) {
  return on_device(device, work);
}

cuda_versions find_cuda_versions() noexcept {
  cuda_versions found;
  impl::cuda::read_versions(found.driver, found.runtime);
  return found;
}

}  // namespace tessera
