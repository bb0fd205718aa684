// An operation as constant data: its tensors, dims, options and rules. A person writes the table
// (families/<family>/declaration.hpp), engines compiled once do the rest: check.hpp validates a
// call and says every refusal, lower.hpp fills the arguments of a kernel.
//
// Shapes are text, read when compiled. One word an axis, in the order of the axes:
//
// | word | extent |
// |---|---|
// | `B` | that of dim B; the first tensor of the operation that has a dim decides it |
// | `N+1` | one more |
// | `Hq?` | that of Hq, or 1 (broadcasts) |
// | `Lq+?` | at least Lq, or 1 |
// | `D+` | at least D |
// | `P*T` | that of P times that of T: an axis in which two are one |
// | `2Hkv` | twice that of Hkv |
// | `1` | the number itself |
// | `Sq:rows`, `1:batch` | the same, called "rows" or "batch" in sentences |
//
// A tensor has one shape per layout of its operation; "-": the layout has no such tensor.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include <tessera/spec/dtype.hpp>
#include <tessera/spec/tensor_view.hpp>

namespace tessera {

class demand;
class status;
struct bound_call;
struct lowering;
struct operation;
struct problem_view;

inline constexpr int max_tensors = 32;  ///< of an operation: one bit each
inline constexpr int max_dims = 24;
inline constexpr int max_layouts = 16;
inline constexpr int max_options = 31;  ///< of an operation: one bit each, in C an int's
inline constexpr std::size_t max_options_bytes = 256;
inline constexpr std::size_t max_kernel_args_bytes = 2112;

/// Words that few entries of a table have: a string literal, in half the bytes of a view.
class literal {
 public:
  constexpr literal() = default;
  constexpr literal(std::string_view text)  // NOLINT(google-explicit-constructor)
      : text_(text.empty() ? nullptr : text.data()) {
    if (text != view()) throw "a part of a literal is not one";
  }
  constexpr literal(const char* text) : literal(std::string_view(text)) {}  // NOLINT
  constexpr bool empty() const noexcept { return text_ == nullptr; }
  constexpr std::string_view view() const noexcept {
    return empty() ? std::string_view() : std::string_view(text_);
  }
  constexpr operator std::string_view() const noexcept { return view(); }  // NOLINT

 private:
  const char* text_ = nullptr;
};

/// A set of element types.
class dtype_set {
 public:
  constexpr dtype_set() = default;
  constexpr dtype_set(dtype type) : bits_(1u << static_cast<unsigned>(type)) {}  // NOLINT
  constexpr bool has(dtype type) const noexcept {
    const auto number = static_cast<unsigned>(type);
    return number < 32 && (bits_ >> number & 1u) != 0;
  }
  constexpr bool empty() const noexcept { return bits_ == 0; }
  /// The type of a set of one, else none.
  constexpr dtype only() const noexcept {
    if (bits_ == 0 || (bits_ & (bits_ - 1)) != 0) return dtype::none;
    return static_cast<dtype>(__builtin_ctz(bits_));
  }
  friend constexpr dtype_set operator|(dtype_set a, dtype_set b) noexcept {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  std::uint32_t bits_ = 0;
};
constexpr dtype_set operator|(dtype a, dtype b) noexcept {
  return dtype_set(a) | dtype_set(b);
}
inline constexpr dtype_set floating_types = dtype::f32 | dtype::f16 | dtype::bf16;

/// What the extent of an axis must be, relative to its dim.
enum class extent_rule : std::uint8_t { exact, one_or_exact, one_or_at_least, at_least };

/// What sentences call an axis where it is not what its dim is called.
enum class axis_label : std::uint8_t {
  of_dim,
  batch,
  channels,
  heads,
  inputs,
  keys,
  length,
  outputs,
  rows,
  sequences,
  slots,
};
inline constexpr std::array<std::string_view, 11> axis_labels{
    "",       "batch",   "channels", "heads",     "inputs", "keys",
    "length", "outputs", "rows",     "sequences", "slots"};

/// One axis of a shape. A literal extent has no dim.
struct axis_form {
  std::int8_t dim = -1;
  std::int8_t times = -1;  ///< the dim it is multiplied by
  std::int8_t factor = 1;  ///< the number it is multiplied by
  std::int8_t plus = 0;    ///< added to the dim; the extent itself where there is none
  extent_rule rule = extent_rule::exact;
  axis_label label = axis_label::of_dim;

  bool operator==(const axis_form&) const = default;
};

/// The axes of a tensor in one layout.
struct shape_form {
  std::int8_t rank = -1;  ///< -1: the layout has no such tensor
  std::array<axis_form, max_rank> axes{};

