// The rows of this build as the chain sees them, family by family.
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/families/attention_backward/reflect.hpp>
#include <tessera/families/attention_backward/registry.hpp>
#include <tessera/families/attention_backward/rules.hpp>
#include <tessera/families/chunked_scan/reflect.hpp>
#include <tessera/families/chunked_scan/registry.hpp>
#include <tessera/families/chunked_scan/rules.hpp>
#include <tessera/families/delta_rule/reflect.hpp>
#include <tessera/families/delta_rule/registry.hpp>
#include <tessera/families/delta_rule/rules.hpp>
#include <tessera/families/grouped_matmul/reflect.hpp>
#include <tessera/families/grouped_matmul/registry.hpp>
#include <tessera/families/grouped_matmul/rules.hpp>
#include <tessera/families/kv_cache/reflect.hpp>
#include <tessera/families/kv_cache/registry.hpp>
#include <tessera/families/kv_cache/rules.hpp>
#include <tessera/families/latent_attention/reflect.hpp>
#include <tessera/families/latent_attention/registry.hpp>
#include <tessera/families/latent_attention/rules.hpp>
#include <tessera/families/losses/reflect.hpp>
#include <tessera/families/losses/registry.hpp>
#include <tessera/families/losses/rules.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/families/quantized/reflect.hpp>
#include <tessera/families/quantized/registry.hpp>
#include <tessera/families/quantized/rules.hpp>
#include <tessera/families/selective_scan/reflect.hpp>
#include <tessera/families/selective_scan/registry.hpp>
#include <tessera/families/selective_scan/rules.hpp>
#include <tessera/families/sparse_attention/reflect.hpp>
#include <tessera/families/sparse_attention/registry.hpp>
#include <tessera/families/sparse_attention/rules.hpp>
#include <tessera/lookup/table.hpp>
#include <tessera/runtime/family.hpp>

#include "default_table.hpp"
#include "measured.hpp"
#include "tests/support/gpu_facts.hpp"

