// These tests are compiled once per backend, with its instruction set switched on for everything,
// registration of the tests included. Where the CPU lacks the set, the program ends before any of
// that runs; 77 is what ctest knows as "skipped".
#include <unistd.h>

namespace {

[[gnu::constructor(101)]] void leave_where_the_cpu_lacks_the_instructions() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(__AVX512BF16__)
  if (!__builtin_cpu_supports("avx512bf16")) _exit(77);
#endif
#if defined(__AVX512VNNI__)
  if (!__builtin_cpu_supports("avx512vnni")) _exit(77);
#endif
#if defined(__AVX512F__)
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
    _exit(77);
  }
#endif
#if defined(__AVX2__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) _exit(77);
#endif
#endif
}

}  // namespace
