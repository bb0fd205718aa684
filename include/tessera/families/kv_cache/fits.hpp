// Which rows of caches can run which problems: rows take every type, size and option.
#pragma once

#include <array>

#include <tessera/families/kv_cache/config.hpp>
#include <tessera/families/kv_cache/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<kv_cache_config> {
  static constexpr std::array rules{
      same_value<&kv_cache_config::pass, &kv_cache_demand::pass>("pass"),
  };
};

}  // namespace tessera
