#include "tests/cuda/rows.cuh"

namespace tessera::device_test {

std::vector<flash_instance> bf16_any_rows() {
  return {instance_of<flash::sm80::any_row<dtype::bf16>>("any")};
}

}  // namespace tessera::device_test
