// The packed operand B of a microkernel.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/prim/cpu/simd.hpp>

namespace tessera::prim {

/// B[words, columns] in panels of nr columns, nr being `Vectors` registers. In a panel the columns
/// of word 0 lie side by side, then those of word 1, so that a microkernel streams through it. The
/// last panel may have fewer registers; its words lie closer then.
template <class Isa, int Vectors>
struct panels {
  static constexpr int width = simd<Isa>::width;
  static constexpr int nr = Vectors * width;

  float* data = nullptr;
  int words = 0;    ///< of the summed axis
  int columns = 0;  ///< whole registers

  static constexpr std::size_t floats(int words, int columns) {
    return static_cast<std::size_t>(words) * static_cast<std::size_t>(columns);
  }
  /// Columns of the panel that holds `column`: the distance between its words.
  TESSERA_INLINE int stride(int column) const {
    const int left = columns - column / nr * nr;
    return left < nr ? left : nr;
  }
  /// Word `word` of the register of columns that starts at `column`.
  TESSERA_INLINE float* at(int word, int column) const {
    const int first = column / nr * nr;
    return data + std::int64_t{first} * words + std::int64_t{word} * stride(column) +
           (column - first);
  }
};

}  // namespace tessera::prim
