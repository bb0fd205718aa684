#include "bench/support/device_matmul.hpp"

#if __has_include(<cublas_v2.h>)

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include <cublas_v2.h>
#include <dlfcn.h>

#include <tessera/runtime/device_memory.hpp>

namespace tessera::bench {
namespace {

constexpr int side = 8192;

/// The functions of cuBLAS that are called here.
struct cublas_functions {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  // Spelled out: the header has an overload for C++.
  cublasStatus_t (*multiply)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n,
                             int k, const void* alpha, const void* a, cudaDataType, int lda,
                             const void* b, cudaDataType, int ldb, const void* beta, void* c,
                             cudaDataType, int ldc, cublasComputeType_t,
                             cublasGemmAlgo_t) = nullptr;
};

/// The library stays loaded: the driver may call into it when the process ends.
result<cublas_functions> load_cublas() {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return status(status_code::device, std::string(dlerror()));
  cublas_functions found;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    return function != nullptr;
  };
  if (find(found.create, "cublasCreate_v2") && find(found.destroy, "cublasDestroy_v2") &&
      find(found.set_stream, "cublasSetStream_v2") && find(found.multiply, "cublasGemmEx")) {
    return found;
  }
  return status(status_code::device, "libcublas lacks a function: " + std::string(dlerror()));
}

status answer_of(const char* tried, cublasStatus_t code) {
  if (code == CUBLAS_STATUS_SUCCESS) return {};
  return {status_code::device, std::string(tried) + ": status " + std::to_string(int{code})};
}

/// Handle of the library on the stopwatch's device and stream.
class opened_cublas {
 public:
  explicit opened_cublas(const cublas_functions& functions) : functions_(functions) {}
  ~opened_cublas() {
    if (handle_ != nullptr) functions_.destroy(handle_);
  }
  opened_cublas(const opened_cublas&) = delete;
  opened_cublas& operator=(const opened_cublas&) = delete;

  status open(void* stream) {
    status done = answer_of("cublasCreate", functions_.create(&handle_));
    if (!done) return done;
    return answer_of("cublasSetStream",
                     functions_.set_stream(handle_, static_cast<cudaStream_t>(stream)));
  }

  /// c = a b
  status multiply(const std::byte* a, const std::byte* b, std::byte* c) const {
    const float one = 1;
    const float zero = 0;
    return answer_of(
        "cublasGemmEx",
        functions_.multiply(handle_, CUBLAS_OP_N, CUBLAS_OP_N, side, side, side, &one, a,
                            CUDA_R_16BF, side, b, CUDA_R_16BF, side, &zero, c, CUDA_R_16BF, side,
                            CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

 private:
  cublas_functions functions_;
  cublasHandle_t handle_ = nullptr;
};

}  // namespace

result<double> measure_matmul(gpu_stopwatch& watch) {
  constexpr int runs = 6;
  constexpr std::size_t bytes = std::size_t{2} * side * side;
  const result<cublas_functions> functions = load_cublas();
  if (!functions) return functions.failure();
  std::array<device_buffer, 3> matrices;
  for (device_buffer& matrix : matrices) {
    result<device_buffer> memory = device_buffer::allocate(watch.device(), bytes, watch.stream());
    if (!memory) return memory.failure();
    matrix = *std::move(memory);
    const auto noise = [&] { return launch_noise(matrix.data(), bytes, watch.stream()); };
    if (status done = with_device(watch.device(), noise); !done) return done;
  }
  opened_cublas library(*functions);
  status opened = with_device(watch.device(), [&] { return library.open(watch.stream()); });
  if (!opened) return opened;
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    const result<double> took = watch.seconds_of([&] {
      return library.multiply(matrices[0].data(), matrices[1].data(), matrices[2].data());
    });
    if (!took) return took.failure();
    best = std::max(best, 2.0 * side * side * side / *took * 1e-9);
  }
  return best;
}

}  // namespace tessera::bench

#else

namespace tessera::bench {

result<double> measure_matmul(gpu_stopwatch&) {
  return status(status_code::device, "the bench was built without the header cublas_v2.h");
}

}  // namespace tessera::bench

#endif
