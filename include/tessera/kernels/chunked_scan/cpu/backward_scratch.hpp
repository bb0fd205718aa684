// Memory of a backward launch: of each thread
//
// | part | floats |
// |---|---|
// | checkpoints | [chunks][heads of a group][blocks] tiles: states before each chunk |
// | gradient | [heads of a group][blocks] tiles: of the state behind the tokens given back so far |
// | states | [chunk + 1] tiles: of a chunk, step by step |
// | q, k, key_decay and their gradients | [chunk][keys] |
// | v, d_out, value_decay and gradients of v, value_decay | [chunk][values] |
// | u, d_u | [keys]; of a chunk |
//
// and for all of them d_u in double: [sequences][heads][keys]. Keys are a multiple of the register
// width, values of the block; a tile is all keys by a block of values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include <tessera/families/chunked_scan/config.hpp>
#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/chunked_scan/cpu/chunk_backward_scratch.hpp>
#include <tessera/kernels/chunked_scan/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/carve.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::chunked_scan::cpu {

/// Extents of the parts.
template <class Kernel>
struct backward_extents {
  using shape = traits<Kernel>;
  static constexpr std::int64_t chunk = chunked_scan_chunk;

  explicit backward_extents(const chunked_scan_kernel_args& args) noexcept
      : keys(rounded_up(args.keys, shape::width)),
        values(rounded_up(args.values, shape::block)),
        blocks(values / shape::block),
        group(args.heads / args.kv_heads),
        chunks(rounded_up(args.tokens, chunk) / chunk),
        tile(keys * shape::block) {}

  /// Bytes of so many threads have no number.
  bool are_beyond_memory(const chunked_scan_kernel_args& args, int threads) const noexcept {
    const double states = (static_cast<double>(chunks) + 1) * static_cast<double>(group * blocks);
    const double rows = static_cast<double>(chunk) * static_cast<double>(6 * keys + 5 * values);
    const double of_thread =
        (states + static_cast<double>(chunk + 1)) * static_cast<double>(tile) + rows;
    const double of_bonus =
        8.0 * static_cast<double>(args.sequences) * static_cast<double>(args.heads * keys);
    return 4.0 * threads * of_thread + of_bonus > 0x1p60;
  }
  std::int64_t bonus_doubles(const chunked_scan_kernel_args& args) const noexcept {
    return args.u.data == nullptr ? 0 : args.sequences * args.heads * keys;
  }

  std::int64_t keys, values, blocks, group, chunks, tile;
};

/// The parts of a thread; null: these are only counted.
template <class Kernel>
struct backward_scratch {
  using extents = backward_extents<Kernel>;

  backward_scratch(const extents& extent, std::byte* memory) : size(extent) {
    prim::float_carver carver(memory);
    checkpoints = carver.take(size.chunks * size.group * size.blocks * size.tile);
    gradient = carver.take(size.group * size.blocks * size.tile);
    states = carver.take((extents::chunk + 1) * size.tile);
    recurrence::carve(carver, extents::chunk * size.keys, q, k, key_decay, d_q, d_k, d_key_decay);
    recurrence::carve(carver, extents::chunk * size.values, v, d_out, value_decay, d_v,
                      d_value_decay);
    recurrence::carve(carver, size.keys, u, d_u);
    bytes = carver.bytes();
  }

  /// Tiles by chunk, head of the group and block.
  float* checkpoint(std::int64_t chunk, std::int64_t member, std::int64_t block) const noexcept {
    return checkpoints + ((chunk * size.group + member) * size.blocks + block) * size.tile;
  }
  float* gradient_of(std::int64_t member, std::int64_t block) const noexcept {
    return gradient + (member * size.blocks + block) * size.tile;
  }

  extents size;
  std::size_t bytes;
  float *checkpoints, *gradient, *states;
  float *q, *k, *key_decay, *d_q, *d_k, *d_key_decay;
  float *v, *d_out, *value_decay, *d_v, *d_value_decay;
  float *u, *d_u;
};

/// Bytes of a thread, whichever way the tokens of a sequence go.
template <class Kernel>
std::size_t backward_bytes_of_thread(const backward_extents<Kernel>& size,
                                     const chunk_extents<Kernel>& of_chunks) {
  return std::max(backward_scratch<Kernel>(size, nullptr).bytes,
                  chunk_scratch<Kernel>(of_chunks, nullptr).bytes);
}

/// Bytes of everything for so many threads; more than there can be where they have no number.
template <class Kernel>
std::size_t backward_bytes(const chunked_scan_kernel_args& args, int threads) {
  const backward_extents<Kernel> size(args);
  if (size.are_beyond_memory(args, threads)) return std::size_t{1} << 60;
  return backward_bytes_of_thread(size, chunk_extents<Kernel>(args, threads)) *
             static_cast<std::size_t>(threads) +
         static_cast<std::size_t>(size.bonus_doubles(args)) * sizeof(double);
}

}  // namespace tessera::kernels::chunked_scan::cpu
