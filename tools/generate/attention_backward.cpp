// Gradients of attention: from axes to rows.
#include "axes/attention_backward.hpp"

#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/family.hpp>

#include "described_family.hpp"
#include "families.hpp"

namespace tessera::generate {
namespace {

struct attention_backward_description {
  using config_type = attention_backward_config;
  using runtime_family = tessera::attention_backward_family;
  using problems = std::tuple<attention_backward_problem>;

  static constexpr bool entry_functions = true;

  static std::vector<attention_backward_axes> blocks() { return attention_backward_blocks(); }
  static constexpr std::tuple axes{
      axis{"targets", &attention_backward_axes::targets, &attention_backward_config::target},
      axis{"types", &attention_backward_axes::types, &attention_backward_config::type},
      axis{"head dims", &attention_backward_axes::head_dims, &attention_backward_config::head_dim},
      axis{"head dims of v", &attention_backward_axes::v_head_dims,
           &attention_backward_config::v_head_dim},
      axis{"d_q in memory", &attention_backward_axes::d_q_atomics,
           &attention_backward_config::d_q_atomics},
      axis{"blocks of rows", &attention_backward_axes::block_q,
           &attention_backward_config::block_q},
      axis{"tiles of keys", &attention_backward_axes::block_kv,
           &attention_backward_config::block_kv},
      axis{"sums in turns", &attention_backward_axes::in_turns,
           &attention_backward_config::in_turns}};

  static std::string unit_of(const attention_backward_config& config) {
    if (is_cuda(config.target)) {  // those of the largest head dims take 50 s with those of 128
      if (config.head_dim == 128) return fmt::format("{}_d128", enumerator_name(config.type));
      return fmt::format("{}_{}", enumerator_name(config.type), head_dims_of_unit(config.head_dim));
    }
    return fmt::format("{}_d{}", enumerator_name(config.type),
                       config.head_dim == 0 ? "any" : std::to_string(config.head_dim));
  }
};

}  // namespace

family attention_backward_family() {
  family family = described_family<attention_backward_description>();
  family.of(device_part::cpu) = {
      .kernel_header = "tessera/kernels/attention_backward/cpu/launch.hpp",
      .limits = {.rows = 20, .seconds = 200, .bytes = 4 << 20}};
  family.of(device_part::cuda) = {
      .kernel_header = "tessera/kernels/attention_backward/sm80/launch.hpp",
      .own_headers = {{backend::cuda_sm90, "tessera/kernels/attention_backward/sm90/launch.hpp"}},
      .limits = {.rows = 53,
                 .seconds = 960,
                 .bytes = 28 << 20,
                 .unit_seconds = 60,
                 .unit_mebibytes = 3072}};
  return family;
}

}  // namespace tessera::generate