namespace tessera::testing {
namespace {

/// Calls visit with `member` set to other values of its kind (an enumerator, a number, a set of
/// features), and puts it back.
template <class Member, class Visitor>
void with_other_values(Member& member, const Visitor& visit) {
  const Member before = member;
  const auto trial = [&](Member value) {
    member = value;
    if (!(value == before)) visit();
  };
  if constexpr (described_enum<Member>) {
    for_each_enumerator<Member>([&](std::string_view, Member value) { trial(value); });
  } else if constexpr (std::is_integral_v<Member>) {
    for (const int value : {0, 1, 2, 4, 8, 16, 32, 48, 56, 64, 96, 112, 128, 160, 224, 256, 512}) {
      trial(static_cast<Member>(value));
    }
  } else if constexpr (std::is_same_v<Member, cuda_tiling>) {
    for_each_member(member, [&](std::string_view, auto& part) { with_other_values(part, visit); });
  } else {
    for_each_enumerator<attention_feature>([&](std::string_view, attention_feature feature) {
      const auto bit = static_cast<decltype(before.bits)>(feature);
      trial({static_cast<decltype(before.bits)>(before.bits ^ bit)});
    });
  }
  member = before;
}

/// Names of rows spell their configs, and every field of the configs changes the name of some row.
template <class Config>
void expect_fields_change_names(std::span<const instance> rows) {
  std::set<std::string_view> varied;
  for (const instance& row : rows) {
    const std::string name(row.name);
    const Config& before = row.config_as<Config>();
    ASSERT_EQ(name_of(before).view(), name);
    const std::optional<Config> spelled = spelling_of<Config>.config_of(name);
    ASSERT_TRUE(spelled) << name;
    EXPECT_TRUE(resolved(*spelled) == before) << name;
    Config config = before;
    for_each_member(config, [&](std::string_view field, auto& member) {
      with_other_values(member, [&] {
        Config other = config;
        if constexpr (requires { other.block_q, other.block_kv; }) {
          // Another value may come with other tiles.
          const bool of_tiles = field.starts_with("block");
          if (!of_tiles && !is_legal_in_table(other)) {
            other.block_q = other.block_kv = 0;
            other = resolved(other);
          }
        }
        if (!is_legal_in_table(other) || resolved(other) == before) return;
        varied.insert(field);
        EXPECT_NE(name_of(other).view(), name) << field;
      });
    });
  }
  // A build without rows for GPUs lacks those that vary fields of theirs alone: two at most.
  const bool lacks_gpus =
      std::ranges::none_of(rows, [](const instance& row) { return is_cuda(row.target); });
  const std::size_t of_gpus = lacks_gpus ? 2 : 0;
  EXPECT_GE(varied.size() + 1 + of_gpus, member_count<Config>)
      << "a field that no legal row may vary is not tunable";
}

TEST(Properties, EveryTunableFieldChangesTheInstanceName) {
  for (const family* kind : families()) {
    SCOPED_TRACE(kind->name);
    if (kind == &attention_record) {  // with the rows that this build may lack
      expect_fields_change_names<attention_config>(default_table());
    } else if (kind == &mean_pooling_record) {
      expect_fields_change_names<mean_pooling_config>(kind->rows());
    } else if (kind == &attention_backward_record) {
      expect_fields_change_names<attention_backward_config>(kind->rows());
    } else if (kind == &kv_cache_record) {
      expect_fields_change_names<kv_cache_config>(kind->rows());
    } else if (kind == &chunked_scan_record) {
      expect_fields_change_names<chunked_scan_config>(kind->rows());
    } else if (kind == &delta_rule_record) {
      expect_fields_change_names<delta_rule_config>(kind->rows());
    } else if (kind == &selective_scan_record) {
      expect_fields_change_names<selective_scan_config>(kind->rows());
    } else if (kind == &latent_attention_record) {
      expect_fields_change_names<latent_attention_config>(kind->rows());
    } else if (kind == &quantized_record) {
      expect_fields_change_names<quantized_config>(kind->rows());
    } else if (kind == &sparse_attention_record) {
      expect_fields_change_names<sparse_attention_config>(kind->rows());
    } else if (kind == &grouped_matmul_record) {
      expect_fields_change_names<grouped_matmul_config>(kind->rows());
    } else if (kind == &losses_record) {
      expect_fields_change_names<losses_config>(kind->rows());
    } else {
      ADD_FAILURE() << "has configs that this test does not know";
    }
  }
}

TEST(Properties, EveryInstanceIsReachableByOverride) {
  for (const instance& row : default_table()) {
    const attention_config& config = row.config_as<attention_config>();
    // Of the others tests/op/rows.cpp asks for each by name.
    if (config.keys != key_storage::contiguous) continue;
    const auto text = [](int dim, int other) { return std::to_string(dim != 0 ? dim : other); };
    const std::string type(name_of(config.type));
    question question("flash_attention q=[1,16,4," + text(config.head_dim, 40) + "]" + type +
                      " k=[1,16,4," + text(config.head_dim, 40) + "] v=[1,16,4," +
                      text(config.v_head_dim, 40) + "]");
    if (is_cuda(config.target)) question.device = support::h200();
    if (has_tile_products(config.target)) question.device.highest = config.target;
    inquiry asked = question.asked();
    asked.instances = default_table();
    asked.row_of_call = row.name;
    const auto chosen = select(asked);
    ASSERT_TRUE(chosen) << chosen.message();
    EXPECT_EQ(chosen->instance, &row);
  }
}

/// "a=1 b=c" -> the value of a name; empty if it is not there.
std::string value_in(std::string_view text, std::string_view name) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view pair = text.substr(at, end - at);
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) {
      return std::string(pair.substr(name.size() + 1));
    }
    at = end + 1;
  }
  return {};
}

/// A demand whose key is that of the line, of the sizes at the top of its buckets.
attention_demand demand_of_line(const lookup_record& line) {
  const auto number = [&](std::string_view text, std::string_view name) {
    return std::stoll("0" + value_in(text, name));
  };
  attention_demand demand;
  demand.type = *enumerator_named<dtype>(value_in(line.identity, "type"));
  demand.mask = *enumerator_named<mask_mode>(value_in(line.identity, "mask"));
  demand.causal = demand.mask != mask_mode::full;
  const std::string features = "+" + value_in(line.identity, "features") + "+";
  for (std::size_t i = 0; i < all_attention_features.size(); ++i) {
    const std::string word = "+" + std::string(attention_feature_names[i]) + "+";
    if (features.find(word) != std::string::npos) {
      demand.features = demand.features | all_attention_features[i];
    }
  }
  const std::int64_t window = number(line.size, "window");
  if (window > 0) demand.window_left = window - 1;
  demand.page_size = number(line.identity, "page_size");
  const std::string pool = value_in(line.identity, "pool_type");
  if (!pool.empty()) demand.pool_type = *enumerator_named<dtype>(pool);
  demand.sizes.head_dim = static_cast<int>(number(line.identity, "head_dim"));
  demand.sizes.v_head_dim = static_cast<int>(number(line.identity, "v_head_dim"));
  demand.sizes.q_len = number(line.size, "q_len");
  demand.sizes.kv_len = number(line.size, "kv_len");
  demand.sizes.batch = number(line.size, "batch_heads");
  demand.sizes.kv_heads = 1;
  demand.sizes.q_heads = number(line.identity, "group");
  return demand;
}

