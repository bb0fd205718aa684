// The kernels of a launch over latents in pages.
#pragma once

#include <array>
#include <cstddef>

#include <tessera/families/latent_attention/config.hpp>
#include <tessera/families/latent_attention/kernel_args.hpp>
#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/latent_attention/sm80/float_tile.hpp>
#include <tessera/kernels/latent_attention/sm80/forward.hpp>
#include <tessera/kernels/latent_attention/sm80/launch_memory.hpp>
#include <tessera/kernels/latent_attention/sm80/queue.hpp>
#include <tessera/kernels/latent_attention/sm80/sequences.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_forward.hpp>
#include <tessera/kernels/latent_attention/sm90/absorbed_tile.hpp>
#include <tessera/prim/cuda/warp.hpp>
#include <tessera/spec/dtype.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera::kernels::latent_attention::sm90 {

template <class Kernel>
class absorbed_launch {
  using element = element_t<Kernel::config.type>;
  static constexpr int combine_threads = 128;
  static constexpr int shared_bytes = static_cast<int>(sizeof(absorbed_memory));
  static_assert(sm80::tile_side == block_rows && sm80::tile_side == tile_keys);

 public:
  absorbed_launch(const latent_attention_kernel_args& args, int multiprocessors, std::byte* base)
      : args_(args),
        memory_(sm80::forward_memory::of(args, latent_form::absorbed, 1, multiprocessors, base)) {}

  static auto entries() {
    return std::array{cuda::entry_of(&attend_absorbed<element>, shared_bytes),
                      cuda::entry_of(&sm80::combine_splits<combine_threads>),
                      cuda::entry_of(&sm80::place_row_blocks<prim::cuda::warp_size>),
                      cuda::entry_of(&sm80::write_latents<sm80::tile_threads>)};
  }
  std::size_t bytes() const { return memory_.bytes; }

  status launch(const launch_context& context) const {
    sm80::queue to(context.stream);
    sm80::write_and_place(args_, memory_, block_rows, to);
    to.enqueue(&attend_absorbed<element>,
               sm80::most_row_blocks(args_, block_rows) * memory_.results.splits, absorbed_threads,
               shared_bytes, args_, memory_.starts, memory_.results);
    if (!writes_outputs(args_, memory_.results)) {
      to.enqueue(&sm80::combine_splits<combine_threads>, memory_.results.rows, combine_threads, 0,
                 args_, memory_.results);
    }
    return cuda::launched(to.code());
  }

 private:
  latent_attention_kernel_args args_;
  sm80::forward_memory memory_;
};

}  // namespace tessera::kernels::latent_attention::sm90
