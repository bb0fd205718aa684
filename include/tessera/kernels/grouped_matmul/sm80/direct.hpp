// The header path on NVIDIA GPUs: everything known when compiling, nothing to link but the CUDA
// runtime.
//
//   struct my_row {
//     static constexpr tessera::grouped_matmul_config config{.target = tessera::backend::cuda_sm90,
//                                                            .type = tessera::dtype::bf16};
//   };
//   tessera::status done = tessera::launch<my_row>(args, options, tessera::cuda{.stream = stream},
//                                                  tessera::epilogue::silu{});
//
// Compile with nvcc -std=c++20 --expt-relaxed-constexpr, rows of cuda_sm90 for sm_90a alone;
// functors are marked TESSERA_HD (lambdas also need --extended-lambda).
#pragma once

#include <cstddef>
#include <type_traits>

#include <tessera/families/grouped_matmul/args.hpp>
#include <tessera/families/grouped_matmul/direct_op.hpp>
#include <tessera/families/grouped_matmul/epilogue.hpp>
#include <tessera/families/grouped_matmul/fits.hpp>
#include <tessera/families/grouped_matmul/operations.hpp>
#include <tessera/families/grouped_matmul/options.hpp>
#include <tessera/families/grouped_matmul/scaled_args.hpp>
#include <tessera/kernels/direct.hpp>
#include <tessera/kernels/direct_cuda.hpp>
#include <tessera/kernels/grouped_matmul/sm80/launch.hpp>
#include <tessera/kernels/grouped_matmul/sm90/launch.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace kernels::grouped_matmul::sm80 {

template <class Row, class Op, class Args, class Options, class Epilogue>
status launch_direct(Op op, const Args& args, const Options& options, const tessera::cuda& where,
                     const Epilogue& epilogue) {
  grouped_matmul_kernel_args lowered;
  device_id device;
  if (status done = lower(op, args, options, lowered, &device); !done) return done;
  if (status done = check_epilogue<Epilogue>(lowered.d_out.data != nullptr); !done) return done;
  if (device.kind != device_kind::cuda) {
    return {status_code::invalid_argument, "lhs: device is cpu:0, the row runs on GPUs"};
  }
  using row = std::conditional_t<Row::config.target == backend::cuda_sm90, sm90::launcher<Row>,
                                 launcher<Row>>;
  return tessera::direct::launch_on_device(
      resolved(Row::config), demand_of(op, args, options, rows_are_unaligned(args)), device, where,
      [&](int multiprocessors) {
        return kernels::cuda::workspace_bytes<row>(lowered, multiprocessors, epilogue);
      },
      [&](const launch_context& context) {
        return kernels::cuda::launch<row>(lowered, context, epilogue);
      });
}

}  // namespace kernels::grouped_matmul::sm80

/// Runs the kernels of `Row` on the GPU that the tensors lie on: same arguments, options, checks
/// and results as the operation, and nothing is looked up. With group_sizes it is grouped_matmul,
/// with d_out the gradients. Every element of out becomes what `epilogue`
/// (families/grouped_matmul/epilogue.hpp) makes of it, but those of rows of no group, which no
/// product is behind. It has no gradients. Returns when the work is in the stream.
template <class Row, class Epilogue = no_epilogue>
status launch(const grouped_matmul_args& args, const grouped_matmul_options& options,
              const cuda& where, const Epilogue& epilogue = {}) {
  return kernels::grouped_matmul::sm80::launch_direct<Row>(direct_op(args), args, options, where,
                                                           epilogue);
}

/// The same of elements of 8 bits with scales.
template <class Row, class Epilogue = no_epilogue>
status launch(const scaled_matmul_args& args, const scaled_matmul_options& options,
              const cuda& where, const Epilogue& epilogue = {}) {
  return kernels::grouped_matmul::sm80::launch_direct<Row>(direct_op(args), args, options, where,
                                                           epilogue);
}

}  // namespace tessera
