// Device memory for the tests of single pieces.
#pragma once

#include <cstddef>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace tessera::device_test {

/// Device memory with the content of a vector.
template <class Value>
class device_values {
 public:
  explicit device_values(const std::vector<Value>& values) : size_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~device_values() { cudaFree(data_); }
  device_values(const device_values&) = delete;
  device_values& operator=(const device_values&) = delete;
  Value* data() { return data_; }
  std::vector<Value> fetch() {
    std::vector<Value> values(size_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  std::size_t bytes() const { return size_ * sizeof(Value); }
  std::size_t size_;
  Value* data_ = nullptr;
};

}  // namespace tessera::device_test
