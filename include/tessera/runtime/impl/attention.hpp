// The attention family of a build, with what writes the elements that dropout keeps. Included by
// exactly one generated unit.
#pragma once

#include <string>
#include <string_view>

#include <tessera/api/flash_attention.hpp>
#include <tessera/families/attention/family.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/spec/instance.hpp>
#include <tessera/spec/launch_context.hpp>
#include <tessera/spec/status.hpp>

namespace tessera {

namespace {

struct attention_of_build : attention_family {
  static constexpr std::string_view side_output = "dropout_mask";
  static constexpr const signature* side_form = &attention_table::form;

  static status finish(const instance& row, const tensor_view* tensors, const void* kernel_args,
                       const launch_context& where) {
    const auto& args = *reinterpret_cast<const flash_attention_args*>(tensors);
    if (is_cpu(row.target)) {
      const auto& lowered = *static_cast<const attention_kernel_args*>(kernel_args);
      prim::write_dropout_mask(args.dropout_mask, lowered.dropout_seed, lowered.dropout_threshold);
      return {};
    }
    if (row.finish != nullptr) return row.finish(tensors, kernel_args, where);
    return {status_code::ineligible_row,
            std::string(row.name) + ": has no code that writes dropout_mask"};
  }
};

}  // namespace

}  // namespace tessera
