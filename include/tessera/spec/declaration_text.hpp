// Reads what a person writes in a declaration, when compiled: shapes as text, tensors by name,
// operations as lists of tensors. Included by declaration.hpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <tessera/spec/declaration.hpp>
#include <tessera/spec/demand.hpp>
#include <tessera/spec/names.hpp>
#include <tessera/spec/problem.hpp>

namespace tessera {

/// Reading of declarations, when compiled. A mistake in one does not compile.
namespace declared {

constexpr bool is_digits(std::string_view word) noexcept {
  for (const char digit : word) {
    if (digit < '0' || digit > '9') return false;
  }
  return !word.empty();
}

/// Index of the entry of that name; -1 for an empty name.
template <class Entry>
constexpr std::int8_t index_of(std::span<const Entry> entries, std::string_view name,
                               std::string_view Entry::*key) {
  if (name.empty()) return -1;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].*key == name) return static_cast<std::int8_t>(i);
  }
  throw "a declaration names a dim, tensor or option that it does not have";
}
constexpr std::int8_t dim_named(std::span<const dim> dims, std::string_view symbol) {
  return index_of(dims, symbol, &dim::symbol);
}
/// The number of a tensor, by name.
consteval std::int8_t tensor_named(std::span<const tensor_text> tensors, std::string_view name) {
  return index_of(tensors, name, &tensor_text::name);
}

/// The next word of a list; `rest` loses it.
constexpr std::string_view next_word(std::string_view& rest) noexcept {
  const std::size_t end = rest.find(' ');
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return word;
}

constexpr axis_label label_named(std::string_view name) {
  for (std::size_t i = 1; i < axis_labels.size(); ++i) {
    if (axis_labels[i] == name) return static_cast<axis_label>(i);
  }
  throw "an axis is called something that axis_label does not have";
}

constexpr axis_form axis_in(std::string_view text, std::span<const dim> dims) {
  axis_form axis;
  std::string_view word = text;
  if (const auto colon = word.find(':'); colon != std::string_view::npos) {
    axis.label = label_named(word.substr(colon + 1));
    word = word.substr(0, colon);
  }
  if (is_digits(word)) {
    for (const char digit : word)
      axis.plus = static_cast<std::int8_t>(axis.plus * 10 + digit - '0');
    return axis;
  }
  std::size_t digits = 0;
  while (word[digits] >= '0' && word[digits] <= '9') ++digits;
  if (digits > 0) axis.factor = 0;
  for (const char digit : word.substr(0, digits))
    axis.factor = static_cast<std::int8_t>(axis.factor * 10 + digit - '0');
  word.remove_prefix(digits);
  if (word.ends_with("+?")) {
    axis.rule = extent_rule::one_or_at_least;
    word.remove_suffix(2);
  } else if (word.ends_with('?')) {
    axis.rule = extent_rule::one_or_exact;
    word.remove_suffix(1);
  } else if (word.ends_with('+')) {
    axis.rule = extent_rule::at_least;
    word.remove_suffix(1);
  } else if (word.ends_with("+1")) {
    axis.plus = 1;
    word.remove_suffix(2);
  }
  if (const auto star = word.find('*'); star != std::string_view::npos) {
    axis.times = dim_named(dims, word.substr(star + 1));
    if (dims[static_cast<std::size_t>(axis.times)].option.empty()) {
      throw "a dim that a product is made of is said by an option";
    }
    word = word.substr(0, star);
  }
  axis.dim = dim_named(dims, word);
  return axis;
}

constexpr shape_form shape_in(std::string_view text, std::span<const dim> dims) {
  shape_form shape;
  if (text == "-") return shape;
  std::string_view rest = text;
  for (shape.rank = 0; !rest.empty(); ++shape.rank) {
    shape.axes[static_cast<std::size_t>(shape.rank)] = axis_in(next_word(rest), dims);
  }
  return shape;
}

