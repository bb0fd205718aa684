// The families of kernels: the one place in this room that names them.
#pragma once

#include <type_traits>

#include <tessera/runtime/attention.hpp>
#include <tessera/runtime/mean_pooling.hpp>

namespace tessera {

template <class... Families>
struct family_list {
  /// Calls visit(std::type_identity<Family>{}) for each family.
  template <class Visitor>
  static constexpr void for_each(const Visitor& visit) {
    (visit(std::type_identity<Families>{}), ...);
  }
};

using families = family_list<attention_family, mean_pooling_family>;

}  // namespace tessera
