// The quick check of a planned run: are these the planned tensors, laid out row-major, where the
// plan runs, apart from each other? Then everything else about them was checked with the plan, and
// the kernel args need new pointers only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tessera/spec/copy.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera::impl {

/// The args of a kernel of any family.
struct kernel_args_buffer {
  alignas(16) std::array<std::byte, max_kernel_args_bytes> bytes;  // NOLINT: filled by `lower_call`
};

/// What every tensor of a run is expected to be. Immutable, so that any number of runs may ask.
class planned_tensors {
 public:
  /// `call` is valid and has the planned views; `tensors` get outputs that no choice depends on, as
  /// far as their shapes follow.
  planned_tensors(const problem_view& problem, device_id device, bound_call& call,
                  tensor_view* tensors) noexcept
      : op_(problem.op), device_(device) {
    const bool aligned =
        device.kind == device_kind::cuda && !problem.unaligned && has_whole_rows(tensors);
    if (aligned) unit_ = aligned_rows;
    // Outputs first: each further tensor is compared with them.
    for (const bool outputs : {true, false}) {
      for (int i = 0; i < op_->tensor_count; ++i) {
        const std::size_t tensor = op_->order[static_cast<std::size_t>(i)];
        const tensor_form& form = op_->form->tensors[tensor];
        if (form.is_output() != outputs) continue;
        const bool present = tensors[tensor].present();
        if (!present && !(form.free && outputs && offered(call, tensor, tensors[tensor]))) continue;
        expect(tensor, tensors[tensor], aligned && form.aligned_rows);
        if (present && !(form.free && (outputs || is_overridden(tensor))))
          required_ |= 1u << tensor;
      }
    }
    for (const binding_form& binding : op_->how->bindings) {
      const bool may_be_null = (offered_ >> binding.tensor & 1u) != 0;
      if (!may_be_null && (known_ >> binding.tensor & 1u) == 0) continue;
      pointers_[pointer_count_++] = {binding.data, binding.tensor, may_be_null};
    }
  }

  device_id device() const noexcept { return device_; }
  /// Planned for device tensors whose rows start at multiples of 16 bytes.
  bool rows_are_aligned() const noexcept { return unit_ != 1; }

  /// True if the tensors need no closer look; `lowered` then has their pointers. False says nothing
  /// about them.
  bool place(const tensor_view* tensors, std::byte* lowered) const noexcept {
    if (op_->how->finish_makes_pointers) return false;
    std::uint32_t present = 0;
    const std::size_t count = op_->form->tensors.size();
    for (std::size_t i = 0; i < count; ++i) present |= std::uint32_t{tensors[i].present()} << i;
    if ((present & required_) != required_ || (present & ~known_) != 0) return false;
    struct span {
      std::uintptr_t begin, end;
    };
    std::array<span, max_tensors> spans;  // NOLINT: filled up to `outputs`
    std::size_t outputs = 0;
    for (std::size_t at = 0; at < form_count_; ++at) {
      const planned_form& planned = forms_[at];
      if ((present >> planned.tensor & 1u) == 0) continue;
      const tensor_view& view = tensors[planned.tensor];
      const auto begin = reinterpret_cast<std::uintptr_t>(view.data);
      const std::uintptr_t end = begin + planned.bytes;
      if (!planned.describes(view, device_) || begin == 0 || (begin & planned.past) != 0 ||
          end < begin) {
        return false;
      }
      for (std::size_t output = 0; output < outputs; ++output) {
        if (spans[output].begin < end && begin < spans[output].end) return false;
      }
      if (planned.output) spans[outputs++] = {begin, end};
    }
    for (std::size_t i = 0; i < pointer_count_; ++i) {
      const planned_pointer& pointer = pointers_[i];
      const bool here = (present >> pointer.tensor & 1u) != 0;
      if (!here && !pointer.may_be_null) continue;
      void* const data = here ? tensors[pointer.tensor].data : nullptr;
      std::memcpy(lowered + pointer.place, &data, sizeof data);
    }
    return true;
  }