constexpr void read_tensor(const tensor_text& text, std::span<const tensor_text> all,
                           std::span<const dim> dims, tensor_form& form) {
  form.name = text.name;
  form.types = text.types;
  form.use = text.use;
  form.contiguous_rows = text.contiguous_rows;
  form.aligned_rows = text.aligned_rows;
  form.free = text.free;
  form.holds = text.holds;
  form.elsewhere = text.elsewhere;
  form.file_name = text.file_name;
  form.like = index_of(all, text.like, &tensor_text::name);
  form.counts = dim_named(dims, text.counts);
  form.longest = dim_named(dims, text.longest);
  form.used_by = index_of(all, text.used_by, &tensor_text::name);
  form.page = dim_named(dims, text.page);
  form.covers = index_of(all, text.covers, &tensor_text::name);
  const bool counts =
      text.holds != tensor_contents::values && text.holds != tensor_contents::positive;
  if (counts != (form.counts >= 0)) throw "contents lie in a dim: say which one they count";
  if (text.holds == tensor_contents::positive && text.types.only() != dtype::f32) {
    throw "numbers that have to be positive are looked at in f32";
  }
  if (text.holds == tensor_contents::page_numbers && (form.used_by < 0 || form.page < 0)) {
    throw "page numbers are used by lengths, of pages of a dim";
  }
  form.apart = index_of(all, text.apart, &tensor_text::name);
  if (text.holds == tensor_contents::shared_pages && (form.used_by < 0 || form.apart < 0)) {
    throw "shared pages are those of groups and of a table";
  }
  form.shares = index_of(all, text.shares, &tensor_text::name);
  form.gradient_of = index_of(all, text.gradient_of, &tensor_text::name);
  form.shape_of = index_of(all, text.shape_of, &tensor_text::name);
}

template <std::size_t Layouts, std::size_t Tensors>
consteval std::array<shape_form, Tensors * Layouts> shapes_in(
    const std::array<tensor_text, Tensors>& texts, std::span<const dim> dims) {
  std::array<shape_form, Tensors * Layouts> shapes{};
  for (std::size_t i = 0; i < Tensors; ++i) {
    for (std::size_t layout = 0; layout < Layouts; ++layout) {
      shapes[i * Layouts + layout] = shape_in(texts[i].shapes[layout], dims);
    }
  }
  return shapes;
}

/// Index of the first shape that is equal to this one.
template <std::size_t Count>
constexpr std::size_t first_equal(const std::array<shape_form, Count>& shapes, std::size_t index) {
  std::size_t first = 0;
  while (shapes[first] != shapes[index]) ++first;
  return first;
}
template <std::size_t Count>
consteval std::size_t count_different(const std::array<shape_form, Count>& shapes) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < Count; ++i) count += first_equal(shapes, i) == i;
  if (count > 256) throw "a signature has at most 256 different shapes";
  return count;
}

template <std::size_t Different, std::size_t Count>
struct stored_shapes {
  std::array<shape_form, Different> different{};
  std::array<std::uint8_t, Count> numbers{};
};
template <std::size_t Different, std::size_t Count>
consteval stored_shapes<Different, Count> stored(const std::array<shape_form, Count>& shapes) {
  stored_shapes<Different, Count> to;
  std::size_t count = 0;
  for (std::size_t i = 0; i < Count; ++i) {
    const std::size_t first = first_equal(shapes, i);
    if (first == i) to.different[count] = shapes[i];
    to.numbers[i] = first == i ? static_cast<std::uint8_t>(count++) : to.numbers[first];
  }
  return to;
}
template <const auto& Shapes>
inline constexpr auto storage_of = stored<count_different(Shapes)>(Shapes);

/// What a signature keeps of its shapes.
template <const auto& Shapes>
inline constexpr shape_list each_once{storage_of<Shapes>.different,
                                      storage_of<Shapes>.numbers.data()};

