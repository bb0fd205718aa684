// The calls of this program run on the first CUDA device, on copies of the host's tensors, each on
// a stream of the calling thread.
#include "tests/support/place.hpp"

#include <vector>

#include <gtest/gtest.h>

#include <tessera/runtime/device_facts.hpp>
#include <tessera/spec/check.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"

namespace tessera::support {

namespace {

using device_test::device_image;
using device_test::first_device;

device_test::stream& stream_of_thread() {
  thread_local device_test::stream stream;
  return stream;
}

std::span<const tensor_view> tensors_in(const problem_view& call) {
  return {call.tensors, call.op->form->tensors.size()};
}

/// Tensors of an illegal call may point anywhere. Numbers in them are not looked at on a device.
bool may_be_copied(const problem_view& call) {
  bound_call host{.op = call.op, .tensors = call.tensors, .options = call.options};
  status failure;
  return checks::are_options(host, failure) && checks::are_shapes(host, 0, failure) &&
         checks::is_memory(host, nullptr, failure);
}

}  // namespace

device_kind kind_here() {
  return device_kind::cuda;
}

bool runs_here(backend target) {
  const auto facts = find_device(first_device);
  return facts && (*facts)->runs(target);
}

bool sees_values_here() {
  return false;
}

context context_here(context where) {
  where.threads = 0;
  where.device = first_device;
  where.stream = stream_of_thread().handle();
  return where;
}

problem_view problem_here(problem_view call) {
  for (std::size_t i = 0; i < call.op->form->tensors.size(); ++i) {
    const bool asked = call.op->form->tensors[i].aligned_rows && call.tensors[i].present();
    if (asked && !rows_are_aligned(call.tensors[i])) call.unaligned = true;
  }
  return call;
}

status run_here(const problem_view& call, const context& where, const placed_run& run) {
  thread_local device_test::device_block kept;
  const context there = context_here(where);
  if (!may_be_copied(call)) {
    return run(device_test::said_to_be_on(first_device, tensors_in(call)).data(), there);
  }
  device_image image(call.op->form->tensors, call.tensors, &kept);
  image.send(stream_of_thread().handle());
  status done = run(image.tensors(first_device).data(), there);
  EXPECT_TRUE(image.fetch(stream_of_thread().handle()))
      << "device memory outside the outputs was written";
  return done;
}

}  // namespace tessera::support
