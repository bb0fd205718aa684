// Every way in which tests make a legal call illegal.
#pragma once

#include <ostream>
#include <vector>

#include "mutations/lengths.hpp"
#include "mutations/mutation.hpp"
#include "mutations/operands.hpp"
#include "mutations/options.hpp"
#include "mutations/tensors.hpp"

namespace tessera::support {

/// How GoogleTest prints a mutation.
inline void PrintTo(const flash_mutation& one, std::ostream* stream) { *stream << one.name; }

/// Every mutation.
inline const std::vector<flash_mutation>& all_mutations() {
  static const std::vector<flash_mutation> all = [] {
    std::vector<flash_mutation> list;
    for (auto part : {operand_mutations(), tensor_mutations(), length_mutations(),
                      option_mutations()}) {
      list.insert(list.end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

}  // namespace tessera::support
