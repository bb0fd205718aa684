// From a validated call to the arguments of a kernel: sizes, pointers and strides as a table of
// constant data says, the rest by a function of the family.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>

#include <tessera/spec/check.hpp>
#include <tessera/spec/copy.hpp>
#include <tessera/spec/declaration.hpp>
#include <tessera/spec/declaration_text.hpp>
#include <tessera/spec/problem.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

/// Where the stride of an axis goes. `dims`: the axis of the first of these dims ("B" or "N|B")
/// that the tensor's shape has; 0 where it has none or at most one element.
struct stride_text {
  std::string_view dims;
  std::size_t offset = 0;
};

/// Where pointer, type and strides of a tensor go; offsets are in the kernel args.
struct binding_text {
  std::string_view tensor;
  std::size_t data = 0;
  std::array<stride_text, 4> strides{};
  std::size_t type = 0;  ///< of a dtype; 0: not wanted
};

/// Where a dim goes: the first of `dims` that is known. `int_bytes` is the size of the member.
struct size_text {
  std::string_view dims;
  std::size_t offset = 0;
  std::size_t int_bytes = 8;
};

inline constexpr std::size_t max_bindings = 48;  ///< of a lowering

/// The same, read.
struct binding_form {
  std::uint8_t tensor = 0;
  std::uint8_t stride_count = 0;
  std::uint16_t data = 0, type = 0;
  std::array<std::uint16_t, 4> offsets{};
  /// By stride: one more than the axis, 0 for none, in the three bits of each layout.
  std::array<std::uint64_t, 4> axes{};
  static_assert(max_layouts * 3 <= 64 && max_rank < 8);

  constexpr int axis_of(std::size_t stride, int layout) const noexcept {
    return static_cast<int>(axes[stride] >> 3 * layout & 7u) - 1;
  }
};
struct size_form {
  std::array<std::int8_t, 3> dims{-1, -1, -1};
  std::uint16_t offset = 0;
  std::uint8_t int_bytes = 8;
};

/// How the args of a family's kernels are filled from the calls of a signature.
struct lowering {
  std::size_t bytes = 0;  ///< of the kernel args
  /// Makes them what members are that nothing fills.
  void (*begin)(void* kernel_args) noexcept = nullptr;
  std::span<const size_form> sizes;
  std::span<const binding_form> bindings;
  /// Scalars from options, and what follows from no single tensor.
  void (*finish)(const bound_call&, void* kernel_args) = nullptr;
  /// `finish` makes pointers from tensors: a planned run whose tensors moved asks it again.
  bool finish_makes_pointers = false;
};

