// Packed weights to floats, as they are stored.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/cpu/decode.hpp>
#include <tessera/prim/cpu/isa.hpp>
#include <tessera/prim/cpu/parallel.hpp>
#include <tessera/prim/cpu/rows.hpp>

namespace tessera::kernels::quantized::cpu {

/// Weights of a work item, about.
inline constexpr std::int64_t weights_of_item = 16 << 10;

template <class Kernel>
class dequantize {
 public:
  using isa_type = typename isa::of<Kernel::config.target>::type;

  explicit dequantize(const quantized_kernel_args& args) : args_(args) {}

  static std::size_t workspace_bytes(int) { return 0; }

  void run(std::byte*, int threads) const {
    const std::int64_t rows = args_.weights.rows, columns = args_.weights.columns();
    if (columns == 0) return;
    const std::int64_t together = std::max<std::int64_t>(1, weights_of_item / columns);
    const std::int64_t items = (rows + together - 1) / together;
    prim::parallel_items<isa_type>(items, threads, [&](std::int64_t item, int) {
      const std::int64_t end = std::min(rows, (item + 1) * together);
      for (std::int64_t row = item * together; row < end; ++row) decode_row(row);
    });
  }

 private:
  void decode_row(std::int64_t row) const {
    const weight_reader<isa_type> reader(args_.weights);
    const std::int64_t columns = args_.weights.columns();
    for (std::int64_t first = 0; first < columns; first += most_decoded) {
      alignas(64) float values[most_decoded];
      const auto count = static_cast<int>(std::min<std::int64_t>(most_decoded, columns - first));
      reader.read(row, first, count, values);
      prim::store_row<isa_type>(args_.w, row * args_.w.row + first, count, values);
    }
  }

  const quantized_kernel_args& args_;
};

}  // namespace tessera::kernels::quantized::cpu