 private:
  struct planned_form {
    std::uint8_t tensor = 0;
    bool output = false;
    dtype type = dtype::none;
    std::int8_t rank = 0;
    std::uintptr_t past = 0;  ///< bits of an address that alignment forbids
    std::uintptr_t bytes = 0;
    std::array<std::int64_t, max_rank> extent{};
    std::array<std::int64_t, max_rank> stride{};

    /// One branch per tensor instead of one per axis. Axes beyond the rank may hold anything:
    /// tensors that have something there are looked at closely.
    bool describes(const tensor_view& view, device_id device) const noexcept {
      if (view.type != type || view.rank != rank || view.device != device ||
          (output && view.read_only)) {
        return false;
      }
      std::int64_t differing = 0;
      for_each_index<max_rank>([&](auto axis) {
        differing |= (view.extent[axis] ^ extent[axis]) | (view.stride[axis] ^ stride[axis]);
      });
      return differing == 0;
    }
  };

  /// Where a pointer goes among the args.
  struct planned_pointer {
    std::uint16_t place = 0;
    std::uint8_t tensor = 0;
    bool may_be_null = false;  ///< of a run without the tensor
  };

  static constexpr std::uintptr_t aligned_rows = 16;

  /// An output that the problem does not have, and a run may: its shape and only type follow.
  bool offered(bound_call& call, std::size_t tensor, tensor_view& view) noexcept {
    if (!checks::derive_output(call, tensor, view)) return false;
    checks::lay_out(view);
    offered_ |= 1u << tensor;
    return true;
  }

  /// Every row of the tensors whose rows kernels want aligned has a length that lets all be.
  bool has_whole_rows(const tensor_view* tensors) const noexcept {
    for (std::size_t i = 0; i < op_->form->tensors.size(); ++i) {
      const tensor_view& view = tensors[i];
      if (!op_->form->tensors[i].aligned_rows || !view.present()) continue;
      const auto columns =
          static_cast<std::uintptr_t>(view.extent[static_cast<std::size_t>(view.rank - 1)]);
      if (columns * size_of(view.type) % aligned_rows != 0) return false;
    }
    return true;
  }

  /// Kernels see the pointer of a required tensor in place of this one's.
  bool is_overridden(std::size_t tensor) const noexcept {
    const auto bindings = op_->how->bindings;
    bool overridden = false;
    for (std::size_t i = 0; i < bindings.size(); ++i) {
      if (bindings[i].tensor != tensor) continue;
      overridden = false;
      for (std::size_t later = i + 1; later < bindings.size(); ++later) {
        overridden |= bindings[later].data == bindings[i].data &&
                      (op_->required >> bindings[later].tensor & 1u) != 0;
      }
    }
    return overridden;
  }

  /// The tensor is this one, row-major; its rows start at multiples of 16 bytes if `aligned`.
  void expect(std::size_t tensor, const tensor_view& view, bool aligned) noexcept {
    planned_form planned;
    planned.tensor = static_cast<std::uint8_t>(tensor);
    planned.output = op_->form->tensors[tensor].is_output();
    planned.type = view.type;
    planned.rank = view.rank;
    std::uintptr_t bytes = size_of(view.type);
    planned.past = (aligned && aligned_rows > bytes ? aligned_rows : bytes) - 1;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(view.rank); ++axis) {
      planned.extent[axis] = view.extent[axis];
      if (__builtin_mul_overflow(bytes, static_cast<std::uintptr_t>(view.extent[axis]), &bytes)) {
        return;  // not known: never admitted
      }
    }
    planned.bytes = bytes;
    planned.stride = contiguous_strides(planned.extent, view.rank);
    known_ |= 1u << tensor;
    forms_[form_count_++] = planned;
  }

  const operation* op_;
  device_id device_{};
  std::array<planned_form, max_tensors> forms_{};  ///< outputs first
  std::size_t form_count_ = 0;
  std::array<planned_pointer, max_bindings> pointers_{};  ///< of known tensors
  std::size_t pointer_count_ = 0;
  std::uint32_t required_ = 0;
  std::uint32_t known_ = 0;    ///< with a form; others are looked at closely
  std::uint32_t offered_ = 0;  ///< outputs that a run may have although the problem has not
  std::uintptr_t unit_ = 1;
};

}  // namespace tessera::impl
