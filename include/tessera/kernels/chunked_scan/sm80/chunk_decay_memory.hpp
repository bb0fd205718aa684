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
  int tiles = 1;            ///< of 64 channels, by blocks of their own; 1: all by one
};

/// A block has 64 channels of the keys, of which a warp has 16, the rows of its products. Rows
/// of d_out and v have `Keys` channels, too: the values. Three blocks a multiprocessor wait for
/// memory and for each other's sums in turn.
template <int Keys>
struct decay_shape : chunk_shape<Keys, 1, 4> {
  static constexpr int pairs = 16;  ///< tokens j whose W a thread has at a time
  static constexpr int blocks = 3;
};

/// v_j . d_out_s for j <= s, else 0: for each `pairs` tokens j the rows of those s that see one.
template <class Shape>
class decay_scores {
 public:
  __device__ __forceinline__ float* at(int s, int j) {
    const int group = j / Shape::pairs, first = group * Shape::pairs;
    // Groups before it have rows of all tokens but those of groups in front of them.
    const int before = group * Shape::tokens - Shape::pairs * (group * (group - 1) / 2);
    return numbers_ + (before + s - first) * Shape::pairs + j % Shape::pairs;
  }

 private:
  static constexpr int groups = Shape::tokens / Shape::pairs;
  alignas(16) float numbers_[Shape::pairs * Shape::pairs * (groups * (groups + 1) / 2)];
};

/// A number of each token and channel; what a thread has of products, two channels of rows that
/// follow each other eight at a time, lies in different banks.
template <class Shape>
class channel_sums {
 public:
  __device__ __forceinline__ float* at(int token, int channel) {
    return numbers_[token] + (channel ^ (token % 8 * 8));
  }

 private:
  float numbers_[Shape::tokens][Shape::columns];
};

/// What chunks have whose gradients of decays are products (chunk_decay_products.hpp).
template <class Shape>
struct decay_weights {
  alignas(1024) unsigned char weights[Shape::weight_rows::bytes];  ///< P
  float own[Shape::tokens];                                        ///< v_t . d_out_t
};

/// What chunks have whose pairs of tokens go one by one (chunk_decay_pairs.hpp).
template <class Shape>
struct decay_pair_memory {
  float decays[Shape::tokens][Shape::columns];
  decay_scores<Shape> scores;
};

template <class Shape>
struct decay_memory {
  struct rows_of_operands {
    unsigned char d_out[Shape::key_rows::bytes], v[Shape::key_rows::bytes];
  };
  /// A thread of a channel has one of them.
  struct sums_of_channels {
    channel_sums<Shape> of_queries, of_keys;
  };
  union alignas(1024) {
    rows_of_operands rows;
    sums_of_channels sums;
    float of_warps[Shape::warps][Shape::tokens];  ///< of a head's decays, of the warps' channels
  };
  alignas(1024) unsigned char q[Shape::value_rows::bytes];
  unsigned char k[Shape::value_rows::bytes];
  union {
    decay_weights<Shape> of_products;
    decay_pair_memory<Shape> of_pairs;
  };
  // With pairs. (In their part they would end the room of a third block of a multiprocessor.)
  float all_keys[Shape::columns];  ///< what the tokens of the chunk leave behind it, times D
  float products[Shape::columns];  ///< <S, D>
  float of_head[Shape::tokens];    ///< gradients of a head's decays, of the channels so far
  ordered_rows rows_q, rows_k, rows_v, rows_d_out, rows_g, rows_gk, rows_d_g, rows_d_gk;
};

}  // namespace tessera::kernels::chunked_scan::sm80
