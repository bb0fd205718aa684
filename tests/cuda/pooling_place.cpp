// The calls of this program run on the first CUDA device, on copies of the host's tensors.
#include <gtest/gtest.h>

#include <tessera/runtime/device_facts.hpp>

#include "tests/cuda/device.hpp"
#include "tests/cuda/device_image.hpp"
#include "tests/support/place.hpp"
#include "tests/support/pooling_data.hpp"

namespace tessera::support {

using device_test::first_device;

bool runs_here(backend target) {
  const auto facts = find_device(first_device);
  return facts && (*facts)->runs(target);
}

status run_here(mean_pooling_op op, const mean_pooling_args& args,
                const mean_pooling_options& options, const context& where) {
  thread_local device_test::stream stream;
  thread_local device_test::device_block kept;
  context there = where;
  there.threads = 0;
  there.stream = stream.handle();
  device_test::device_image image(args, &kept);
  image.send(stream.handle());
  status done = run(op, image.args(first_device), options, there);
  EXPECT_TRUE(image.fetch(stream.handle())) << "device memory outside the outputs was written";
  return done;
}

}  // namespace tessera::support
