// Masks of blocks for blocksparse attention, made on the host: which blocks of (rows, keys) show
// none, part or all of their pairs.
//
//   const auto same_document = [&](const position& at) { return of[at.query] == of[at.key]; };
//   auto mask = block_mask::from_function({.q_len = S, .kv_len = S, .block_q = 128},
//   same_document); if (auto done = mask->apply_to(args, options); !done) return
//   fail(done.message()); blocksparse_attention(args, options);   // the mask lives as long as args
//   are used
//
// Pairs of blocks that show part of them are a byte each, in a tensor of all pairs: on the header
// path, where the functor itself is compiled into the kernel, they may be left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <tessera/families/sparse_attention/block_mask.hpp>
#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// A block of a mask.
struct block_place {
  std::int64_t entry = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;     ///< of blocks
  std::int64_t column = 0;  ///< of blocks
};

/// Whether a mask keeps the pairs of blocks of which part is shown.
enum class block_pairs : std::uint8_t { kept, left_out };

class block_mask {
 public:
  /// From `mask(position) -> bool`, which is asked about every pair, or about whole blocks if it
  /// has a member `classify(prim::score_tile) -> prim::tile_visibility`.
  template <class Mask>
  static result<block_mask> from_function(const block_grid& grid, const Mask& mask,
                                          block_pairs pairs = block_pairs::kept);

  /// From a bitmap of pairs: u8 [batch, heads, q_len, kv_len], 0: hidden; any strides.
  static result<block_mask> from_bitmap(const block_grid& grid, const tensor_view& shown);

  /// From a list of blocks that are shown as a whole, in any order; all others are hidden.
  static result<block_mask> from_list(const block_grid& grid, std::span<const block_place> shown);

  const block_grid& grid() const { return grid_; }
  block_shown shown(const block_place& at) const { return blocks_[number_of(at)]; }
  /// Blocks of a kind.
  std::int64_t count(block_shown kind) const {
    std::int64_t count = 0;
    for (const block_shown block : blocks_) count += block == kind ? 1 : 0;
    return count;
  }

  /// `block_mask` of a call: u8 [batch, heads, ceil(q_len / block_q), ceil(kv_len / block_k)].
  tensor_view blocks() const {
    return view(reinterpret_cast<const std::uint8_t*>(blocks_.data()),
                {grid_.batch, grid_.heads, grid_.rows(), grid_.columns()});
  }
  /// `mask` of a call: u8 [batch, heads, q_len, kv_len]; absent if no pair has to be looked at.
  tensor_view pairs() const {
    if (pairs_.empty()) return {};
    return view(pairs_.data(), {grid_.batch, grid_.heads, grid_.q_len, grid_.kv_len});
  }

  /// Sets the masks of a call and the sizes of its blocks. What is set points into this object.
  /// Refuses a call with a mask of its own.
  template <class Args, class Options>
  status apply_to(Args& args, Options& options) const {
    const tensor_view* const taken = args.block_mask.present()                ? &args.block_mask
                                     : args.mask.present() && !pairs_.empty() ? &args.mask
                                                                              : nullptr;
    if (taken != nullptr) {
      return refusal(status_code::invalid_argument,
                     {taken == &args.mask ? "mask" : "block_mask",
                      ": is given, and the mask of blocks has one of its own"});
    }
    args.block_mask = blocks();
    if (!pairs_.empty()) args.mask = pairs();
    options.block_q = grid_.block_q;
    options.block_k = grid_.block_k;
    return {};
  }

 private:
  explicit block_mask(const block_grid& grid)
      : grid_(grid), blocks_(static_cast<std::size_t>(grid.blocks()), block_shown::none) {}

  std::size_t number_of(const block_place& at) const {
    const std::int64_t row = (at.entry * grid_.heads + at.head) * grid_.rows() + at.row;
    return static_cast<std::size_t>(row * grid_.columns() + at.column);
  }
  /// Byte of a pair in `pairs_`.
  std::size_t place_of(const position& at) const {
    const std::int64_t row = (at.batch * grid_.heads + at.head) * grid_.q_len + at.query;
    return static_cast<std::size_t>(row * grid_.kv_len + at.key);
  }
  /// Keeps the pairs of a block.
  template <class Mask>
  void keep_pairs(const prim::score_tile& tile, const Mask& mask) {
    if (pairs_.empty()) {
      const std::int64_t all = grid_.batch * grid_.heads * grid_.q_len * grid_.kv_len;
      pairs_.resize(static_cast<std::size_t>(all));
    }
    for (std::int64_t pair = 0; pair < block_grid::pairs_of(tile); ++pair) {
      const position at = grid_.position_of(tile, pair);
      pairs_[place_of(at)] = mask(at) ? 1 : 0;
    }
  }

  block_grid grid_;
  std::vector<block_shown> blocks_;
  std::vector<std::uint8_t> pairs_;
};

template <class Mask>
result<block_mask> block_mask::from_function(const block_grid& grid, const Mask& mask,
                                             block_pairs pairs) {
  if (status done = check_grid(grid); !done) return done;
  block_mask built(grid);
  for (std::int64_t block = 0; block < grid.blocks(); ++block) {
    const prim::score_tile tile = grid.tile_of(block);
    const block_shown shown = shown_of(shown_of_tile(mask, grid, tile));
    built.blocks_[static_cast<std::size_t>(block)] = shown;
    if (shown == block_shown::part && pairs == block_pairs::kept) built.keep_pairs(tile, mask);
  }
  return built;
}

inline result<block_mask> block_mask::from_bitmap(const block_grid& grid,
                                                  const tensor_view& shown) {
  if (status done = check_grid(grid); !done) return done;
  const std::int64_t sizes[] = {grid.batch, grid.heads, grid.q_len, grid.kv_len};
  if (shown.type != dtype::u8 || shown.rank != 4) {
    return refusal(status_code::invalid_argument,
                   {"shown: is ", name_of(shown.type), " of rank ", std::int64_t{shown.rank},
                    ", a bitmap of pairs is u8 of rank 4"});
  }
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shown.extent[axis] == sizes[axis]) continue;
    return refusal(status_code::invalid_argument, {"shown: axis ", axis, " is ", shown.extent[axis],
                                                   ", the mask of blocks has ", sizes[axis]});
  }
  if (shown.device.kind != device_kind::cpu) {
    return refusal(status_code::invalid_argument,
                   {"shown: device is ", shown.device, ", masks of blocks are made on the host"});
  }
  return from_function(grid, [&](const position& at) {
    return static_cast<const std::uint8_t*>(
               shown.data)[at.batch * shown.stride[0] + at.head * shown.stride[1] +
                           at.query * shown.stride[2] + at.key * shown.stride[3]] != 0;
  });
}

inline result<block_mask> block_mask::from_list(const block_grid& grid,
                                                std::span<const block_place> shown) {
  if (status done = check_grid(grid); !done) return done;
  block_mask listed(grid);
  for (const block_place& at : shown) {
    struct axis {
      const char* name;
      std::int64_t place;
      std::int64_t count;
    };
    for (const axis& of :
         {axis{"entry", at.entry, grid.batch}, axis{"head", at.head, grid.heads},
          axis{"row", at.row, grid.rows()}, axis{"column", at.column, grid.columns()}}) {
      if (of.place >= 0 && of.place < of.count) continue;
      return refusal(status_code::invalid_argument,
                     {"shown: ", of.name, " of a block is ", of.place, ", there are ", of.count});
    }
    listed.blocks_[listed.number_of(at)] = block_shown::whole;
  }
  return listed;
}

}  // namespace tessera
