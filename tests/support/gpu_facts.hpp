// GPUs as their driver describes them, for tests on machines without one.
#pragma once

#include <string_view>

#include <tessera/runtime/device_facts.hpp>

namespace tessera::support {

inline device_facts some_gpu(std::string_view product, int compute_capability) {
  device_facts facts;
  facts.kind = device_kind::cuda;
  facts.highest = compute_capability == 90   ? backend::cuda_sm90
                  : compute_capability >= 80 ? backend::cuda_sm80
                                             : backend::cpu_generic;
  facts.sockets = facts.physical_cores = facts.hardware_threads = facts.available_threads = 0;
  facts.memory_nodes = 0;
  facts.l1d_bytes = facts.l3_bytes = 0;
  facts.compute_capability = compute_capability;
  product.copy(facts.product.data(), facts.product.size() - 1);
  return facts;
}

inline device_facts h200() {
  device_facts facts = some_gpu("NVIDIA H200", 90);
  facts.l2_bytes = std::int64_t{60} << 20;
  facts.multiprocessors = 132;
  facts.shared_bytes_per_block = 232448;
  facts.shared_bytes_per_multiprocessor = 233472;
  facts.memory_bytes = std::int64_t{150'109'880'320};
  facts.core_clock_khz = 1980000;
  facts.memory_clock_khz = 3201000;
  facts.memory_bus_bits = 6016;
  return facts;
}

/// The SXM board, with HBM3.
inline device_facts h100() {
  device_facts facts = h200();
  facts.product = some_gpu("NVIDIA H100 80GB HBM3", 90).product;
  facts.l2_bytes = std::int64_t{50} << 20;
  facts.memory_bytes = std::int64_t{85'000'000'000};
  facts.memory_clock_khz = 2619000;
  facts.memory_bus_bits = 5120;
  return facts;
}

inline device_facts a100() {
  device_facts facts = some_gpu("NVIDIA A100-SXM4-80GB", 80);
  facts.l2_bytes = std::int64_t{40} << 20;
  facts.multiprocessors = 108;
  facts.shared_bytes_per_block = 166912;
  facts.shared_bytes_per_multiprocessor = 167936;
  facts.memory_bytes = std::int64_t{85'000'000'000};
  facts.core_clock_khz = 1410000;
  facts.memory_clock_khz = 1593000;
  facts.memory_bus_bits = 5120;
  return facts;
}

/// Less shared memory than some rows need (compute capability 8.6).
inline device_facts a10() {
  device_facts facts = some_gpu("NVIDIA A10", 86);
  facts.l2_bytes = std::int64_t{6} << 20;
  facts.multiprocessors = 72;
  facts.shared_bytes_per_block = 101376;
  facts.shared_bytes_per_multiprocessor = 102400;
  facts.memory_bytes = std::int64_t{24'000'000'000};
  facts.core_clock_khz = 1695000;
  facts.memory_clock_khz = 6251000;
  facts.memory_bus_bits = 384;
  return facts;
}

/// Older than every row.
inline device_facts t4() {
  device_facts facts = some_gpu("Tesla T4", 75);
  facts.l2_bytes = std::int64_t{4} << 20;
  facts.multiprocessors = 40;
  facts.shared_bytes_per_block = 65536;
  facts.shared_bytes_per_multiprocessor = 65536;
  facts.memory_bytes = std::int64_t{15'000'000'000};
  facts.core_clock_khz = 1590000;
  facts.memory_clock_khz = 5001000;
  facts.memory_bus_bits = 256;
  return facts;
}

}  // namespace tessera::support
