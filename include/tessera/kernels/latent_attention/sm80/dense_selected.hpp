// Expanded latents of which each token sees those of a list, on the matrix unit: scores of the
// indexer, the largest of them, and the dense kernels under the mask that this makes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_forward.hpp>
#include <tessera/kernels/latent_attention/sm80/dense_kernels.hpp>
#include <tessera/kernels/latent_attention/sm80/indexer_scores.hpp>
#include <tessera/kernels/latent_attention/sm80/key_selection.hpp>
#include <tessera/kernels/latent_attention/sm80/listed_keys.hpp>
#include <tessera/kernels/latent_attention/sm80/queue.hpp>
#include <tessera/prim/cuda/launch.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm80 {

/// Scores of an indexer by `mma.sync`.
template <class Kernel>
struct indexer_kernels {
  using element = element_t<Kernel::config.type>;
  static constexpr int tokens = indexer_tile::tokens, keys = indexer_tile::keys;

  static auto entries() {
    return std::array{cuda::entry_of(&score_part<element, false>, indexer_tile::shared_bytes),
                      cuda::entry_of(&score_part<f16, true>, indexer_tile::shared_bytes)};
  }
  static void score(const latent_attention_kernel_args& args, const selection_memory& memory,
                    const token_part& part, queue& to) {
    const auto kernel =
        is_coded(args.indexer) ? &score_part<f16, true> : &score_part<element, false>;
    to.enqueue(kernel, ceil_div(args.length, keys) * ceil_div(part.count, tokens),
               indexer_tile::threads, indexer_tile::shared_bytes, args, memory, part);
  }
};

/// `Dense` has the dense kernels for a type of hooks, `Indexer` those that score.
template <class Kernel, template <class, class> class Dense = dense_kernels,
          class Indexer = indexer_kernels<Kernel>>
class dense_selected {
  using dense_kernels_type = Dense<Kernel, listed_hooks>;
  using dense_type = dense_forward<dense_kernels_type>;
  static constexpr int threads = tile_threads;
  /// Scores that are there at a time, in bytes, but for those of 16 tokens.
  static constexpr std::int64_t most_score_bytes = std::int64_t{256} << 20;

 public:
  dense_selected(const latent_attention_kernel_args& args, int multiprocessors,
                 std::byte* workspace)
      : args_(args),
        multiprocessors_(multiprocessors),
        on_matrix_unit_(indexer_tile::takes(args.indexer, Kernel::config.type)) {
    cuda::workspace_parts parts(workspace);
    lists_.words = memory_.words = ceil_div(args.length, tile_side) * (tile_side / 32);
    lists_.length = args.length;
    parts.take(memory_.listed, args.entries * args.length * memory_.words);
    parts.take(united_, args.entries * lists_.groups() * memory_.words);
    lists_.listed = memory_.listed;
    lists_.united = united_;
    memory_.blocks = selection_memory::blocks_of(args, multiprocessors);
    if (args.indexer.given.data == nullptr) {
      memory_.score_row = ceil_div(args.length, Indexer::keys) * Indexer::keys;
      const std::int64_t row_bytes = std::max<std::int64_t>(memory_.score_row * 4, 1);
      tokens_together_ = std::clamp<std::int64_t>(most_score_bytes / row_bytes, 1, args.length + 1);
      tokens_together_ = ceil_div(tokens_together_, Indexer::tokens) * Indexer::tokens;
      parts.take(memory_.scores,
                 memory_.score_row * (on_matrix_unit_ ? tokens_together_ : memory_.blocks));
    }
    bytes_of_lists_ = parts.bytes();
    base_ = workspace;
  }

  static auto entries() {
    auto all = dense_type::entries();
    for (const auto& entry : Indexer::entries()) all.push_back(entry);
    all.push_back(cuda::entry_of(&keep_largest_of_part<threads>));
    all.push_back(cuda::entry_of(&select_keys<threads>));
    all.push_back(cuda::entry_of(&unite_lists<threads>));
    return all;
  }
  std::size_t bytes() const {
    return bytes_of_lists_ + dense_type(args_, multiprocessors_, nullptr).bytes();
  }

  status launch(const launch_context& context) const {
    queue to(context.stream);
    if (args_.indexer.given.data != nullptr || !on_matrix_unit_) {
      to.enqueue(&select_keys<threads>, memory_.blocks, threads, 0, args_, memory_);
    } else {
      select(to);
    }
    const std::int64_t words = args_.entries * lists_.groups() * memory_.words;
    to.enqueue(&unite_lists<threads>, ceil_div(words, threads), threads, 0, lists_, united_,
               args_.entries);
    if (to.code() != cudaSuccess) return cuda::launched(to.code());
    return dense_type(args_, context.threads, base_ + bytes_of_lists_,
                      dense_kernels_type{listed_hooks({}, lists_)})
        .launch(context);
  }

 private:
  void select(queue& to) const {
    for (std::int64_t entry = 0; entry < args_.entries; ++entry) {
      for (std::int64_t first = 0; first < args_.length; first += tokens_together_) {
        const token_part part{entry, first, std::min(tokens_together_, args_.length - first)};
        Indexer::score(args_, memory_, part, to);
        to.enqueue(&keep_largest_of_part<threads>, part.count, threads, 0, args_, memory_, part);
      }
    }
  }

  latent_attention_kernel_args args_;
  int multiprocessors_;
  bool on_matrix_unit_;
  selection_memory memory_{};
  listed_keys lists_{};
  std::uint32_t* united_ = nullptr;
  std::int64_t tokens_together_ = 0;
  std::size_t bytes_of_lists_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace tessera::kernels::latent_attention::sm80
