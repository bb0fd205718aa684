// Attention, forward, in words for the commands.
#include <algorithm>

#include <tessera/families/attention/reflect.hpp>

#include "declared_call.hpp"

namespace tessera::tool {
namespace {

namespace json = boost::json;

json::value json_of(attention_features features) {
  json::array list;
  for (const attention_feature feature : all_attention_features) {
    if (features.has(feature)) list.push_back(json::string(enumerator_name(feature)));
  }
  return list;
}

/// Nothing for CPU rows.
json::value json_of(const cuda_tiling& tiling) {
  if (tiling == cuda_tiling{}) return nullptr;
  return json::object{{"warps", tiling.warps},
                      {"blocks_per_sm", tiling.blocks_per_sm},
                      {"q_in_registers", tiling.q_in_registers}};
}

json::object config_of(const void* config) {
  return members_of(*static_cast<const attention_config*>(config),
                    [](const auto& value) { return json_of(value); });
}

int shared_bytes(const void* config) {
  return shared_memory_bytes(*static_cast<const attention_config*>(config));
}

/// What every row has, named once instead of in every line.
std::string remark(std::span<const listed_row> rows) {
  std::string list;
  for (const attention_feature feature : all_attention_features) {
    const json::value name(json::string_view(enumerator_name(feature)));
    const bool everywhere = std::ranges::all_of(rows, [&](const listed_row& row) {
      const json::array& features = row.config.at("features").as_array();
      return std::ranges::find(features, name) != features.end();
    });
    if (!everywhere) continue;
    if (!list.empty()) list += ", ";
    list += enumerator_name(feature);
  }
  return list.empty() ? "" : "every row has " + list + ".";
}

}  // namespace

const family_words attention_words{
    .name = "attention", .config_of = &config_of, .shared_bytes = &shared_bytes, .remark = &remark};

}  // namespace tessera::tool
