// The parts of a launch's workspace, and how its keys are cut into splits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/forward.hpp>
#include <tessera/kernels/latent_attention/sm80/gradient_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/key_selection.hpp>
#include <tessera/kernels/latent_attention/sm80/score_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Query rows of all sequences and heads.
inline std::int64_t rows_of_launch(const latent_attention_kernel_args& args) {
  const std::int64_t entries = args.cu_seqlens_q != nullptr ? 1 : args.entries;
  return entries * args.length * args.heads;
}

/// Keys and values of every pair, and the lists of tokens.
struct key_memory {
  expanded_keys expanded{};
  selection_memory selection{};

  void place(const latent_attention_kernel_args& args, bool lists, int multiprocessors,
             cuda::workspace_parts& parts) {
    const std::int64_t rows = args.entries * args.kv_heads * args.length;
    parts.take(expanded.keys, rows * args.nope);
    parts.take(expanded.values, rows * args.value);
    if (!lists) return;
    selection.words = ceil_div(args.length, tile_side) * (tile_side / 32);
    parts.take(selection.listed, args.entries * args.length * selection.words);
    selection.blocks = selection_memory::blocks_of(args, multiprocessors);
    if (args.indexer.given.data == nullptr) {
      selection.score_row = ceil_div(args.length, tile_side) * tile_side;
      parts.take(selection.scores, selection.blocks * selection.score_row);
    }
    expanded.listed = selection.listed;
    expanded.list_words = selection.words;
  }
};

/// Cuts the keys of a launch over latents in pages so that all multiprocessors have blocks, if they
/// work on `blocks_of_each` at a time.
inline void cut_keys(const latent_attention_kernel_args& args, int blocks_of_each,
                     int multiprocessors, split_results& results) {
  constexpr std::int64_t fewest_tiles = 4;
  const std::int64_t most_keys = args.pages.most_pages * args.pages.page_size;
  const std::int64_t tiles = ceil_div(most_keys, tile_side);
  const std::int64_t blocks = std::max<std::int64_t>(most_row_blocks(args, tile_side), 1);
  const std::int64_t together = std::int64_t{blocks_of_each} * multiprocessors;
  const std::int64_t wanted = std::clamp<std::int64_t>(
      std::min(together / blocks, tiles / fewest_tiles), 1, std::int64_t{most_splits});
  results.keys_of_split = std::max<std::int64_t>(ceil_div(tiles, wanted), 1) * tile_side;
  results.splits = std::max<std::int64_t>(ceil_div(most_keys, results.keys_of_split), 1);
}

/// Of a forward launch.
struct forward_memory {
  key_memory keys{};
  std::int64_t* starts = nullptr;
  split_results results{};
  std::size_t bytes = 0;

  /// `form` says where keys come from.
  static forward_memory of(const latent_attention_kernel_args& args, latent_form form,
                           int blocks_of_each, int multiprocessors, std::byte* base) {
    cuda::workspace_parts parts(base);
    forward_memory memory;
    if (form == latent_form::absorbed) {
      cut_keys(args, blocks_of_each, multiprocessors, memory.results);
      if (args.cu_seqlens_q != nullptr) parts.take(memory.starts, args.entries + 1);
    } else {
      memory.keys.place(args, form == latent_form::selected, multiprocessors, parts);
    }
    memory.results.rows = rows_of_launch(args);
    const std::int64_t rows = memory.results.splits * memory.results.rows;
    parts.take(memory.results.sums, rows * args.value);
    parts.take(memory.results.states, rows);
    memory.bytes = parts.bytes();
    return memory;
  }
};

/// Of a gradient launch.
struct backward_memory {
  key_memory keys{};
  gradient_sums sums{};
  std::size_t bytes = 0;

  static backward_memory of(const latent_attention_kernel_args& args, latent_form form,
                            int multiprocessors, std::byte* base) {
    cuda::workspace_parts parts(base);
    backward_memory memory;
    memory.keys.place(args, form == latent_form::selected, multiprocessors, parts);
    const std::int64_t rows = rows_of_launch(args), width = args.nope + args.rope;
    const std::int64_t keys = args.entries * args.kv_heads * args.length;
    parts.take(memory.sums.rows, rows);
    parts.take(memory.sums.d_q, rows * width);
    parts.take(memory.sums.d_keys, keys * width);
    parts.take(memory.sums.d_values, keys * args.value);
    memory.bytes = parts.bytes();
    return memory;
  }
};

}  // namespace tessera::kernels::latent_attention::sm80
