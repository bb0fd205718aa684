// Golden files of mean pooling; each serves both directions.
#pragma once

#include <string_view>
#include <vector>

#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>

#include "golden.hpp"

namespace tessera::support {

struct pooling_golden {
  using op_type = mean_pooling_op;
  using args_type = mean_pooling_args;
  using options_type = mean_pooling_options;

  static std::vector<std::string_view> outputs(mean_pooling_op op) {
    return {is_backward(op) ? "d_x" : "out"};
  }
  static bool takes(mean_pooling_op op, std::string_view name) {
    return name == "x" || name == "mask" || name == "cu_seqlens" ||
           (name == "d_out" && is_backward(op));
  }
  static dtype type_of(std::string_view, const mean_pooling_args& args) { return args.x.type; }
};

using pooling_golden_case = golden_case<pooling_golden>;

inline std::vector<std::filesystem::path> pooling_golden_files() {
  return golden_files(TESSERA_GOLDEN_DIR, mean_pooling_table::operations);
}

}  // namespace tessera::support
