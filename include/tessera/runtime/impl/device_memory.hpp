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

void device_deleter::operator()(void* what) const noexcept {
  static_cast<void>(on_device(device, [&] {
    drop(what, stream);
    return status();
  }));
}

result<device_buffer> device_buffer::allocate(device_id device, std::size_t bytes, void* stream) {
  void* memory = nullptr;
  const status done = on_device(
      device, [&] { return bytes > 0 ? impl::cuda::allocate(bytes, stream, memory) : status(); });
  if (!done) return done;
  device_buffer buffer;
  buffer.memory_ = device_handle(memory, {device, stream, &impl::cuda::release});
  buffer.size_ = bytes;
  return buffer;
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

namespace {

/// Something that the CUDA runtime makes, for a handle that gives it back.
status make_handle(device_id device, status (*make)(void*&), void (*drop)(void*, void*) noexcept,
                   device_handle& handle) {
  void* what = nullptr;
  status done = on_device(device, [&] { return make(what); });
  if (done) handle = device_handle(what, {device, nullptr, drop});
  return done;
}

}  // namespace

result<device_stream> device_stream::make(device_id device) {
  device_stream stream;
  const status done =
      make_handle(device, &impl::cuda::make_stream, &impl::cuda::drop_stream, stream.stream_);
  if (!done) return done;
  return stream;
}

result<device_timer> device_timer::make(device_id device) {
  device_timer timer;
  for (device_handle* mark : {&timer.begin_, &timer.end_}) {
    const status done =
        make_handle(device, &impl::cuda::make_event, &impl::cuda::drop_event, *mark);
    if (!done) return done;
  }
  return timer;
}

status device_timer::start(void* stream) {
  return on_device(device(), [&] { return impl::cuda::record(begin_.get(), stream); });
}

status device_timer::stop(void* stream) {
  return on_device(device(), [&] { return impl::cuda::record(end_.get(), stream); });
}

result<double> device_timer::seconds() {
  double seconds = 0;
  const status done = on_device(
      device(), [&] { return impl::cuda::seconds_between(begin_.get(), end_.get(), seconds); });
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
