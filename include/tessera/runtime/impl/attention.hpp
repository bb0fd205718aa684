// The attention family of a build: its record and its operations. Included by exactly one generated
// unit, behind the registry.
#pragma once

#include <string>

#include <tessera/api/flash_attention.hpp>
#include <tessera/api/page_attention.hpp>
#include <tessera/api/ragged_decode_attention.hpp>
#include <tessera/api/ragged_page_attention.hpp>
#include <tessera/api/unified_attention.hpp>
#include <tessera/families/attention/family.hpp>
#include <tessera/families/attention/lower.hpp>
#include <tessera/families/attention/registry.hpp>
#include <tessera/prim/common/dropout.hpp>
#include <tessera/runtime/operation.hpp>

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

constinit const family attention_record =
    family_of<attention_of_build, &attention_registry, &attention_code_version>();

status flash_attention(const flash_attention_args& args, const flash_attention_options& options,
                       const context& where) {
  return call_of(attention_record, flash_op::flash_attention, args, options, where);
}
status attention(const flash_attention_args& args, const flash_attention_options& options,
                 const context& where) {
  return call_of(attention_record, flash_op::attention, args, options, where);
}
status scaled_dot_product_attention(const flash_attention_args& args,
                                    const flash_attention_options& options, const context& where) {
  return call_of(attention_record, flash_op::scaled_dot_product_attention, args, options, where);
}

result<flash_plan> plan(const flash_problem& problem, const context& where) {
  return plan_of(attention_record, problem, where);
}
result<explanation> explain(const flash_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(attention_record, numbered(problem), where, device);
}

status page_attention(const page_attention_args& args, const page_attention_options& options,
                      const context& where) {
  return call_of(attention_record, page_op::page_attention, args, options, where);
}
status decode_attention(const page_attention_args& args, const page_attention_options& options,
                        const context& where) {
  return call_of(attention_record, page_op::decode_attention, args, options, where);
}
status prefill_page_attention(const page_attention_args& args,
                              const page_attention_options& options, const context& where) {
  return call_of(attention_record, page_op::prefill_page_attention, args, options, where);
}
result<page_attention_plan> plan(const page_problem& problem, const context& where) {
  return plan_of(attention_record, problem, where);
}
result<explanation> explain(const page_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(attention_record, numbered(problem), where, device);
}

status ragged_decode_attention(const ragged_decode_args& args, const ragged_decode_options& options,
                               const context& where) {
  return call_of(attention_record, ragged_decode_op::ragged_decode_attention, args, options, where);
}
result<ragged_decode_plan> plan(const ragged_decode_problem& problem, const context& where) {
  return plan_of(attention_record, problem, where);
}
result<explanation> explain(const ragged_decode_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(attention_record, numbered(problem), where, device);
}

status unified_attention(const unified_attention_args& args,
                         const unified_attention_options& options, const context& where) {
  return call_of(attention_record, unified_op::unified_attention, args, options, where);
}
status chunked_prefill_paged_decode(const unified_attention_args& args,
                                    const unified_attention_options& options,
                                    const context& where) {
  return call_of(attention_record, unified_op::chunked_prefill_paged_decode, args, options, where);
}
result<unified_attention_plan> plan(const unified_problem& problem, const context& where) {
  return plan_of(attention_record, problem, where);
}
result<explanation> explain(const unified_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(attention_record, numbered(problem), where, device);
}

status ragged_page_attention_v2(const ragged_page_args& args, const ragged_page_options& options,
                                const context& where) {
  return call_of(attention_record, ragged_page_op::ragged_page_attention_v2, args, options, where);
}
status ragged_page_attention_v3(const ragged_page_args& args, const ragged_page_options& options,
                                const context& where) {
  return call_of(attention_record, ragged_page_op::ragged_page_attention_v3, args, options, where);
}
result<ragged_page_plan> plan(const ragged_page_problem& problem, const context& where) {
  return plan_of(attention_record, problem, where);
}
result<explanation> explain(const ragged_page_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(attention_record, numbered(problem), where, device);
}

}  // namespace tessera
