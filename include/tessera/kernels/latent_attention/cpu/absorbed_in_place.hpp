// The two products of up to sixteen rows with latents on AMX tiles, which read the latents where
// they lie in their pages:
//
//   S^T = K Q^T: sixteen latents are the rows of an operand A
//   O  += P V:   sixteen latents are those of an operand B. Its words are pairs of columns, not of
//                keys: weights with zeros behind them sum up the even columns, weights with zeros
//                in front of them the odd ones
//
// That is twice the products of values in pairs of keys, but to pair them, and to copy latents,
// takes longer. Until `order_columns`, rows of sums are [block of 32 columns][parity][16].
#pragma once

#include <algorithm>
#include <cstdint>

#include <tessera/kernels/latent_attention/cpu/absorbed_tiles.hpp>
#include <tessera/kernels/latent_attention/cpu/latent_lines.hpp>
#include <tessera/kernels/latent_attention/cpu/operand.hpp>
#include <tessera/kernels/latent_attention/cpu/pages.hpp>
#include <tessera/kernels/latent_attention/cpu/score_mod.hpp>
#include <tessera/kernels/latent_attention/cpu/traits.hpp>
#include <tessera/prim/cpu/gemm/tiles.hpp>
#include <tessera/spec/dtype.hpp>

namespace tessera::kernels::latent_attention::cpu {

/// Nothing without tiles.
template <class Kernel>
class absorbed_in_place {
 public:
  template <class... Ignored>
  explicit absorbed_in_place(const Ignored&... /*ignored*/) {}
};

template <class Kernel>
requires traits<Kernel>::on_tiles class absorbed_in_place<Kernel> {
  using shape = traits<Kernel>;
  using tiles = prim::tiles;
  using words = typename shape::latent_words;
  using latent_slabs = slabs<Kernel, words>;
  using vec = typename shape::vec;
  using reg = typename shape::reg;
  static constexpr int tile = prim::tile_rows;
  static constexpr int word_bytes = 4;
  static constexpr int tile_columns = 2 * prim::tile_width;  ///< of a row of words
  static constexpr int most_groups = shape::block_keys / tile;
  static_assert(most_groups <= 4, "the sums of a group are one of the tiles 0 to 3");
  /// Of a row of weights, as words.
  static constexpr int weight_stride = shape::block_keys + 16;

 public:
  /// Whether groups of sixteen latents lie in one page, rows of which are a constant distance
  /// apart, and columns are whole tiles.
  static bool takes(const latent_attention_kernel_args& args, int rows) {
    const latent_pages& pages = args.pages;
    const auto is_even = [&](const latent_rows& of) {
      return of.data == nullptr || pages.lanes == 1 || of.token == pages.lanes * of.head;
    };
    return rows <= tile && pages.page_size % tile == 0 && args.latent % tile_columns == 0 &&
           args.rope % tile_columns == 0 && args.value % tile_columns == 0 && is_even(args.ckv) &&
           is_even(args.k_pe);
  }

  /// `copies` has room for a tile of latents. The words of weights take up `weights`, two rows for
  /// each of sixteen.
  absorbed_in_place(const latent_attention_kernel_args& args, const latent_slabs& copies,
                    float* weights)
      : args_(args), copies_(copies), weights_(weights) {}

  /// The latents of a range of keys. Those behind the last whole group are read from `copies`.
  void find(std::int64_t sequence, const key_range& keys) {
    groups_ = (keys.count + tile - 1) / tile;
    whole_groups_ = keys.count / tile;
    for (int g = 0; g < whole_groups_; ++g) {
      const std::int64_t key = keys.key0 + g * tile;
      ckv_[g] = at(args_.ckv, sequence, key);
      if (args_.rope > 0) k_pe_[g] = at(args_.k_pe, sequence, key);
    }
  }
  /// Calls of what goes on beside the products with them.
  int steps_beside() const {
    return static_cast<int>((args_.latent + args_.rope + groups_ * args_.value) / tile_columns);
  }
  /// The lines of a range of keys.
  void list(std::int64_t sequence, const key_range& keys, latent_lines& lines) const {
    constexpr auto size = static_cast<std::int64_t>(sizeof(bf16));
    for (int c = 0; c < keys.count; c += tile) {
      const int count = std::min(tile, keys.count - c);
      const bf16* const latents = at(args_.ckv, sequence, keys.key0 + c);
      const bf16* const ropes = args_.rope > 0 ? at(args_.k_pe, sequence, keys.key0 + c) : nullptr;
      for (int i = 0; i < count; ++i) {
        lines.add(latents + i * (row_bytes(args_.ckv) / size), args_.latent * size);
        if (ropes == nullptr) continue;
        lines.add(ropes + i * (row_bytes(args_.k_pe) / size), args_.rope * size);
      }
    }
  }

  /// The first key of the range that is read from `copies`.
  int first_copied() const { return whole_groups_ * tile; }
  /// From here on all are.
  void read_copies() { whole_groups_ = 0; }

  /// S^T: [groups of sixteen keys][sixteen rows].
  template <class Beside>
  void multiply_scores(const typename shape::panels& q, const word_rows& to,
                       const Beside& beside) const {
    with_groups<most_groups>(
        [&]<int Groups>() { this->template multiply_groups<Groups>(q, to, beside); });
  }

  /// Weights of a row and sixteen keys from `key` on, rounded to bf16, as words of both parities.
  TESSERA_INLINE void set_weights(int r, int key, reg weights) const {
    float* const even = weights_ + r * weight_stride + key;
    vec::store(even, words::pairs(weights, vec::zero()));
    vec::store(even + tile * weight_stride, words::pairs(vec::zero(), weights));
  }
  /// Those of a row and all keys.
  void set_weights(int r, const float* from) const {
    for (int c = 0; c < groups_ * tile; c += tile) set_weights(r, c, vec::load(from + c));
  }

  /// O += P V.
  template <class Beside>
  void add_values(const word_rows& to, const Beside& beside) const {
    const auto value = static_cast<int>(args_.value);
    int column = 0;
    for (; column + 2 * tile_columns <= value; column += 2 * tile_columns) {
      add_columns<2>(column, to, beside);
    }
    if (column < value) add_columns<1>(column, to, beside);
  }

  void order_columns(float* row) const {
    for (int column = 0; column < args_.value; column += tile_columns) {
      float parities[tile_columns];
      std::copy_n(row + column, tile_columns, parities);
      for (int i = 0; i < tile; ++i) {
        row[column + 2 * i] = parities[i];
        row[column + 2 * i + 1] = parities[tile + i];
      }
    }
  }

 private:
  std::int64_t row_bytes(const latent_rows& of) const {
    return (args_.pages.lanes == 1 ? of.token : of.head) * static_cast<std::int64_t>(sizeof(bf16));
  }
  const bf16* at(const latent_rows& of, std::int64_t sequence, std::int64_t key) const {
    return static_cast<const bf16*>(of.data) + slot_of<Kernel>(args_, of, sequence, key);
  }

  /// Columns [column, column + 32) of a group.
  template <int Tile>
  TESSERA_INLINE void load(int group, int column) const {
    const bf16* from = copies_.at(group * tile, column);
    std::int64_t bytes = std::int64_t{latent_slabs::stride} * word_bytes;
    if (group < whole_groups_) {
      const bool is_rope = column >= args_.latent;
      from = is_rope ? k_pe_[group] + (column - args_.latent) : ckv_[group] + column;
      bytes = row_bytes(is_rope ? args_.k_pe : args_.ckv);
    }
    tiles::template load<Tile>(reinterpret_cast<const float*>(from), bytes);
  }

  /// Calls body.template operator()<groups>().
  template <int Most, class Body>
  TESSERA_INLINE void with_groups(const Body& body) const {
    if constexpr (Most > 1) {
      if (groups_ < Most) return with_groups<Most - 1>(body);
    }
    body.template operator()<Most>();
  }
  /// Calls body.template operator()<number>() for numbers [0, Count).
  template <int Count, class Body>
  static TESSERA_INLINE void for_each(const Body& body) {
    if constexpr (Count > 0) {
      for_each<Count - 1>(body);
      body.template operator()<Count - 1>();
    }
  }

  template <int Groups, class Beside>
  void multiply_groups(const typename shape::panels& q, const word_rows& to,
                       const Beside& beside) const {
    for_each<Groups>([]<int Group>() { tiles::template zero<Group>(); });
    const auto width = static_cast<int>(args_.latent + args_.rope);
    for (int column = 0; column < width; column += tile_columns) {
      beside();
      tiles::template load<4>(q.at(column / 2, 0), std::int64_t{q.stride(0)} * word_bytes);
      for_each<Groups>([&]<int Group>() {
        load<5>(Group, column);
        tiles::template multiply_add<Group, 5, 4>();
      });
    }
    for_each<Groups>([&]<int Group>() {
      tiles::template store<Group>(to.at(Group * tile, 0), to.stride * word_bytes);
    });
  }

  /// Blocks of 32 columns, whose parities are two tiles of sums each.
  template <int Blocks, class Beside>
  void add_columns(int column, const word_rows& to, const Beside& beside) const {
    const std::int64_t bytes = to.stride * word_bytes;
    const auto sums = [&](int number) { return to.at(0, column + number * prim::tile_width); };
    for_each<2 * Blocks>([&]<int Sum>() { tiles::template load<Sum>(sums(Sum), bytes); });
    for (int group = 0; group < groups_; ++group) {
      const auto load_weights = [&](int parity) {
        tiles::template load<4>(weights_ + group * tile + parity * tile * weight_stride,
                                weight_stride * word_bytes);
      };
      // Around the block: one tile of weights and one of values, the fewest (see tile_product).
      load_weights(0);
      load<5>(group, column);
      tiles::template multiply_add<0, 4, 5>();
      beside();
      load_weights(1);
      tiles::template multiply_add<1, 4, 5>();
      if constexpr (Blocks == 2) {
        load<5>(group, column + tile_columns);
        tiles::template multiply_add<3, 4, 5>();
        beside();
        load_weights(0);
        tiles::template multiply_add<2, 4, 5>();
      }
    }
    for_each<2 * Blocks>([&]<int Sum>() { tiles::template store<Sum>(sums(Sum), bytes); });
  }

  const latent_attention_kernel_args& args_;
  const latent_slabs& copies_;
  float* weights_;
  const bf16* ckv_[most_groups] = {};  ///< rows of whole groups
  const bf16* k_pe_[most_groups] = {};
  int groups_ = 0, whole_groups_ = 0;
};

}  // namespace tessera::kernels::latent_attention::cpu
