// From row types to instances; included by the units that compile them.
#pragma once

#include <string_view>

#include <tessera/kernels/flash_attention/sm80.hpp>
#include <tessera/kernels/flash_attention/sm80_rows.hpp>

#include "tests/cuda/rows.hpp"

namespace tessera::device_test {

template <class Row>
flash_instance instance_of(std::string_view name) {
  flash_instance instance;
  instance.name = name;
  instance.config = resolved(Row::config);
  instance.workspace_bytes = &flash::sm80::workspace_bytes<Row>;
  instance.launch = &flash::sm80::launch<Row>;
  return instance;
}

template <dtype Type>
std::vector<flash_instance> tuned_rows() {
  using namespace flash::sm80;
  return {instance_of<d64_row<Type>>("d64"),
          instance_of<d96_row<Type>>("d96"),
          instance_of<d128_row<Type>>("d128"),
          instance_of<d256_row<Type>>("d256"),
          instance_of<d192_v128_row<Type>>("d192_v128"),
          instance_of<d64_decode_row<Type>>("d64_decode"),
          instance_of<d128_decode_row<Type>>("d128_decode")};
}

}  // namespace tessera::device_test
