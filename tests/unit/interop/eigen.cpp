// Eigen both ways: storage orders, strides, constness, shapes, 16-bit types.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <Eigen/Core>
#include <gtest/gtest.h>

#include <tessera/interop/eigen.hpp>

namespace tessera::test {
namespace {

using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using extents = std::array<std::int64_t, max_rank>;

template <class Matrix>
void fill(Matrix& matrix) {
  for (Eigen::Index i = 0; i < matrix.rows(); ++i) {
    for (Eigen::Index j = 0; j < matrix.cols(); ++j) {
      matrix(i, j) = static_cast<typename Matrix::Scalar>(float(10 * i + j));
    }
  }
}

float element(const tensor_view& seen, std::int64_t i, std::int64_t j) {
  return static_cast<const float*>(seen.data)[i * seen.stride[0] + j * seen.stride[1]];
}

TEST(eigen, matrices_of_both_orders) {
  Eigen::MatrixXf columns(3, 4);
  row_major rows(3, 4);
  fill(columns);
  fill(rows);
  EXPECT_EQ(view(columns).stride, (extents{1, 3}));
  EXPECT_EQ(view(rows).stride, (extents{4, 1}));
  for (const tensor_view& seen : {view(columns), view(rows)}) {
    EXPECT_EQ(seen.rank, 2);
    EXPECT_EQ(seen.extent, (extents{3, 4}));
    EXPECT_EQ(seen.type, dtype::f32);
    EXPECT_FALSE(seen.read_only);
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 4; ++j) EXPECT_EQ(element(seen, i, j), float(10 * i + j));
    }
  }
}

TEST(eigen, blocks_maps_transposes_and_vectors) {
  Eigen::MatrixXf matrix(5, 6);
  fill(matrix);
  const tensor_view block = view(matrix.block(1, 2, 3, 2));
  EXPECT_EQ(block.extent, (extents{3, 2}));
  EXPECT_EQ(element(block, 2, 1), 33.0f);
  const tensor_view turned = view(matrix.transpose());
  EXPECT_EQ(turned.extent, (extents{6, 5}));
  EXPECT_EQ(element(turned, 4, 1), 14.0f);
  const tensor_view row = view(matrix.row(2));
  EXPECT_EQ(row.rank, 1);
  EXPECT_EQ(row.extent[0], 6);
  EXPECT_EQ(row.stride[0], 5);
  EXPECT_EQ(static_cast<const float*>(row.data)[3 * row.stride[0]], 23.0f);
  std::vector<float> memory(12);
  const tensor_view mapped = view(
      Eigen::Map<row_major, 0, Eigen::OuterStride<>>(memory.data(), 2, 3, Eigen::OuterStride<>(6)));
  EXPECT_EQ(mapped.stride, (extents{6, 1}));
  Eigen::Array<std::int32_t, Eigen::Dynamic, 1> ids(4);
  EXPECT_EQ(view(ids).type, dtype::i32);
  EXPECT_EQ(view(ids).rank, 1);
}

TEST(eigen, const_matrices_give_read_only_views) {
  Eigen::MatrixXf matrix(2, 2);
  const Eigen::MatrixXf& constant = matrix;
  EXPECT_TRUE(view(constant).read_only);
  EXPECT_TRUE(view(constant.row(0)).read_only);
  EXPECT_TRUE(view(Eigen::Map<const Eigen::MatrixXf>(matrix.data(), 2, 2)).read_only);
  EXPECT_FALSE(view(Eigen::Map<Eigen::MatrixXf>(matrix.data(), 2, 2)).read_only);
}

TEST(eigen, sixteen_bit_types_have_the_same_bits) {
  Eigen::Matrix<Eigen::half, 1, 3> halves(Eigen::half(1.5f), Eigen::half(-2.0f),
                                          Eigen::half(6.1e-5f));
  const tensor_view seen = view(halves);
  EXPECT_EQ(seen.type, dtype::f16);
  EXPECT_EQ(float(static_cast<const f16*>(seen.data)[0]), 1.5f);
  EXPECT_EQ(float(static_cast<const f16*>(seen.data)[2]), float(halves[2]));
  Eigen::Matrix<Eigen::bfloat16, 1, 2> brains(Eigen::bfloat16(3.0f), Eigen::bfloat16(1e30f));
  EXPECT_EQ(view(brains).type, dtype::bf16);
  EXPECT_EQ(float(static_cast<const bf16*>(view(brains).data)[1]), float(brains[1]));
}

