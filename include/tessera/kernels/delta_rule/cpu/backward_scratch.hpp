// The workspace of a backward launch: sums of the gates' gradients of every sequence and value
// head, and of each thread
//
// | part | floats |
// |---|---|
// | kept | [tiles of a key head][chunks][K][columns]: states in front of chunks |
// | gradient | [tiles of a key head][K][columns]: of the state, on its way back |
// | state | [chunk + 1][K][columns]: in front of each step of a chunk, and behind the last |
// | token, d_token | [chunk][rows of a token][K] |
// | d_shared | [chunk][2][K]: of q and k, over the value heads of a key head |
// | values | [chunk][2][columns] |
// | beta, d_beta, d_answer, d_values, row | a row each |
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/cpu/step_back.hpp>
#include <tessera/kernels/delta_rule/cpu/token.hpp>
#include <tessera/kernels/delta_rule/cpu/traits.hpp>
#include <tessera/kernels/recurrence/cpu/carve.hpp>
#include <tessera/prim/cpu/float_carver.hpp>

namespace tessera::kernels::delta_rule::cpu {

/// Gradients of the rows that the value heads of a key head share.
struct shared_rows {
  float* query = nullptr;
  float* key = nullptr;
};

template <class Row>
struct backward_scratch {
  static constexpr std::int64_t columns = traits<Row>::config.columns;
  static constexpr std::int64_t chunk = traits<Row>::config.chunk;

  static std::int64_t tiles(const delta_rule_kernel_args& args) {
    return (args.value_dim + columns - 1) / columns;
  }
  static std::int64_t chunks(const delta_rule_kernel_args& args) {
    return (args.tokens + chunk - 1) / chunk;
  }
  static std::int64_t token_floats(const delta_rule_kernel_args& args) {
    return token_rows::count * padded(args.key_dim);
  }
  static std::int64_t shared_floats(const delta_rule_kernel_args& args) {
    return 2 * padded(args.key_dim);
  }
  /// Sums of a sequence and value head: of A_log, of each bias.
  static std::int64_t sums(const delta_rule_kernel_args& args) {
    if (!args.gate.raw) return 0;
    return 1 + (args.decay_has_channels ? args.key_dim : 1);
  }
  static std::int64_t all_sums(const delta_rule_kernel_args& args) {
    return args.sequences * args.value_heads * sums(args);
  }
  static std::int64_t bytes_of_sums(const delta_rule_kernel_args& args) {
    return (all_sums(args) + 7) / 8 * 8 * std::int64_t{sizeof(double)};
  }

  /// No memory has room for a launch.
  static bool is_beyond_memory(const delta_rule_kernel_args& args, int threads) {
    const std::int64_t group_tiles = args.value_heads / args.key_heads * tiles(args);
    const double kept = static_cast<double>(group_tiles) * static_cast<double>(chunks(args)) *
                        static_cast<double>(args.key_dim * columns) * threads;
    const double gates = static_cast<double>(args.sequences) *
                         static_cast<double>(args.value_heads) * static_cast<double>(sums(args));
    return kept > 0x1p56 || gates > 0x1p56;
  }

  /// Where the parts begin; returns their floats.
  std::int64_t carve(const delta_rule_kernel_args& args, float* base) {
    prim::float_carver carver(reinterpret_cast<std::byte*>(base));
    tile_floats = padded(args.key_dim * columns);
    kept_of_tile = chunks(args) * tile_floats;
    token_pitch = token_floats(args);
    key_dim = args.key_dim;
    const std::int64_t item_tiles = args.value_heads / args.key_heads * tiles(args);
    kept_states = carver.take(item_tiles * kept_of_tile);
    gradients = carver.take(item_tiles * tile_floats);
    states = carver.take((chunk + 1) * tile_floats);
    recurrence::carve(carver, chunk * token_pitch, tokens, d_tokens);
    d_shared_rows = carver.take(chunk * shared_floats(args));
    value_rows = carver.take(chunk * 2 * padded(columns));
    recurrence::carve(carver, std::int64_t{chunk}, beta, d_beta);
    recurrence::carve(carver, std::int64_t{columns}, d_answer, d_values);
    row = carver.take(std::max(args.key_dim, args.value_dim));
    return static_cast<std::int64_t>(carver.bytes() / sizeof(float));
  }
  backward_scratch(const delta_rule_kernel_args& args, float* base) { carve(args, base); }

  static std::int64_t floats_of_thread(const delta_rule_kernel_args& args) {
    return backward_scratch(args, nullptr).carve(args, nullptr);
  }

  float* kept(std::int64_t tile, std::int64_t number) const {
    return kept_states + tile * kept_of_tile + number * tile_floats;
  }
  float* gradient(std::int64_t tile) const { return gradients + tile * tile_floats; }
  float* state(std::int64_t i) const { return states + i * tile_floats; }
  token_rows token(std::int64_t i) const {
    return token_rows::at(tokens + i * token_pitch, key_dim);
  }
  token_rows d_token(std::int64_t i) const {
    return token_rows::at(d_tokens + i * token_pitch, key_dim);
  }
  shared_rows d_shared(std::int64_t i) const {
    float* const rows = d_shared_rows + i * 2 * padded(key_dim);
    return {rows, rows + padded(key_dim)};
  }
  step_values values(std::int64_t i) const {
    float* const rows = value_rows + i * 2 * padded(columns);
    return {rows, rows + padded(columns)};
  }

  std::int64_t tile_floats = 0, kept_of_tile = 0, token_pitch = 0, key_dim = 0;
  float* kept_states = nullptr;
  float* gradients = nullptr;
  float* states = nullptr;
  float* tokens = nullptr;
  float* d_tokens = nullptr;
  float* d_shared_rows = nullptr;
  float* value_rows = nullptr;
  float* beta = nullptr;
  float* d_beta = nullptr;
  float* d_answer = nullptr;
  float* d_values = nullptr;
  float* row = nullptr;
};

}  // namespace tessera::kernels::delta_rule::cpu
