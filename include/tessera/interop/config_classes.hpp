// Configuration classes of ejKernel as row patterns: what a program that tuned those by hand asks
// of this library. One table; a class whose kernels are not in this version has no pattern.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <tessera/spec/sentence.hpp>
#include <tessera/spec/status.hpp>
#include <tessera/spec/words.hpp>

namespace tessera {

/// One configuration class.
struct config_class {
  std::string_view name;
  /// Row pattern; `{field}` is the value of that field, or `*` where it is not given. Empty: this
  /// version has no family for it.
  std::string_view pattern;
};

inline constexpr std::array config_classes{
    config_class{"FlashAttention", "attention.{backend}.*.{q_blocksize}x{kv_blocksize}"},
    config_class{"Attention", "attention.{backend}.*.{block_q}x{block_k}"},
    config_class{"ScaledDotProductAttention", "attention.{backend}.*.{block_q}x{block_k}"},
    config_class{"DecodeAttention", "attention.{backend}.*.decode.*"},
    config_class{"MeanPooling", "mean_pooling.{backend}.*"},
    config_class{"BlockSparseAttention", "sparse_attention.{backend}.blocksparse.*"},
    config_class{"NativeSparseAttention", "sparse_attention.{backend}.native_sparse.*"},
    config_class{"RecurrentAttention", "chunked_scan.{backend}.*"},
    config_class{"GLAttention", "chunked_scan.{backend}.*"},
    config_class{"LightningAttention", "chunked_scan.{backend}.*"},
    config_class{"RingAttention", ""},
    config_class{"PageAttention", ""},
    config_class{"PrefillPageAttention", ""},
    config_class{"ChunkedPrefillPagedDecode", ""},
    config_class{"UnifiedAttention", ""},
    config_class{"RaggedDecodeAttention", ""},
    config_class{"RaggedPageAttentionv2", ""},
    config_class{"RaggedPageAttentionv3", ""},
    config_class{"RaggedPageAttentionv2TurboQuant", ""},
    config_class{"RaggedPageAttentionv3TurboQuant", ""},
    config_class{"MLRPA", "latent_attention.{backend}.absorbed.*"},
    config_class{"MLRPAv2", "latent_attention.{backend}.absorbed.*"},
    config_class{"FlashMLA", "latent_attention.{backend}.expanded.*"},
    config_class{"DeepSeekAttn", "latent_attention.{backend}.selected.*"},
    config_class{"GroupedMatmul", "grouped_matmul.{backend}.{block_m}x{block_n}x{block_k}"},
    config_class{"QuantizedMatmul", "quantized.{backend}.forward*"},
    config_class{"AllGatherMatmul", ""},
    config_class{"ReduceScatterMatmul", ""},
    config_class{"KDA", "delta_rule.{backend}.*"},
    config_class{"GDR", "delta_rule.{backend}.*"},
    config_class{"RaggedGDR", "delta_rule.{backend}.*"},
    config_class{"RWKV4", "selective_scan.{backend}.*"},
    config_class{"RWKV6", "chunked_scan.{backend}.*"},
    config_class{"RWKV7", "delta_rule.{backend}.*"},
    config_class{"RWKV7Mul", "delta_rule.{backend}.*"},
    config_class{"StateSpacev1", "selective_scan.{backend}.*"},
    config_class{"StateSpacev2", "selective_scan.{backend}.*"},
};

/// A field of those classes that is no tile extent of ours, and where its meaning went.
struct config_field {
  std::string_view field;
  std::string_view now;
};

inline constexpr std::array config_fields{
    config_field{"platform", "the backend is part of a row's name"},
    config_field{"algorithm", "the operation is named by the call"},
    config_field{"priority", "rows are ranked by measured or predicted time"},
    config_field{"num_warps", "threads of a block belong to the row's backend"},
    config_field{"num_stages", "pipeline stages belong to the row's backend"},
    config_field{"blocksize_m", "a tile has query rows and keys only"},
    config_field{"blocksize_n", "a tile has query rows and keys only"},
    config_field{"blocksize_k", "a tile has query rows and keys only"},
    config_field{"block_m", "tiles of products belong to the row's backend"},
    config_field{"block_n", "tiles of products belong to the row's backend"},
    config_field{"block_k", "tiles of products belong to the row's backend"},
    config_field{"split_k", "products are cut by their sizes"},
    config_field{"use_bf16", "products with codes are float"},
    config_field{"blocksize_heads", "heads of a group are rows of one tile"},
    config_field{"blocksize_keys", "a tile has query rows and keys only"},
    config_field{"num_key_splits", "decode rows cut the keys by their number"},
    config_field{"num_kv_splits", "decode rows cut the keys by their number"},
    config_field{"bypass_xla_tiling", "there is no other matmul to fall back to"},
    config_field{"block_size", "pooling rows read whole tokens"},
    config_field{"block_dim", "pooling rows read whole tokens"},
};

/// The class of that name, or null.
constexpr const config_class* config_class_named(std::string_view name) noexcept {
  for (const config_class& one : config_classes) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

namespace impl {

/// The part of a pattern that a field's value becomes; empty if the value has no such form.
[[gnu::cold]] inline std::string pattern_word(std::string_view field, std::string_view value) {
  if (value == "None" || value == "any" || value == "auto") return "*";
  if (field == "backend") {
    if (value == "cpu") return "cpu_*";
    return value == "gpu" || value == "cuda" ? "cuda_*" : "";
  }
  int number = 0;
  return text::read_number(value, number) && number > 0 ? std::string(value) : std::string();
}

}  // namespace impl

/// The row pattern of a configuration: for context.row and overlays. `fields` is text like
/// "q_blocksize=112 kv_blocksize=256 num_warps=4"; a prefix `fwd_params.` is accepted, `None` is
/// as if the field were not given, backend `cpu` and `gpu` stand for all of their kind. Refuses
/// unknown classes and fields, and classes without a family.
[[gnu::cold]] inline result<std::string> row_pattern_of(std::string_view config_class_name,
                                                        std::string_view fields) {
  const auto refused = [&](sentence_parts parts) -> result<std::string> {
    return refusal(status_code::malformed,
                   {"configuration ", config_class_name, ": ", sentence(parts)});
  };
  const config_class* const found = config_class_named(config_class_name);
  if (found == nullptr) return refused({"there is no such class"});
  if (found->pattern.empty()) return refused({"its kernels are not in this version"});
  std::string pattern(found->pattern);
  while (!fields.empty()) {
    const std::string_view word = text::split_off(fields, ' ');
    if (word.empty()) continue;
    const std::size_t equals = word.find('=');
    std::string_view field = word.substr(0, equals);
    if (field.starts_with("fwd_params."))
      field.remove_prefix(std::string_view("fwd_params.").size());
    if (equals == std::string_view::npos) {
      return refused({"'", word, "' has no '=', fields are name=value"});
    }
    const std::string place = sentence({"{", field, "}"});
    const std::size_t at = pattern.find(place);
    bool elsewhere = false;
    for (const config_field& gone : config_fields) elsewhere |= gone.field == field;
    if (at == std::string::npos && elsewhere) continue;
    if (at == std::string::npos) return refused({"has no field '", field, "'"});
    const std::string value = impl::pattern_word(field, word.substr(equals + 1));
    if (value.empty()) {
      return refused({word, " must be ",
                      field == "backend" ? "any, cpu or gpu" : "a positive number or None"});
    }
    pattern.replace(at, place.size(), value);
  }
  for (std::size_t open = pattern.find('{'); open != std::string::npos; open = pattern.find('{')) {
    pattern.replace(open, pattern.find('}', open) + 1 - open, "*");
  }
  return pattern;
}

}  // namespace tessera
