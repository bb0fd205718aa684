// Validates a call of any declared operation: options, presence, dtypes, shapes, memory, contents.
// Ordinary functions over the tables of declaration.hpp, the same code for every operation. A
// refusal is one sentence that names the tensor or option, the fact and both numbers ("k: head_dim
// is 96, q has 128"); nothing has been written then. A valid call allocates nothing.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/tensor_checks.hpp>
#include <tessera/spec/tensor_overlap.hpp>

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

// Options.

template <class Value>
const Value& member_at(const void* options, std::uint16_t offset) noexcept {
  return *reinterpret_cast<const Value*>(static_cast<const std::byte*>(options) + offset);
}

/// An option's value, whatever its type.
struct option_value {
  bool set = true;
  bool is_number = false;  ///< `number` counts, else `integer`
  double number = 0;
  std::int64_t integer = 0;
  friend bool operator==(const option_value&, const option_value&) = default;
};

inline option_value value_of(const option_form& option, const void* options) noexcept {
  const auto at = option.offset;
  switch (option.type) {
    case option_type::flag:
      return {.integer = member_at<bool>(options, at) ? 1 : 0};
    case option_type::choice:
      return {.integer = member_at<std::uint8_t>(options, at)};
    case option_type::integer:
      return {.integer = member_at<std::int64_t>(options, at)};
    case option_type::natural:
      return {.integer = static_cast<std::int64_t>(member_at<std::uint64_t>(options, at))};
    case option_type::number:
      return {.is_number = true, .number = member_at<double>(options, at)};
    case option_type::optional_integer: {
      const auto& value = member_at<std::optional<std::int64_t>>(options, at);
      return {.set = value.has_value(), .integer = value.value_or(0)};
    }
    case option_type::optional_number: {
      const auto& value = member_at<std::optional<double>>(options, at);
      return {.set = value.has_value(), .is_number = true, .number = value.value_or(0)};
    }
  }
  return {};
}

/// A double that is finite as a float.
inline bool is_finite_float(double value) noexcept {
  return std::abs(value) <= static_cast<double>(std::numeric_limits<float>::max());
}

inline bool meets(const option_form& option, const option_value& value) noexcept {
  if (option.type == option_type::choice) {
    return value.integer < static_cast<std::int64_t>(option.enumerators.size());
  }
  if (!value.set) return true;
  switch (option.limit) {
    case option_limit::none:
      return true;
    case option_limit::at_least:
      return value.integer >= option.least;
    case option_limit::finite_float:
      return is_finite_float(value.number);
    case option_limit::positive_float:
      return is_finite_float(value.number) && static_cast<float>(value.number) > 0.0f;
    case option_limit::probability:
      return value.number >= 0.0 && value.number < 1.0;
  }
  return false;
}

inline sentence_part part_of(const option_form& option, const option_value& value) noexcept {
  if (option.type == option_type::flag) return value.integer != 0 ? "true" : "false";
  if (value.is_number) return value.number;
  return value.integer;
}

[[gnu::cold, gnu::noinline]] inline bool refuse_option(const option_form& option,
                                                       const option_value& value, status& failure) {
  const std::string unset =
      option.unset.empty() ? std::string() : " (unset is " + std::string(option.unset) + ")";
  const sentence_part is = part_of(option, value);
  if (option.type == option_type::choice) {
    return refuse(failure, option.name, ": is ", is, ", the last one is ",
                  static_cast<std::int64_t>(option.enumerators.size()) - 1, " (",
                  option.enumerators.back(), ")");
  }
  switch (option.limit) {
    case option_limit::finite_float:
      return refuse(failure, option.name, ": is ", is,
                    ", must be finite as a float (at most 3.4e38)");
    case option_limit::positive_float:
      return refuse(failure, option.name, ": is ", is, ", must be above 0 and finite as a float");
    case option_limit::probability:
      return refuse(failure, option.name, ": is ", is, ", must be at least 0 and below 1");
    default:
      return refuse(failure, option.name, ": is ", is, ", must be at least ", option.least,
                    std::string_view(unset));
  }
}

