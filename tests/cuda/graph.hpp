// CUDA graphs for the device tests.
#pragma once

#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda/device_image.hpp"

namespace tessera::device_test {

/// What a stream does between the ends of a scope, recorded instead of done.
class graph {
 public:
  /// Records `work`. In the mode "global", calls that could wait for the device, or take memory
  /// outside the order of a stream, end the recording with an error.
  template <class Work>
  graph(cudaStream_t stream, const Work& work) {
    require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin of a capture");
    work();
    require(cudaStreamEndCapture(stream, &graph_), "end of a capture");
    require(cudaGraphInstantiate(&ready_, graph_, 0), "cudaGraphInstantiate");
  }
  ~graph() {
    cudaGraphExecDestroy(ready_);
    cudaGraphDestroy(graph_);
  }
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;

  void launch(cudaStream_t stream) const {
    require(cudaGraphLaunch(ready_, stream), "cudaGraphLaunch");
  }
  std::vector<cudaGraphNodeType> nodes() const {
    std::size_t count = 0;
    require(cudaGraphGetNodes(graph_, nullptr, &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> handles(count);
    require(cudaGraphGetNodes(graph_, handles.data(), &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNodeType> types(count);
    for (std::size_t n = 0; n < count; ++n) {
      require(cudaGraphNodeGetType(handles[n], &types[n]), "cudaGraphNodeGetType");
    }
    return types;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t ready_ = nullptr;
};

}  // namespace tessera::device_test
