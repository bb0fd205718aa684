// What a block has in shared memory while it goes through chunks of tokens.
#pragma once

#include <cstdint>

#include <tessera/families/chunked_scan/kernel_args.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::chunk_shape;
using recurrence::sm80::head_decays;
using recurrence::sm80::log2_decay;
using recurrence::sm80::ordered_rows;

/// How keys decay, which a kernel is compiled for.
enum class chunk_decay : std::uint8_t {
  heads,     ///< all channels of a head alike, or not at all
  channels,  ///< each by itself
  bonus,     ///< likewise; a token reads the state it finds, and itself through `u`
};

/// What the state is multiplied by before and after the products of tokens, and sums of log decays.
template <class Shape>
struct alignas(16) channel_decays {
  float factors[Shape::keys], ends[Shape::keys], u[Shape::keys];
  float sums[8 * Shape::tokens / Shape::keys][Shape::keys];
  int cut;
};

template <class Shape, chunk_decay Decay>
struct chunk_memory {
  // Two of each. Of decays by channel the second of q and k are the scaled ones.
  alignas(1024) unsigned char q[2][Shape::key_rows::bytes];
  unsigned char k[2][Shape::key_rows::bytes];
  unsigned char v[2][Shape::value_rows::bytes];
  unsigned char weights[Shape::weight_rows::bytes];
  head_decays of_heads[Decay == chunk_decay::heads ? 2 : 1];
  channel_decays<Shape> of_channels;
  int first_not_finite[Shape::columns];
  ordered_rows rows_q, rows_k, rows_v, rows_g, rows_gk, rows_out;  ///< registers are rare
};

}  // namespace tessera::kernels::chunked_scan::sm80
