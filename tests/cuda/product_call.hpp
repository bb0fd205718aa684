#pragma once
// A grouped product on the header path, whose epilogue marks every result with its place.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <tessera/launch_cuda.hpp>
#include <tessera/prim/cuda/launch.hpp>

#include "tests/cuda/device_values.hpp"
#include "tests/support/random.hpp"

namespace tessera::device_test {

/// A number that tells where it is.
struct marks_places {
  TESSERA_HD float operator()(float x, const product_position& at) const {
    return x + static_cast<float>(at.group * 4096 + at.row * 64 + at.column);
  }
};

inline constexpr device_id here{device_kind::cuda, 0};

/// Three groups, one of them empty, and rows of none; small whole numbers, whose sums are exact.
template <class Element>
class product_call {
 public:
  static constexpr std::int64_t rows = 150, depth = 1024, columns = 72, groups = 3, blocks = 8;

  product_call()
      : x_(drawn(rows * depth)),
        w_(drawn(groups * depth * columns)),
        gradient_(std::vector<Element>(rows * depth)),
        residual_(std::vector<float>(rows * columns, 0.5f)),
        sizes_(std::vector<std::int32_t>{61, 0, 80}),
        ones_(std::vector<float>(rows * blocks, 1.0f)),
        out_(std::vector<float>(rows * columns, NAN)) {}

  /// The residual, then the place.
  auto epilogue() {
    return epilogue::then{epilogue::plus<float>{{residual_.data(), columns}}, marks_places{}};
  }

  grouped_matmul_args grouped() {
    return {.lhs = view(x_.data(), {rows, depth}, {}, here),
            .rhs = view(w_.data(), {groups, columns, depth}, {}, here),
            .group_sizes = view(sizes_.data(), {groups}, {}, here),
            .out = view(out_.data(), {rows, columns}, {}, here)};
  }
  grouped_matmul_args plain(std::int64_t some_rows) {
    return {.lhs = view(x_.data(), {some_rows, depth}, {}, here),
            .rhs = view(w_.data(), {columns, depth}, {}, here),
            .out = view(out_.data(), {some_rows, columns}, {}, here)};
  }
  scaled_matmul_args scaled() {
    return {.lhs = view(x_.data(), {rows, depth}, {}, here),
            .rhs = view(w_.data(), {groups, columns, depth}, {}, here),
            .group_sizes = view(sizes_.data(), {groups}, {}, here),
            .lhs_scale = view(ones_.data(), {rows, blocks}, {}, here),
            .rhs_scale = view(ones_.data(), {groups, 1, blocks}, {}, here),
            .out = view(out_.data(), {rows, columns}, {}, here)};
  }

  tensor_view gradient_of_lhs(std::int64_t some_rows) {
    return view(gradient_.data(), {some_rows, depth}, {}, here);
  }

  /// `group_of(row)` is negative for rows of no group.
  template <class GroupOf>
  void expect_marked(std::int64_t some_rows, const GroupOf& group_of) {
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const std::vector<Element> x = x_.fetch(), w = w_.fetch();
    const std::vector<float> out = out_.fetch();
    for (std::int64_t row = 0; row < some_rows; ++row) {
      for (std::int64_t n = 0; n < columns; ++n) {
        const std::int64_t group = group_of(row);
        double sum = 0;
        for (std::int64_t k = 0; group >= 0 && k < depth; ++k) {
          sum += static_cast<double>(static_cast<float>(at(x, row * depth + k))) *
                 static_cast<double>(static_cast<float>(at(w, (group * columns + n) * depth + k)));
        }
        if (group >= 0) sum += 0.5 + static_cast<double>(group * 4096 + row * 64 + n);
        ASSERT_EQ(static_cast<double>(at(out, row * columns + n)), sum) << row << ", " << n;
      }
    }
  }
  static std::int64_t group_of(std::int64_t row) { return row < 61 ? 0 : row < 141 ? 2 : -1; }

 private:
  template <class Value>
  static Value at(const std::vector<Value>& values, std::int64_t index) {
    return values[static_cast<std::size_t>(index)];
  }
  static std::vector<Element> drawn(std::int64_t count) {
    support::random_source random(5);
    std::vector<Element> values;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(static_cast<Element>(static_cast<float>(random.below(3)) - 1.0f));
    }
    return values;
  }

  device_values<Element> x_, w_;
  device_values<Element> gradient_;
  device_values<float> residual_;
  device_values<std::int32_t> sizes_;
  device_values<float> ones_, out_;
};

class product_functors : public testing::Test {
 protected:
  void SetUp() override {
    if (const int capability = prim::cuda::capability_of(0); capability != 90) {
      GTEST_SKIP() << "compute capability is " << capability << ", the rows need 90";
    }
  }
};

}  // namespace tessera::device_test
