// The warps that bring rows of chunks with decays of heads, as far ahead as the ring has places.
#pragma once

#include <cstdint>

#include <tessera/families/delta_rule/kernel_args.hpp>
#include <tessera/kernels/delta_rule/sm90/head_memory.hpp>
#include <tessera/kernels/recurrence/sm80/chunk_tiles.hpp>
#include <tessera/prim/cuda/async_copy.hpp>
#include <tessera/prim/cuda/mbarrier.hpp>

namespace tessera::kernels::delta_rule::sm90 {

template <class Element, class Shape>
class row_loader {
  using memory = head_memory<Shape>;
  static constexpr int threads = Shape::loader_threads;

 public:
  __device__ __forceinline__ row_loader(const delta_rule_kernel_args& args, memory& shared)
      : args_(args), shared_(shared) {}

  __device__ __forceinline__ void load_all() const {
    const std::uint32_t barriers = prim::cuda::shared_address(&shared_.ring);
    const auto keys = static_cast<int>(args_.key_dim);
    const auto values = static_cast<int>(args_.value_dim - shared_.column);
    const auto* const v = static_cast<const Element*>(args_.v.data) + shared_.column;
    prim::cuda::ring_place<Shape::stages> ring;
#pragma unroll 1
    for (std::int64_t token = 0; token < shared_.length; token += Shape::tokens, ring.advance()) {
      head_item<Shape>& item = shared_.items[ring.stage()];
      ring.wait_empty(barriers);
      copy<Shape::keys>(item.k, static_cast<const Element*>(args_.k.data), shared_.rows_k, token,
                        keys);
      copy<Shape::keys>(item.q, static_cast<const Element*>(args_.q.data), shared_.rows_q, token,
                        keys);
      copy<Shape::columns>(item.v, v, shared_.rows_v, token, values);
      prim::cuda::arrive_after_copies(prim::cuda::shared_address(&shared_.filled[ring.stage()]));
    }
  }

 private:
  /// Rows of a chunk, a panel of 64 columns at a time.
  template <int Width>
  __device__ __forceinline__ void copy(unsigned char* to, const Element* from,
                                       const ordered_rows& rows, std::int64_t token,
                                       int columns) const {
    using panel = panel_rows<64>;
    const auto count = static_cast<int>(min(shared_.length - token, std::int64_t{Shape::tokens}));
#pragma unroll 1
    for (int column = 0; column < Width; column += panel::width) {
      recurrence::sm80::copy_rows<Element, panel, threads>(
          prim::cuda::shared_address(to + column / panel::width * panel::bytes), from + column,
          rows, token, count, columns - column);
    }
  }

  const delta_rule_kernel_args& args_;
  memory& shared_;
};

}  // namespace tessera::kernels::delta_rule::sm90
