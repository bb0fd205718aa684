// The CUDA rows that the device tests and the bench run, by name.
#pragma once

#include <string_view>
#include <vector>

#include <tessera/spec/flash_attention/instance.hpp>

namespace tessera::device_test {

/// Rows of one element type; each unit rows_*.cu defines one.
std::vector<flash_instance> bf16_rows();
std::vector<flash_instance> f16_rows();
std::vector<flash_instance> bf16_any_rows();
std::vector<flash_instance> f16_any_rows();

inline std::vector<flash_instance> all_rows() {
  std::vector<flash_instance> rows;
  for (const auto& some : {bf16_rows(), f16_rows(), bf16_any_rows(), f16_any_rows()}) {
    rows.insert(rows.end(), some.begin(), some.end());
  }
  return rows;
}

}  // namespace tessera::device_test
