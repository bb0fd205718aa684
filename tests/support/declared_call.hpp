// A legal call of any declared operation, with every tensor that its layout and options allow, in
// memory of its own: what derived tests change one thing of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <tessera/spec/lower.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera::support {

class declared_call {
 public:
  /// `fields` is problem text without the operation's name; what it leaves out is derived.
  declared_call(const operation& op, std::string_view fields) : call_(*parse_problem(op, fields)) {
    call = {.op = &op, .tensors = call_.tensors.data(), .options = call_.options.data()};
    status failure;
    refusal_ = checks::is_problem(call, call_.tensors.data(), failure) ? status() : failure;
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) add_optional(i);
    for (tensor_view& view : call_.tensors) place(view);
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) fill(i);
    count_contents();
  }
  declared_call(const declared_call&) = delete;
  declared_call& operator=(const declared_call&) = delete;

  /// Why the problem itself is not legal.
  const status& refusal() const noexcept { return refusal_; }
  std::vector<tensor_view>& tensors() noexcept { return call_.tensors; }
  void* options() noexcept { return call_.options.data(); }

  /// What the checks say of the call as it is now.
  status checked() {
    bound_call now{.op = call.op, .tensors = call_.tensors.data(), .options = call_.options.data()};
    status failure;
    device_id device;
    checks::is_call(now, &device, failure);
    return failure;
  }

  bound_call call;  ///< the legal call

 private:
  bool allowed(std::size_t tensor) const {
    const signature& form = call.form();
    return std::ranges::all_of(form.rules, [&](const tensor_rule& rule) {
      return static_cast<std::size_t>(rule.tensor) != tensor || rule.holds(call);
    });
  }

  /// A tensor that may be given: of the first type it may have, with the extents of its dims.
  void add_optional(std::size_t tensor) {
    const tensor_form& form = call.form().tensors[tensor];
    const shape_form& shape = call.form().shape(tensor, call.layout);
    if (!refusal_ || (call.op->taken >> tensor & 1u) == 0 || call.has(tensor)) return;
    if (shape.rank < 0 || !allowed(tensor)) return;
    tensor_view view;
    view.rank = shape.rank;
    for (std::size_t at = 0; at < static_cast<std::size_t>(shape.rank); ++at) {
      const axis_form& axis = shape.axes[at];
      view.extent[at] = axis.plus;
      if (axis.dim < 0) continue;
      const auto index = static_cast<std::size_t>(axis.dim);
      const bool counted = call.form().dims[index].source == dim_source::contents;
      if (call.owners[index] < 0) view.extent[at] += counted ? longest : 2;
      if (call.owners[index] >= 0) view.extent[at] += call.dims[index];
    }
    for (int number = 1; number < static_cast<int>(dtype_names.size()); ++number) {
      if (!view.present() && form.types.has(static_cast<dtype>(number))) {
        view.type = static_cast<dtype>(number);
      }
    }
    if (!view.present()) view.type = call_.tensors[static_cast<std::size_t>(form.like)].type;
    call_.tensors[tensor] = view;
    call.present |= 1u << tensor;
  }

  void place(tensor_view& view) {
    if (!view.present()) return;
    view.stride = contiguous_strides(view.extent, view.rank);
    memory_.emplace_back(static_cast<std::size_t>(view.elements()) * size_of(view.type) / 8 + 8);
    view.data = memory_.back().data();
  }

  /// Offsets that cut in the middle, whole lengths.
  void fill(std::size_t tensor) {
    const tensor_form& form = call.form().tensors[tensor];
    tensor_view& view = call_.tensors[tensor];
    if (!view.present() || form.holds == tensor_contents::values) return;
    const std::int64_t counted = call.dims[static_cast<std::size_t>(form.counts)];
    auto* const value = static_cast<std::int32_t*>(view.data);
    const std::int64_t last = view.elements() - 1;
    for (std::int64_t i = 0; i <= last; ++i) {
      const bool offsets = form.holds == tensor_contents::offsets;
      value[i] = static_cast<std::int32_t>(offsets ? counted * i / std::max<std::int64_t>(last, 1)
                                                   : counted);
    }
  }

  /// Required tensors whose extents depend on contents get them.
  void count_contents() {
    bound_call now{.op = call.op, .tensors = call_.tensors.data(), .options = call_.options.data()};
    status failure;
    if (!checks::are_shapes(now, 0, failure)) return;
    static_cast<void>(checks::are_contents(now, failure));
    for (std::size_t i = 0; i < call_.tensors.size(); ++i) {
      const bool late = (call.form().tensors[i].late_layouts >> call.layout & 1) != 0;
      if (!late || (call.op->required >> i & 1u) == 0) continue;
      checks::derive(now, i, call_.tensors[i]);
      place(call_.tensors[i]);
    }
  }

  static constexpr std::int64_t longest = 64;

  owned_problem call_;
  std::vector<std::vector<std::uint64_t>> memory_;
  status refusal_;
};

}  // namespace tessera::support
