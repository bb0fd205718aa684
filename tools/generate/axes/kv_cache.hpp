// The default table of caches of keys and values: which rows exist and why; see
// axes/mean_pooling.hpp.
#pragma once

#include <string_view>
#include <vector>

#include <boost/describe/class.hpp>

#include <tessera/families/kv_cache/config.hpp>

namespace tessera::generate {

/// One product of axis values.
struct kv_cache_axes {
  std::string_view about;
  std::vector<backend> targets;
  std::vector<kv_cache_pass> passes;
};
BOOST_DESCRIBE_STRUCT(kv_cache_axes, (), (targets, passes))

inline std::vector<kv_cache_axes> kv_cache_blocks() {
  using enum backend;
  using enum kv_cache_pass;
  return {
      {
          .about = "new tokens: conversions want the widest registers there are",
          .targets = {cpu_generic, cpu_avx2, cpu_avx512},
          .passes = {append},
      },
      {
          .about = "pages onto pages",
          .targets = {cpu_generic},
          .passes = {copy},
      },
      {
          .about = "sm80: new tokens, and pages onto pages",
          .targets = {cuda_sm80},
          .passes = {append, copy},
      },
  };
}

}  // namespace tessera::generate
