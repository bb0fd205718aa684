// What a block of the chunked delta rule on Hopper has in shared memory: a ring of items, which
// warps that make operands fill and warps that have states use up.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/common/gates.hpp>
#include <tessera/kernels/delta_rule/sm80/chunk_inverse.hpp>
#include <tessera/kernels/delta_rule/sm80/tokens.hpp>
#include <tessera/kernels/delta_rule/sm90/panels.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/matrix_unit.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::delta_rule::sm90 {

using recurrence::sm80::ordered_rows;
using sm80::device_code;
using sm80::inverse_row;

/// A warpgroup makes operands, where columns decay two do, two have 64 columns of states each.
/// `Corrects`: what a state holds for a key is taken away from the value that is written; linear
/// attention writes values as they are. `LowRank`: what it holds for one row is written by another,
/// beside the value by its key. `Returns`: of gradients of linear attention (back_scan).
template <int Keys, bool Corrects = true, bool LowRank = false, bool Returns = false>
struct walk_shape {
  static constexpr bool corrects = Corrects;
  static constexpr bool low_rank = LowRank;
  static constexpr bool returns = Returns;
  static constexpr bool by_column = false;
  static constexpr int decaying = Keys;  ///< channels that decay by themselves
  static constexpr int tokens = 64;
  static constexpr int keys = Keys;
  static constexpr int columns = 128;
  static constexpr int stages = LowRank && Keys > 64 ? 1 : 2;
  static constexpr int maker_threads = 128;
  static constexpr int walker_threads = 256;
  static constexpr int first_walker = maker_threads;
  static constexpr int threads = first_walker + walker_threads;
  static constexpr int maker_registers = 120, walker_registers = 192;
  using key_rows = panel_rows<Keys>;
  using value_rows = panel_rows<columns>;
  using weight_rows = panel_rows<tokens>;
};

/// Of gradients of linear attention: columns of a state decay by themselves, not channels of keys.
/// Two warpgroups make operands, of which the first multiplies.
template <int Keys>
struct column_shape : walk_shape<Keys, false, false, true> {
  static constexpr bool by_column = true;
  static constexpr int decaying = column_shape::columns;
  static constexpr int maker_threads = 256;
  static constexpr int first_walker = maker_threads;
  static constexpr int threads = first_walker + column_shape::walker_threads;
  static constexpr int maker_registers = 80, walker_registers = 176;
};

/// Decays of linear attention beside those of delta_rule_kernel_args, added to them: a constant of
/// a head, and of a token's head where channels decay too. Null: none.
struct further_decays {
  const float* constants = nullptr;
  std::int64_t sequence = 0, head = 0;  ///< strides of the constants
  delta_rule_input of_heads{};

  __device__ __forceinline__ float constant_of(std::int64_t of_sequence,
                                               std::int64_t of_head) const {
    return constants != nullptr ? constants[of_sequence * sequence + of_head * head] : 0.0f;
  }
};

/// What tokens write by themselves where they also write what they read: rows of k, and weights of
/// queries with them.
template <class Shape, bool LowRank>
struct own_rows {};
template <class Shape>
struct own_rows<Shape, true> {
  alignas(1024) unsigned char own[Shape::key_rows::bytes];
  unsigned char own_weights[Shape::weight_rows::bytes];
};

/// What scans of gradients of linear attention have besides (chunked_scan/sm80/chunk_scans.hpp).
struct back_scan {
  bool returns = false;  ///< a state decays by the token it has taken, not by the next
  float token_scale = 1.0f;
  /// From a state in memory to the one of the scan, and back.
  float initial_scale = 1.0f, final_scale = 1.0f;
  std::int64_t initial_column = 1;  ///< between columns of the states in front
};

struct item_tokens {
  std::int64_t token;  ///< of the chunk
  int first, end;
  int poison;  ///< the first token that is not finite and makes the state so; 64: none
};

/// Tokens [first, end) of a chunk, rows of others are 0. The last item of a sequence has none: what
/// is left to multiply its states by.
template <class Shape, bool ByColumn = Shape::by_column>
struct walk_item : own_rows<Shape, Shape::low_rank> {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];
  unsigned char held[Shape::key_rows::bytes];  ///< what reads the state: -M beta k, or M read
  unsigned char k[Shape::key_rows::bytes];     ///< what writes to it: k, or write
  unsigned char v[Shape::value_rows::bytes];
  unsigned char weights[Shape::weight_rows::bytes];  ///< P
  unsigned char inverse[Shape::weight_rows::bytes];  ///< of values: M beta, or M (read k)
};
/// Where columns decay, rows of queries and keys are as they come, and values are scaled.
template <class Shape>
struct walk_item<Shape, true> {
  alignas(1024) unsigned char q[Shape::key_rows::bytes];
  unsigned char k[Shape::key_rows::bytes];
  unsigned char v[Shape::value_rows::bytes];
  unsigned char weights[Shape::weight_rows::bytes];  ///< P
  float factors[Shape::tokens][Shape::columns];      ///< of answers

  /// That of a token and column: those of 8 columns of neighbouring tokens lie in different banks.
  __device__ __forceinline__ float* factor_at(int token, int column) {
    return &factors[token][column ^ (token / 2 % 4 * 8)];
  }
};
template <class Shape>
struct alignas(16) item_facts {
  float factors[Shape::decaying];  ///< of the state in front of the item
  /// Where columns decay, those of them that belong to what was in front.
  float left[Shape::by_column ? Shape::decaying : 4];
  item_tokens tokens;
};

/// Rows as they come, of low-rank updates; answers on their way, for which an item is not kept.
template <class Shape, bool LowRank>
struct update_rows {};
template <class Shape>
struct update_rows<Shape, true> {
  alignas(1024) unsigned char read[Shape::key_rows::bytes], write[Shape::key_rows::bytes];
  unsigned char products[Shape::weight_rows::bytes];  ///< of rows that read with rows of k
  unsigned char answers[Shape::value_rows::bytes];
  ordered_rows rows_read, rows_write;
};

template <class Shape>
struct walk_memory : update_rows<Shape, Shape::low_rank> {
  using shape = Shape;

  walk_item<Shape> items[Shape::stages];
  /// As they come; of low-rank updates then what rounding takes from scaled rows of q and k.
  /// Where columns decay they go to items.
  alignas(1024) unsigned char q[Shape::by_column ? 16 : Shape::key_rows::bytes];
  unsigned char k[Shape::by_column ? 16 : Shape::key_rows::bytes];
  alignas(16) sm80::solved_rows solved;
  item_facts<Shape> facts[Shape::stages];
  float ends[Shape::decaying];
  float sums[8][Shape::decaying];
  float beta[Shape::tokens];
  float head_decays[Shape::tokens];  ///< log decays that are added to those of channels
  float scale_q[Shape::tokens], scale_k[Shape::tokens];  ///< 1 over lengths, or 1
  int first_not_finite[Shape::columns];
  int cut, poison;
  prim::cuda::ring_barriers<Shape::stages> ring;
  ordered_rows rows_q, rows_k, rows_v, rows_g, rows_beta, rows_out;

  __device__ __forceinline__ void init_barriers() {
    ring.init(Shape::maker_threads, Shape::walker_threads);
  }
};

/// All threads that make operands come together.
template <class Shape>
__device__ __forceinline__ void wait_for_makers() {
  prim::cuda::wait_for_threads(1, Shape::maker_threads);
}

}  // namespace tessera::kernels::delta_rule::sm90
