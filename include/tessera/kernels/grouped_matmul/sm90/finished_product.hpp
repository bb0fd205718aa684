// Products whose sums a functor takes, a warpgroup's part of a tile at a time, instead of being
// completed by options and stored.
//
// Such a functor has, for result_rows `rows` of a thread (result.hpp says which sums it has):
//   begin(rows, wanted)         what it wants to have read before the tile is multiplied
//   finish(rows, begun, sums)   takes the sums; all lanes of a warp call it together
// Rows of no matrix are nobody's.
#pragma once

#include <cstdint>

#include <tessera/kernels/grouped_matmul/sm90/product.hpp>
#include <tessera/kernels/grouped_matmul/sm90/result.hpp>
#include <tessera/prim/cuda/warpgroup.hpp>

namespace tessera::kernels::grouped_matmul::sm90 {

/// A warpgroup that multiplies and gives its sums away.
template <class Element, class Shape, bool AcrossA, bool AcrossB, class Finish>
class finishing_consumer : protected consumer<Element, Shape, AcrossA, AcrossB> {
  using base = consumer<Element, Shape, AcrossA, AcrossB>;

 public:
  __device__ __forceinline__ finishing_consumer(const product_args& args,
                                                typename Shape::shared_memory& shared,
                                                int warpgroup, const Finish& finish)
      : base(args, shared, warpgroup), finish_(finish) {}

  __device__ __forceinline__ void run() {
    const int thread = static_cast<int>(threadIdx.x) % prim::cuda::warpgroup_size;
    base::for_each_tile([&](const tile_place& at, int row, bool busy) {
      const result_rows rows{base::args_, at, at.row + row + thread / 32 * 16 + thread % 32 / 4,
                             thread % 4};
      const bool wanted = busy && at.matrix >= 0;
      const auto begun = finish_.begin(rows, wanted);
      base::multiply(static_cast<int>(at.depth), busy);
      if (wanted) finish_.finish(rows, begun, base::sums_);
    });
  }

 private:
  const Finish& finish_;
};

/// All tiles of a product whose operands lie as the flags say.
template <class Element, class Shape, bool AcrossA, bool AcrossB, class Finish>
__global__ void __launch_bounds__(Shape::threads, 1)
    multiply_and_finish(const __grid_constant__ product_launch all,
                        const __grid_constant__ Finish finish) {
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& shared = *reinterpret_cast<typename Shape::shared_memory*>(bytes);
  run_block<Shape, AcrossA, AcrossB>(all, shared, [&](int warpgroup) {
    finishing_consumer<Element, Shape, AcrossA, AcrossB, Finish>(all.product, shared, warpgroup,
                                                                 finish)
        .run();
  });
}

}  // namespace tessera::kernels::grouped_matmul::sm90
