#include "tests/cuda/rows.cuh"

namespace tessera::device_test {

std::vector<flash_instance> f16_rows() {
  return tuned_rows<dtype::f16>();
}

}  // namespace tessera::device_test
