// Validates presence, dtypes and shapes of a call of any declared operation; see check.hpp. Looks
// at no pointer and no stride, so that a problem without memory is checked by the same text.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_checks.hpp>

namespace tessera::checks {

/// "f32, f16 or bf16".
[[gnu::cold]] inline std::string list_of(dtype_set types) {
  std::string list;
  int left = 0;
  for (int number = 0; number < 32; ++number) left += types.has(static_cast<dtype>(number));
  for (int number = 0; number < 32; ++number) {
    if (!types.has(static_cast<dtype>(number))) continue;
    list += name_of(static_cast<dtype>(number));
    if (--left > 0) list += left == 1 ? " or " : ", ";
  }
  return list;
}

/// Those of some tensors (bits) that the layout of the call has.
inline std::uint32_t in_layout(const bound_call& call, std::uint32_t tensors) noexcept {
  std::uint32_t had = 0;
  for (std::uint32_t rest = tensors; rest != 0; rest &= rest - 1) {
    const auto tensor = static_cast<std::size_t>(std::countr_zero(rest));
    if (call.form().shape(tensor, call.layout).rank >= 0) had |= rest & (~rest + 1);
  }
  return had;
}

[[gnu::cold, gnu::noinline]] inline bool refuse_absent(const bound_call& call, int tensor,
                                                       status& failure) {
  const auto tensors = call.form().tensors;
  std::string needed;
  const std::uint32_t required = in_layout(call, call.op->required);
  int left = std::popcount(required);
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t index = call.op->order[static_cast<std::size_t>(i)];
    if ((required >> index & 1u) == 0) continue;
    needed += tensors[index].name;
    if (--left > 0) needed += left == 1 ? " and " : ", ";
  }
  return refuse(failure, tensors[static_cast<std::size_t>(tensor)].name, ": is absent, ",
                call.op->name, " needs ", std::string_view(needed));
}

inline std::uint32_t tensors_present(const bound_call& call) noexcept {
  std::uint32_t present = 0;
  const std::size_t count = call.form().tensors.size();
  for (std::size_t i = 0; i < count; ++i) {
    present |= std::uint32_t{call.tensors[i].present()} << i;
  }
  return present;
}

/// Fills `present` and `layout`; `derivable` are bits of required tensors whose absence is no
/// fault.
inline bool are_present(bound_call& call, std::uint32_t derivable, status& failure) {
  call.present = tensors_present(call);
  call.layout = call.form().layout_of != nullptr ? call.form().layout_of(call) : 0;
  const std::uint32_t absent = call.op->required & ~call.present & ~derivable;
  if (const std::uint32_t missing = in_layout(call, absent); missing != 0) {
    // The first of them in the operation's order.
    for (int i = 0; i < call.op->tensor_count; ++i) {
      const int index = call.op->order[static_cast<std::size_t>(i)];
      if ((missing >> index & 1u) != 0) return refuse_absent(call, index, failure);
    }
  }
  if (const std::uint32_t foreign = call.present & ~call.op->taken; foreign != 0) {
    const tensor_form& form =
        call.form().tensors[static_cast<std::size_t>(std::countr_zero(foreign))];
    return refuse(failure, form.name, ": is given, ", call.op->name,
                  form.is_output() ? " does not write it" : " has no such tensor");
  }
  return true;
}

// Dtypes and shapes.

[[gnu::cold, gnu::noinline]] inline bool refuse_type(const bound_call& call, std::size_t tensor,
                                                     status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const std::string_view is = name_of(call.tensors[tensor].type);
  const std::string list = list_of(form.types);
  if (form.like < 0) {
    return refuse(failure, form.name, ": dtype is ", is, ", must be ", std::string_view(list));
  }
  const auto like = static_cast<std::size_t>(form.like);
  const std::string_view name = call.form().tensors[like].name;
  const std::string_view wanted = name_of(call.tensors[like].type);
  if (form.types.empty()) {
    return refuse(failure, form.name, ": dtype is ", is, ", ", name, " has ", wanted);
  }
  return refuse(failure, form.name, ": dtype is ", is, ", must be ", std::string_view(list),
                " or that of ", name, ", ", wanted);
}