namespace declared {

template <class Part>
inline constexpr bool is_list = false;
template <class Entry, std::size_t Count>
inline constexpr bool is_list<std::array<Entry, Count>> = true;
template <class Part>
inline constexpr std::size_t entries_in = 1;
template <class Entry, std::size_t Count>
inline constexpr std::size_t entries_in<std::array<Entry, Count>> = Count;

/// A list and what comes behind it: entries, and lists of them.
template <class Entry, std::size_t Count, class... More>
consteval auto with(const std::array<Entry, Count>& list, const More&... more) {
  std::array<Entry, Count + (std::size_t{0} + ... + entries_in<More>)> all{};
  std::size_t count = 0;
  const auto append = [&](const auto& part) {
    if constexpr (is_list<std::remove_cvref_t<decltype(part)>>) {
      for (const Entry& entry : part) all[count++] = entry;
    } else {
      all[count++] = part;
    }
  };
  append(list);
  (append(more), ...);
  return all;
}

constexpr std::array<std::int8_t, 3> dims_in(std::string_view text, std::span<const dim> dims) {
  std::array<std::int8_t, 3> indices{-1, -1, -1};
  std::string_view rest = text;
  for (std::int8_t& index : indices) {
    const std::size_t bar = rest.find('|');
    index = dim_named(dims, rest.substr(0, bar));
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  return indices;
}

constexpr std::int8_t axis_with(const shape_form& shape, std::array<std::int8_t, 3> dims) {
  for (const std::int8_t wanted : dims) {
    for (int axis = 0; axis < shape.rank; ++axis) {
      if (wanted >= 0 && shape.axes[static_cast<std::size_t>(axis)].dim == wanted) {
        return static_cast<std::int8_t>(axis);
      }
    }
  }
  return -1;
}

template <std::size_t Count>
constexpr std::array<binding_form, Count> bindings_in(const std::array<binding_text, Count>& texts,
                                                      const signature& form) {
  static_assert(Count <= max_bindings);
  std::array<binding_form, Count> bindings{};
  for (std::size_t i = 0; i < Count; ++i) {
    binding_form& to = bindings[i];
    to.tensor =
        static_cast<std::uint8_t>(index_of(form.tensors, texts[i].tensor, &tensor_form::name));
    to.data = static_cast<std::uint16_t>(texts[i].data);
    to.type = static_cast<std::uint16_t>(texts[i].type);
    for (const stride_text& stride : texts[i].strides) {
      if (stride.dims.empty()) continue;
      to.offsets[to.stride_count] = static_cast<std::uint16_t>(stride.offset);
      const auto dims = dims_in(stride.dims, form.dims);
      for (std::size_t layout = 0; layout < form.layouts.size(); ++layout) {
        const int axis = axis_with(form.shape(to.tensor, static_cast<int>(layout)), dims);
        to.axes[to.stride_count] |= static_cast<std::uint64_t>(axis + 1) << 3 * layout;
      }
      ++to.stride_count;
    }
  }
  return bindings;
}

template <std::size_t Count>
constexpr std::array<size_form, Count> sizes_in(const std::array<size_text, Count>& texts,
                                                const signature& form) {
  std::array<size_form, Count> sizes{};
  for (std::size_t i = 0; i < Count; ++i) {
    sizes[i] = {dims_in(texts[i].dims, form.dims), static_cast<std::uint16_t>(texts[i].offset),
                static_cast<std::uint8_t>(texts[i].int_bytes)};
  }
  return sizes;
}

/// Kernel args whose members are what their struct says.
template <class Args>
constexpr Args plain_args() noexcept {
  return {};
}

/// The args that begin as what `Begin()` returns and are filled by these tables, `finish` last. A
/// function, for the args as data would be mostly zeros in every program.
template <auto Begin>
consteval lowering lowering_of(std::span<const size_form> sizes,
                               std::span<const binding_form> bindings,
                               void (*finish)(const bound_call&, void* kernel_args),
                               bool finish_makes_pointers = false) {
  using args_type = decltype(Begin());
  static_assert(sizeof(args_type) <= max_kernel_args_bytes);
  return {.bytes = sizeof(args_type),
          .begin = [](void* to) noexcept { ::new (to) args_type(Begin()); },
          .sizes = sizes,
          .bindings = bindings,
          .finish = finish,
          .finish_makes_pointers = finish_makes_pointers};
}

}  // namespace declared

/// The stride of an axis; 0 where it has at most one element, and of a tensor without elements,
/// whose strides nobody has looked at.
constexpr std::int64_t stride_of(const tensor_view& view, int axis) noexcept {
  const auto at = static_cast<std::size_t>(axis);
  return view.extent[at] > 1 && view.elements() != 0 ? view.stride[at] : 0;
}

/// Fills the kernel args of a call whose shapes have been checked.
[[gnu::noinline]] inline void fill_kernel_args(const bound_call& call, const lowering& how,
                                               void* kernel_args) noexcept {
  auto* const to = static_cast<std::byte*>(kernel_args);
  how.begin(to);
  for (const size_form& size : how.sizes) {
    for (const std::int8_t dim : size.dims) {
      if (dim < 0 || call.owners[static_cast<std::size_t>(dim)] < 0) continue;
      const std::int64_t value = call.dims[static_cast<std::size_t>(dim)];
      if (size.int_bytes == sizeof value) {
        std::memcpy(to + size.offset, &value, sizeof value);
      } else {
        const auto narrow = static_cast<int>(value);
        std::memcpy(to + size.offset, &narrow, sizeof narrow);
      }
      break;
    }
  }
  for (const binding_form& binding : how.bindings) {
    if (!call.has(binding.tensor)) continue;
    const tensor_view& view = call.tensors[binding.tensor];
    std::memcpy(to + binding.data, &view.data, sizeof view.data);
    if (binding.type != 0) std::memcpy(to + binding.type, &view.type, sizeof view.type);
    for (std::size_t i = 0; i < binding.stride_count; ++i) {
      const int axis = binding.axis_of(i, call.layout);
      const std::int64_t stride = axis < 0 ? 0 : stride_of(view, axis);
      std::memcpy(to + binding.offsets[i], &stride, sizeof stride);
    }
  }
  how.finish(call, kernel_args);
}

/// Validates a call and fills the kernel args, whose content is unspecified after a refusal.
inline status lower_call(bound_call& call, const lowering& how, void* kernel_args,
                         device_id* device = nullptr) {
  status failure;
  if (checks::is_call(call, device, failure)) fill_kernel_args(call, how, kernel_args);
  return failure;
}

namespace checks {

/// A view of nothing with that shape, row-major: what a problem is validated with.
inline void lay_out(tensor_view& view) noexcept {
  static constexpr std::uint64_t nothing = 0;
  if (!view.present()) return;
  view.data = const_cast<std::uint64_t*>(&nothing);
  view.stride = contiguous_strides(view.extent, view.rank);
}

/// Gives a required tensor that a problem leaves out the shape and type that follow from the
/// others; `wish` is its type, if it may have that. False where they do not follow.
inline bool derive(bound_call& call, std::size_t tensor, tensor_view& view,
                   dtype wish = dtype::none) noexcept {
  const tensor_form& form = call.form().tensors[tensor];
  const shape_form& shape = call.form().shape(tensor, call.layout);
  const std::int8_t source = form.like >= 0 ? form.like : form.gradient_of;
  const dtype type = form.types.has(wish) ? wish
                     : source >= 0        ? call.tensors[source].type
                                          : form.types.only();
  if (type == dtype::none || shape.rank < 0) return false;
  view = {};
  view.rank = shape.rank;
  for (std::size_t at = 0; at < static_cast<std::size_t>(shape.rank); ++at) {
    const axis_form& axis = shape.axes[at];
    view.extent[at] = axis.plus;
    if (axis.dim < 0) continue;
    const auto index = static_cast<std::size_t>(axis.dim);
    const bool counted = call.form().dims[index].source == dim_source::contents;
    const bool known = call.owners[index] >= 0 || follows(call, index);
    if (!known && !counted) return false;
    view.extent[at] = known ? extent_of(call, axis) : axis.plus + 1;
  }
  view.type = type;
  return true;
}

/// Gives an output that a call does not have the shape and type that follow, if the rules let it be
/// given. False, and no tensor, where they do not follow or the call may not have it.
inline bool derive_output(bound_call& call, std::size_t tensor, tensor_view& view,
                          dtype wish = dtype::none) noexcept {
  if (forbidding_rule(call, 1u << tensor) == nullptr && derive(call, tensor, view, wish)) {
    return true;
  }
  view = {};
  return false;
}

/// Validates a problem: a call without memory. `views` are the call's tensors; those that are
/// required and follow from the others may be absent, and are filled.
inline bool is_problem(bound_call& call, tensor_view* views, status& failure) {
  if (!are_options(call, failure) || !are_shapes(call, ~0u, failure)) return false;
  const std::uint32_t missing = in_layout(call, call.op->required & ~call.present);
  for (int i = 0; i < call.op->tensor_count && missing != 0; ++i) {
    const std::size_t tensor = call.op->order[static_cast<std::size_t>(i)];
    if ((missing >> tensor & 1u) == 0) continue;
    if (!derive(call, tensor, views[tensor])) {
      return refuse_absent(call, static_cast<int>(tensor), failure);
    }
    if (!has_form(call, tensor, failure)) return false;
  }
  return missing == 0 || are_shapes(call, 0, failure);
}

}  // namespace checks

/// Validates a problem and fills the kernel args that a row-major call of these shapes would have;
/// pointers of present tensors are not null but point to nothing.
inline status lower_problem(bound_call& call, tensor_view* views, const lowering& how,
                            void* kernel_args) {
  status failure;
  if (!checks::is_problem(call, views, failure)) return failure;
  for (std::size_t i = 0; i < call.form().tensors.size(); ++i) checks::lay_out(views[i]);
  fill_kernel_args(call, how, kernel_args);
  return failure;
}

/// What the numbers of an enumeration of operations stand for. A family has a specialisation for
/// each of its problem types, behind its declarations: `operations` in the order of the
/// enumerators, the `problem_type` and the `kernel_args` that it becomes.
template <class Op>
struct operation_table;

namespace declared {

/// Where the operations of a table begin among all of their family.
consteval std::size_t place_in(std::span<const operation> family,
                               std::span<const operation> table) {
  for (std::size_t place = 0; place < family.size(); ++place) {
    if (family[place].name == table.front().name) return place;
  }
  throw "a family has no operation of that table";
}

/// The same from what a family declares: all its operations, and the table of those whose problems
/// have that type.
template <class Problem, class KernelArgs, const auto& Family, const auto& Table>
struct operation_table_of {
  using problem_type = Problem;
  using kernel_args = KernelArgs;
  static constexpr auto operations =
      std::span<const operation>(Family).subspan(place_in(Family, Table), Table.size());
};

}  // namespace declared

/// The name that an operation is declared by; "invalid" for numbers that no operation has.
template <class Op, class = typename operation_table<Op>::problem_type>
constexpr std::string_view name_of(Op op) noexcept {
  constexpr auto operations = operation_table<Op>::operations;
  const auto number = static_cast<std::size_t>(op);
  return number < operations.size() ? operations[number].name : "invalid";
}

/// The operation with that number; refuses numbers that no operation has.
inline const operation* operation_with(std::span<const operation> operations, std::size_t number,
                                       status& failure) {
  if (number < operations.size()) return &operations[number];
  checks::refuse(failure, "op: is ", number, ", the last operation is ", operations.size() - 1);
  return nullptr;
}

/// Validates a call completely and fills `lowered`, whose content is unspecified after a refusal.
/// All tensors lie in host memory; or, with `device`, on one device, which it becomes.
template <class Op>
status lower(Op op, const typename operation_table<Op>::problem_type::args_type& args,
             const typename operation_table<Op>::problem_type::options_type& options,
             typename operation_table<Op>::kernel_args& lowered, device_id* device = nullptr) {
  status failure;
  const operation* const known =
      operation_with(operation_table<Op>::operations, static_cast<std::size_t>(op), failure);
  if (known == nullptr) return failure;
  bound_call call{.op = known, .tensors = tensors_of(args), .options = &options};
  return lower_call(call, *known->how, &lowered, device);
}

/// Validates a problem, and gives the arguments that a row-major call of these shapes would have;
/// pointers of present tensors are not null but point to nothing.
template <class Op, class Args, class Options>
status lower(basic_problem<Op, Args, Options> problem,
             typename operation_table<Op>::kernel_args& lowered) {
  status failure;
  const operation* const known = operation_with(operation_table<Op>::operations,
                                                static_cast<std::size_t>(problem.op), failure);
  if (known == nullptr) return failure;
  tensor_view* const views = tensors_of(problem.tensors);
  bound_call call{.op = known, .tensors = views, .options = &problem.options};
  return lower_problem(call, views, *known->how, &lowered);
}

/// The engine's view of a problem, which outlives it.
template <class Op, class Args, class Options>
problem_view view_of(const basic_problem<Op, Args, Options>& problem) noexcept {
  return {&operation_table<Op>::operations[static_cast<std::size_t>(problem.op)],
          tensors_of(problem.tensors), &problem.options, problem.unaligned};
}

}  // namespace tessera
