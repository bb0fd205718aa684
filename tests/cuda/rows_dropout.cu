#include <tessera/kernels/flash_attention/sm80.hpp>

#include "tests/cuda/device_call.hpp"

namespace tessera::device_test {

status write_dropout_mask(const tensor_view& mask, const flash_kernel_args& args) {
  return flash::sm80::launch_dropout_mask(mask, args, nullptr);
}

}  // namespace tessera::device_test