  bool operator==(const shape_form&) const = default;
};

/// The shapes of a signature. Many tensors and layouts have the same: each is stored once.
struct shape_list {
  std::span<const shape_form> different{};
  const std::uint8_t* numbers = nullptr;  ///< of tensor t in layout l: [t * layouts + l]
};

/// Where the value of a dim comes from.
enum class dim_source : std::uint8_t {
  tensor,    ///< the first tensor that has it
  formula,   ///< other dims and options
  contents,  ///< numbers stored in a tensor; not known for tensors in device memory
};

struct dim {
  std::string_view symbol;  ///< in shapes
  std::string_view label;   ///< in sentences
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  dim_source source = dim_source::tensor;
  /// Formula: the dim it follows from, whose tensor is named in sentences.
  literal of{};
  /// Formula, and contents other than the longest of some offsets. Dims before it are known.
  std::int64_t (*value)(const bound_call&) = nullptr;
  literal owner{};  ///< contents and formulas: who has it, in sentences
  /// Where only a product has the dim: the integer option that says it, and where that is in the
  /// options. Formula: what follows from options alone, and the one of them that sentences name.
  literal option{};
  std::uint16_t option_offset = 0;
};

enum class tensor_use : std::uint8_t { input, output, input_and_output };

/// What the elements of a tensor are, beyond numbers: of one of integers, but for `positive`.
/// Looked at in host memory only.
enum class tensor_contents : std::uint8_t {
  values,
  offsets,          ///< start at 0, never decrease, end inside dim `counts`
  lengths,          ///< 0 to dim `counts`
  page_numbers,     ///< 0 to dim `counts` - 1, as far as the lengths in `used_by` reach
  group_sizes,      ///< at least 0, together at most dim `counts`
  indices,          ///< 0 to dim `counts` - 1
  indices_or_none,  ///< the same, of a tensor of any rank, or -1
  /// Where the states of sequences are: 0 to dim `counts` - 1, each once, of the sequences to which
  /// the offsets in `used_by` give tokens. Without offsets of all.
  slots,
  /// The last number, 0 to dim `counts`, says how many entries of lists of that dim are looked at.
  count,
  groups,  ///< offsets of entries of dim `counts` that are in a group: decide nothing that is read
  /// Pages, at most dim `counts`, that the sequences of a group of `used_by` have in common:
  /// entries of the page numbers in `apart`, before those of the rows that the offsets in `covers`
  /// give the sequences (without offsets one row each).
  shared_pages,
  positive,  ///< a list in f32, each above 0 and finite; no dim counts them
};

/// What a person writes of a tensor.
struct tensor_text {
  std::string_view name;
  std::array<std::string_view, max_layouts> shapes{};  ///< one per layout
  dtype_set types{};
  std::string_view like{};  ///< or the type of that tensor
  tensor_use use = tensor_use::input;
  bool contiguous_rows = false;  ///< stride 1 on the last axis
  bool aligned_rows = false;     ///< kernels of GPUs want rows at multiples of 16 bytes
  tensor_contents holds = tensor_contents::values;
  std::string_view counts{};   ///< the dim that contents lie in
  std::string_view longest{};  ///< offsets: the dim that becomes the longest of them
  /// Page numbers: the tensor of lengths that says how many are used. Slots: that of the offsets.
  /// Shared pages: that of the groups.
  std::string_view used_by{};
  std::string_view page{};  ///< page numbers: the dim of tokens in a page
  /// Lengths: the offsets of rows that are the last tokens of the sequences, and are written: no
  /// sequence has more, and the pages of what is written are its own.
  std::string_view covers{};
  /// Indices: those of another tensor; each of these is there once, and not among them. Shared
  /// pages: the page numbers.
  std::string_view apart{};
  std::string_view shares{};  ///< an output that may lie in the memory of that tensor
  std::string_view
      gradient_of{};  ///< of the shape and, if both are given, of the type of that tensor
  std::string_view elsewhere{};  ///< said where the layout has no such tensor: "is given ..."
  std::string_view shape_of{};   ///< problem text may leave it out if it has that tensor's shape
  /// No choice depends on whether it is given: a planned run may have it or not.
  bool free = false;
  /// Its name in files, where that is an input's: what is computed where the input is absent.
  std::string_view file_name{};
};

/// The same, read.
struct tensor_form {
  std::string_view name;
  dtype_set types{};
  tensor_use use = tensor_use::input;
  bool contiguous_rows = false, aligned_rows = false, free = false;
  tensor_contents holds = tensor_contents::values;
  std::int8_t like = -1, counts = -1, longest = -1, used_by = -1, page = -1, covers = -1,
              apart = -1, shares = -1;
  std::int8_t gradient_of = -1, shape_of = -1;
  std::uint16_t late_layouts = 0;  ///< in which some axis is known from contents only
  literal elsewhere{}, file_name{};

