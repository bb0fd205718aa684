// What the kernel of gradients of decays receives, and its shared memory.
#pragma once

#include <cstdint>

#include <tessera/kernels/chunked_scan/sm80/chunk_memory.hpp>
#include <tessera/kernels/chunked_scan/sm80/chunk_scans.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

struct decay_gradients {
  chunked_scan_kernel_args call{};
  chunk_states states{};
  float scale_of_d = 1.0f;  ///< of the kept gradients of states
  float* of_u = nullptr;    ///< what chunks have for the bonus, [chunks][H][K]; null: not wanted
};

/// Two threads have a channel of `Keys`; of products a warp has 16 columns. Rows of d_out and v
/// have `Keys` channels, too: the values.
template <int Keys>
struct decay_shape : chunk_shape<Keys, 1, Keys / 16> {
  static constexpr int pairs = 16;  ///< tokens j whose W a thread has at a time
};

template <class Shape>
struct decay_memory {
  struct rows_of_operands {
    unsigned char d_out[Shape::key_rows::bytes], v[Shape::key_rows::bytes];
  };
  /// Of each token and channel; in rows of different banks. A thread of a channel has one of them.
  using channel_sums = float[Shape::tokens][Shape::columns + 8];
  struct sums_of_channels {
    channel_sums of_queries, of_keys;
  };
  union alignas(1024) {
    rows_of_operands rows;
    sums_of_channels sums;
  };
  alignas(1024) unsigned char q[Shape::key_rows::bytes];
  unsigned char k[Shape::key_rows::bytes];
  float decays[Shape::tokens][Shape::columns];
  alignas(16) float scores[Shape::tokens][Shape::tokens + 4];  ///< v_j . d_out_s for j <= s, else 0
  float products[Shape::columns];                              ///< <S, D>
  ordered_rows rows_q, rows_k, rows_v, rows_d_out, rows_g, rows_gk, rows_d_g, rows_d_gk;
};

}  // namespace tessera::kernels::chunked_scan::sm80
