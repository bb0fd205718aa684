// The interfaces of families.hpp over the declarations of operations. What does not follow from a
// declaration a family says in words (`family_words`), one file each.
#pragma once

#include <span>
#include <string>
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
  int (*shared_bytes)(const void* config) = nullptr;
  /// What the rows of a listing have in common; may be empty.
  std::string (*remark)(std::span<const listed_row> rows) = nullptr;
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

/// The words of every family of this version.
extern const family_words attention_words, mean_pooling_words, attention_backward_words,
    kv_cache_words, chunked_scan_words, delta_rule_words, selective_scan_words,
    latent_attention_words, quantized_words, sparse_attention_words, grouped_matmul_words,
    losses_words;

/// A call of an operation, read from a file.
std::unique_ptr<file_call> open_declared(const tessera::family& kind, const operation& op,
                                         std::string path, safetensors_file file);

}  // namespace tessera::tool
