// Cross entropy of logits that are a product of hidden rows and a weight, and its gradients. Tiles
// of logits come and go: no launch holds more than one a thread.
//
//   loss:            for each tile of tokens { for each block of classes { logits; sums } }
//   d_hidden:        for each tile of tokens { sums; for each block of classes { logits; their
//                    gradients; d_hidden += gradients weight^T } }
//   d_weight, bias:  for each block of classes { for each tile of tokens { logits; their gradients;
//                    d_weight += hidden^T gradients } }
//
// Only tokens that count are in tiles. A work item owns what it adds to, and its additions have one
// order: the same bits for any number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/families/losses/config.hpp>
#include <tessera/families/losses/kernel_args.hpp>
#include <tessera/kernels/losses/cpu/cross_entropy_row.hpp>
#include <tessera/kernels/losses/cpu/linear_tile.hpp>
#include <tessera/kernels/losses/cpu/logit_sums.hpp>
#include <tessera/kernels/losses/cpu/token_items.hpp>
#include <tessera/kernels/losses/cpu/tokens.hpp>
#include <tessera/kernels/losses/cpu/totals.hpp>
#include <tessera/prim/cpu/parallel.hpp>

namespace tessera::kernels::losses::cpu {

/// What both directions do with tiles.
template <class Kernel>
class linear_rows {
 public:
  using shape = linear_shape<Kernel>;
  using isa_type = typename shape::isa_type;
  using vec = typename shape::vec;
  using tile_type = linear_tile<Kernel>;

  explicit linear_rows(const linear_cross_entropy_kernel_args& args)
      : args_(args), row_(args.form, args.tokens.classes) {}

 protected:
  /// Of a launch whose tokens all count.
  std::int64_t most_tiles() const {
    return (count_of<isa_type>(args_.tokens) + shape::tokens - 1) / shape::tokens;
  }
  /// Places for a number of every token, in whole tiles.
  std::int64_t most_rows() const { return most_tiles() * shape::tokens; }

  /// The numbers of the tokens that count, in their order; calls skip(place) for the others.
  template <class Skip>
  std::int64_t find_active(std::int64_t* rows, const Skip& skip) const {
    std::int64_t count = 0;
    for (std::int64_t row = 0; row < count_of<isa_type>(args_.tokens); ++row) {
      const token_place at = place_of<isa_type>(args_.tokens, row);
      if (weight_of<isa_type>(args_.tokens, at) != 0) {
        rows[count++] = row;
      } else {
        skip(at);
      }
    }
    return count;
  }
  static std::int64_t tiles_of(std::int64_t active) {
    return (active + shape::tokens - 1) / shape::tokens;
  }
  static int count_in(std::int64_t tile, std::int64_t active) {
    return static_cast<int>(std::min<std::int64_t>(active - tile * shape::tokens, shape::tokens));
  }

  /// Floats of a thread's parts: hidden, transposed, panels, logits, sums.
  std::array<std::size_t, 5> part_floats(bool backward) const {
    const auto columns = static_cast<std::size_t>(prim::padded<isa_type>(args_.columns));
    constexpr auto tokens = static_cast<std::size_t>(shape::tokens);
    constexpr auto classes = static_cast<std::size_t>(shape::classes);
    constexpr auto depth = static_cast<std::size_t>(shape::depth);
    const auto depths = static_cast<std::size_t>(shape::depths(args_.columns));
    return {depths * depth * tokens, backward ? columns * tokens : 0, depth * classes,
            tokens * classes, backward ? columns * std::max(tokens, classes) : 0};
  }
  std::size_t scratch_floats(bool backward) const {
    std::size_t floats = 0;
    for (const std::size_t part : part_floats(backward)) floats += part;
    return floats;
  }
  linear_scratch scratch_at(std::byte* memory, int thread, bool backward) const {
    float* at = reinterpret_cast<float*>(memory) +
                static_cast<std::size_t>(thread) * scratch_floats(backward);
    linear_scratch scratch;
    const auto sizes = part_floats(backward);
    std::size_t part = 0;
    for (float** each :
         {&scratch.hidden, &scratch.transposed, &scratch.panels, &scratch.logits, &scratch.sums}) {
      *each = at;
      at += sizes[part++];
    }
    return scratch;
  }

  /// A token of a tile.
  struct tile_row {
    logit_sums sums, part;
    target_logit target;
  };
  using tile_rows = std::array<tile_row, shape::tokens>;

