// What tests of pieces of prim/cuda that need compute capability 9.0 begin with.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <tessera/prim/cuda/launch.hpp>

namespace tessera::device_test {

class sm90_pieces : public testing::Test {
 protected:
  void SetUp() override {
    int device = 0;
    ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
    const int capability = prim::cuda::capability_of(device);
    if (capability != 90) {
      GTEST_SKIP() << "compute capability is " << capability << ", these pieces need 90";
    }
  }
};

}  // namespace tessera::device_test
