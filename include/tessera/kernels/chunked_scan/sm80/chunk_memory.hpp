// What a block has in shared memory while it goes through chunks of tokens.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

using recurrence::sm80::chunk_shape;
using recurrence::sm80::head_decays;
using recurrence::sm80::log2_decay;
using recurrence::sm80::ordered_rows;

/// Each channel of the keys, or each column, decays by itself.
constexpr bool decays_by_channel(chunk_decay decay) {
  return decay != chunk_decay::heads;
}
/// What decays by itself: channels of keys, or the columns of a block.
template <class Shape, chunk_decay Decay>
inline constexpr int decaying_channels = decays_by_column(Decay) ? Shape::columns : Shape::keys;
/// Log decays are added up in groups of tokens that do not depend on the columns of a block.
template <class Shape, chunk_decay Decay>
inline constexpr int summed_tokens = decays_by_column(Decay) ? 16 : Shape::keys / 8;

/// What the state is multiplied by before and after the products of tokens, and sums of log decays.
template <class Shape, chunk_decay Decay>
struct alignas(16) channel_decays {
  static constexpr int channels = decaying_channels<Shape, Decay>;
  float factors[channels], ends[channels], u[channels];
  /// With a bonus, what a token has of its own value besides P.
  float own[reads_before(Decay) ? Shape::tokens : 4];
  float sums[Shape::tokens / summed_tokens<Shape, Decay>][channels];
  int cut;
};

/// Factors of the answers of columns that decay; rows of different banks.
template <class Shape, chunk_decay Decay>
struct answer_factors {
  static constexpr bool used = decays_by_column(Decay);
  float at[used ? Shape::tokens : 1][used ? Shape::columns + 8 : 1];
};

/// Of rows of weights of a type whose range is short: what they are multiplied by, and its inverse.
struct weight_scales {
  float factor[64], inverse[64];
};

template <class Shape, chunk_decay Decay>
struct chunk_memory {
  // Two of each. Of decays by channel the second of q and k are the scaled ones, of decays by
  // column the second of v are.
  alignas(1024) unsigned char q[2][Shape::key_rows::bytes];
  unsigned char k[2][Shape::key_rows::bytes];
  unsigned char v[2][Shape::value_rows::bytes];
  unsigned char weights[Shape::weight_rows::bytes];
  head_decays of_heads[Decay == chunk_decay::heads ? 2 : 1];
  channel_decays<Shape, Decay> of_channels;
  answer_factors<Shape, Decay> of_answers;
  weight_scales of_weights;
  int first_not_finite[Shape::columns];
  ordered_rows rows_q, rows_k, rows_v, rows_g, rows_gk, rows_out;  ///< registers are rare
};

}  // namespace tessera::kernels::chunked_scan::sm80
