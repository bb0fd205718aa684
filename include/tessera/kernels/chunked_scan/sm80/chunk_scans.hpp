// The scans of a launch by chunks: forward one, backward three, one for the gradients of each
// operand. With D_t the gradient of the state behind token t,
//
//   d_q_t = scale S_t d_out_t      d_k_t = D_t v_t      d_v_t = D_t^T k_t
//   S_t = a_t S_{t-1} + k_t v_t^T      D_t = a_{t+1} D_{t+1} + scale q_t d_out_t^T
//
// are the outputs of three scans, the last two from the last token on:
//
// | answers | queries | keys | values | state |
// |---|---|---|---|---|
// | d_q | d_out | v | k | S^T |
// | d_k | v | d_out | q | D^T |
// | d_v | k | q | d_out | D |
//
// No state but the first and the last is in memory but where decays have gradients
// (kept_states.hpp), and nothing is computed twice but the products of pairs of tokens. Decays of
// channels are those of the rows of S and D, and so of the columns of their transposes
// (chunk_decay::values).
//
// With a bonus u, c_t = v_t . d_out_t and D_t the gradient of the state in front of token t, which
// the token reads,
//
//   d_q_t = scale (S_{t-1} d_out_t + c_t u k_t)      d_k_t = D_{t+1} v_t + scale c_t u q_t
//   d_v_t = D_{t+1}^T k_t + scale (q_t . (u k_t)) d_out_t      D_t = a_t D_{t+1} + scale q_t
//   d_out_t^T
//
// so that all scans read the state in front of a token, from either end.
#pragma once

#include <cmath>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/chunked_scan/kernel_args.hpp>

namespace tessera::kernels::chunked_scan::sm80 {

/// How a state decays, which a kernel is compiled for.
enum class chunk_decay : std::uint8_t {
  heads,             ///< all channels of a head alike, or not at all
  channels,          ///< each channel of the keys by itself
  bonus,             ///< likewise; a token reads the state it finds, and itself through `u`
  values,            ///< each column by itself: the transposed state of `channels`
  values_and_bonus,  ///< likewise, that of `bonus`
};

/// A token reads the state it finds, from either end, and itself through the bonus.
constexpr bool reads_before(chunk_decay decay) {
  return decay == chunk_decay::bonus || decay == chunk_decay::values_and_bonus;
}
/// Columns decay by themselves, not channels of the keys.
constexpr bool decays_by_column(chunk_decay decay) {
  return decay == chunk_decay::values || decay == chunk_decay::values_and_bonus;
}

/// Numbers of a state in memory, those of a row `channel` and of a column `column` apart.
struct chunk_state {
  float* data = nullptr;  ///< null: zeros, or nothing is stored
  std::int64_t sequence = 0, head = 0, channel = 0, column = 1;

  static chunk_state of(const chunked_scan_states& from) {
    return {from.data, from.sequence, from.head, from.key, 1};
  }
  static chunk_state transposed_of(const chunked_scan_states& from) {
    return {from.data, from.sequence, from.head, 1, from.key};
  }
};

/// One scan: answers_t = `answer_scale` (state_t^T queries_t), with `token_scale` keys_t values_t^T
/// added to the state by each token.
struct chunk_scan {
  chunked_scan_rows q{}, k{}, v{}, out{};
  chunk_state initial{}, final{};
  int keys = 0, values = 0;
  /// From the last token on: a state decays by the token it has taken, not by the next; queries are
  /// of heads of keys and values, keys and values of heads of queries.
  bool returns = false;
  float answer_scale = 1.0f;
  float log2_token_scale = 0.0f;  ///< -infinity: tokens add nothing
  /// From a state in memory to the one of the scan, and back.
  float initial_scale = 1.0f, final_scale = 1.0f;
  /// Where the transposed states in front of chunks are kept; null: nowhere.
  uint4* kept = nullptr;
};

/// States in front of chunks, for the gradients of decays: of S in front of the first token of a
/// chunk, of D behind its last.
struct chunk_states {
  static constexpr int tokens = 64;
  /// [chunks of all sequences][H][tiles of 16 channels][words of a lane / 4][32], pairs of bf16.
  uint4 *of_s = nullptr, *of_d = nullptr;
  std::int64_t entry = 0;  ///< chunks of an entry; packed: 0
};

/// What a kernel receives; blockIdx.y is the scan.
template <bool Back>
struct chunk_launch {
  chunked_scan_kernel_args call{};
  chunk_scan scans[Back ? 3 : 1]{};
  chunk_states states{};
  int tiles = 0;
};

inline chunk_scan forward_scan_of(const chunked_scan_kernel_args& call) {
  return {.q = call.q,
          .k = call.k,
          .v = call.v,
          .out = call.out,
          .initial = chunk_state::of(call.initial_state),
          .final = chunk_state::of(call.final_state),
          .keys = static_cast<int>(call.keys),
          .values = static_cast<int>(call.values),
          .answer_scale = call.scale};
}
/// The scans of gradients of queries and keys keep their states where `kept` says; null: nowhere.
inline chunk_scan query_scan_of(const chunked_scan_kernel_args& call, uint4* kept) {
  return {.q = call.d_out,
          .k = call.v,
          .v = call.k,
          .out = call.d_q,
          .initial = chunk_state::transposed_of(call.initial_state),
          .keys = static_cast<int>(call.values),
          .values = static_cast<int>(call.keys),
          .answer_scale = call.scale,
          .kept = kept};
}
/// A scan from the last token on; the tensors are the caller's. Its state is D / scale, so that
/// tokens are operands as they are, or D where the scale is next to nothing.
inline chunk_scan returning_scan_of(const chunked_scan_kernel_args& call) {
  const bool divides = std::fabs(call.scale) >= 0x1p-40f;
  const float unit = divides ? call.scale : std::copysign(1.0f, call.scale);
  return {.returns = true,
          .answer_scale = unit,
          .log2_token_scale = divides ? 0.0f : std::log2(std::fabs(call.scale)),
          .initial_scale = 1.0f / unit,
          .final_scale = unit};
}
inline chunk_scan key_scan_of(const chunked_scan_kernel_args& call, const chunked_scan_rows& d_k,
                              uint4* kept) {
  chunk_scan scan = returning_scan_of(call);
  scan.q = call.v;
  scan.k = call.d_out;
  scan.v = call.q;
  scan.out = d_k;
  scan.initial = chunk_state::transposed_of(call.d_final_state);
  scan.keys = static_cast<int>(call.values);
  scan.values = static_cast<int>(call.keys);
  scan.kept = kept;
  return scan;
}
inline chunk_scan value_scan_of(const chunked_scan_kernel_args& call,
                                const chunked_scan_rows& d_v) {
  chunk_scan scan = returning_scan_of(call);
  scan.q = call.k;
  scan.k = call.q;
  scan.v = call.d_out;
  scan.out = d_v;
  scan.initial = chunk_state::of(call.d_final_state);
  scan.final = chunk_state::of(call.d_initial_state);
  scan.keys = static_cast<int>(call.keys);
  scan.values = static_cast<int>(call.values);
  return scan;
}

}  // namespace tessera::kernels::chunked_scan::sm80
