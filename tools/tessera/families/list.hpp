// The words of all families: a new one adds its file in this folder, and its place here.
#pragma once

#include <array>

#include "declared_call.hpp"

namespace tessera::tool {

inline constexpr std::array all_words{
    &attention_words,        &mean_pooling_words,     &attention_backward_words,
    &kv_cache_words,         &chunked_scan_words,     &delta_rule_words,
    &selective_scan_words,   &latent_attention_words, &quantized_words,
    &sparse_attention_words, &grouped_matmul_words,   &losses_words};

}  // namespace tessera::tool
