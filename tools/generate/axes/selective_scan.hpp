// The default table of elementwise recurrences: which rows exist and why; see
// axes/mean_pooling.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/selective_scan/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct selective_scan_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<scan_recurrence> recurrences;
  std::vector<scan_pass> passes;
};
BOOST_DESCRIBE_STRUCT(selective_scan_axes, (), (targets, recurrences, passes))

inline std::vector<selective_scan_axes> selective_scan_blocks() {
  using enum backend;
  using enum scan_recurrence;
  using enum kernel_pass;
  return {
      {
          .about = "state spaces: exponentials want the widest registers there are",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .recurrences = {state_space_v1, state_space_v2},
          .passes = {forward, backward},
      },
      {
          .about = "weighted sums: four exponentials a token",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .recurrences = {rwkv4},
          .passes = {forward, backward},
      },
      {
          .about = "sm80: chunks of tokens side by side, states in registers",
          .targets = {cuda_sm80},
          .recurrences = {state_space_v1, state_space_v2, rwkv4},
          .passes = {forward, backward},
      },
  };
}

}  // namespace tessera::generate
