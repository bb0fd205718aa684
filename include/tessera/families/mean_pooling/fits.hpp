// Which mean pooling rows can run which problems: rows take every size and option.
#pragma once

#include <array>

#include <tessera/families/mean_pooling/config.hpp>
#include <tessera/families/mean_pooling/demand.hpp>
#include <tessera/spec/fits.hpp>

namespace tessera {

template <>
struct fits_of<mean_pooling_config> {
  static constexpr std::array rules{
      same_value<&mean_pooling_config::pass, &mean_pooling_demand::pass>("pass", 2),
      same_value<&mean_pooling_config::type, &mean_pooling_demand::type>("dtype"),
  };
};

}  // namespace tessera