TEST(eigen, a_matrix_under_another_shape) {
  row_major matrix(6, 8);
  fill(matrix);
  const auto seen = view(matrix, {2, 3, 2, 4});  // [B*S, H*D] as [B,S,H,D]
  ASSERT_TRUE(seen) << seen.message();
  EXPECT_EQ(seen->extent, (extents{2, 3, 2, 4}));
  EXPECT_EQ(seen->stride, (extents{24, 8, 4, 1}));
  EXPECT_EQ(static_cast<const float*>(seen->data)[24 + 2 * 8 + 4 + 3], 57.0f);
  EXPECT_EQ(view(matrix, {6, 9}).message(), "matrix: has 48 elements, the shape asked for has 54");
  EXPECT_EQ(view(matrix, {6, 7}).message(), "matrix: has 48 elements, the shape asked for has 42");
  EXPECT_EQ(view(matrix, {6, 8, 0}).message(),
            "matrix: has 48 elements, the shape asked for has 0");
  EXPECT_EQ(view(matrix, {-6, -8}).message(),
            "matrix: has 48 elements, the shape asked for has no such number");
  EXPECT_EQ(view(matrix, {1, 1, 1, 1, 1, 48}).message(), "matrix: rank is 6, it can be 0 to 5");
  EXPECT_EQ(view(matrix.leftCols(4), {6, 4}).message(),
            "matrix: axis 0 has stride 8, row-major order has 4");
  Eigen::MatrixXf columns(6, 8);
  EXPECT_EQ(view(columns, {2, 3, 8}).message(),
            "matrix: axis 1 has stride 6, row-major order has 1");
  Eigen::MatrixXf nothing(0, 8);
  EXPECT_TRUE(view(nothing, {2, 0, 4}));
}

TEST(eigen, views_as_maps) {
  std::vector<float> memory(2 * 3 * 2 * 4);
  for (std::size_t at = 0; at < memory.size(); ++at) memory[at] = float(at);
  const tensor_view q = view(memory.data(), {2, 3, 2, 4});
  using eigen::all;
  auto head = as_matrix<float>(q, {1, all, 1, all});
  ASSERT_TRUE(head) << head.message();
  EXPECT_EQ(head->rows(), 3);
  EXPECT_EQ(head->cols(), 4);
  EXPECT_EQ((*head)(2, 3), 47.0f);
  (*head)(0, 0) = -1.0f;
  EXPECT_EQ(memory[28], -1.0f);
  const auto scores = (*head * head->transpose()).eval();
  EXPECT_EQ(scores.rows(), 3);

  const auto column = as_matrix<float>(q, {0, 0, 0, all});
  ASSERT_TRUE(column) << column.message();
  EXPECT_EQ(column->cols(), 1);
  EXPECT_EQ((*column)(2, 0), 2.0f);
  const float constant[] = {1, 2, 3, 4, 5, 6};
  const auto whole = as_matrix<const float>(view(constant, {2, 3}, {1, 2}));
  ASSERT_TRUE(whole) << whole.message();
  EXPECT_EQ((*whole)(1, 2), 6.0f);
  const auto broadcast = as_matrix<const float>(view(constant, {4, 3}, {0, 1}));
  ASSERT_TRUE(broadcast) << broadcast.message();
  EXPECT_EQ((*broadcast)(3, 1), 2.0f);
  const auto vector = as_matrix<const float>(view(constant, {6}));
  ASSERT_TRUE(vector) << vector.message();
  EXPECT_EQ(vector->rows(), 6);
  const auto empty = as_matrix<const float>(view(constant, {0, 3}));
  ASSERT_TRUE(empty) << empty.message();
  EXPECT_EQ(empty->size(), 0);
}

TEST(eigen, maps_that_cannot_be) {
  float memory[8] = {};
  const float constant[8] = {};
  using eigen::all;
  const tensor_view q = view(memory, {2, 2, 2});
  EXPECT_EQ(as_matrix<double>(q, {0, all, all}).message(),
            "tensor: dtype is f32, the matrix has f64");
  EXPECT_EQ(as_matrix<float>(view(constant, {2, 2})).message(),
            "tensor: is read-only, the matrix is not of const elements");
  EXPECT_EQ(as_matrix<float>(q).message(), "tensor: rank is 3, the index has 2 entries");
  EXPECT_EQ(as_matrix<float>(q, {all, all, all}).message(),
            "tensor: more than 2 axes are asked for");
  EXPECT_EQ(as_matrix<float>(q, {2, all, all}).message(), "tensor: index 2 of axis 0, which has 2");
  EXPECT_EQ(as_matrix<float>(q, {-2, all, all}).message(),
            "tensor: index -2 of axis 0, which has 2");
  EXPECT_EQ(as_matrix<float>(view(memory + 7, {2, 4}, {-4, -1})).message(),
            "tensor: axis 0 has stride -4, the least is 0");
  tensor_view cuda = q;
  cuda.device.kind = device_kind::cuda;
  EXPECT_EQ(as_matrix<float>(cuda, {0, all, all}).message(), "tensor: is not in the CPU's memory");
}

}  // namespace
}  // namespace tessera::test
