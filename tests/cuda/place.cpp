// The calls of this program run on the first CUDA device, on copies of the host's tensors, each on
// a stream of the calling thread.
#include "tests/support/place.hpp"

#include <gtest/gtest.h>

#include <tessera/families/attention/lower.hpp>
#include <tessera/runtime/device_facts.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/support/flash_call.hpp"

namespace tessera::support {

namespace {

using device_test::device_image;
using device_test::first_device;

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

flash_problem problem_here(const flash_attention_args& args, const flash_attention_options& options,
                           flash_op op) {
  return problem_of(device_test::said_to_be_on(first_device, args), options, op);
}

status run_here(flash_op op, const flash_attention_args& args,
                const flash_attention_options& options, const context& where) {
  thread_local device_test::stream stream;
  thread_local device_test::device_block kept;
  context there = where;
  there.threads = 0;
  there.stream = stream.handle();
  // Views of an illegal call may point anywhere; it must be refused before anything is touched.
  attention_kernel_args lowered;
  if (!lower(op, args, options, lowered)) {
    return call(op, device_test::said_to_be_on(first_device, args), options, there);
  }
  device_image image(args, &kept);
  image.send(stream.handle());
  status done = call(op, image.args(first_device), options, there);
  EXPECT_TRUE(image.fetch(stream.handle())) << "device memory outside the outputs was written";
  return done;
}

}  // namespace tessera::support
