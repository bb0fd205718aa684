// Attention, forward, in words for the commands.
#include <algorithm>

#include <tessera/families/attention/page_declaration.hpp>
#include <tessera/families/attention/reflect.hpp>
#include <tessera/spec/problem.hpp>

#include "bench/support/work.hpp"
#include "declared_call.hpp"
#include "tests/reference/dense_pages.hpp"

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

/// Pages count as the keys and values that they hold for the sequences.
call_work work_of(const problem_view& call) {
  if (call.op->form == &paged_table::form) {
    const auto& paged = *reinterpret_cast<const page_attention_args*>(call.tensors);
    const auto& options = *static_cast<const page_attention_options*>(call.options);
    const bench::work counted =
        bench::work_of(reference::dense_shapes(paged, options), reference::dense_options(options));
    return {counted.flops, counted.touched_bytes};
  }
  const bench::work counted =
      bench::work_of(*reinterpret_cast<const flash_attention_args*>(call.tensors),
                     *static_cast<const flash_attention_options*>(call.options));
  return {counted.flops, counted.bytes};
}

}  // namespace

const family_words attention_words{.name = "attention",
                                   .config_of = &config_of,
                                   .shared_bytes = &shared_bytes,
                                   .remark = &remark,
                                   .work_of = &work_of};

}  // namespace tessera::tool
