// Flash attention, forward: from axes to rows, and from the name of a row back to the row.
#include "axes/attention.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/attention/family.hpp>

#include "axes/attention_cuda.hpp"
#include "axes/attention_paged.hpp"
#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

std::optional<attention_features> features_in(std::string_view text, attention_phase phase) {
  if (text == "every") return every_feature_of(phase);
  attention_features features = base_features;
  for (const std::string_view part : split(text, '+')) {
    const auto one = enumerator_named<attention_feature>(part);
    if (!one) return std::nullopt;
    features = features | *one;
  }
  return features;
}

/// "w4b2r": threads of a CUDA row.
std::optional<cuda_tiling> tiling_in(std::string_view text) {
  const bool in_registers = text.ends_with('r');
  if (in_registers) text.remove_suffix(1);
  if (!text.starts_with('w')) return std::nullopt;
  const auto parts = split(text.substr(1), 'b');
  const auto warps = number_in(parts.front());
  const auto blocks = number_in(parts.back());
  if (parts.size() != 2 || !warps || !blocks) return std::nullopt;
  return cuda_tiling{.warps = *warps, .blocks_per_sm = *blocks, .q_in_registers = in_registers};
}

struct description {
  using config_type = attention_config;
  using axes_type = attention_axes;
  using runtime_family = tessera::attention_family;

  static std::vector<attention_axes> blocks() {
    std::vector<attention_axes> all = cpu_attention_axes();
    std::ranges::copy(cuda_attention_axes(), std::back_inserter(all));
    std::ranges::copy(paged_attention_axes(), std::back_inserter(all));
    return all;
  }

  template <class Visitor>
  static void for_each_combination(const attention_axes& axes, Visitor&& visit) {
    for (const backend target : axes.targets) {
      for (const dtype type : axes.types) {
        for (const head_dims dims : axes.dims) {
          for (const attention_phase phase : axes.phases) {
            for (const key_storage keys : axes.keys) {
              for (const attention_features features : axes.features) {
                for (const tile shape : axes.tiles) {
                  visit(attention_config{.target = target,
                                         .type = type,
                                         .head_dim = dims.qk,
                                         .v_head_dim = dims.v,
                                         .phase = phase,
                                         .keys = keys,
                                         .features = features,
                                         .block_q = shape.block_q,
                                         .block_kv = shape.block_kv,
                                         .tiling = shape.threads});
                }
              }
            }
          }
        }
      }
    }
  }

  static std::string product_text(const attention_axes& axes) {
    return product()
        .factor(axes.targets.size(), "targets")
        .factor(axes.types.size(), "types")
        .factor(axes.dims.size(), "head dims")
        .factor(axes.phases.size(), "phases")
        .factor(axes.keys.size(), "key storages")
        .factor(axes.features.size(), "feature sets")
        .factor(axes.tiles.size(), "tiles")
        .text();
  }

  static std::optional<attention_config> spelled_by(std::string_view name) {
    auto parts = split(name, '.');
    if (parts.size() < 5 || parts[0] != "attention") return std::nullopt;
    const auto target = enumerator_named<backend>(parts[1]);
    std::optional<cuda_tiling> tiling = cuda_tiling{};
    if (target && is_cuda(*target)) {
      tiling = tiling_in(parts.back());
      parts.pop_back();
    }
    const auto has_word = [&](std::string_view word) {
      if (parts.size() <= 4 || parts[4] != word) return false;
      parts.erase(parts.begin() + 4);
      return true;
    };
    const bool decode = has_word(enumerator_name(attention_phase::decode));
    const bool paged = has_word(enumerator_name(key_storage::paged));
    if (parts.size() < 5 || parts.size() > 6) return std::nullopt;
    const auto type = enumerator_named<dtype>(parts[2]);
    if (!target || !type || !parts[3].starts_with('d')) return std::nullopt;
    const auto dims = split(parts[3].substr(1), 'v');
    const auto qk = dims[0] == "any" ? 0 : number_in(dims[0]);
    const auto v = dims.size() == 2 ? number_in(dims[1]) : qk;
    const attention_phase phase = decode ? attention_phase::decode : attention_phase::prefill;
    const auto features = parts.size() == 6 ? features_in(parts[4], phase) : base_features;
    const auto extents = split(parts.back(), 'x');
    const auto block_q = number_in(extents.front());
    const auto block_kv = number_in(extents.back());
    if (!qk || !v || !features || extents.size() != 2 || !block_q || !block_kv || !tiling) {
      return std::nullopt;
    }
    return attention_config{.target = *target,
                            .type = *type,
                            .head_dim = *qk,
                            .v_head_dim = *v,
                            .phase = phase,
                            .keys = paged ? key_storage::paged : key_storage::contiguous,
                            .features = *features,
                            .block_q = *block_q,
                            .block_kv = *block_kv,
                            .tiling = *tiling};
  }