/// True if some axis is known from contents only.
constexpr bool is_late(const shape_form& shape, std::span<const dim> dims) noexcept {
  for (int axis = 0; axis < shape.rank; ++axis) {
    const int symbol = shape.axes[static_cast<std::size_t>(axis)].dim;
    if (symbol >= 0 && dims[static_cast<std::size_t>(symbol)].source == dim_source::contents) {
      return true;
    }
  }
  return false;
}

template <std::size_t Tensors, std::size_t Shapes>
consteval std::array<tensor_form, Tensors> tensors_in(const std::array<tensor_text, Tensors>& texts,
                                                      const std::array<shape_form, Shapes>& shapes,
                                                      std::span<const dim> dims) {
  constexpr std::size_t layouts = Shapes / Tensors;
  std::array<tensor_form, Tensors> forms{};
  for (std::size_t i = 0; i < Tensors; ++i) {
    read_tensor(texts[i], texts, dims, forms[i]);
    for (std::size_t layout = 0; layout < layouts; ++layout) {
      if (!is_late(shapes[i * layouts + layout], dims)) continue;
      forms[i].late_layouts = static_cast<std::uint16_t>(forms[i].late_layouts | 1u << layout);
    }
  }
  return forms;
}

/// A tensor before this one in the operation's order has the dim, where the layout has both.
constexpr bool is_known_before(const operation& op, std::size_t tensor, std::int8_t dim,
                               int layout) noexcept {
  for (std::size_t i = 0; i < op.tensor_count && op.order[i] != tensor; ++i) {
    const shape_form& shape = op.form->shape(op.order[i], layout);
    for (int axis = 0; axis < shape.rank; ++axis) {
      if (shape.axes[static_cast<std::size_t>(axis)].dim == dim) return true;
    }
  }
  return false;
}

/// Type and shape of a required tensor follow from those before it, in every layout.
constexpr bool follows_from_others(const operation& op, std::size_t tensor) noexcept {
  const tensor_form& form = op.form->tensors[tensor];
  const bool statistic = form.types.only() == dtype::f32;
  if (!statistic && (form.like < 0 || !form.types.empty())) return false;
  for (int layout = 0; layout < static_cast<int>(op.form->layouts.size()); ++layout) {
    const shape_form& shape = op.form->shape(tensor, layout);
    for (int axis = 0; axis < shape.rank; ++axis) {
      const std::int8_t dim = shape.axes[static_cast<std::size_t>(axis)].dim;
      if (dim < 0 || is_known_before(op, tensor, dim, layout)) continue;
      if (op.form->dims[static_cast<std::size_t>(dim)].source == dim_source::tensor) return false;
    }
  }
  return true;
}

/// The type of a tensor follows from another one or from the operation.
constexpr bool has_one_type(const tensor_form& form) noexcept {
  return form.like >= 0 || form.gradient_of >= 0 || form.types.only() != dtype::none;
}

/// Tensors that the text of a problem has: inputs, and outputs that choices depend on, as far as
/// they do not follow from the others.
constexpr std::uint32_t fields_of(const operation& op) noexcept {
  std::uint32_t fields = 0;
  for (std::size_t i = 0; i < op.tensor_count; ++i) {
    const std::size_t tensor = op.order[i];
    const tensor_form& form = op.form->tensors[tensor];
    const bool required = (op.required >> tensor & 1u) != 0;
    const bool follows = form.use == tensor_use::output
                             ? form.free || (required && has_one_type(form))
                             : required && follows_from_others(op, tensor);
    if (!follows) fields |= 1u << tensor;
  }
  return fields;
}

/// The same shape in every layout.
constexpr std::array<std::string_view, max_layouts> everywhere(std::string_view shape) noexcept {
  std::array<std::string_view, max_layouts> shapes{};
  for (std::string_view& each : shapes) each = shape;
  return shapes;
}

/// `layout_of` of a signature whose calls name their layout by an option.
template <auto Option>
int layout_named(const bound_call& call) {
  return static_cast<int>(call.options_as<decltype(class_of_member(Option))>().*Option);
}

