// Validates the memory behind the tensors of a call; see check.hpp. Shapes have been checked.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include <tessera/spec/check_shapes.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_checks.hpp>
#include <tessera/spec/tensor_overlap.hpp>

namespace tessera::checks {

/// The bytes of one tensor of a call.
struct placed_tensor {
  std::uint8_t tensor;
  std::uintptr_t begin, end;
};

/// The first tensor says where all of them lie; without `device`, in host memory.
inline bool lies_with(const bound_call& call, std::size_t tensor, int first, device_id& where,
                      bool any_device, status& failure) {
  const std::string_view name = call.form().tensors[tensor].name;
  const device_id device = call.tensors[tensor].device;
  if (any_device && first < 0) {
    where = device;
    return is_device(name, device, failure);
  }
  if (device == where) return true;
  if (!any_device) return refuse(failure, name, ": device is ", device, ", must be ", where);
  return refuse(failure, name, ": device is ", device, ", ",
                call.form().tensors[static_cast<std::size_t>(first)].name, " has ", where);
}

[[gnu::cold, gnu::noinline]] inline bool refuse_overlap(const bound_call& call,
                                                        const placed_tensor& output,
                                                        const placed_tensor& other,
                                                        status& failure) {
  const std::uintptr_t begin = output.begin > other.begin ? output.begin : other.begin;
  const std::uintptr_t end = output.end < other.end ? output.end : other.end;
  const auto tensors = call.form().tensors;
  return refuse(failure, tensors[output.tensor].name, ": shares memory with ",
                tensors[other.tensor].name, ", ", end - begin, " of its ",
                output.end - output.begin, " bytes lie between the first and last of it");
}

/// An output may be the very tensor that its declaration names: the same elements in the same
/// places.
inline bool is_in_place(const bound_call& call, std::uint8_t output, std::uint8_t other) noexcept {
  const auto tensors = call.form().tensors;
  if (tensors[output].shares != other && tensors[other].shares != output) return false;
  const tensor_view& a = call.tensors[output];
  const tensor_view& b = call.tensors[other];
  if (a.data != b.data || a.type != b.type || a.rank != b.rank) return false;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(a.rank); ++axis) {
    if (a.extent[axis] != b.extent[axis]) return false;
    if (a.extent[axis] > 1 && a.stride[axis] != b.stride[axis]) return false;
  }
  return true;
}

/// The memory behind the tensors may be read and written: they lie in host memory or, with
/// `device`, on one device, which it becomes; no output shares a byte with another tensor.
inline bool is_memory(const bound_call& call, device_id* device, status& failure) {
  std::array<placed_tensor, max_tensors> placed;  // NOLINT: filled up to `count`
  std::size_t count = 0;
  int first = -1;
  device_id where{};
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if (!call.has(tensor)) continue;
    const tensor_form& form = call.form().tensors[tensor];
    const tensor_view& view = call.tensors[tensor];
    if (!lies_with(call, tensor, first, where, device != nullptr, failure)) return false;
    if (first < 0) first = static_cast<int>(tensor);
    byte_range range{};
    if (!has_memory(form.name, view, range, failure)) return false;
    if (form.contiguous_rows && !has_contiguous_rows(form.name, view, failure)) return false;
    if (range.empty()) continue;
    if (form.is_output() && !has_distinct_elements(form.name, view, failure)) return false;
    placed[count++] = {static_cast<std::uint8_t>(tensor), range.begin, range.end};
  }
  if (device != nullptr) *device = where;
  for (std::size_t i = 0; i < count; ++i) {
    if (!call.form().tensors[placed[i].tensor].is_output()) continue;
    for (std::size_t j = 0; j < count; ++j) {
      if (j == i || placed[i].begin >= placed[j].end || placed[j].begin >= placed[i].end) continue;
      if (is_in_place(call, placed[i].tensor, placed[j].tensor)) continue;
      if (!share_memory(call.tensors[placed[i].tensor], call.tensors[placed[j].tensor])) continue;
      return refuse_overlap(call, placed[i], placed[j], failure);
    }
  }
  return true;
}

}  // namespace tessera::checks
