// The launch of a row of recurrences on GPUs: in chunks, or token by token in one of two
// directions.
//
// A family's room says what its rows are, `Row`:
//
// | member | what |
// |---|---|
// | args_type, entries() | the args of a launch; all kernels of the row |
// | by_chunks | static: then all it has are `workspace_bytes(args)` and a `launch` of its own |
// | is_forward, shape | static; tiles of states in the registers of a block |
// | of_tokens(args) | the kernel that goes through the tokens of a launch |
// | states_of(args) | `launch_states` |
// | of_lone_tokens(args) | optional: the kernel of single tokens (row_tile.hpp), or null |
//
// and of the way back
//
// | member | what |
// |---|---|
// | leaf, shared_bytes | static: tokens of a leaf (replay.hpp), shared memory of a block |
// | scratch | its workspace: `args` of the kernels, `bytes`; made of args, a cut and an address |
// | gradients_of(scratch args) | an array of `head_gradient`, those that may have shares |
// | launch_sums(scratch args, stream) | adds up what sequences have left |
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

#include <tessera/kernels/cuda_row.hpp>
#include <tessera/kernels/recurrence/common/sequence.hpp>
#include <tessera/kernels/recurrence/sm80/head_group.hpp>
#include <tessera/kernels/recurrence/sm80/replay.hpp>
#include <tessera/kernels/recurrence/sm80/row_tile.hpp>
#include <tessera/prim/cuda/launch.hpp>

namespace tessera::kernels::recurrence::sm80 {

/// The states of a sequence: of how many heads, with how many columns. Groups of heads read the
/// same rows.
struct launch_states {
  std::int64_t heads = 0, groups = 0, columns = 0;
};

template <class Row>
struct row_launcher {
  using args_type = typename Row::args_type;

  static row_launcher of(const args_type& call, int multiprocessors, std::byte* workspace) {
    return {call, multiprocessors, workspace};
  }

  static auto entries() { return Row::entries(); }
  std::size_t bytes() const {
    if constexpr (Row::by_chunks) {
      return Row::workspace_bytes(args);
    } else if constexpr (Row::is_forward) {
      return 0;
    } else {
      return scratch(nullptr).bytes;
    }
  }
  cudaError_t launch(cudaStream_t stream) const {
    if constexpr (Row::by_chunks) {
      return Row::launch(args, multiprocessors, workspace, stream);
    } else if constexpr (Row::is_forward) {
      return launch_forward(stream);
    } else {
      return launch_backward(scratch(workspace).args, stream);
    }
  }

  const args_type& args;
  int multiprocessors;
  std::byte* workspace;

 private:
  std::int64_t states() const { return sequences_with_rest(args) * Row::states_of(args).heads; }
  auto scratch(std::byte* base) const {
    return
        typename Row::scratch(args,
                              cut_of<typename Row::shape>(args.tokens, Row::states_of(args).columns,
                                                          Row::leaf, states(), multiprocessors),
                              base);
  }

  cudaError_t launch_forward(cudaStream_t stream) const {
    if constexpr (requires { Row::of_lone_tokens(args); }) {
      if (const auto kernel = Row::of_lone_tokens(args); kernel != nullptr) {
        return launch_tiles<row_shape>(kernel, stream);
      }
    }
    return launch_tiles<typename Row::shape>(Row::of_tokens(args), stream);
  }
  template <class Shape, class Kernel>
  cudaError_t launch_tiles(Kernel kernel, cudaStream_t stream) const {
    const std::int64_t tiles = (Row::states_of(args).columns + Shape::columns - 1) / Shape::columns;
    const std::int64_t blocks = states() * tiles;
    if (blocks <= 0) return cudaSuccess;
    return prim::cuda::launch_kernel(kernel, cuda::grid_of(blocks), Shape::threads, 0, stream,
                                     false, args, static_cast<int>(tiles));
  }

  template <class BackwardArgs>
  cudaError_t launch_backward(const BackwardArgs& back, cudaStream_t stream) const {
    cudaError_t code = cudaSuccess;
    if (states() > 0) {
      code = prim::cuda::launch_kernel(Row::of_tokens(args), cuda::grid_of(back.cut.blocks),
                                       Row::shape::threads, Row::shared_bytes, stream, false, back);
    }
    const launch_states states_of = Row::states_of(args);
    for (const auto& gradient : Row::gradients_of(back)) {
      if (code != cudaSuccess) return code;
      code = launch_head_shares({.shares = gradient.shares,
                                 .tokens = args.tokens,
                                 .entries = entries_of(args),
                                 .heads = states_of.heads,
                                 .group = states_of.heads / states_of.groups,
                                 .columns = gradient.columns},
                                gradient.to, stream);
    }
    return code == cudaSuccess ? Row::launch_sums(back, stream) : code;
  }
};

}  // namespace tessera::kernels::recurrence::sm80
