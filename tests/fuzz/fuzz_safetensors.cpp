// libFuzzer target: any bytes through the safetensors reader.
//   fuzz_safetensors -max_total_time=60 tests/fuzz/corpus/safetensors
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/fuzz/check_safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  // A block of exactly this size, so that a read past it is seen.
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data),
                                     reinterpret_cast<const std::byte*>(data) + size);
  bool taken = false;
  const std::string wrong = tessera::fuzz::check(bytes, taken);
  if (!wrong.empty()) {
    std::fprintf(stderr, "%s\n", wrong.c_str());
    std::abort();
  }
  return 0;
}
