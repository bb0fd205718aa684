// Flash attention, forward: from axes to rows, and from the name of a row back to the row.
#include "axes/flash_fwd.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include <fmt/format.h>

#include <tessera/spec/flash_attention/reflect.hpp>
#include <tessera/spec/flash_attention/rules.hpp>

#include "families.hpp"

namespace tessera::generate {
namespace {

std::string text_of(int value) {
  return std::to_string(value);
}
std::string text_of(backend value) {
  return fmt::format("backend::{}", enumerator_name(value));
}
std::string text_of(dtype value) {
  return fmt::format("dtype::{}", enumerator_name(value));
}
std::string text_of(mask_mode value) {
  return fmt::format("mask_mode::{}", enumerator_name(value));
}
std::string text_of(flash_phase value) {
  return fmt::format("flash_phase::{}", enumerator_name(value));
}
std::string text_of(flash_features value) {
  if (value == every_feature) return "every_feature";
  std::string text = "base_features";
  for (const flash_feature one : all_flash_features) {
    if (!value.without(base_features).has(one)) continue;
    text += fmt::format(" | flash_feature::{}", enumerator_name(one));
  }
  return text;
}

row row_of(const flash_config& given) {
  const flash_config config = resolved(given);
  row made;
  made.name = name_of(config).view();
  made.type_name = made.name;
  std::replace_if(
      made.type_name.begin(), made.type_name.end(), [](char c) { return c == '.' || c == '+'; },
      '_');
  made.target = config.target;
  made.type = enumerator_name(config.type);
  for_each_member(config, [&](std::string_view, const auto& value) {
    if (!made.config.empty()) made.config += ", ";
    made.config += text_of(value);
  });
  return made;
}

template <class Visitor>
void for_each_combination(const flash_axes& axes, Visitor&& visit) {
  for (const backend target : axes.targets) {
    for (const dtype type : axes.types) {
      for (const head_dims dims : axes.dims) {
        for (const flash_phase phase : axes.phases) {
          for (const flash_features features : axes.features) {
            for (const tile shape : axes.tiles) {
              visit(flash_config{.target = target,
                                 .type = type,
                                 .head_dim = dims.qk,
                                 .v_head_dim = dims.v,
                                 .mask = mask_mode::window,
                                 .phase = phase,
                                 .features = features,
                                 .block_q = shape.block_q,
                                 .block_kv = shape.block_kv});
            }
          }
        }
      }
    }
  }
}

/// "2 targets x 3 types": the axes of more than one value.
std::string product_text(const flash_axes& axes) {
  std::string text;
  const auto factor = [&](std::size_t size, std::string_view what) {
    if (size != 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", size, what);
  };
  factor(axes.targets.size(), "targets");
  factor(axes.types.size(), "types");
  factor(axes.dims.size(), "head dims");
  factor(axes.phases.size(), "phases");
  factor(axes.features.size(), "feature sets");
  factor(axes.tiles.size(), "tiles");
  return text.empty() ? "1 combination" : text;
}

outcome<table> default_table() {
  table made;
  std::map<std::string, std::string> origin;
  std::optional<refusal> twice;
  for (const flash_axes& axes : flash_fwd_axes()) {
    block_report report;
    report.about = axes.about;
    report.product = product_text(axes);
    for_each_combination(axes, [&](const flash_config& config) {
      ++report.combinations;
      if (const flash_rule broken = broken_table_rule(config); broken != flash_rule::none) {
        ++report.dropped[std::string(enumerator_name(broken))];
        return;
      }
      row one = row_of(config);
      if (const auto [at, fresh] = origin.emplace(one.name, axes.about); !fresh && !twice) {
        twice = refusal{fmt::format("row {} comes from two blocks of the axes: '{}' and '{}'",
                                    one.name, at->second, axes.about)};
      }
      made.rows.push_back(std::move(one));
      ++report.rows;
    });
    made.blocks.push_back(std::move(report));
  }
  if (twice) return *twice;
  std::ranges::sort(made.rows, {}, &row::name);
  return made;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<int> number_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

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

/// The config whose fields `name` spells. Whether it is the row's own name is for the caller to
/// check with `name_of`.
std::optional<flash_config> config_spelled_by(std::string_view name) {
  const auto parts = split(name, '.');
  if (parts.size() < 6 || parts.size() > 7 || parts[0] != "flash_fwd") return std::nullopt;
  const auto target = enumerator_named<backend>(parts[1]);
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
  if (!qk || !v || !mask || !features || extents.size() != 2 || !block_q || !block_kv) {
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
                      .block_kv = *block_kv};
}

outcome<row> row_named(std::string_view name) {
  const auto config = config_spelled_by(name);
  if (!config) return refusal{"is not the name of a row"};
  if (const flash_rule broken = broken_table_rule(*config); broken != flash_rule::none) {
    return refusal{fmt::format("is not a legal row; rule {}: {}", enumerator_name(broken),
                               sentence_of(broken))};
  }
  if (const auto own = name_of(*config); own.view() != name) {
    return refusal{fmt::format("is not spelled as the row's own name, {}", own.view())};
  }
  return row_of(*config);
}

std::vector<std::string> instantiations(const std::string& type_name) {
  return {
      fmt::format("template std::size_t flash::workspace_bytes<rows::{}>("
                  "const flash_kernel_args&, int);",
                  type_name),
      fmt::format("template status flash::launch<rows::{}>("
                  "const flash_kernel_args&, const launch_context&);",
                  type_name),
  };
}

}  // namespace

family flash_fwd_family() {
  family made;
  made.name = "flash_fwd";
  made.row_macro = "TESSERA_FLASH_FWD_ROW";
  made.config_type = "flash_config";
  const flash_config any;
  for_each_member(any, [&](std::string_view name, const auto&) {
    if (!made.config_members.empty()) made.config_members += ", ";
    made.config_members += name;
  });
  made.kernel_header = "tessera/kernels/flash_attention/launch.hpp";
  made.table_header = "tessera/spec/flash_attention/table.hpp";
  made.table_template = "flash_table";
  made.registry = "flash_fwd_registry";
  made.instance = "flash_instance";
  made.instantiations = &instantiations;
  made.rows_per_unit = 3;
  made.limits = {.rows = 160, .seconds = 720, .bytes = 32 << 20};
  made.default_table = &default_table;
  made.row_named = &row_named;
  return made;
}

}  // namespace tessera::generate
