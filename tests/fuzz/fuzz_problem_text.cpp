// libFuzzer target: any text through the readers of problems, one per family. What is read is
// written as a text that reads as the same; what is not is refused with a sentence. Problems that
// are read are validated too: hostile extents must not overflow.
//   fuzz_problem_text -max_total_time=60 tests/fuzz/corpus/problem_text
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tessera/families/attention/fits.hpp>
#include <tessera/families/attention/operations.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/families/attention_backward/fits.hpp>
#include <tessera/families/chunked_scan/fits.hpp>
#include <tessera/families/chunked_scan/operations.hpp>
#include <tessera/families/delta_rule/fits.hpp>
#include <tessera/families/delta_rule/operations.hpp>
#include <tessera/families/grouped_matmul/fits.hpp>
#include <tessera/families/grouped_matmul/operations.hpp>
#include <tessera/families/kv_cache/declaration.hpp>
#include <tessera/families/kv_cache/fits.hpp>
#include <tessera/families/latent_attention/declaration.hpp>
#include <tessera/families/latent_attention/fits.hpp>
#include <tessera/families/losses/declaration.hpp>
#include <tessera/families/losses/fits.hpp>
#include <tessera/families/mean_pooling/declaration.hpp>
#include <tessera/families/mean_pooling/fits.hpp>
#include <tessera/families/quantized/declaration.hpp>
#include <tessera/families/quantized/fits.hpp>
#include <tessera/families/selective_scan/declaration.hpp>
#include <tessera/families/selective_scan/fits.hpp>
#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/families/sparse_attention/fits.hpp>
#include <tessera/spec/problem_text.hpp>

namespace {

void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s: %s\n", what, text.c_str());
  std::abort();
}

template <class KernelArgs, class Problem>
void check(const std::string& text, tessera::result<Problem> (*parse)(std::string_view)) {
  const auto problem = parse(text);
  if (!problem) {
    if (problem.message().empty()) fail("refused without a word", text);
    return;
  }
  // Texts are compared, not problems: a scale that is NaN differs from itself.
  const std::string written = to_text(*problem);
  const auto again = parse(written);
  if (!again) fail("written, but not read", written + " (" + again.message() + ")");
  if (to_text(*again) != written) fail("changed", written);
  KernelArgs lowered;
  const tessera::status valid = lower(*problem, lowered);
  if (!valid && valid.message().empty()) fail("invalid without a word", written);
  if (valid) static_cast<void>(demand_of(*problem));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  check<tessera::attention_kernel_args>(text, &tessera::parse_problem<tessera::flash_problem>);
  check<tessera::mean_pooling_kernel_args>(text,
                                           &tessera::parse_problem<tessera::mean_pooling_problem>);
  check<tessera::attention_backward_kernel_args>(
      text, &tessera::parse_problem<tessera::attention_backward_problem>);
  check<tessera::kv_cache_kernel_args>(text, &tessera::parse_problem<tessera::kv_cache_problem>);
  check<tessera::chunked_scan_kernel_args>(text,
                                           &tessera::parse_problem<tessera::recurrent_problem>);
  check<tessera::chunked_scan_kernel_args>(text, &tessera::parse_problem<tessera::rwkv6_problem>);
  check<tessera::delta_rule_kernel_args>(text,
                                         &tessera::parse_problem<tessera::delta_rule_problem>);
  check<tessera::selective_scan_kernel_args>(text,
                                             &tessera::parse_problem<tessera::state_space_problem>);
  check<tessera::selective_scan_kernel_args>(text, &tessera::parse_problem<tessera::rwkv4_problem>);
  check<tessera::quantized_kernel_args>(text, &tessera::parse_problem<tessera::weight_problem>);
  check<tessera::quantized_kernel_args>(text,
                                        &tessera::parse_problem<tessera::quantized_matmul_problem>);
  check<tessera::delta_rule_kernel_args>(text, &tessera::parse_problem<tessera::rwkv7_problem>);
  check<tessera::delta_rule_kernel_args>(
      text, &tessera::parse_problem<tessera::ragged_delta_rule_problem>);
  check<tessera::delta_rule_kernel_args>(
      text, &tessera::parse_problem<tessera::ragged_delta_rule_v2_problem>);
  check<tessera::latent_attention_kernel_args>(text,
                                               &tessera::parse_problem<tessera::flash_mla_problem>);
  check<tessera::latent_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::flash_mla_decode_problem>);
  check<tessera::latent_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::latent_ragged_problem>);
  check<tessera::latent_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::deepseek_attn_problem>);
  check<tessera::sparse_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::blocksparse_problem>);
  check<tessera::sparse_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::blocksparse_backward_problem>);
  check<tessera::grouped_matmul_kernel_args>(
      text, &tessera::parse_problem<tessera::grouped_matmul_problem>);
  check<tessera::losses_kernel_args>(text, &tessera::parse_problem<tessera::cross_entropy_problem>);
  check<tessera::losses_kernel_args>(text, &tessera::parse_problem<tessera::kl_divergence_problem>);
  check<tessera::losses_kernel_args>(
      text, &tessera::parse_problem<tessera::linear_cross_entropy_problem>);
  check<tessera::sparse_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::native_sparse_problem>);
  check<tessera::sparse_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::native_sparse_backward_problem>);
  check<tessera::sparse_attention_kernel_args>(
      text, &tessera::parse_problem<tessera::block_selection_problem>);
  return 0;
}