  /// "bf16_d128": rows of a head dim share most of their code's templates, and are few. Rows with
  /// paged keys, and on CUDA decode rows, are apart, so that units compile side by side.
  static std::string unit_of(const attention_config& config) {
    std::string text = fmt::format("{}_d", enumerator_name(config.type));
    text += config.head_dim == 0 ? "any" : std::to_string(config.head_dim);
    if (config.v_head_dim != config.head_dim) text += fmt::format("v{}", config.v_head_dim);
    if (is_cuda(config.target) && config.phase == attention_phase::decode) text += "_decode";
    if (config.keys == key_storage::paged) text += "_paged";
    return text;
  }

  static std::vector<std::string> instantiations(const attention_config& config,
                                                 const std::string& type) {
    const bool cuda = is_cuda(config.target);
    const std::string_view space = cuda ? "kernels::attention::sm80" : "kernels::attention::cpu";
    std::vector<std::string> lines{
        fmt::format("template std::size_t {}::workspace_bytes<rows::{}>("
                    "const attention_kernel_args&, int);",
                    space, type),
        fmt::format("template status {}::launch<rows::{}>("
                    "const attention_kernel_args&, const launch_context&);",
                    space, type)};
    if (!cuda) return lines;
    lines.push_back(fmt::format("template status {}::prepare<rows::{}>();", space, type));
    if (config.features.has(attention_feature::dropout)) {
      lines.push_back(
          fmt::format("template status {}::write_dropout_mask<rows::{}>("
                      "const tensor_view&, const attention_kernel_args&, void*);",
                      space, type));
    }
    return lines;
  }

  template <class Value>
  static std::string text_of(const Value& value) {
    return member_text(value);
  }
  static std::string text_of(mask_mode value) { return member_text("mask_mode", value); }
  static std::string text_of(const cuda_tiling& value) {
    if (value == cuda_tiling{}) return "{}";
    return fmt::format("{{{}, {}, {}}}", value.warps, value.blocks_per_sm, value.q_in_registers);
  }
  static std::string text_of(attention_phase value) {
    return member_text("attention_phase", value);
  }
  static std::string text_of(key_storage value) { return member_text("key_storage", value); }
  static std::string text_of(attention_features value) {
    if (value == every_feature) return "every_feature";
    std::string text = "base_features";
    for (const attention_feature one : all_attention_features) {
      if (!value.without(base_features).has(one)) continue;
      text += fmt::format(" | attention_feature::{}", enumerator_name(one));
    }
    return text;
  }
};

}  // namespace

family attention_family() {
  family made = described_family<description>();
  made.row_macro = "TESSERA_ATTENTION_ROW";
  made.config_type = "attention_config";
  made.of(device_part::cpu) = {.kernel_header = "tessera/kernels/attention/cpu/launch.hpp",
                               .limits = {.rows = 160, .seconds = 720, .bytes = 32 << 20}};
  made.of(device_part::cuda) = {.kernel_header = "tessera/kernels/attention/sm80/launch.hpp",
                                .limits = {.rows = 64,
                                           .seconds = 720,
                                           .bytes = 64 << 20,
                                           .unit_seconds = 60,
                                           .unit_mebibytes = 3072}};
  made.fits_header = "tessera/families/attention/fits.hpp";
  return made;
}

}  // namespace tessera::generate
