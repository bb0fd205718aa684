#include "attention_call.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <type_traits>

#include <fmt/format.h>
#include <unistd.h>

#include <tessera/spec/flash_attention/reflect.hpp>

#include "command.hpp"
#include "json.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

constexpr std::array output_names{"out", "lse", "row_max", "weights", "dropout_mask"};

bool is_output(std::string_view name) {
  return std::find(output_names.begin(), output_names.end(), name) != output_names.end();
}

template <class Value>
inline constexpr bool is_optional = false;
template <class Value>
inline constexpr bool is_optional<std::optional<Value>> = true;

/// Reads `value` into an option's type; false if it is of another kind.
template <class Value>
bool read_into(Value& option, const json::value& value) {
  if constexpr (is_optional<Value>) {
    if (value.is_null()) {
      option.reset();
      return true;
    }
    typename Value::value_type inner{};
    if (!read_into(inner, value)) return false;
    option = inner;
    return true;
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (value.is_bool()) option = value.get_bool();
    return value.is_bool();
  } else if constexpr (std::is_enum_v<Value>) {
    if (!value.is_string()) return false;
    const auto named = enumerator_named<Value>(std::string_view(value.get_string()));
    if (named) option = *named;
    return named.has_value();
  } else {
    if (!value.is_number()) return false;
    boost::system::error_code inexact;
    const auto number = value.to_number<Value>(inexact);
    if (!inexact) option = number;
    return !inexact;
  }
}

template <class Value>
std::string kind_of(const Value&) {
  if constexpr (is_optional<Value>) {
    return "null or " + kind_of(typename Value::value_type{});
  } else if constexpr (std::is_same_v<Value, bool>) {
    return "true or false";
  } else if constexpr (std::is_enum_v<Value>) {
    return "one of " + enumerator_list<Value>();
  } else if constexpr (std::is_floating_point_v<Value>) {
    return "a number";
  } else {
    return std::is_signed_v<Value> ? "a whole number of 64 bits"
                                   : "a whole number from 0 to 18446744073709551615";
  }
}

template <class Value>
json::value json_of(const Value& option) {
  if constexpr (is_optional<Value>) {
    return option ? json_of(*option) : json::value(nullptr);
  } else if constexpr (std::is_enum_v<Value>) {
    return json::value(json::string_view(enumerator_name(option)));
  } else {
    return json::value(option);
  }
}

/// "q, k, v, ..." of inputs, or of options.
template <class Described>
std::string member_list() {
  std::string list;
  const Described object{};
  for_each_member(object, [&](std::string_view name, const auto&) {
    if (is_output(name)) return;
    if (!list.empty()) list += ", ";
    list += name;
  });
  return list;
}

}  // namespace

flash_op op_named(std::string_view name, const std::string& subject) {
  const auto op = enumerator_named<flash_op>(name);
  if (!op) {
    throw failure(
        fmt::format("{}: \"{}\" is not an operation of this version, the {} there are: {}", subject,
                    name, 3, enumerator_list<flash_op>()));
  }
  return *op;
}

void set_option(flash_attention_options& options, std::string_view name, const json::value& value,
                const std::string& subject) {
  bool known = false;
  for_each_member(options, [&](std::string_view member, auto& option) {
    if (member != name) return;
    known = true;
    if (!read_into(option, value)) {
      throw failure(fmt::format("{}: option {} is {}, must be {}", subject, name, json_line(value),
                                kind_of(option)));
    }
  });
  if (!known) {
    throw failure(fmt::format("{}: \"{}\" is not an option, known are {}", subject, name,
                              member_list<flash_attention_options>()));
  }
}

void set_option(flash_attention_options& options, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    throw failure(fmt::format("--option: \"{}\" is not NAME=VALUE", assignment));
  }
  const std::string_view text = assignment.substr(equals + 1);
  json::value value;
  try {
    value = parse_json(text, "--option");
  } catch (const failure&) {
    value = json::string_view(text);  // a bare word, as in causal_alignment=top_left
  }
  set_option(options, assignment.substr(0, equals), value, "--option");
}

json::value to_json(const flash_attention_options& options) {
  json::object object;
  const flash_attention_options defaults{};
  for_each_member(options, [&](std::string_view name, const auto& option) {
    object[json::string_view(name)] = json_of(option);
  });
  for_each_member(defaults, [&](std::string_view name, const auto& option) {
    const json::string_view key(name);
    if (object[key] == json_of(option)) object.erase(key);
  });
  return object;
}

