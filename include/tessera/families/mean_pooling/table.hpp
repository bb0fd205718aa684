// The table of mean pooling rows; see spec/table.hpp.
#pragma once

#include <string_view>

#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/families/mean_pooling/registry.hpp>
#include <tessera/families/mean_pooling/row.hpp>
#include <tessera/families/mean_pooling/rules.hpp>
#include <tessera/spec/table.hpp>

namespace tessera {

template <>
struct table_entry<mean_pooling_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    return mean_pooling_row<Kernel>(name);
  }
};

}  // namespace tessera
