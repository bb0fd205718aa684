#include "operations.hpp"

namespace tessera::reference {

const operation_reference* reference_of(std::string_view op) noexcept {
  for (const auto table : {&attention_references,
                           &paged_references,
                           &ragged_decode_references,
                           &fp8_references,
                           &paged_batch_references,
                           &mean_pooling_references,
                           &attention_backward_references,
                           &kv_cache_references,
                           &chunked_scan_references,
                           &delta_rule_references,
                           &selective_scan_references,
                           &rwkv7_references,
                           &ragged_delta_rule_references,
                           &latent_attention_references,
                           &latent_page_references,
                           &deepseek_attn_references,
                           &quantized_references,
                           &sparse_attention_references,
                           &grouped_matmul_references,
                           &scaled_matmul_references,
                           &losses_references,
                           &native_sparse_references}) {
    for (const operation_reference& known : table()) {
      if (known.op == op) return &known;
    }
  }
  return nullptr;
}

}  // namespace tessera::reference
