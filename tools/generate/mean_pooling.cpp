// Mean pooling: from axes to rows, and from the name of a row back to the row.
#include "axes/mean_pooling.hpp"

#include <optional>
#include <string>

#include <fmt/format.h>

#include <tessera/families/mean_pooling/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct description {
  using config_type = mean_pooling_config;
  using axes_type = mean_pooling_axes;
  using runtime_family = tessera::mean_pooling_family;

  static std::vector<mean_pooling_axes> blocks() { return mean_pooling_blocks(); }

  template <class Visitor>
  static void for_each_combination(const mean_pooling_axes& axes, Visitor&& visit) {
    for (const backend target : axes.targets) {
      for (const dtype type : axes.types) {
        for (const pooling_pass pass : axes.passes) {
          for (const int streams : axes.streams) {
            for (const pooling_stores stores : axes.stores) {
              visit(mean_pooling_config{.target = target,
                                        .type = type,
                                        .pass = pass,
                                        .streams = streams,
                                        .stores = stores});
            }
          }
        }
      }
    }
  }

  static std::string product_text(const mean_pooling_axes& axes) {
    return product()
        .factor(axes.targets.size(), "targets")
        .factor(axes.types.size(), "types")
        .factor(axes.passes.size(), "passes")
        .factor(axes.streams.size(), "numbers of streams")
        .factor(axes.stores.size(), "kinds of stores")
        .text();
  }

  static std::optional<mean_pooling_config> spelled_by(std::string_view name) {
    const auto parts = split(name, '.');
    if (parts.size() != 5 || parts[0] != "mean_pooling") return std::nullopt;
    const auto target = enumerator_named<backend>(parts[1]);
    const auto type = enumerator_named<dtype>(parts[2]);
    const auto pass = enumerator_named<pooling_pass>(parts[3]);
    if (!target || !type || !pass) return std::nullopt;
    mean_pooling_config config{.target = *target, .type = *type, .pass = *pass};
    if (*pass == pooling_pass::backward) {
      const auto stores = enumerator_named<pooling_stores>(parts[4]);
      if (stores) config.stores = *stores;
      return stores ? std::optional(config) : std::nullopt;
    }
    const auto streams = number_in(parts[4].substr(1));
    if (!parts[4].starts_with('s') || !streams) return std::nullopt;
    config.streams = *streams;
    return config;
  }

  static std::string unit_of(const mean_pooling_config& config) {
    return std::string(enumerator_name(config.type));
  }

  static std::vector<std::string> instantiations(const mean_pooling_config& config,
                                                 const std::string& type) {
    const bool cuda = is_cuda(config.target);
    const std::string_view space =
        cuda ? "kernels::mean_pooling::sm80" : "kernels::mean_pooling::cpu";
    std::vector<std::string> lines{
        fmt::format("template std::size_t {}::workspace_bytes<rows::{}>("
                    "const mean_pooling_kernel_args&, int);",
                    space, type),
        fmt::format("template status {}::launch<rows::{}>("
                    "const mean_pooling_kernel_args&, const launch_context&);",
                    space, type),
    };
    if (cuda) lines.push_back(fmt::format("template status {}::prepare<rows::{}>();", space, type));
    return lines;
  }

  template <class Value>
  static std::string text_of(const Value& value) {
    return member_text(value);
  }
  static std::string text_of(pooling_pass value) { return member_text("pooling_pass", value); }
  static std::string text_of(pooling_stores value) { return member_text("pooling_stores", value); }
};

}  // namespace

family mean_pooling_family() {
  family made = described_family<description>();
  made.row_macro = "TESSERA_MEAN_POOLING_ROW";
  made.config_type = "mean_pooling_config";
  made.of(device_part::cpu) = {.kernel_header = "tessera/kernels/mean_pooling/cpu/launch.hpp",
                               .limits = {.rows = 48, .seconds = 60, .bytes = 1 << 20}};
  made.of(device_part::cuda) = {.kernel_header = "tessera/kernels/mean_pooling/sm80/launch.hpp",
                                .limits = {.rows = 16,
                                           .seconds = 120,
                                           .bytes = 8 << 20,
                                           .unit_seconds = 60,
                                           .unit_mebibytes = 3072}};
  made.fits_header = "tessera/families/mean_pooling/fits.hpp";
  return made;
}

}  // namespace tessera::generate