  /// What files call it.
  constexpr std::string_view name_in_files() const noexcept {
    return file_name.empty() ? name : file_name.view();
  }
  constexpr bool is_output() const noexcept { return use != tensor_use::input; }
};

/// The type of an option's member, and how its text is read.
enum class option_type : std::uint8_t {
  flag,              ///< bool
  integer,           ///< std::int64_t
  natural,           ///< std::uint64_t
  number,            ///< double
  optional_integer,  ///< std::optional<std::int64_t>
  optional_number,   ///< std::optional<double>
  choice,            ///< an enumeration of 8 bits whose enumerators count from 0
};

/// What values an option may have.
enum class option_limit : std::uint8_t {
  none,
  at_least,        ///< `least`
  finite_float,    ///< finite when rounded to float
  positive_float,  ///< the same, and above 0
  probability,     ///< at least 0 and below 1
};

struct option_form {
  std::string_view name;
  std::uint16_t offset = 0;  ///< in the options struct
  option_type type = option_type::flag;
  option_limit limit = option_limit::none;
  std::int64_t least = 0;
  literal unset{};  ///< what an optional one means when it is not set
  std::span<const std::string_view> enumerators{};  ///< of a choice
  bool free = false;                                ///< no choice of a row depends on it
  bool required = false;                            ///< of an optional one: must be set
};

/// A tensor that may be given only where a condition holds.
struct tensor_rule {
  std::int8_t tensor = 0;
  bool (*holds)(const bound_call&) = nullptr;
  std::string_view sentence;  ///< behind the tensor's name: "is given, normalize is true; ..."
};

/// Dim `of` is a multiple of dim `by`.
struct multiple_rule {
  std::int8_t of = 0, by = 0;
};

/// What operations with the same args and options share.
struct signature {
  std::span<const tensor_form> tensors{};  ///< in the order of the args' members
  shape_list shapes{};
  std::span<const dim> dims{};
  std::span<const std::string_view> layouts{};  ///< "dense", "packed"
  std::span<const option_form> options{};
  const void* default_options = nullptr;
  /// What files may say beside the options, and nothing looks at.
  std::span<const std::string_view> remarks{};
  std::span<const tensor_rule> rules{};
  std::span<const multiple_rule> multiples{};
  /// The layout of a call whose `present` is known; writes nothing else.
  int (*layout_of)(const bound_call&) = nullptr;
  /// What fits no table; runs last of the checks without memory. False: `failure` is set.
  bool (*hook)(const bound_call&, status& failure) = nullptr;
  std::size_t options_bytes = 0;
  /// Everything that a choice may depend on; the tensors have been checked.
  void (*demand_of)(const problem_view&, demand& to) = nullptr;
  /// How many tensors and options the structs of the C interface had in its first release, where
  /// more have come behind them since; 0: all.
  std::uint8_t first_tensors = 0, first_options = 0;

  constexpr const shape_form& shape(std::size_t tensor, int layout) const noexcept {
    const std::size_t entry = tensor * layouts.size() + static_cast<std::size_t>(layout);
    return shapes.different[shapes.numbers[entry]];
  }
  constexpr std::string_view label_of(const axis_form& axis) const noexcept {
    if (axis.label != axis_label::of_dim) return axis_labels[static_cast<std::size_t>(axis.label)];
    return axis.dim < 0 ? "extent" : dims[static_cast<std::size_t>(axis.dim)].label;
  }
};

/// An operation: the tensors of a signature that it takes, in the order they are looked at.
struct operation {
  std::string_view name;
  std::array<literal, 2> aliases{};  ///< what else it is called; may be empty
  const signature* form = nullptr;
  const lowering* how = nullptr;  ///< to the args of the family's kernels
  int place = 0;                  ///< among those of its signature: the value of its enumerator
  int number = 0;                 ///< its place in the family
  std::array<std::uint8_t, max_tensors> order{};
  std::uint8_t tensor_count = 0;
  std::uint32_t taken = 0;     ///< bits of the tensors
  std::uint32_t required = 0;  ///< of those that must be given, where the layout has them
  std::uint32_t excluded = 0;  ///< bits of the options that must keep their defaults
  std::uint32_t fields = 0;    ///< bits of the tensors that the text of a problem has

  /// Whether the word is its name or one of its aliases.
  constexpr bool is_called(std::string_view word) const noexcept {
    if (word == name) return true;
    for (const literal alias : aliases) {
      if (!alias.empty() && word == alias.view()) return true;
    }
    return false;
  }
};

/// A call: its tensors and options, and what the checks find out about them.
struct bound_call {
  const operation* op = nullptr;
  const tensor_view* tensors = nullptr;  ///< the args, a view per tensor of the signature
  const void* options = nullptr;
  std::uint32_t present = 0;
  int layout = 0;
  std::array<std::int64_t, max_dims> dims{};
  std::array<std::int8_t, max_dims> owners{};  ///< tensor a dim is from; negative: not known
  /// Some axis is a formula of dims that were not known yet when its tensor was looked at.
  bool has_unsettled_axes = false;

  bool has(std::size_t tensor) const noexcept { return (present >> tensor & 1u) != 0; }
  const signature& form() const noexcept { return *op->form; }
  template <class Options>
  const Options& options_as() const noexcept {
    return *static_cast<const Options*>(options);
  }
};

}  // namespace tessera
