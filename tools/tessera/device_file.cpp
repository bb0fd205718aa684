#include "device_file.hpp"

#include <algorithm>
#include <type_traits>

#include <boost/describe/class.hpp>
#include <fmt/format.h>

#include <tessera/spec/reflect.hpp>

#include "failure.hpp"
#include "json.hpp"

namespace tessera {

BOOST_DESCRIBE_ENUM(tile_access, absent, not_saved, refused, granted)
BOOST_DESCRIBE_STRUCT(device_facts, (),
                      (kind, highest, sockets, physical_cores, hardware_threads, available_threads,
                       memory_nodes, l1d_bytes, l2_bytes, l3_bytes, l3_threads, bf16_dot_percent,
                       tiles, ordinal, compute_capability, multiprocessors, shared_bytes_per_block,
                       shared_bytes_per_multiprocessor, memory_bytes, core_clock_khz,
                       memory_clock_khz, memory_bus_bits, product))

namespace tool {
namespace {

namespace json = boost::json;

constexpr std::size_t max_facts_bytes = std::size_t{1} << 20;

template <class Value>
json::value json_of(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return json::string(enumerator_name(value));
  } else if constexpr (std::is_integral_v<Value>) {
    return value;
  } else {
    return json::string(value.data());
  }
}

[[noreturn]] void refuse(const std::string& path, std::string_view name, const json::value& value,
                         const std::string& wanted) {
  throw failure(fmt::format("{}: {} is {}, must be {}", path, name, json_line(value), wanted));
}

template <class Value>
void read_into(Value& fact, const std::string& path, std::string_view name,
               const json::value& value) {
  if constexpr (std::is_enum_v<Value>) {
    const std::string text = value.is_string() ? std::string(value.get_string()) : std::string();
    const auto named = enumerator_named<Value>(text);
    if (!named) refuse(path, name, value, "one of " + enumerator_list<Value>());
    fact = *named;
  } else if constexpr (std::is_integral_v<Value>) {
    boost::system::error_code inexact;
    const auto number = value.is_number() ? value.to_number<Value>(inexact) : Value{-1};
    if (inexact || number < 0) refuse(path, name, value, "a whole number from 0");
    fact = number;
  } else {
    if (!value.is_string() || value.get_string().size() >= fact.size()) {
      refuse(path, name, value, fmt::format("a text of at most {} bytes", fact.size() - 1));
    }
    fact = {};
    std::copy(value.get_string().begin(), value.get_string().end(), fact.begin());
  }
}

}  // namespace

json::object to_json(const device_facts& facts) {
  json::object object;
  for_each_member(facts, [&](std::string_view name, const auto& fact) {
    object[json::string_view(name)] = json_of(fact);
  });
  return object;
}

json::object to_json(const bench::device_ceilings& limits) {
  return {{"fma_f32_gflops_per_second", limits.fma_f32_gflops},
          {"mma_bf16_gflops_per_second", limits.mma_bf16_gflops},
          {"mma_tf32_gflops_per_second", limits.mma_tf32_gflops},
          {"read_gigabytes_per_second", limits.read_gbytes},
          {"copy_gigabytes_per_second", limits.copy_gbytes},
          {"buffer_bytes", limits.buffer_bytes}};
}

device_facts read_device(const std::string& path) {
  const json::value document = parse_json(file_text(path, max_facts_bytes), path);
  const json::object* object = document.if_object();
  if (object != nullptr && object->contains("device")) object = object->at("device").if_object();
  if (object == nullptr) {
    throw failure(path +
                  ": is not a JSON object with the facts of a device, nor has one as its "
                  "member \"device\"");
  }
  device_facts facts;
  for (const json::key_value_pair& member : *object) {
    bool known = false;
    for_each_member(facts, [&](std::string_view name, auto& fact) {
      if (name != std::string_view(member.key())) return;
      known = true;
      read_into(fact, path, name, member.value());
    });
    if (!known) {
      throw failure(
          fmt::format("{}: \"{}\" is not a fact of a device, known are the {} that "
                      "`tessera doctor --json` prints",
                      path, std::string_view(member.key()), member_count<device_facts>));
    }
  }
  return facts;
}

}  // namespace tool
}  // namespace tessera
