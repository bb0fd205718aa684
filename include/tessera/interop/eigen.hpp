// Eigen: matrices, maps and blocks as views, and views as maps, without a copy.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include <Eigen/Core>

#include <tessera/spec/dtype.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

template <>
struct dtype_of<Eigen::half> : dtype_constant<dtype::f16> {};
template <>
struct dtype_of<Eigen::bfloat16> : dtype_constant<dtype::bf16> {};

namespace eigen {

/// An expression whose elements lie in memory: Matrix, Array, Map, Ref, Block, transpose of those.
template <class Expression>
concept stored = requires(const Expression& expression) {
  {expression.derived().data()};
  { expression.innerStride() } -> std::convertible_to<Eigen::Index>;
  { expression.outerStride() } -> std::convertible_to<Eigen::Index>;
};

/// A Matrix or Array, which owns its elements.
template <class Expression>
inline constexpr bool owning =
    std::is_base_of_v<Eigen::PlainObjectBase<std::remove_cvref_t<Expression>>,
                      std::remove_cvref_t<Expression>>;

/// Whether elements can be assigned through the expression.
template <class Expression>
inline constexpr bool writable =
    !std::is_const_v<std::remove_pointer_t<decltype(std::declval<Expression&>().data())>>;

using any_stride = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
template <class Element>
using matrix_of =
    Eigen::Matrix<std::remove_const_t<Element>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
/// What `as_matrix` gives: rows and columns at any distance. Of const elements for `const float`.
template <class Element>
using strided_map = Eigen::Map<
    std::conditional_t<std::is_const_v<Element>, const matrix_of<Element>, matrix_of<Element>>,
    Eigen::Unaligned, any_stride>;

/// In the index given to `as_matrix`: the axis becomes the rows or the columns of the matrix.
inline constexpr std::int64_t all = -1;

}  // namespace eigen

/// A view [rows, columns] of a matrix, or [size] of a vector. Read-only if the expression is const.
/// Temporaries that own their elements are refused at compile time.
template <class Expression>
requires eigen::stored<std::remove_reference_t<Expression>> tensor_view
view(Expression&& expression)
noexcept {
  using plain = std::remove_reference_t<Expression>;
  static_assert(std::is_lvalue_reference_v<Expression> || !eigen::owning<Expression>,
                "the matrix would be gone before its view is used");
  using element = typename std::remove_cv_t<plain>::Scalar;
  tensor_view seen;
  seen.data = const_cast<element*>(expression.data());
  seen.type = dtype_of<element>::value;
  seen.read_only = !eigen::writable<plain>;
  if constexpr (plain::IsVectorAtCompileTime) {
    seen.rank = 1;
    seen.extent[0] = expression.size();
    seen.stride[0] = expression.innerStride();
  } else {
    constexpr bool row_major = plain::IsRowMajor;
    seen.rank = 2;
    seen.extent[0] = expression.rows();
    seen.extent[1] = expression.cols();
    seen.stride[0] = row_major ? expression.outerStride() : expression.innerStride();
    seen.stride[1] = row_major ? expression.innerStride() : expression.outerStride();
  }
  return seen;
}

