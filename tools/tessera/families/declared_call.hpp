// The interfaces of families.hpp over the declarations of operations. What does not follow from a
// declaration a family says in words (`family_words`).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <tessera/runtime/family.hpp>
#include <tessera/spec/reflect.hpp>

#include "../families.hpp"

namespace tessera::tool {

/// What a family says to the commands.
struct family_words {
  std::string_view name;
  /// Members of a row's config by name.
  boost::json::object (*config_of)(const void* config) = nullptr;
  /// CUDA rows: shared memory of a block, for the largest head dim they take.
  int (*shared_bytes)(const void* config) = [](const void*) { return 0; };
  /// What the rows of a listing have in common; may be empty.
  std::string (*remark)(std::span<const listed_row> rows) = [](std::span<const listed_row>) {
    return std::string();
  };
};

/// The members of a described config: numbers and enumerators, others by `json_of`.
template <class Config, class Other>
boost::json::object members_of(const Config& config, const Other& json_of) {
  boost::json::object members;
  for_each_member(config, [&](std::string_view name, const auto& value) {
    using value_type = std::remove_cvref_t<decltype(value)>;
    boost::json::value& member = members[boost::json::string_view(name)];
    if constexpr (described_enum<value_type>) {
      member = boost::json::string_view(enumerator_name(value));
    } else if constexpr (std::is_arithmetic_v<value_type>) {
      member = value;
    } else {
      member = json_of(value);
    }
  });
  return members;
}

/// The words of attention, which has more of them than others.
extern const family_words attention_words;

/// The words of a family; null for one that this version does not know.
const family_words* words_of(std::string_view family);

/// A call of an operation, read from a file.
std::unique_ptr<file_call> open_declared(const tessera::family& kind, const operation& op,
                                         std::string path, safetensors_file file);

}  // namespace tessera::tool