TEST(Properties, EveryShippedRowIsReachableAndNamesAnExistingInstance) {
  const lookup_text shipped = parse_table(shipped_lookup());
  EXPECT_EQ(shipped.damaged + shipped.newer, 0);
  for (const lookup_record& line : shipped.records) {
    bool known = false;
    device_kind device = device_kind::cpu;
    for (const family* kind : families()) {
      if (line.family != kind->name) continue;
      for (const instance& row : kind->rows()) {
        if (row.name != line.row) continue;
        known = true;
        device = kind_of(row.target);
        EXPECT_EQ(line.code_version, kind->code_version(kind_of(row.target))) << line.row;
      }
    }
    EXPECT_TRUE(known) << line_of(line);
    if (line.family != attention_family::name) continue;
    const attention_demand demand = demand_of_line(line);
    const int threads = std::stoi("0" + value_in(line.size, "threads"));
    const key_text key = attention_key_text(demand, threads, device);
    EXPECT_EQ(key.identity.view(), line.identity);
    EXPECT_EQ(key.size.view(), line.size);
    for (const instance& row : attention_registry()) {
      if (row.name == line.row) {
        EXPECT_TRUE(attention_record.runs(row.config, tessera::demand(demand))) << line_of(line);
      }
    }
  }
}

TEST(Keys, OfLinesLeadBackToDemands) {
  const question question(
      "flash_attention q=[2,1,32,64]bf16 k=[2,5000,8,64] causal=true window_left=127 "
      "sinks=[32,1]f32 logits_soft_cap=3");
  const lookup_record line = line_for(question, "row");
  const key_text key = attention_key_text(demand_of_line(line), 8, device_kind::cpu);
  EXPECT_EQ(key.identity.view(), line.identity);
  EXPECT_EQ(key.size.view(), line.size);

  attention_demand in_pages = demand_of_line(line);
  in_pages.page_size = 16;
  in_pages.pool_type = dtype::f8_e4m3;
  const key_text pages = attention_key_text(in_pages, 132, device_kind::cuda);
  lookup_record of_gpu;
  of_gpu.identity = pages.identity.view();
  of_gpu.size = pages.size.view();
  const key_text again = attention_key_text(demand_of_line(of_gpu), 0, device_kind::cuda);
  EXPECT_EQ(again.identity.view(), of_gpu.identity);
  EXPECT_EQ(again.size.view(), of_gpu.size) << "multiprocessors are of the device, not of the key";
}

TEST(Families, HaveNamesAndOperationsOfTheirOwn) {
  std::set<std::string_view> names;
  std::set<std::string_view> ops;
  for (const family* kind : families()) {
    EXPECT_TRUE(names.insert(kind->name).second);
    for (std::size_t number = 0; number < kind->operations.size(); ++number) {
      const operation& op = kind->operations[number];
      EXPECT_TRUE(ops.insert(op.name).second) << op.name;
      EXPECT_EQ(op.number, static_cast<int>(number)) << op.name;
      EXPECT_EQ(operation_named(op.name).op, &op);
      for (const std::string_view alias : op.aliases) {
        if (alias.empty()) continue;
        EXPECT_TRUE(ops.insert(alias).second) << alias;
        EXPECT_EQ(operation_named(alias).op, &op) << alias;
      }
      EXPECT_EQ(operation_named(op.name).kind, kind);
    }
    for (const instance& row : kind->rows()) {
      EXPECT_TRUE(row.name.starts_with(kind->name)) << row.name;
      EXPECT_EQ(row.family, kind->name) << row.name;
      EXPECT_EQ(kind->code_version(kind_of(row.target)).size(), 16u) << row.name;
    }
  }
  EXPECT_EQ(operation_named("no_such_operation").op, nullptr);
}

}  // namespace
}  // namespace tessera::testing