/// The same elements under another shape, as for a row-major [B*S, H*D] matrix that is
/// [B,S,H,D]. The elements must lie one after the other in the order of that shape.
template <class Expression>
requires eigen::stored<std::remove_reference_t<Expression>> result<tensor_view> view(
    Expression&& expression, std::initializer_list<std::int64_t> extent) {
  tensor_view seen = view(std::forward<Expression>(expression));
  const auto refuse = [](const std::string& fact) {
    return status(status_code::invalid_argument, "matrix: " + fact);
  };
  if (extent.size() > static_cast<std::size_t>(max_rank)) {
    return refuse("rank is " + std::to_string(extent.size()) + ", it can be 0 to " +
                  std::to_string(max_rank));
  }
  std::int64_t count = 1;  // axes of extent 0 as 1: strides are products of the other ones
  bool counted = true, empty = false;
  for (const std::int64_t size : extent) {
    empty = empty || size == 0;
    counted = counted && size >= 0 &&
              count <= std::numeric_limits<std::int64_t>::max() / std::max<std::int64_t>(size, 1);
    if (counted) count *= std::max<std::int64_t>(size, 1);
  }
  if (!counted || (empty ? 0 : count) != seen.elements()) {
    return refuse("has " + std::to_string(seen.elements()) + " elements, the shape asked for has " +
                  (counted ? std::to_string(empty ? 0 : count) : std::string("no such number")));
  }
  std::int64_t step = 1;  // what the last axis of several elements is away from the one before it
  for (int axis = seen.rank - 1; axis >= 0; --axis) {
    const auto a = static_cast<std::size_t>(axis);
    if (!empty && seen.extent[a] > 1 && seen.stride[a] != step) {
      return refuse("axis " + std::to_string(axis) + " has stride " +
                    std::to_string(seen.stride[a]) + ", row-major order has " +
                    std::to_string(step));
    }
    step *= seen.extent[a];
  }
  seen.rank = static_cast<std::int8_t>(extent.size());
  seen.extent = {};
  std::copy(extent.begin(), extent.end(), seen.extent.begin());
  seen.stride = contiguous_strides(seen.extent, seen.rank);
  return seen;
}

/// A matrix over two axes of a CPU tensor: those whose entry in `index` is `eigen::all`; the other
/// entries choose an element of their axis. `as_matrix<const float>(q, {b, all, h, all})` is head h
/// of entry b as [S, D]. One `all` gives a single column.
template <class Element>
result<eigen::strided_map<Element>> as_matrix(const tensor_view& tensor,
                                              std::initializer_list<std::int64_t> index) {
  using element = std::remove_const_t<Element>;
  const auto refuse = [](const std::string& fact) {
    return status(status_code::invalid_argument, "tensor: " + fact);
  };
  if (tensor.type != dtype_of<element>::value) {
    return refuse("dtype is " + std::string(name_of(tensor.type)) + ", the matrix has " +
                  std::string(name_of(dtype_of<element>::value)));
  }
  if (tensor.device.kind != device_kind::cpu) return refuse("is not in the CPU's memory");
  if (tensor.read_only && !std::is_const_v<Element>) {
    return refuse("is read-only, the matrix is not of const elements");
  }
  if (index.size() != static_cast<std::size_t>(tensor.rank)) {
    return refuse("rank is " + std::to_string(tensor.rank) + ", the index has " +
                  std::to_string(index.size()) + " entries");
  }
  std::array<std::int64_t, 2> extent{1, 1}, stride{0, 0};
  std::size_t free = 0, axis = 0;
  std::int64_t offset = 0;
  for (const std::int64_t at : index) {
    const std::int64_t size = tensor.extent[axis], step = tensor.stride[axis];
    if (at == eigen::all) {
      if (free == 2) return refuse("more than 2 axes are asked for");
      // Eigen has no negative strides.
      if (step < 0 && size > 1) {
        return refuse("axis " + std::to_string(axis) + " has stride " + std::to_string(step) +
                      ", the least is 0");
      }
      extent[free] = size;
      stride[free++] = size > 1 ? step : 0;
    } else if (at < 0 || at >= size) {
      return refuse("index " + std::to_string(at) + " of axis " + std::to_string(axis) +
                    ", which has " + std::to_string(size));
    } else {
      offset += at * step;
    }
    ++axis;
  }
  auto* first = static_cast<Element*>(static_cast<element*>(tensor.data));
  if (extent[0] == 0 || extent[1] == 0) offset = 0;  // nothing to point into
  return eigen::strided_map<Element>(first + offset, extent[0], extent[1],
                                     eigen::any_stride(stride[0], stride[1]));
}

/// The whole of a tensor of rank 1 (a column) or 2.
template <class Element>
result<eigen::strided_map<Element>> as_matrix(const tensor_view& tensor) {
  if (tensor.rank == 1) return as_matrix<Element>(tensor, {eigen::all});
  return as_matrix<Element>(tensor, {eigen::all, eigen::all});
}

}  // namespace tessera
