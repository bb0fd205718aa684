// The table of attention rows; see spec/table.hpp.
#pragma once

#include <string_view>

#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/families/attention/row.hpp>
#include <tessera/families/attention/rules.hpp>
#include <tessera/spec/table.hpp>

namespace tessera {

template <>
struct table_entry<attention_config> {
  template <class Kernel>
  static constexpr instance instance_for(std::string_view name) {
    return attention_row<Kernel>(name);
  }
};

}  // namespace tessera
