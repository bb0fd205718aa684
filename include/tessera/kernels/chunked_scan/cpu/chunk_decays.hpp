// Decays of the tokens of a chunk.
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/rows.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Factors of `count` tokens from `first` on, [token][padded], and those of all: their logarithms
/// are added up and rounded once, for a product of factors near 1 is always rounded the same way,
/// chunk after chunk.
template <class Kernel>
void load_chunk_decays(const chunked_scan_kernel_args& args, const sequence& one,
                       std::int64_t first, std::int64_t count, std::int64_t head,
                       std::int64_t padded, float* decay, float* whole) {
  using vec = typename traits<Kernel>::vec;
  using isa_type = typename traits<Kernel>::isa_type;
  const auto factor_of = [](float log_decay) {
    return vec::first(decay_factor<isa_type>(vec::broadcast(log_decay)));
  };
  const bool has_channels = args.gk.data != nullptr;
  float of_head = 0.0f;
  std::fill_n(whole, padded, 0.0f);
  for (std::int64_t at = 0; at < count; ++at) {
    float* const row = decay + at * padded;
    const float added = log_decay_of_head<Kernel>(args, one, first + at, head);
    if (!has_channels) {
      of_head += added;
      std::fill_n(row, padded, factor_of(added));
      continue;
    }
    load_log_key_decays<Kernel>(args, one, first + at, head, padded, row);
    for (std::int64_t c = 0; c < padded; c += traits<Kernel>::width) {
      const auto x = vec::add(vec::load(row + c), vec::broadcast(added));
      vec::store(whole + c, vec::add(vec::load(whole + c), x));
      vec::store(row + c, decay_factor<isa_type>(x));
    }
  }
  if (has_channels) {
    transform<Kernel>(padded, whole, decay_factor<isa_type>);
  } else {
    std::fill_n(whole, padded, factor_of(of_head));
  }
}

}  // namespace tessera::kernels::chunked_scan::cpu
