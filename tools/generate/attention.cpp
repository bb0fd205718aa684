// Attention, forward: from axes to rows.
#include "axes/attention.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/attention/family.hpp>
#include <tessera/families/attention/operations.hpp>

#include "axes/attention_cuda.hpp"
#include "axes/attention_paged.hpp"
#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct attention_description {
  using config_type = attention_config;
  using runtime_family = tessera::attention_family;
  using problems = std::tuple<flash_problem, page_problem, ragged_decode_problem, unified_problem,
                              ragged_page_problem, fp8_problem>;
  static constexpr std::array<std::string_view, 6> api_headers{
      "flash_attention",         "fp8_attention",         "page_attention",
      "ragged_decode_attention", "ragged_page_attention", "unified_attention"};

  static constexpr bool entry_functions = true;

  static std::vector<attention_axes> blocks() {
    std::vector<attention_axes> all = cpu_attention_axes();
    std::ranges::copy(cuda_attention_axes(), std::back_inserter(all));
    std::ranges::copy(paged_attention_axes(), std::back_inserter(all));
    return all;
  }
  static constexpr budget cpu_budget{.rows = 192, .seconds = 860, .bytes = 40 << 20};
  static constexpr budget cuda_budget{
      .rows = 119, .seconds = 888, .bytes = 64 << 20, .unit_seconds = 60, .unit_mebibytes = 3072};
  static constexpr std::tuple axes{
      axis{"target", &attention_axes::targets, &attention_config::target},
      axis{"type", &attention_axes::types, &attention_config::type},
      axis{"head dims", &attention_axes::dims,
           [](attention_config& config, head_dims dims) {
             config.head_dim = dims.qk;
             config.v_head_dim = dims.v;
           }},
      axis{"phases", &attention_axes::phases, &attention_config::phase},
      axis{"key storages", &attention_axes::keys, &attention_config::keys},
      axis{"feature sets", &attention_axes::features, &attention_config::features},
      axis{"tiles", &attention_axes::tiles, [](attention_config& config, const tile& shape) {
             config.block_q = shape.block_q;
             config.block_kv = shape.block_kv;
             config.tiling = shape.threads;
           }}};

  /// Tiles of CPU rows, of both phases: which is best depends on the caches, on the rate of
  /// products and, for a few rows of queries, on what packing costs.
  static std::vector<attention_config> candidates(const attention_config& config) {
    if (!is_cpu(config.target) || config.target == backend::cpu_generic) return {};
    std::vector<attention_config> all;
    const auto add = [&](attention_phase phase, const std::vector<tile>& tiles) {
      for (const tile& shape : tiles) {
        attention_config other = config;
        other.phase = phase;
        other.block_q = shape.block_q;
        other.block_kv = shape.block_kv;
        all.push_back(other);
      }
    };
    add(attention_phase::prefill, prefill_candidates(config.target));
    add(attention_phase::decode, decode_candidates(config.target));
    return all;
  }

  /// "bf16_d128": rows of a head dim share most of their code's templates, and are few. Rows with
  /// paged keys, and on CUDA decode rows, are apart, so that units compile side by side.
  static std::string unit_of(const attention_config& config) {
    std::string text = fmt::format("{}_", enumerator_name(config.type));
    if (is_cuda(config.target)) {
      text += head_dims_of_unit(config.head_dim);
      if (config.phase == attention_phase::decode) text += "_decode";
    } else {
      text += config.head_dim == 0 ? "dany" : fmt::format("d{}", config.head_dim);
      if (config.v_head_dim != config.head_dim) text += fmt::format("v{}", config.v_head_dim);
    }
    if (config.keys != key_storage::contiguous) text += fmt::format("_{}", name_of(config.keys));
    return text;
  }

  /// Functions and their parameters.
  static std::vector<std::pair<std::string_view, std::string_view>> more_entry_points(
      const attention_config& config) {
    if (!is_cuda(config.target) || !config.features.has(attention_feature::dropout)) return {};
    return {{"write_dropout_mask", "const tensor_view&, const attention_kernel_args&, void*"}};
  }

  static std::string text_of(const cuda_tiling& value) {
    if (value == cuda_tiling{}) return "{}";
    return fmt::format("{{{}, {}, {}}}", value.warps, value.blocks_per_sm, value.q_in_registers);
  }
  static std::string text_of(attention_features value) {
    if (value == every_feature) return "every_feature";
    std::string text = "base_features";
    for (const attention_feature feature : all_attention_features) {
      if (!value.without(base_features).has(feature)) continue;
      text += fmt::format(" | attention_feature::{}", enumerator_name(feature));
    }
    return text;
  }
};

}  // namespace

family attention_family() {
  return described_family<attention_description>();
}

}  // namespace tessera::generate
