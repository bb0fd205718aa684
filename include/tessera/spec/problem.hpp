// What is asked at run time: an operation, the tensors of a call without their memory, and its
// options. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include <tessera/spec/tensor_view.hpp>

namespace tessera {

/// `Op` enumerates the operations, `Args` is a struct of tensor_views.
template <class Op, class Args, class Options>
struct basic_problem {
  using op_type = Op;
  using args_type = Args;
  using options_type = Options;

  Op op{};
  Args tensors{};  ///< dtypes and extents; data and strides are not looked at
  /// Tensors of a GPU only: some row does not start at a multiple of 16 bytes.
  bool unaligned = false;
  Options options{};
};

struct operation;

/// A problem of any operation.
struct problem_view {
  const operation* op = nullptr;
  const tensor_view* tensors = nullptr;  ///< a view per tensor of the operation's signature
  const void* options = nullptr;
  bool unaligned = false;
};

/// What a choice for a problem may depend on: the `demand_of` of its family.
template <class Op, class Args, class Options>
constexpr auto demand_of(const basic_problem<Op, Args, Options>& problem) noexcept {
  return demand_of(problem.op, problem.tensors, problem.options, problem.unaligned);
}

/// Dtype and extents of a tensor.
constexpr tensor_view without_memory(const tensor_view& view) noexcept {
  tensor_view shape;
  shape.type = view.type;
  shape.rank = view.rank;
  shape.extent = view.extent;
  return shape;
}

/// A tensor of a problem: a view without memory.
constexpr tensor_view shaped(dtype type, std::initializer_list<std::int64_t> extent) noexcept {
  tensor_view view;
  view.type = type;
  for (const std::int64_t size : extent) view.extent[static_cast<std::size_t>(view.rank++)] = size;
  return view;
}

/// The views of a struct of args, in the order of its members.
template <class Args>
const tensor_view* tensors_of(const Args& args) noexcept {
  static_assert(sizeof(Args) % sizeof(tensor_view) == 0 && alignof(Args) == alignof(tensor_view));
  return reinterpret_cast<const tensor_view*>(&args);
}
template <class Args>
tensor_view* tensors_of(Args& args) noexcept {
  static_assert(sizeof(Args) % sizeof(tensor_view) == 0 && alignof(Args) == alignof(tensor_view));
  return reinterpret_cast<tensor_view*>(&args);
}

/// True if every row of the tensor, along its last axis, starts at a multiple of 16 bytes.
inline bool rows_are_aligned(const tensor_view& view) noexcept {
  constexpr std::uint64_t chunk = 16;
  if (reinterpret_cast<std::uintptr_t>(view.data) % chunk != 0) return false;
  for (int axis = 0; axis < view.rank - 1 && axis < max_rank; ++axis) {
    const auto index = static_cast<std::size_t>(axis);
    const auto step = static_cast<std::uint64_t>(view.stride[index]) * size_of(view.type);
    if (view.extent[index] > 1 && step % chunk != 0) return false;
  }
  return true;
}

/// True if the first of these tensors lies on a GPU and some row of one does not start so: what a
/// problem says of a call.
template <class... Tensors>
bool are_unaligned(const tensor_view& first, const Tensors&... more) noexcept {
  return first.device.kind == device_kind::cuda &&
         !(rows_are_aligned(first) && (rows_are_aligned(more) && ...));
}

}  // namespace tessera