inline bool has_type(const bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const dtype is = call.tensors[tensor].type;
  if (!form.types.has(is) && (form.like < 0 || is != call.tensors[form.like].type)) {
    const bool known = form.like < 0 || call.tensors[form.like].present();
    if (known) return refuse_type(call, tensor, failure);
    // A required tensor is absent only where it is still to be derived.
    if ((call.op->required >> form.like & 1u) == 0) return refuse_absent(call, form.like, failure);
  }
  if (form.gradient_of < 0) return true;
  const auto of = static_cast<std::size_t>(form.gradient_of);
  return !call.has(of) || call.tensors[of].type == is ||
         refuse(failure, form.name, ": dtype is ", name_of(is), ", ", call.form().tensors[of].name,
                " has ", name_of(call.tensors[of].type));
}

[[gnu::cold, gnu::noinline]] inline bool refuse_rank(const bound_call& call, std::size_t tensor,
                                                     const shape_form& wanted, status& failure) {
  std::string letters = " [";
  for (int at = 0; at < wanted.rank; ++at) {
    const axis_form& axis = wanted.axes[static_cast<std::size_t>(at)];
    if (at > 0) letters += ',';
    if (axis.factor != 1) letters += std::to_string(axis.factor);
    if (axis.dim >= 0) letters += call.form().dims[static_cast<std::size_t>(axis.dim)].symbol;
    if (axis.times >= 0) {
      (letters += '*') += call.form().dims[static_cast<std::size_t>(axis.times)].symbol;
    }
    if (axis.dim < 0) letters += std::to_string(axis.plus);
    if (axis.dim >= 0 && axis.plus > 0) letters += "+1";
    if (axis.rule == extent_rule::one_or_exact || axis.rule == extent_rule::one_or_at_least) {
      letters += " or 1";
    }
  }
  letters += ']';
  return refuse(failure, call.form().tensors[tensor].name, ": rank is ",
                static_cast<int>(call.tensors[tensor].rank), ", ",
                call.form().layouts[static_cast<std::size_t>(call.layout)], " tensors have ",
                static_cast<int>(wanted.rank), std::string_view(letters));
}

/// The extent of an axis whose dims are known.
inline std::int64_t extent_of(const bound_call& call, const axis_form& axis) noexcept {
  if (axis.dim < 0) return axis.plus;
  const std::int64_t extent = axis.factor * call.dims[static_cast<std::size_t>(axis.dim)];
  return axis.times < 0 ? extent + axis.plus
                        : extent * call.dims[static_cast<std::size_t>(axis.times)];
}

[[gnu::cold, gnu::noinline]] inline bool refuse_extent(const bound_call& call, std::size_t tensor,
                                                       const axis_form& axis, std::int64_t extent,
                                                       status& failure) {
  const std::string_view name = call.form().tensors[tensor].name;
  const std::string_view label = call.form().label_of(axis);
  if (axis.dim < 0) {
    return refuse(failure, name, ": ", label, " is ", extent, ", ",
                  call.form().layouts[static_cast<std::size_t>(call.layout)], " tensors have ",
                  static_cast<int>(axis.plus));
  }
  const auto index = static_cast<std::size_t>(axis.dim);
  const dim& wanted = call.form().dims[index];
  const std::string_view owner =
      !wanted.owner.empty()
          ? wanted.owner.view()
          : call.form().tensors[static_cast<std::size_t>(call.owners[index])].name;
  const bool late = wanted.source == dim_source::contents;
  std::string_view note;
  if (axis.rule == extent_rule::one_or_exact ||
      (late && axis.rule == extent_rule::one_or_at_least)) {
    note = " (1 broadcasts)";
  } else if (axis.rule == extent_rule::one_or_at_least) {
    note = " (1 broadcasts, more is legal)";
  } else if (axis.rule == extent_rule::at_least) {
    note = " (more is legal)";
  }
  return refuse(failure, name, ": ", label, " is ", extent, ", ", owner, " has ",
                extent_of(call, axis), note);
}

