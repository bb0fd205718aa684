// Golden files of attention.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include <tessera/families/attention/args.hpp>
#include <tessera/families/attention/declaration.hpp>
#include <tessera/families/attention/options.hpp>
#include <tessera/families/attention/problem.hpp>
#include <tessera/families/attention/reflect.hpp>

#include "golden.hpp"

namespace tessera::support {

struct flash_golden {
  using op_type = flash_op;
  using args_type = flash_attention_args;
  using options_type = flash_attention_options;

  static const std::array<std::string_view, 5>& outputs(flash_op) {
    static constexpr std::array<std::string_view, 5> names{"out", "lse", "row_max", "weights",
                                                           "dropout_mask"};
    return names;
  }
  static bool takes(flash_op op, std::string_view name) {
    const auto& names = outputs(op);
    return std::find(names.begin(), names.end(), name) == names.end();
  }
  static dtype type_of(std::string_view name, const flash_attention_args& args) {
    if (name.empty() || name == "out") return args.q.type;
    return name == "dropout_mask" ? dtype::u8 : dtype::f32;
  }
};

using flash_golden_case = golden_case<flash_golden>;

inline std::vector<std::filesystem::path> flash_golden_files() {
  return golden_files(golden_folder(TESSERA_GOLDEN_DIR), attention_table::operations);
}

}  // namespace tessera::support
