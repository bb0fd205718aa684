// The family of latent attention of a build: its record and its operations. Included by exactly one
// generated unit, behind the registry.
#pragma once

#include <tessera/api/latent_attention.hpp>
#include <tessera/families/latent_attention/family.hpp>
#include <tessera/families/latent_attention/lower.hpp>
#include <tessera/families/latent_attention/registry.hpp>
#include <tessera/runtime/operation.hpp>

namespace tessera {

constinit const family latent_attention_record =
    family_of<latent_attention_family, &latent_attention_registry,
              &latent_attention_code_version>();

status flash_mla(const flash_mla_args& args, const flash_mla_options& options,
                 const context& where) {
  return call_of(latent_attention_record, flash_mla_op::flash_mla, args, options, where);
}
status flash_mla_backward(const flash_mla_args& args, const flash_mla_options& options,
                          const context& where) {
  return call_of(latent_attention_record, flash_mla_op::flash_mla_backward, args, options, where);
}
status flash_mla_decode(const flash_mla_decode_args& args, const flash_mla_decode_options& options,
                        const context& where) {
  return call_of(latent_attention_record, flash_mla_decode_op::flash_mla_decode, args, options,
                 where);
}
status multi_latent_ragged_page_attention(const latent_ragged_args& args,
                                          const latent_ragged_options& options,
                                          const context& where) {
  return call_of(latent_attention_record, latent_ragged_op::multi_latent_ragged_page_attention,
                 args, options, where);
}
status deepseek_attn(const deepseek_attn_args& args, const deepseek_attn_options& options,
                     const context& where) {
  return call_of(latent_attention_record, deepseek_attn_op::deepseek_attn, args, options, where);
}
status deepseek_attn_backward(const deepseek_attn_args& args, const deepseek_attn_options& options,
                              const context& where) {
  return call_of(latent_attention_record, deepseek_attn_op::deepseek_attn_backward, args, options,
                 where);
}

result<flash_mla_plan> plan(const flash_mla_problem& problem, const context& where) {
  return plan_of(latent_attention_record, problem, where);
}
result<explanation> explain(const flash_mla_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(latent_attention_record, numbered(problem), where, device);
}
result<flash_mla_decode_plan> plan(const flash_mla_decode_problem& problem, const context& where) {
  return plan_of(latent_attention_record, problem, where);
}
result<explanation> explain(const flash_mla_decode_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(latent_attention_record, numbered(problem), where, device);
}
result<deepseek_attn_plan> plan(const deepseek_attn_problem& problem, const context& where) {
  return plan_of(latent_attention_record, problem, where);
}
result<explanation> explain(const deepseek_attn_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(latent_attention_record, numbered(problem), where, device);
}
result<latent_ragged_plan> plan(const latent_ragged_problem& problem, const context& where) {
  return plan_of(latent_attention_record, problem, where);
}
result<explanation> explain(const latent_ragged_problem& problem, const context& where,
                            const device_facts* device) {
  return explain_operation(latent_attention_record, numbered(problem), where, device);
}

}  // namespace tessera
