// The workspace of a mean pooling launch:
//
// | part | elements | there if |
// |---|---|---|
// | chunks_before | i64 [sequences] | packed chunks |
// | totals | f64 [sequences]: sum of the weights | mask |
// | partials | f32 [slots][heads * columns]: sums of pieces | forward, long segments |
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/kernels/mean_pooling/cpu/pieces.hpp>
#include <tessera/kernels/mean_pooling/cpu/traits.hpp>

namespace tessera::kernels::mean_pooling::cpu {

template <class Row>
struct scratch {
  std::int64_t* chunks_before = nullptr;
  double* totals = nullptr;
  float* partials = nullptr;

  /// Places the parts from `base` on and returns their bytes; with null the bytes are all there is.
  static std::size_t carve(const mean_pooling_kernel_args& args, std::byte* base, scratch* parts) {
    std::size_t bytes = 0;
    const auto take = [&](auto*& part, std::int64_t count) {
      using element = std::remove_reference_t<decltype(*part)>;
      if (base != nullptr) part = reinterpret_cast<element*>(base + bytes);
      bytes += (static_cast<std::size_t>(count) * sizeof(element) + 63) / 64 * 64;
    };
    scratch all;
    if (args.cu_seqlens != nullptr && args.chunk > 0) take(all.chunks_before, args.sequences);
    if (args.mask != nullptr) take(all.totals, args.sequences);
    if (traits<Row>::config.pass == pooling_pass::forward) {
      const std::int64_t slots = pieces<Row>(args, nullptr).slots();
      if (slots > 0) take(all.partials, slots * args.heads * args.columns);
    }
    if (parts != nullptr) *parts = all;
    return bytes;
  }
};

}  // namespace tessera::kernels::mean_pooling::cpu
