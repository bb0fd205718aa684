// Flash attention, forward: from axes to rows, and from the name of a row back to the row.
#include "axes/flash_fwd.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <tessera/runtime/flash_fwd.hpp>
#include <tessera/runtime/impl/flash_fwd.hpp>
#include <tessera/spec/flash_attention/lower.hpp>
#include <tessera/spec/flash_attention/reflect.hpp>
#include <tessera/spec/flash_attention/rules.hpp>

#include "axes/flash_fwd_cuda.hpp"
#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

std::optional<flash_features> features_in(std::string_view text, flash_phase phase) {
  if (text == "every") return every_feature_of(phase);
  flash_features features = base_features;
  for (const std::string_view part : split(text, '+')) {
    const auto one = enumerator_named<flash_feature>(part);
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
  using config_type = flash_config;
  using axes_type = flash_axes;
  using runtime_family = tessera::flash_fwd_family;
  using kernel_args_type = flash_kernel_args;

  static std::vector<flash_axes> blocks() {
    std::vector<flash_axes> all = flash_fwd_axes();
    std::ranges::copy(flash_fwd_cuda_axes(), std::back_inserter(all));
    return all;
  }

  template <class Visitor>
  static void for_each_combination(const flash_axes& axes, Visitor&& visit) {
    for (const backend target : axes.targets) {
      for (const dtype type : axes.types) {
        for (const head_dims dims : axes.dims) {
          for (const mask_mode mask : axes.masks) {
            for (const flash_phase phase : axes.phases) {
              for (const flash_features features : axes.features) {
                for (const tile shape : axes.tiles) {
                  visit(flash_config{.target = target,
                                     .type = type,
                                     .head_dim = dims.qk,
                                     .v_head_dim = dims.v,
                                     .mask = mask,
                                     .phase = phase,
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

  static std::string product_text(const flash_axes& axes) {
    return product()
        .factor(axes.targets.size(), "targets")
        .factor(axes.types.size(), "types")
        .factor(axes.dims.size(), "head dims")
        .factor(axes.masks.size(), "masks")
        .factor(axes.phases.size(), "phases")
        .factor(axes.features.size(), "feature sets")
        .factor(axes.tiles.size(), "tiles")
        .text();
  }

  static std::optional<flash_config> spelled_by(std::string_view name) {
    auto parts = split(name, '.');
    if (parts.size() < 6 || parts[0] != "flash_fwd") return std::nullopt;
    const auto target = enumerator_named<backend>(parts[1]);
    std::optional<cuda_tiling> tiling = cuda_tiling{};
    if (target && is_cuda(*target)) {
      tiling = tiling_in(parts.back());
      parts.pop_back();
    }
    if (parts.size() < 6 || parts.size() > 7) return std::nullopt;
    const auto type = enumerator_named<dtype>(parts[2]);
    if (!target || !type || !parts[3].starts_with('d')) return std::nullopt;
    const auto dims = split(parts[3].substr(1), 'v');
    const auto qk = dims[0] == "any" ? 0 : number_in(dims[0]);
    const auto v = dims.size() == 2 ? number_in(dims[1]) : qk;
    const bool decode = parts[4] == enumerator_name(flash_phase::decode);
    const auto mask = decode ? mask_mode::window : enumerator_named<mask_mode>(parts[4]);
    const flash_phase phase = decode ? flash_phase::decode : flash_phase::prefill;
    const auto features = parts.size() == 7 ? features_in(parts[5], phase) : base_features;
    const auto extents = split(parts.back(), 'x');
    const auto block_q = number_in(extents.front());
    const auto block_kv = number_in(extents.back());
    if (!qk || !v || !mask || !features || extents.size() != 2 || !block_q || !block_kv ||
        !tiling) {
      return std::nullopt;
    }
    return flash_config{.target = *target,
                        .type = *type,
                        .head_dim = *qk,
                        .v_head_dim = *v,
                        .mask = *mask,
                        .phase = phase,
                        .features = *features,
                        .block_q = *block_q,
                        .block_kv = *block_kv,
                        .tiling = *tiling};
  }

  /// "bf16_d128": rows of a head dim share most of their code's templates, and are few. On CUDA
  /// decode rows are apart, so that units compile side by side.
  static std::string unit_of(const flash_config& config) {
    std::string text = fmt::format("{}_d", enumerator_name(config.type));
    text += config.head_dim == 0 ? "any" : std::to_string(config.head_dim);
    if (config.v_head_dim != config.head_dim) text += fmt::format("v{}", config.v_head_dim);
    if (is_cuda(config.target) && config.phase == flash_phase::decode) text += "_decode";
    return text;
  }

  static std::vector<std::string> instantiations(const flash_config& config,
                                                 const std::string& type) {
    const bool cuda = is_cuda(config.target);
    const std::string_view space = cuda ? "flash::sm80" : "flash";
    std::vector<std::string> lines{fmt::format("template std::size_t {}::workspace_bytes<rows::{}>("
                                               "const flash_kernel_args&, int);",
                                               space, type),
                                   fmt::format("template status {}::launch<rows::{}>("
                                               "const flash_kernel_args&, const launch_context&);",
                                               space, type)};
    if (!cuda) return lines;
    lines.push_back(fmt::format("template status {}::prepare<rows::{}>();", space, type));
    if (config.features.has(flash_feature::dropout)) {
      lines.push_back(
          fmt::format("template status {}::write_dropout_mask<rows::{}>("
                      "const tensor_view&, const flash_kernel_args&, void*);",
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
  static std::string text_of(flash_phase value) { return member_text("flash_phase", value); }
  static std::string text_of(flash_features value) {
    if (value == every_feature) return "every_feature";
    std::string text = "base_features";
    for (const flash_feature one : all_flash_features) {
      if (!value.without(base_features).has(one)) continue;
      text += fmt::format(" | flash_feature::{}", enumerator_name(one));
    }
    return text;
  }
};

}  // namespace

family flash_fwd_family() {
  family made = described_family<description>();
  made.row_macro = "TESSERA_FLASH_FWD_ROW";
  made.config_type = "flash_config";
  made.table_header = "tessera/spec/flash_attention/table.hpp";
  made.instance = "flash_instance";
  made.of(device_part::cpu) = {.kernel_header = "tessera/kernels/flash_attention/launch.hpp",
                               .limits = {.rows = 160, .seconds = 720, .bytes = 32 << 20}};
  made.of(device_part::cuda) = {.kernel_header = "tessera/kernels/flash_attention/sm80.hpp",
                                .limits = {.rows = 64,
                                           .seconds = 720,
                                           .bytes = 64 << 20,
                                           .unit_seconds = 60,
                                           .unit_mebibytes = 3072}};
  made.eligibility_header = "tessera/spec/flash_attention/eligibility.hpp";
  return made;
}

}  // namespace tessera::generate
