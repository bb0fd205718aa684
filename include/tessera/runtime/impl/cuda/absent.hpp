// The functions of calls.hpp in a build without CUDA: every refusal says what to rebuild.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/runtime/impl/cuda/calls.hpp>

namespace tessera::impl::cuda {

namespace {

[[gnu::cold]] status not_built() {
  return {status_code::device,
          "this library was built without CUDA; configure it with -DTESSERA_CUDA_ARCHITECTURES=80 "
          "(or those of its GPUs)"};
}

}  // namespace

status count_devices(int&) {
  return not_built();
}
status read_facts(int, device_facts&) {
  return not_built();
}
void read_versions(int&, int&) noexcept {}

current_device::current_device(int) : entered_(not_built()) {}
current_device::~current_device() = default;

status allocate(std::size_t, void*, void*&) {
  return not_built();
}
void release(void*, void*) noexcept {}
status allocate_for_all(std::size_t, void*&, first_contents) {
  return not_built();
}
void release_for_all(void*) noexcept {}
status is_capturing(void*, bool&) {
  return not_built();
}
status copy(void*, const void*, std::size_t, void*) {
  return not_built();
}
status fill(void*, int, std::size_t, void*) {
  return not_built();
}
status wait(void*) {
  return not_built();
}
status count_faults(const prim::content_rule&, std::uint64_t*, void*) {
  return not_built();
}
status make_stream(void*&) {
  return not_built();
}
void drop_stream(void*, void*) noexcept {}
status make_event(void*&) {
  return not_built();
}
void drop_event(void*, void*) noexcept {}
status record(void*, void*) {
  return not_built();
}
status seconds_between(void*, void*, double&) {
  return not_built();
}

}  // namespace tessera::impl::cuda