  static float* sums_at(const token_rows& rows, const token_place& at) {
    return static_cast<float*>(rows.data) + offset_of<isa_type>(rows, at);
  }
  /// Leaves what gradients may be given.
  void save(const token_place& at, const logit_sums& sums) const {
    if (args_.logit_sums.data == nullptr) return;
    float* const to = sums_at(args_.logit_sums, at);
    to[0] = sums.maximum, to[1] = static_cast<float>(sums.powers);
  }
  /// The same as it is given, for all rows of a tile.
  void take_sums(const tile_type& tile, tile_rows& rows) const {
    for (int row = 0; row < tile.count(); ++row) {
      const token_place at = tile.place(row);
      const float* const from = sums_at(args_.logit_sums, at);
      tile_row& of = rows[static_cast<std::size_t>(row)];
      of.target.target = target_of<isa_type>(args_.tokens, at);
      of.sums = {.maximum = from[0], .powers = static_cast<double>(from[1])};
    }
  }

  /// The sums of all rows of a tile; parts of the classes by themselves first.
  void sum_up(const tile_type& tile, tile_rows& rows) const {
    for (int row = 0; row < tile.count(); ++row) {
      tile_row& of = rows[static_cast<std::size_t>(row)];
      of = {};
      of.target.target = target_of<isa_type>(args_.tokens, tile.place(row));
    }
    const std::int64_t classes = args_.tokens.classes, parts = args_.tokens.parts;
    for_each_block<isa_type, shape::classes>(classes, parts, [&](std::int64_t first, int count) {
      tile.multiply(first, count);
      const bool ends = (first + count) % (classes / parts) == 0;
      for (int row = 0; row < tile.count(); ++row) {
        tile_row& of = rows[static_cast<std::size_t>(row)];
        alignas(64) float capped[shape::classes];
        const float* const x = tile.capped(row, count, capped);
        const logit_sums block = sums_of_block<isa_type>(x, nullptr, count, row_.is_smoothed());
        of.target.template look_at<isa_type>(x, first, count, block.maximum);
        of.part.template merge<isa_type>(block);
        if (!ends) continue;
        of.sums.template merge<isa_type>(of.part);
        of.part = {};
      }
    });
  }

  const linear_cross_entropy_kernel_args& args_;
  const cross_entropy_row<isa_type> row_;
};

template <class Kernel>
class linear_cross_entropy_forward : linear_rows<Kernel> {
  using base = linear_rows<Kernel>;
  using shape = typename base::shape;
  using isa_type = typename base::isa_type;

 public:
  explicit linear_cross_entropy_forward(const linear_cross_entropy_kernel_args& args)
      : base(args) {}

  /// Sums of each tile, numbers of tokens, tiles of threads.
  std::size_t workspace_bytes(int threads) const {
    return static_cast<std::size_t>(this->most_tiles()) * sizeof(loss_totals) +
           static_cast<std::size_t>(this->most_rows()) * sizeof(std::int64_t) +
           static_cast<std::size_t>(threads) * this->scratch_floats(false) * sizeof(float);
  }

  void run(std::byte* workspace, int threads) const {
    const linear_cross_entropy_kernel_args& args = this->args_;
    const loss_outputs<isa_type> outputs(args.tokens, args.form.z_part, args.form.accuracy);
    auto* const totals = reinterpret_cast<loss_totals*>(workspace);
    auto* const rows = reinterpret_cast<std::int64_t*>(totals + this->most_tiles());
    auto* const scratch = reinterpret_cast<std::byte*>(rows + this->most_rows());
    const std::int64_t active = this->find_active(rows, [&](const token_place& at) {
      outputs.skip(at);
      this->save(at, {.maximum = 0});
    });
    const std::int64_t tiles = base::tiles_of(active);
    prim::parallel_items<isa_type>(tiles, threads, [&](std::int64_t item, int thread) {
      linear_tile<Kernel> tile(args, this->scratch_at(scratch, thread, false));
      tile.enter(rows + item * shape::tokens, base::count_in(item, active));
      typename base::tile_rows sums;
      this->sum_up(tile, sums);
      loss_totals own;
      for (int row = 0; row < tile.count(); ++row) {
        const auto& of = sums[static_cast<std::size_t>(row)];
        const token_place at = tile.place(row);
        outputs.add(own, at, weight_of<isa_type>(args.tokens, at),
                    this->row_.value(of.sums, of.target));
        this->save(at, of.sums);
      }
      totals[item] = own;
    });
    outputs.finish(totals, tiles);
  }
};

}  // namespace tessera::kernels::losses::cpu