attention_call attention_call::open(const std::string& path, std::string_view op) {
  result<safetensors_file> file = safetensors_file::open(path);
  if (!file) throw failure(file.message());
  attention_call call(path, *std::move(file));
  const safetensors_metadata& metadata = call.file_.metadata();
  if (op.empty()) {
    const auto named = metadata.find("op");
    if (named == metadata.end()) {
      throw failure(
          fmt::format("{}: has no metadata key \"op\" ({} keys), which names the operation", path,
                      metadata.size()));
    }
    call.op_ = op_named(named->second, path + ": metadata key \"op\"");
  } else {
    call.op_ = op_named(op, "OP");
  }
  call.read_options();
  call.read_tensors();
  return call;
}

void attention_call::read_options() {
  const auto found = file_.metadata().find("options");
  if (found == file_.metadata().end()) return;
  const std::string subject = path_ + ": metadata key \"options\"";
  const json::value value = parse_json(found->second, subject);
  if (!value.is_object()) throw failure(subject + " is not a JSON object: " + json_line(value));
  for (const json::key_value_pair& option : value.get_object()) {
    set_option(options_, std::string_view(option.key()), option.value(), subject);
  }
}

void attention_call::read_tensors() {
  for (const safetensors_entry& entry : file_.entries()) {
    std::string_view name = entry.name;
    if (name.starts_with("out.") || name.starts_with("out2.") || name.starts_with("ref.")) continue;
    if (name.starts_with("in.")) name.remove_prefix(3);
    if (name == "d_out" || name == "d_lse" || name == "d_weights") continue;
    bool known = false;
    for_each_member(args_, [&](std::string_view member, tensor_view& view) {
      if (member != name || is_output(name)) return;
      known = true;
      if (view.present()) {
        throw failure(fmt::format("{}: tensor {} comes 2 times, as \"{}\" and as \"in.{}\"", path_,
                                  name, name, name));
      }
      view = entry.tensor;
    });
    if (!known) {
      throw failure(fmt::format("{}: tensor \"{}\" is not an argument of {}, known are {}", path_,
                                entry.name, name_of(op_), member_list<flash_attention_args>()));
    }
  }
  for (const auto& [name, view] : {std::pair{"q", &args_.q}, {"k", &args_.k}, {"v", &args_.v}}) {
    if (!view->present()) {
      throw failure(
          fmt::format("{}: tensor {} is missing ({} tensors in the file), {} needs q, k "
                      "and v",
                      path_, name, file_.entries().size(), name_of(op_)));
    }
  }
}

tensor_view attention_call::output(dtype type, std::initializer_list<std::int64_t> extent) {
  tensor_view view;
  view.type = type;
  view.rank = static_cast<std::int8_t>(extent.size());
  std::copy(extent.begin(), extent.end(), view.extent.begin());
  view.stride = contiguous_strides(view.extent, view.rank);
  const double bytes = std::accumulate(
      extent.begin(), extent.end(), static_cast<double>(size_of(type)),
      [](double product, std::int64_t size) { return product * static_cast<double>(size); });
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes > memory) {
    throw failure(fmt::format("{}: an output needs {:.3g} bytes, this machine has {:.3g}", path_,
                              bytes, memory));
  }
  memory_.emplace_back(static_cast<std::size_t>(bytes));
  std::memset(memory_.back().data(), 0xff, memory_.back().size());
  view.data = memory_.back().data();
  return view;
}

void attention_call::allocate_outputs() {
  memory_.clear();
  const auto& q = args_.q.extent;
  const auto& k = args_.k.extent;
  const auto& v = args_.v.extent;
  const bool packed = args_.q.rank == 3 && args_.v.rank == 3;
  if (!packed && (args_.q.rank != 4 || args_.k.rank != 4 || args_.v.rank != 4)) return;
  const dtype type = args_.q.type;
  if (packed) {
    args_.out = output(type, {q[0], q[1], v[2]});
    args_.lse = output(dtype::f32, {q[1], q[0]});
    if (!options_.normalize) args_.row_max = output(dtype::f32, {q[1], q[0]});
    return;
  }
  args_.out = output(type, {q[0], q[1], q[2], v[3]});
  args_.lse = output(dtype::f32, {q[0], q[2], q[1]});
  if (!options_.normalize) args_.row_max = output(dtype::f32, {q[0], q[2], q[1]});
  if (op_ == flash_op::attention) args_.weights = output(type, {q[0], q[2], q[1], k[1]});
  if (options_.dropout_probability > 0.0) {
    args_.dropout_mask = output(dtype::u8, {q[0], q[2], q[1], k[1]});
  }
}

std::vector<safetensors_entry> attention_call::outputs() const {
  std::vector<safetensors_entry> entries;
  for_each_member(args_, [&](std::string_view name, const tensor_view& view) {
    if (is_output(name) && view.present()) entries.push_back({fmt::format("out.{}", name), view});
  });
  return entries;
}

}  // namespace tessera::tool