inline bool meets(const axis_form& axis, std::int64_t extent, std::int64_t wanted) noexcept {
  switch (axis.rule) {
    case extent_rule::exact:
      return extent == wanted;
    case extent_rule::one_or_exact:
      return extent == wanted || extent == 1;
    case extent_rule::one_or_at_least:
      return extent >= wanted || extent == 1;
    case extent_rule::at_least:
      return extent >= wanted;
  }
  return false;
}

/// What a product is made of besides the dim that its tensor decides: options say it.
inline bool bind_factor(bound_call& call, std::size_t tensor, const axis_form& axis,
                        std::int64_t extent, status& failure) {
  const auto index = static_cast<std::size_t>(axis.times);
  const dim& factor = call.form().dims[index];
  std::int64_t value = 0;
  if (factor.source == dim_source::formula) {
    value = factor.value(call);
  } else {
    std::memcpy(&value, static_cast<const std::byte*>(call.options) + factor.option_offset,
                sizeof value);
  }
  if (value < factor.least || value > factor.most) {
    return refuse(failure, factor.option.view(), ": is ", value, ", ",
                  call.form().layouts[static_cast<std::size_t>(call.layout)],
                  " tensors need one of ", factor.least, " to ", factor.most);
  }
  if (extent % value != 0) {
    return refuse(failure, call.form().tensors[tensor].name, ": ", call.form().label_of(axis),
                  " is ", extent, ", not a multiple of ", factor.option.view(), ", which is ",
                  value);
  }
  call.dims[index] = value;
  call.owners[index] = static_cast<std::int8_t>(tensor);
  return true;
}

/// A tensor decides a dim.
inline bool bind_dim(bound_call& call, std::size_t tensor, const axis_form& axis,
                     std::int64_t extent, status& failure) {
  if (axis.times >= 0) {
    if (!bind_factor(call, tensor, axis, extent, failure)) return false;
    extent /= call.dims[static_cast<std::size_t>(axis.times)];
  }
  if (extent % axis.factor != 0) {
    return refuse(failure, call.form().tensors[tensor].name, ": ", call.form().label_of(axis),
                  " is ", extent, ", not a multiple of ", static_cast<int>(axis.factor));
  }
  const auto index = static_cast<std::size_t>(axis.dim);
  const dim& kind = call.form().dims[index];
  const std::int64_t value = extent / axis.factor - axis.plus;
  if (value < kind.least || value > kind.most) {
    const std::string_view name = call.form().tensors[tensor].name;
    if (axis.plus > 0) {
      return refuse(failure, name, ": length is ", extent, ", must be at least ", axis.plus, " (",
                    kind.label, " + ", axis.plus, ")");
    }
    return refuse(failure, name, ": ", call.form().label_of(axis), " is ", value, ", must be ",
                  kind.least, " to ", kind.most);
  }
  call.dims[index] = value;
  call.owners[index] = static_cast<std::int8_t>(tensor);
  return true;
}

/// The value of a dim that follows from others, once they are known.
inline bool follows(bound_call& call, std::size_t index) noexcept {
  const dim& kind = call.form().dims[index];
  if (kind.source != dim_source::formula) return false;
  for (std::size_t other = 0; other < call.form().dims.size(); ++other) {
    if (call.form().dims[other].symbol != kind.of) continue;
    if (call.owners[other] < 0) return false;
    call.owners[index] = call.owners[other];
  }
  call.dims[index] = kind.value(call);
  return true;
}

