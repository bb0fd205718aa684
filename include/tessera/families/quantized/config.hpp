// What a kernel of quantised weights is, at compile time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/families/quantized/options.hpp>
#include <tessera/spec/backend.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera {

/// What a kernel does.
enum class quantized_pass : std::uint8_t {
  quantize,    ///< weights to codes and scales
  dequantize,  ///< and back
  forward,     ///< a product with packed weights
  backward,    ///< its gradients
};
inline constexpr std::array<std::string_view, 4> quantized_pass_names{"quantize", "dequantize",
                                                                      "forward", "backward"};
constexpr std::string_view name_of(quantized_pass pass) noexcept {
  return quantized_pass_names[static_cast<std::size_t>(pass)];
}

/// Whether a kernel multiplies.
constexpr bool is_product(quantized_pass pass) noexcept {
  return pass == quantized_pass::forward || pass == quantized_pass::backward;
}

/// One row of the table. Kernels take every mode, element type and size, but for products on GPUs,
/// of which those of f32 take every one, others what the matrix unit multiplies, and for forward
/// rows of cpu_avx512_vnni, cpu_avx512_bf16 and cpu_amx_bf16, which take codes that they multiply
/// as they are.
struct quantized_config {
  backend target = backend::cpu_generic;
  quantized_pass pass = quantized_pass::quantize;
  dtype type = dtype::none;  ///< CUDA rows of products: what is multiplied; else none
  friend constexpr bool operator==(const quantized_config&, const quantized_config&) = default;
};

/// CPU rows that multiply codes of 4 or 8 bits as they are, with rows of x in fixed point.
constexpr bool multiplies_codes(const quantized_config& config) noexcept {
  return config.target == backend::cpu_avx512_vnni && config.pass == quantized_pass::forward;
}

/// CPU rows that multiply codes of 4 bits as bf16 with rows of x of bf16 as they are.
constexpr bool multiplies_pairs(const quantized_config& config) noexcept {
  return config.target == backend::cpu_avx512_bf16 && config.pass == quantized_pass::forward;
}

/// CPU rows that multiply codes of 4 bits as bf16, on tiles.
constexpr bool multiplies_tiles(const quantized_config& config) noexcept {
  return has_tile_products(config.target) && config.pass == quantized_pass::forward;
}

/// Rows of x that products of a few take on GPUs without groups, at most.
inline constexpr std::int64_t thin_rows = 16;
/// Whether rows of x are few, or on average those of a group: up to twice as many, as the second
/// half finds codes in the second-level cache.
constexpr bool is_thin(std::int64_t batch, std::int64_t matrices, bool grouped) noexcept {
  return grouped ? batch / (2 * thin_rows) <= matrices : batch <= thin_rows;
}

/// Up to so many rows of x, or of groups on average for each matrix, weights are as fast without
/// being rounded: by mma.sync.
constexpr bool is_exact(std::int64_t batch, std::int64_t matrices, bool grouped) noexcept {
  return grouped ? batch < 2 * matrices : batch <= 8;
}
/// For more than so many it is worth it on Hopper to decode weights into memory, once.
constexpr bool is_decoded(std::int64_t batch, std::int64_t matrices, bool grouped) noexcept {
  return grouped ? batch > 4096 * matrices : batch > 1280;
}

/// What kernels that take weights through registers ask of them, on Hopper, beside their axis and
/// types: codes of 4 or 8 bits, groups of whole pieces, positions that are numbers of 32 bits.
struct register_shape {
  weight_mode mode;
  int bits;
  std::int64_t group_size;
  std::int64_t batch, rows, columns;
  std::int64_t matrices;  ///< at least 1

  /// Tiles of 128 rows of x are for the codes that are most used; others have two of 64.
  constexpr bool has_long_tiles() const noexcept { return bits == 4 && mode != weight_mode::nf4; }
  constexpr bool is_taken() const noexcept {
    constexpr std::int64_t most = 1 << 20;
    return (bits == 4 || bits == 8) &&
           group_size >= (has_float_scales(mode) && bits == 4 ? 32 : 16) && batch <= most &&
           rows <= most && columns <= most && (has_long_tiles() || batch <= 128 * matrices);
  }
};

/// The config with every default filled in.
constexpr quantized_config resolved(quantized_config config) noexcept {
  return config;
}

}  // namespace tessera
