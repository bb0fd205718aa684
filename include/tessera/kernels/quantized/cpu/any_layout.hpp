// Launches over weights in any layout: those that lie k-major are brought into rows before, and
// what is written into columns behind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/quantized/config.hpp>
#include <tessera/families/quantized/kernel_args.hpp>
#include <tessera/kernels/quantized/common/row_copies.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::quantized::cpu {

/// `Make` makes the launch of args whose weights lie in rows, which it may keep a reference to.
template <class Isa, class Make>
class any_layout {
 public:
  any_layout(const quantized_kernel_args& args, quantized_pass pass, Make make)
      : args_(args), packs_(pass == quantized_pass::quantize), make_(make) {}

  std::size_t workspace_bytes(int threads) const {
    const row_copies rows(args_, packs_, nullptr);
    return rows.bytes() + make_(rows.args()).workspace_bytes(threads);
  }
  void run(std::byte* memory, int threads) const {
    const row_copies rows(args_, packs_, memory);
    for (const turned_lines& turned : rows.before()) turn(turned, threads);
    make_(rows.args()).run(memory + rows.bytes(), threads);
    for (const turned_lines& turned : rows.behind()) turn(turned, threads);
  }

 private:
  static constexpr std::int64_t edge = 16;  ///< of a tile: a cache line of words

  /// Matrices of groups without rows stay.
  bool is_wanted(std::int64_t matrix) const {
    return args_.group_sizes == nullptr || args_.group_sizes[args_.group_offset + matrix] > 0;
  }

  void turn(const turned_lines& turned, int threads) const {
    if (turned.size == 4) return turn_numbers<std::uint32_t>(turned, threads);
    if (turned.size == 2) return turn_numbers<std::uint16_t>(turned, threads);
    if (turned.size == 1) return turn_numbers<std::uint8_t>(turned, threads);
  }
  template <class Number>
  void turn_numbers(const turned_lines& turned, int threads) const {
    const std::int64_t bands = (turned.width + edge - 1) / edge;
    prim::parallel_items<Isa>(args_.matrices * bands, threads, [&](std::int64_t item, int) {
      const std::int64_t matrix = item / bands, first = item % bands * edge;
      if (!is_wanted(matrix)) return;
      const auto* const from =
          reinterpret_cast<const Number*>(turned.from) + matrix * turned.from_matrix + first;
      auto* const to =
          reinterpret_cast<Number*>(turned.to) + matrix * turned.to_matrix + first * turned.to_line;
      const std::int64_t width = std::min(edge, turned.width - first);
      for (std::int64_t line = 0; line < turned.lines; line += edge) {
        const std::int64_t lines = std::min(edge, turned.lines - line);
        Number tile[edge][edge];
        for (std::int64_t j = 0; j < lines; ++j) {
          const Number* const source = from + (line + j) * turned.from_line;
          for (std::int64_t i = 0; i < width; ++i) tile[i][j] = source[i];
        }
        for (std::int64_t i = 0; i < width; ++i) {
          std::copy(tile[i], tile[i] + lines, to + i * turned.to_line + line);
        }
      }
    });
  }

  const quantized_kernel_args& args_;
  bool packs_;
  Make make_;
};

}  // namespace tessera::kernels::quantized::cpu
