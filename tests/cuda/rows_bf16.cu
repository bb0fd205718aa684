#include "tests/cuda/rows.cuh"

namespace tessera::device_test {

std::vector<flash_instance> bf16_rows() {
  return tuned_rows<dtype::bf16>();
}

}  // namespace tessera::device_test