/// Each option in its range, and those that the operation does not have at their defaults.
inline bool are_options(const bound_call& call, status& failure) {
  const signature& form = call.form();
  for (const option_form& option : form.options) {
    if (option.limit == option_limit::none && option.type != option_type::choice) continue;
    const option_value value = value_of(option, call.options);
    if (!meets(option, value)) return refuse_option(option, value, failure);
  }
  for (std::uint32_t rest = call.op->excluded; rest != 0; rest &= rest - 1) {
    const option_form& option = form.options[static_cast<std::size_t>(std::countr_zero(rest))];
    const option_value value = value_of(option, call.options);
    if (value == value_of(option, form.default_options)) continue;
    return refuse(failure, option.name, ": is ", part_of(option, value), ", ", call.op->name,
                  " has no such option");
  }
  return true;
}

// Presence.

[[gnu::cold, gnu::noinline]] inline bool refuse_absent(const bound_call& call, int tensor,
                                                       status& failure) {
  const auto tensors = call.form().tensors;
  std::string needed;
  int left = std::popcount(call.op->required);
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t index = call.op->order[static_cast<std::size_t>(i)];
    if ((call.op->required >> index & 1u) == 0) continue;
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

/// Fills `present`; `derivable` are bits of required tensors whose absence is no fault.
inline bool are_present(bound_call& call, std::uint32_t derivable, status& failure) {
  call.present = tensors_present(call);
  if (const std::uint32_t missing = call.op->required & ~call.present & ~derivable; missing != 0) {
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
    return refuse_type(call, tensor, failure);
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
    if (axis.dim >= 0) letters += call.form().dims[static_cast<std::size_t>(axis.dim)].symbol;
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

[[gnu::cold, gnu::noinline]] inline bool refuse_extent(const bound_call& call, std::size_t tensor,
                                                       const axis_form& axis, std::int64_t extent,
                                                       status& failure) {
  const std::string_view name = call.form().tensors[tensor].name;
  if (axis.dim < 0) {
    return refuse(failure, name, ": extent is ", extent, ", ",
                  call.form().layouts[static_cast<std::size_t>(call.layout)], " tensors have ",
                  static_cast<int>(axis.plus));
  }
  const auto index = static_cast<std::size_t>(axis.dim);
  const dim& wanted = call.form().dims[index];
  const std::string_view owner =
      wanted.source == dim_source::contents
          ? wanted.owner
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
  return refuse(failure, name, ": ", axis.label, " is ", extent, ", ", owner, " has ",
                call.dims[index] + axis.plus, note);
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

/// A tensor decides a dim.
inline bool bind_dim(bound_call& call, std::size_t tensor, const axis_form& axis,
                     std::int64_t extent, status& failure) {
  const auto index = static_cast<std::size_t>(axis.dim);
  const dim& kind = call.form().dims[index];
  const std::int64_t value = extent - axis.plus;
  if (value < kind.least || value > kind.most) {
    const std::string_view name = call.form().tensors[tensor].name;
    if (axis.plus > 0) {
      return refuse(failure, name, ": length is ", extent, ", must be at least ", axis.plus, " (",
                    kind.label, " + ", axis.plus, ")");
    }
    return refuse(failure, name, ": ", axis.label, " is ", value, ", must be ", kind.least, " to ",
                  kind.most);
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
      if (!follows(call, index)) continue;
    }
    if (!late && call.form().dims[index].source == dim_source::contents) continue;
    if (!meets(axis, extent, call.dims[index] + axis.plus)) {
      return refuse_extent(call, tensor, axis, extent, failure);
    }
  }
  return true;
}

inline bool has_form(bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const shape_form& wanted = call.form().shape(tensor, call.layout);
  const tensor_view& view = call.tensors[tensor];
  if (wanted.rank < 0) return refuse(failure, form.name, ": ", form.elsewhere);
  if (!has_type(call, tensor, failure)) return false;
  if (view.rank != wanted.rank) return refuse_rank(call, tensor, wanted, failure);
  return has_rank(form.name, view, wanted.rank, failure) && has_axes(call, tensor, false, failure);
}

/// Everything about the tensors but their memory. Fills what the call knows of itself.
inline bool are_shapes(bound_call& call, std::uint32_t derivable, status& failure) {
  if (!are_present(call, derivable, failure)) return false;
  const signature& form = call.form();
  call.layout = form.layout_of != nullptr ? form.layout_of(call) : 0;
  call.owners.fill(-1);
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if (call.has(tensor) && !has_form(call, tensor, failure)) return false;
  }
  for (const multiple_rule& rule : form.multiples) {
    const auto of = static_cast<std::size_t>(rule.of), by = static_cast<std::size_t>(rule.by);
    if (call.owners[of] < 0 || call.owners[by] < 0 || call.dims[of] % call.dims[by] == 0) continue;
    return refuse(failure, form.tensors[static_cast<std::size_t>(call.owners[of])].name, ": ",
                  form.dims[of].label, " is ", call.dims[of], ", not a multiple of the ",
                  call.dims[by], " of ",
                  form.tensors[static_cast<std::size_t>(call.owners[by])].name);
  }
  for (const tensor_rule& rule : form.rules) {
    const auto tensor = static_cast<std::size_t>(rule.tensor);
    if (call.has(tensor) && !rule.holds(call)) {
      return refuse(failure, form.tensors[tensor].name, ": ", rule.sentence);
    }
  }
  return form.hook == nullptr || form.hook(call, failure);
}

// Memory.

/// The bytes of one tensor of a call.
struct placed_tensor {
  std::uint8_t tensor = 0;
  std::uintptr_t begin = 0, end = 0;
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

// Contents.

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
    longest = length > longest ? length : longest;
  }
  if (value[sequences] > rows) {
    return refuse(failure, name, ": the last entry is ", value[sequences], ", ", owner, " has ",
                  rows, " rows");
  }
  return true;
}

/// Every length is 0 to the rows of the tensor.
inline bool are_lengths(std::string_view name, const tensor_view& lengths, std::string_view owner,
                        std::int64_t rows, status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(lengths.data);
  for (std::int64_t b = 0; b < lengths.extent[0]; ++b) {
    if (value[b] >= 0 && value[b] <= rows) continue;
    return refuse(failure, name, ": entry ", b, " is ", value[b], ", must be 0 to the ", rows,
                  " rows of ", owner);
  }
  return true;
}

/// Sizes are not negative and together no more than the rows there are.
inline bool are_group_sizes(std::string_view name, const tensor_view& sizes, std::string_view owner,
                            std::int64_t rows, status& failure) {
  const auto* const value = static_cast<const std::int32_t*>(sizes.data);
  std::int64_t sum = 0;
  for (std::int64_t g = 0; g < sizes.extent[0]; ++g) {
    const std::int32_t size = value[g * sizes.stride[0]];
    if (size < 0) {
      return refuse(failure, name, ": entry ", g, " is ", size, ", must be at least 0");
    }
    sum += size;
  }
  return sum <= rows || refuse(failure, name, ": the sum of the entries is ", sum, ", ", owner,
                               " has ", rows, " rows");
}

/// Pages [n, m] that sequence n reaches are pages there are. Entries behind are not looked at.
inline bool are_pages(const bound_call& call, std::size_t tensor, status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const tensor_view& table = call.tensors[tensor];
  const auto used_by = static_cast<std::size_t>(form.used_by);
  const tensor_view& lengths = call.tensors[used_by];
  const std::int64_t pages = call.dims[static_cast<std::size_t>(form.counts)];
  const std::int64_t page = call.dims[static_cast<std::size_t>(form.page)];
  const std::int64_t slots = table.extent[1];
  for (std::int64_t n = 0; n < table.extent[0]; ++n) {
    const std::int64_t length = static_cast<const std::int32_t*>(lengths.data)[n];
    if (length < 0 || length > slots * page) {
      return refuse(failure, call.form().tensors[used_by].name, ": entry ", n, " is ", length,
                    ", must be 0 to ", slots * page, ": ", form.name, " has ", slots, " pages of ",
                    page, " tokens");
    }
    const auto* const row = static_cast<const std::int32_t*>(table.data) + n * table.stride[0];
    for (std::int64_t m = 0; m * page < length; ++m) {
      const std::int32_t number = row[m * table.stride[1]];
      if (number >= 0 && number < pages) continue;
      return refuse(failure, form.name, ": entry ", n, ",", m, " is ", number, ", must be 0 to ",
                    pages - 1, ": there are ", pages, " pages");
    }
  }
  return true;
}

[[gnu::noinline]] inline bool holds_what_it_says(bound_call& call, std::size_t tensor,
                                                 status& failure) {
  const tensor_form& form = call.form().tensors[tensor];
  const auto counted = static_cast<std::size_t>(form.counts);
  const tensor_view& view = call.tensors[tensor];
  const std::string_view owner =
      call.form().tensors[static_cast<std::size_t>(call.owners[counted])].name;
  const std::int64_t rows = call.dims[counted];
  switch (form.holds) {
    case tensor_contents::values:
      return true;
    case tensor_contents::offsets: {
      std::int64_t longest = 0;
      if (!are_offsets(form.name, view, owner, rows, longest, failure)) return false;
      if (form.longest >= 0) {
        call.dims[static_cast<std::size_t>(form.longest)] = longest;
        call.owners[static_cast<std::size_t>(form.longest)] = static_cast<std::int8_t>(tensor);
      }
      return true;
    }
    case tensor_contents::lengths:
      return are_lengths(form.name, view, owner, rows, failure);
    case tensor_contents::page_numbers:
      return are_pages(call, tensor, failure);
    case tensor_contents::group_sizes:
      return are_group_sizes(form.name, view, owner, rows, failure);
  }
  return false;
}

/// The numbers stored in tensors of host memory, which decide what memory a kernel touches, and the
/// axes that depend on them.
inline bool are_contents(bound_call& call, status& failure) {
  bool late = false;
  const unsigned layout = 1u << call.layout;
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if (!call.has(tensor)) continue;
    const tensor_form& form = call.form().tensors[tensor];
    if (form.holds != tensor_contents::values && !holds_what_it_says(call, tensor, failure)) {
      return false;
    }
    late |= (form.late_layouts & layout) != 0;
  }
  if (!late) return true;
  const auto dims = call.form().dims;
  for (std::size_t index = 0; index < dims.size(); ++index) {
    if (dims[index].source != dim_source::contents || dims[index].value == nullptr) continue;
    call.dims[index] = dims[index].value(call);
    call.owners[index] = 0;
  }
  for (int i = 0; i < call.op->tensor_count; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if (!call.has(tensor) || (call.form().tensors[tensor].late_layouts & layout) == 0) continue;
    if (!has_axes(call, tensor, true, failure)) return false;
  }
  return true;
}

/// Validates a call completely. Reads the descriptions of the tensors and, in host memory, the
/// contents that a declaration names. `device` as in `is_memory`.
[[gnu::noinline]] inline bool is_call(bound_call& call, device_id* device, status& failure) {
  if (!are_options(call, failure) || !are_shapes(call, 0, failure) ||
      !is_memory(call, device, failure)) {
    return false;
  }
  const bool on_host = device == nullptr || device->kind == device_kind::cpu;
  return !on_host || are_contents(call, failure);
}

}  // namespace tessera::checks
