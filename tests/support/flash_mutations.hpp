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
inline void PrintTo(const flash_mutation& one, std::ostream* stream) {
  *stream << one.name;
}

/// Every mutation.
inline const std::vector<flash_mutation>& all_mutations() {
  static const std::vector<flash_mutation> all = [] {
    std::vector<flash_mutation> list;
    for (const auto make :
         {&presence_and_dtype_mutations, &rank_mutations, &head_mutations, &operand_shape_mutations,
          &operand_extent_mutations, &operand_pointer_mutations, &operand_overlap_mutations,
          &statistic_mutations, &score_tensor_mutations, &sink_and_segment_mutations,
          &score_output_mutations, &packed_length_mutations, &padded_length_mutations,
          &option_value_mutations, &dropout_and_alignment_mutations, &plain_attention_mutations}) {
      const std::vector<flash_mutation> part = make();
      list.insert(list.end(), part.begin(), part.end());
    }
    return list;
  }();
  return all;
}

}  // namespace tessera::support
