// Where there is no GPU, or device code is not to be run, the device tests say so and end with 77,
// which ctest knows as "skipped".
#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "tests/cuda/device.hpp"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
#ifdef TESSERA_QUICK_DEVICE_CODE
  const std::string why =
      "device code of this build was compiled to be read, not to be run "
      "(TESSERA_QUICK_DEVICE_CODE)";
#else
  const std::string why = tessera::device_test::absence();
#endif
  if (!why.empty() && !GTEST_FLAG_GET(list_tests)) {
    std::printf("skipped: %s\n", why.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
