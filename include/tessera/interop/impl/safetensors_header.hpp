// The JSON header of a safetensors file, both ways. The text is parsed without a document tree, so
// that a key given twice is seen and memory stays proportional to the tensors found.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/error.hpp>

#include <tessera/interop/safetensors.hpp>

namespace tessera::safetensors {

/// An element type of the format.
struct file_type {
  std::string_view name;
  dtype type = dtype::none;
  bool boolean = false;
};

inline constexpr std::array file_types{
    file_type{"F64", dtype::f64},         file_type{"F32", dtype::f32},
    file_type{"F16", dtype::f16},         file_type{"BF16", dtype::bf16},
    file_type{"I64", dtype::i64},         file_type{"I32", dtype::i32},
    file_type{"U32", dtype::u32},         file_type{"U8", dtype::u8},
    file_type{"BOOL", dtype::u8, true},   file_type{"F8_E4M3", dtype::f8_e4m3},
    file_type{"F8_E5M2", dtype::f8_e5m2}, file_type{"I8", dtype::i8}};

/// One tensor as the header describes it; offsets count from the end of the header.
struct header_tensor {
  std::string name;
  file_type type{};
  int rank = 0;
  std::array<std::int64_t, max_rank> extent{};
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct header {
  std::vector<header_tensor> tensors;  // in the order of the text
  safetensors_metadata metadata;
};

/// A name as messages show it: in quotes, at most 60 bytes, without control characters.
inline std::string shown(std::string_view name) {
  constexpr std::size_t longest = 60;
  std::size_t size = std::min(name.size(), longest);
  while (size < name.size() && size > 0 &&
         (static_cast<unsigned char>(name[size]) & 0xc0u) == 0x80) {
    --size;  // not in the middle of a character
  }
  std::string text = "\"";
  for (const char letter : name.substr(0, size)) {
    text += static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f ? '?' : letter;
  }
  if (size < name.size()) text += "...";
  return text += '"';
}

/// "[2,3] F32".
inline std::string shape_text(const header_tensor& tensor) {
  std::string text = "[";
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (axis > 0) text += ',';
    text += std::to_string(tensor.extent[static_cast<std::size_t>(axis)]);
  }
  return text.append("] ").append(tensor.type.name);
}

/// Bytes of a tensor, or nothing where the sizes cannot be counted in 63 bits. Axes of extent 0
/// count as 1 for that test: strides and element counts are products over the other axes.
inline std::optional<std::uint64_t> bytes_of(std::span<const std::int64_t> extent,
                                             std::size_t element_bytes) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t product = element_bytes;
  bool empty = false;
  for (const std::int64_t size : extent) {
    empty = empty || size == 0;
    const auto factor = static_cast<std::uint64_t>(std::max<std::int64_t>(size, 1));
    if (product > limit / factor) return std::nullopt;
    product *= factor;
  }
  return empty ? 0 : product;
}

/// Receives the parser's events and fills a header; the first fact that is wrong ends the parse.
class header_handler {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using error_code = boost::json::error_code;
  using string_view = boost::json::string_view;

  header found;
  std::string failure;  ///< what is wrong; empty where the text is not JSON at all

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code& ec);
  bool on_object_end(std::size_t, error_code& ec);
  bool on_array_begin(error_code& ec);
  bool on_array_end(std::size_t count, error_code& ec);
  bool on_key_part(string_view part, std::size_t, error_code&) { return append(part); }
  bool on_key(string_view part, std::size_t, error_code& ec);
  bool on_string_part(string_view part, std::size_t, error_code&) { return append(part); }
  bool on_string(string_view part, std::size_t, error_code& ec);
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(std::int64_t value, string_view, error_code& ec);
  bool on_uint64(std::uint64_t value, string_view, error_code& ec);
  bool on_double(double, string_view, error_code& ec) { return unexpected("a fraction", ec); }
  bool on_bool(bool, error_code& ec) { return unexpected("true or false", ec); }
  bool on_null(error_code& ec) { return unexpected("null", ec); }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }

 private:
  enum class place { document, root, metadata, tensor, shape, offsets };
  enum field : unsigned { no_field = 0, dtype_field = 1, shape_field = 2, offsets_field = 4 };

  bool append(string_view part) {
    text_.append(part.data(), part.size());
    return true;
  }
  /// Ends the parse with a sentence about the tensor or key at hand.
  bool refuse(std::string fact, error_code& ec) {
    failure = where() + std::move(fact);
    ec = boost::json::error::syntax;
    return false;
  }
  bool unexpected(std::string_view what, error_code& ec);
  bool tensor_field(std::string_view name, error_code& ec);
  bool number(std::uint64_t value, error_code& ec);
  std::string where() const;
  header_tensor& tensor() { return found.tensors.back(); }

  place place_ = place::document;
  std::string text_;  // the key or string that is being read
  std::string key_;   // the last key of the object at hand
  std::set<std::string, std::less<>> names_;
  unsigned fields_ = no_field;  // those the tensor has
  field field_ = no_field;      // the one whose value comes next
  std::size_t numbers_ = 0;     // read of data_offsets
};

/// Parses `text`; refusals begin with `source`.
inline result<header> parse_header(std::string_view text, std::string_view source) {
  const auto refuse = [&](std::string_view fact) {
    return status(status_code::malformed, std::string(source).append(": ").append(fact));
  };
  if (text.empty() || text.front() != '{') {
    return refuse("the header of " + std::to_string(text.size()) + " bytes does not begin with {");
  }
  boost::json::parse_options options;
  options.max_depth = 8;  // the format has 3; the handler names what is wrong before this does
  boost::json::basic_parser<header_handler> parser(options);
  boost::json::error_code ec;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), ec);
  if (!parser.handler().failure.empty()) return refuse(parser.handler().failure);
  if (!ec && used < text.size()) ec = boost::json::error::extra_data;
  if (ec) {
    return refuse("the header is not JSON at byte " + std::to_string(used) + " of " +
                  std::to_string(text.size()) + " (" + ec.message() + ")");
  }
  return std::move(parser.handler().found);
}