template <class Options>
inline constexpr Options default_options{};

/// A signature of problems of this type: its options, and what a choice depends on.
template <class Problem>
consteval signature signature_of(signature form) {
  using args = typename Problem::args_type;
  using options = typename Problem::options_type;
  if (sizeof(args) != form.tensors.size() * sizeof(tensor_view)) {
    throw "a declaration has as many tensors as the args have members";
  }
  form.default_options = &default_options<options>;
  form.options_bytes = sizeof(options);
  form.demand_of = [](const problem_view& problem, demand& to) {
    to.become([&] {
      return demand_of(static_cast<typename Problem::op_type>(problem.op->place),
                       *reinterpret_cast<const args*>(problem.tensors),
                       *static_cast<const options*>(problem.options), problem.unaligned);
    });
  };
  return form;
}

/// The shapes that texts of tensors have in so many layouts, and the tensors.
template <const auto& Texts, const auto& Dims, std::size_t Layouts>
inline constexpr auto shapes_of = shapes_in<Layouts>(Texts, Dims);
template <const auto& Texts, const auto& Dims, std::size_t Layouts>
inline constexpr auto tensors_of = tensors_in(Texts, shapes_of<Texts, Dims, Layouts>, Dims);

/// The same of what is declared as texts. Signatures whose texts differ in their use alone keep the
/// shapes of one of them, `Shapes`.
template <class Problem, const auto& Texts, const auto& Dims, const auto& Layouts,
          const auto& Shapes>
consteval signature signature_of(signature form) {
  form.tensors = tensors_of<Texts, Dims, Layouts.size()>;
  form.shapes = each_once<shapes_of<Shapes, Dims, Layouts.size()>>;
  form.dims = Dims;
  form.layouts = Layouts;
  return signature_of<Problem>(form);
}
// Not a default argument: the front end of nvcc 13.0 deduces none from another parameter's
// reference.
template <class Problem, const auto& Texts, const auto& Dims, const auto& Layouts>
consteval signature signature_of(signature form) {
  return signature_of<Problem, Texts, Dims, Layouts, Texts>(form);
}

/// An operation from "q! k! v! out! lse": tensors in the order they are looked at, those with '!'
/// required where the layout has them. `place` is the value of its enumerator. `without` names
/// options that the operation does not have.
consteval operation operation_of(std::string_view name, int place, const signature& form,
                                 const lowering& how, std::string_view tensors,
                                 std::string_view without = {}) {
  operation op{.name = name, .form = &form, .how = &how, .place = place, .number = place};
  for (std::string_view rest = tensors; !rest.empty();) {
    std::string_view word = next_word(rest);
    const bool required = word.ends_with('!');
    if (required) word.remove_suffix(1);
    const auto index = index_of(form.tensors, word, &tensor_form::name);
    op.order[op.tensor_count++] = static_cast<std::uint8_t>(index);
    op.taken |= 1u << index;
    if (required) op.required |= 1u << index;
  }
  for (std::string_view rest = without; !rest.empty();) {
    op.excluded |= 1u << index_of(form.options, next_word(rest), &option_form::name);
  }
  op.fields = fields_of(op);
  return op;
}

/// An operation that is read by other names too. It is written by its own.
consteval operation also_called(operation op, std::string_view alias,
                                std::string_view another = {}) {
  op.aliases = {alias, another};
  return op;
}

/// The operations of several signatures, one behind the other and numbered so.
template <std::size_t... Counts>
consteval auto joined(const std::array<operation, Counts>&... parts) {
  std::array<operation, (Counts + ...)> all{};
  std::size_t count = 0;
  const auto append = [&](const auto& part) {
    for (const operation& op : part) {
      all[count] = op;
      all[count].number = static_cast<int>(count);
      ++count;
    }
  };
  (append(parts), ...);
  return all;
}

}  // namespace declared

}  // namespace tessera