/// Each axis of a tensor: compared with its dim, or deciding it. `late`: contents are known.
inline bool has_axes(bound_call& call, std::size_t tensor, bool late, status& failure) {
  const shape_form& wanted = call.form().shape(tensor, call.layout);
  const tensor_view& view = call.tensors[tensor];
  for (int at = 0; at < wanted.rank; ++at) {
    const axis_form& axis = wanted.axes[static_cast<std::size_t>(at)];
    const std::int64_t extent = view.extent[static_cast<std::size_t>(at)];
    if (axis.dim < 0) {
      if (extent != axis.plus) return refuse_extent(call, tensor, axis, extent, failure);
      continue;
    }
    const auto index = static_cast<std::size_t>(axis.dim);
    if (call.owners[index] < 0) {
      const dim_source source = call.form().dims[index].source;
      if (source == dim_source::contents) continue;
      if (source == dim_source::tensor) {
        if (!bind_dim(call, tensor, axis, extent, failure)) return false;
        continue;
      }
      if (!follows(call, index)) {
        call.has_unsettled_axes = true;
        continue;
      }
    }
    if (!late && call.form().dims[index].source == dim_source::contents) continue;
    if (!meets(axis, extent, extent_of(call, axis))) {
      return refuse_extent(call, tensor, axis, extent, failure);
    }
  }
  return true;
}

inline bool has_form(bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const shape_form& wanted = call.form().shape(tensor, call.layout);
  const tensor_view& view = call.tensors[tensor];
  if (wanted.rank < 0) return refuse(failure, form.name, ": ", form.elsewhere.view());
  if (!has_type(call, tensor, failure)) return false;
  if (view.rank != wanted.rank) return refuse_rank(call, tensor, wanted, failure);
  return has_rank(form.name, view, wanted.rank, failure) && has_axes(call, tensor, false, failure);
}

/// The first rule that keeps one of these tensors (bits) from being given; null: they may be.
inline const tensor_rule* forbidding_rule(const bound_call& call, std::uint32_t tensors) noexcept {
  for (const tensor_rule& rule : call.form().rules) {
    if ((tensors >> rule.tensor & 1u) != 0 && !rule.holds(call)) return &rule;
  }
  return nullptr;
}

/// Everything about the tensors but their memory. Fills what the call knows of itself.
inline bool are_shapes(bound_call& call, std::uint32_t derivable, status& failure) {
  if (!are_present(call, derivable, failure)) return false;
  const signature& form = call.form();
  call.owners.fill(-1);
  call.has_unsettled_axes = false;
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if (call.has(tensor) && !has_form(call, tensor, failure)) return false;
  }
  for (int i = 0; call.has_unsettled_axes && i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if (call.has(tensor) && !has_axes(call, tensor, false, failure)) return false;
  }
  // The tokens of a page may follow from several axes.
  for (const tensor_form& table : form.tensors) {
    const auto page = static_cast<std::size_t>(table.page);
    if (table.page >= 0 && call.owners[page] < 0) static_cast<void>(follows(call, page));
  }
  for (const multiple_rule& rule : form.multiples) {
    const auto of = static_cast<std::size_t>(rule.of), by = static_cast<std::size_t>(rule.by);
    if (call.owners[of] < 0 || call.owners[by] < 0 || call.dims[of] % call.dims[by] == 0) continue;
    return refuse(failure, form.tensors[static_cast<std::size_t>(call.owners[of])].name, ": ",
                  form.dims[of].label, " is ", call.dims[of], ", not a multiple of the ",
                  call.dims[by], " of ",
                  form.tensors[static_cast<std::size_t>(call.owners[by])].name);
  }
  if (const tensor_rule* rule = forbidding_rule(call, call.present)) {
    return refuse(failure, form.tensors[static_cast<std::size_t>(rule->tensor)].name, ": ",
                  rule->sentence);
  }
  return form.hook == nullptr || form.hook(call, failure);
}

}  // namespace tessera::checks
