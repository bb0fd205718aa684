// Whether the memory behind the tensors of a call may be read and written, and whether offsets
// stored in it lie inside the tensors. The same for every operation, given the roles of its
// tensors. Shapes have been checked.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include <tessera/spec/tensor_checks.hpp>
#include <tessera/spec/tensor_overlap.hpp>

namespace tessera::checks {

/// How a call uses one of its tensors.
template <class Args>
struct tensor_role {
  std::string_view name;
  tensor_view Args::*member;
  bool output = false;
  bool contiguous_rows = false;  ///< stride 1 on the last axis
};

/// The tensors of one call that have elements, with the bytes they lie in. `Roles` is a constexpr
/// array of tensor_role<Args>.
template <class Args, const auto& Roles>
class call_memory {
 public:
  /// Every tensor lies in host memory; or, with `device`, all lie on one device, which it becomes.
  static bool check(const Args& args, status& failure, device_id* device = nullptr) {
    return check(args, failure, device, std::make_index_sequence<Roles.size()>{});
  }

 private:
  struct placed {
    const tensor_role<Args>* role;
    const tensor_view* view;
    std::uintptr_t begin, end;  ///< first byte, one past the last
  };

  /// Written out per role, so that absent tensors cost a comparison each.
  template <std::size_t... Indices>
  static bool check(const Args& args, status& failure, device_id* device,
                    std::index_sequence<Indices...>) {
    call_memory memory(device);
    return (memory.template add_present<Indices>(args, failure) && ...) &&
           memory.outputs_are_apart(failure);
  }

  template <std::size_t Index>
  bool add_present(const Args& args, status& failure) {
    constexpr const tensor_role<Args>& role = Roles[Index];
    const tensor_view& view = args.*role.member;
    return !view.present() || add(role, view, failure);
  }

  // Leaves the entries beyond count_ alone.
  explicit call_memory(device_id* device) noexcept : device_(device) {}

  /// The first tensor says where all of them lie.
  bool lies_with_the_others(const tensor_role<Args>& role, device_id where, status& failure) {
    if (device_ != nullptr && first_ == nullptr) {
      first_ = &role;
      *device_ = where;
      return is_device(role.name, where, failure);
    }
    const device_id expected = device_ != nullptr ? *device_ : device_id{};
    if (where == expected) return true;
    if (device_ == nullptr) {
      return refuse(failure, role.name, ": device is ", where, ", must be ", expected);
    }
    return refuse(failure, role.name, ": device is ", where, ", ", first_->name, " has ", expected);
  }

  [[gnu::noinline]] bool add(const tensor_role<Args>& role, const tensor_view& view,
                             status& failure) {
    if (!lies_with_the_others(role, view.device, failure)) return false;
    byte_range range{};
    if (!has_memory(role.name, view, range, failure)) return false;
    if (role.contiguous_rows && !has_contiguous_rows(role.name, view, failure)) return false;
    if (range.empty()) return true;
    if (role.output && !has_distinct_elements(role.name, view, failure)) return false;
    placed_[count_++] = {&role, &view, range.begin, range.end};
    return true;
  }

  bool outputs_are_apart(status& failure) const {
    for (std::size_t i = 0; i < count_; ++i) {
      const placed& output = placed_[i];
      if (!output.role->output) continue;
      for (std::size_t j = 0; j < count_; ++j) {
        const placed& other = placed_[j];
        if (j == i || output.begin >= other.end || other.begin >= output.end) continue;
        if (!share_memory(*output.view, *other.view)) continue;
        const std::uintptr_t begin = std::max(output.begin, other.begin);
        const std::uintptr_t end = std::min(output.end, other.end);
        return refuse(failure, output.role->name, ": shares memory with ", other.role->name, ", ",
                      end - begin, " of its ", output.end - output.begin,
                      " bytes lie between the first and last of it");
      }
    }
    return true;
  }

  device_id* device_;
  const tensor_role<Args>* first_ = nullptr;
  std::size_t count_ = 0;
  std::array<placed, Roles.size()> placed_;
};

/// Offsets start at 0, never decrease and end inside the tensor. Gives the longest sequence.
inline bool are_offsets(std::string_view name, const tensor_view& offsets, std::string_view owner,
                        std::int64_t rows, std::int64_t& longest, status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(offsets.data);
  const std::int64_t sequences = offsets.extent[0] - 1;
  longest = 0;
  if (value[0] != 0) return refuse(failure, name, ": entry 0 is ", value[0], ", must be 0");
  for (std::int64_t n = 0; n < sequences; ++n) {
    const std::int64_t length = std::int64_t{value[n + 1]} - value[n];
    if (length < 0) {
      return refuse(failure, name, ": entry ", n + 1, " is ", value[n + 1], ", entry ", n, " has ",
                    value[n], "; offsets never decrease");
    }
    longest = std::max(longest, length);
  }
  if (value[sequences] > rows) {
    return refuse(failure, name, ": the last entry is ", value[sequences], ", ", owner, " has ",
                  rows, " rows");
  }
  return true;
}

/// The stride of an axis; 0 where it has at most one element.
constexpr std::int64_t stride_of(const tensor_view& view, int axis) noexcept {
  const auto at = static_cast<std::size_t>(axis);
  return view.extent[at] > 1 ? view.stride[at] : 0;
}

/// A view of nothing with that shape: what a problem is validated with. Absent shapes give absent
/// views.
inline tensor_view somewhere(const tensor_shape& shape) noexcept {
  static constexpr std::uint64_t nothing = 0;
  tensor_view view;
  if (!shape.present()) return view;
  view.data = const_cast<std::uint64_t*>(&nothing);
  view.type = shape.type;
  view.rank = shape.rank;
  view.extent = shape.extent;
  return view;
}

}  // namespace tessera::checks
