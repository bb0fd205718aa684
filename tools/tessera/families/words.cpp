// Every family in words for the commands.
#include <algorithm>
#include <array>
#include <string_view>

#include <tessera/families/attention_backward/family.hpp>
#include <tessera/families/attention_backward/reflect.hpp>
#include <tessera/families/chunked_scan/family.hpp>
#include <tessera/families/chunked_scan/reflect.hpp>
#include <tessera/families/delta_rule/family.hpp>
#include <tessera/families/delta_rule/reflect.hpp>
#include <tessera/families/grouped_matmul/family.hpp>
#include <tessera/families/grouped_matmul/reflect.hpp>
#include <tessera/families/kv_cache/family.hpp>
#include <tessera/families/kv_cache/reflect.hpp>
#include <tessera/families/latent_attention/family.hpp>
#include <tessera/families/latent_attention/reflect.hpp>
#include <tessera/families/losses/family.hpp>
#include <tessera/families/losses/reflect.hpp>
#include <tessera/families/mean_pooling/family.hpp>
#include <tessera/families/mean_pooling/reflect.hpp>
#include <tessera/families/quantized/family.hpp>
#include <tessera/families/quantized/reflect.hpp>
#include <tessera/families/selective_scan/family.hpp>
#include <tessera/families/selective_scan/reflect.hpp>
#include <tessera/families/sparse_attention/family.hpp>
#include <tessera/families/sparse_attention/reflect.hpp>

#include "declared_call.hpp"

namespace tessera::tool {
namespace {

/// Of a family whose configs are numbers and enumerators, and whose kernels have no shared memory
/// that a config decides.
template <class Family>
constexpr family_words words_from() {
  return {.name = Family::name, .config_of = [](const void* config) {
            return members_of(*static_cast<const typename Family::config_type*>(config),
                              [](const auto&) { return boost::json::value(); });
          }};
}

}  // namespace

const family_words* words_of(std::string_view family) {
  static constexpr std::array all{
      words_from<mean_pooling_family>(),     words_from<attention_backward_family>(),
      words_from<kv_cache_family>(),         words_from<chunked_scan_family>(),
      words_from<delta_rule_family>(),       words_from<selective_scan_family>(),
      words_from<latent_attention_family>(), words_from<quantized_family>(),
      words_from<sparse_attention_family>(), words_from<grouped_matmul_family>(),
      words_from<losses_family>(),
  };
  const auto found = std::ranges::find(all, family, &family_words::name);
  if (found != all.end()) return &*found;
  return family == attention_words.name ? &attention_words : nullptr;
}

}  // namespace tessera::tool
