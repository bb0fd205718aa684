// The list of families. A new one adds its axes, a function like these, and a line below.
#pragma once

#include <vector>

#include "table.hpp"

namespace tessera::generate {

family attention_family();
family mean_pooling_family();
family attention_backward_family();
family kv_cache_family();
family chunked_scan_family();
family delta_rule_family();
family selective_scan_family();
family latent_attention_family();
family quantized_family();
family sparse_attention_family();
family grouped_matmul_family();
family losses_family();

inline std::vector<family> all_families() {
  return {attention_family(),        mean_pooling_family(),     attention_backward_family(),
          kv_cache_family(),         chunked_scan_family(),     delta_rule_family(),
          selective_scan_family(),   latent_attention_family(), quantized_family(),
          sparse_attention_family(), grouped_matmul_family(),   losses_family()};
}

}  // namespace tessera::generate
