// Sparse attention: from axes to rows.
#include "axes/sparse_attention.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct sparse_attention_description {
  using config_type = sparse_attention_config;
  using runtime_family = tessera::sparse_attention_family;
  using problems =
      std::tuple<blocksparse_problem, blocksparse_backward_problem, native_sparse_problem,
                 native_sparse_backward_problem, block_selection_problem>;

  static std::vector<sparse_attention_axes> blocks() { return sparse_attention_blocks(); }
  static constexpr budget cpu_budget{.rows = 36, .seconds = 240, .bytes = 4 << 20};
  static constexpr budget cuda_budget{
      .rows = 24, .seconds = 360, .bytes = 8 << 20, .unit_seconds = 30, .unit_mebibytes = 2048};

  static std::string unit_of(const sparse_attention_config& config) {
    const std::string unit =
        fmt::format("{}_{}", enumerator_name(config.pattern), enumerator_name(config.pass));
    if (config.type == dtype::none) return unit;
    if (is_cuda(config.target) || config.head_dim == 0)
      return fmt::format("{}_{}", unit, enumerator_name(config.type));
    return fmt::format("{}_{}_d{}", unit, enumerator_name(config.type), config.head_dim);
  }
};

}  // namespace

family sparse_attention_family() {
  return described_family<sparse_attention_description>();
}

}  // namespace tessera::generate