inline std::string header_handler::where() const {
  const bool in_tensor = place_ >= place::tensor;
  if (in_tensor) return "tensor " + shown(found.tensors.back().name) + ": ";
  if (place_ == place::metadata) return "__metadata__: ";
  return "header: ";
}

inline bool header_handler::unexpected(std::string_view what, error_code& ec) {
  switch (place_) {
    case place::document:
      return refuse(std::string("is ").append(what).append(", not an object"), ec);
    case place::root:
      return refuse(shown(key_).append(" is ").append(what).append(", not an object"), ec);
    case place::metadata:
      return refuse(shown(key_).append(" is ").append(what).append(", not a text"), ec);
    case place::tensor:
      return refuse(key_ + " is " + std::string(what) +
                        (field_ == dtype_field ? ", not a text" : ", not a list"),
                    ec);
    case place::shape:
    case place::offsets:
      return refuse(key_ + " holds " + std::string(what) + ", not a whole number of at least 0",
                    ec);
  }
  return false;
}

inline bool header_handler::on_object_begin(error_code& ec) {
  if (place_ == place::document) {
    place_ = place::root;
    return true;
  }
  if (place_ != place::root) return unexpected("an object", ec);
  if (key_ == "__metadata__") {
    place_ = place::metadata;
    return true;
  }
  found.tensors.emplace_back().name = key_;
  fields_ = no_field;
  place_ = place::tensor;
  return true;
}

inline bool header_handler::on_object_end(std::size_t, error_code& ec) {
  if (place_ == place::tensor) {
    for (const auto& [one, name] : {std::pair{dtype_field, "dtype"},
                                    {shape_field, "shape"},
                                    {offsets_field, "data_offsets"}}) {
      if ((fields_ & one) == 0) return refuse(std::string("has no ") + name, ec);
    }
  }
  place_ = place_ == place::root ? place::document : place::root;
  return true;
}

inline bool header_handler::on_array_begin(error_code& ec) {
  if (place_ != place::tensor || field_ == dtype_field) return unexpected("a list", ec);
  place_ = field_ == shape_field ? place::shape : place::offsets;
  numbers_ = 0;
  return true;
}

inline bool header_handler::on_array_end(std::size_t count, error_code& ec) {
  if (place_ == place::offsets && count != 2) {
    return refuse("data_offsets has " + std::to_string(count) + " numbers, not 2", ec);
  }
  place_ = place::tensor;
  return true;
}

inline bool header_handler::on_key(string_view part, std::size_t, error_code& ec) {
  append(part);
  key_ = std::exchange(text_, {});
  if (place_ == place::tensor) return tensor_field(key_, ec);
  const bool first = place_ == place::metadata ? found.metadata.try_emplace(key_).second
                                               : names_.insert(key_).second;
  return first || refuse(shown(key_) + " is there twice", ec);
}

inline bool header_handler::tensor_field(std::string_view name, error_code& ec) {
  field_ = name == "dtype"          ? dtype_field
           : name == "shape"        ? shape_field
           : name == "data_offsets" ? offsets_field
                                    : no_field;
  if (field_ == no_field) {
    return refuse("has a field " + shown(name) + "; fields are dtype, shape and data_offsets", ec);
  }
  if ((fields_ & field_) != 0) return refuse(std::string(name) + " is there twice", ec);
  fields_ |= field_;
  return true;
}

inline bool header_handler::on_string(string_view part, std::size_t, error_code& ec) {
  append(part);
  const std::string value = std::exchange(text_, {});
  if (place_ == place::metadata) {
    found.metadata[key_] = value;
    return true;
  }
  if (place_ != place::tensor || field_ != dtype_field) return unexpected("a text", ec);
  const auto known = std::find_if(file_types.begin(), file_types.end(),
                                  [&](const file_type& type) { return type.name == value; });
  if (known == file_types.end()) {
    std::string list;
    for (const file_type& type : file_types)
      list.append(list.empty() ? "" : ", ").append(type.name);
    return refuse("dtype is " + shown(value) + "; it can be " + list, ec);
  }
  tensor().type = *known;
  return true;
}

inline bool header_handler::on_int64(std::int64_t value, string_view, error_code& ec) {
  if (value < 0) return unexpected(std::to_string(value), ec);
  return number(static_cast<std::uint64_t>(value), ec);
}

inline bool header_handler::on_uint64(std::uint64_t value, string_view, error_code& ec) {
  return number(value, ec);
}

inline bool header_handler::number(std::uint64_t value, error_code& ec) {
  if (place_ == place::offsets) {
    if (numbers_ < 2) (numbers_ == 0 ? tensor().begin : tensor().end) = value;
    ++numbers_;
    return true;
  }
  if (place_ != place::shape) return unexpected(std::to_string(value), ec);
  if (tensor().rank == max_rank) {
    return refuse("rank is more than " + std::to_string(max_rank) + ", the most a view has", ec);
  }
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return refuse("shape holds " + std::to_string(value) + ", the most is " +
                      std::to_string(std::numeric_limits<std::int64_t>::max()),
                  ec);
  }
  tensor().extent[static_cast<std::size_t>(tensor().rank++)] = static_cast<std::int64_t>(value);
  return true;
}

}  // namespace tessera::safetensors
