#include "paged_form.hpp"

#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace tessera::tool {
namespace {

std::optional<paged_form> form_of(const attention_layer& layer, dtype, std::int64_t page_size) {
  paged_form form;
  form.operation = "chunked_prefill_paged_decode";
  const auto option = [&](std::string_view name, auto value) {
    form.options += fmt::format(" {}={}", name, value);
  };
  if (layer.softmax_scale) option("softmax_scale", *layer.softmax_scale);
  if (layer.window) option("window_left", *layer.window - 1);
  if (layer.logits_soft_cap) option("logits_soft_cap", *layer.logits_soft_cap);
  const std::vector<std::int64_t> keys{layer.kv_heads, layer.head_dim};
  form.queries = {{"q", {layer.q_heads, layer.head_dim}}};
  form.fresh = {{"k_new", keys}, {"v_new", keys}};
  form.out = {"out", {layer.q_heads, layer.head_dim}};
  const std::vector<std::int64_t> page{page_size, layer.kv_heads, layer.head_dim};
  const std::int64_t columns = layer.kv_heads * layer.head_dim;
  form.pools = {{"k_pages", page, columns, {{0, 0}}}, {"v_pages", page, columns, {{1, 0}}}};
  form.table = "block_table";
  form.lengths = "seqlens_k";
  form.count = "num_seqs";
  if (layer.sinks > 0) form.sinks = {layer.q_heads, layer.sinks};
  return form;
}

/// The projections of queries and outputs into the latents are matrix products beside it.
std::optional<paged_form> form_of(const latent_layer& layer, dtype type, std::int64_t page_size) {
  const std::int64_t lanes = 4 / static_cast<std::int64_t>(size_of(type));
  if (page_size % lanes != 0) return std::nullopt;
  const auto padded = [](std::int64_t columns) { return (columns + 127) / 128 * 128; };
  const std::int64_t rope_column = padded(layer.latent);
  const std::int64_t columns = rope_column + padded(layer.rope_dim);
  paged_form form;
  form.operation = "multi_latent_ragged_page_attention";
  form.options = fmt::format(" softmax_scale={}", layer.softmax_scale);
  form.queries = {{"q_nope", {layer.heads, layer.latent}}, {"q_pe", {layer.heads, layer.rope_dim}}};
  form.fresh = {{"ckv", {layer.latent}}, {"k_pe", {layer.rope_dim}}};
  form.out = {"out", {layer.heads, layer.latent}};
  form.pools = {
      {"kv_cache", {page_size / lanes, lanes, columns}, columns, {{0, 0}, {1, rope_column}}}};
  form.table = "block_tables";
  form.lengths = "kv_lens";
  form.count = "distribution";
  form.counts = 3;
  return form;
}

template <class Layer>
std::optional<paged_form> form_of(const Layer&, dtype, std::int64_t) {
  return std::nullopt;  // a state of constant size, no pages
}

}  // namespace

std::int64_t token_tensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::optional<paged_form> paged_form_of(const layer_kind& kind, dtype type,
                                        std::int64_t page_size) {
  return std::visit([&](const auto& layer) { return form_of(layer, type, page_size); }, kind.mixer);
}

}  // namespace tessera::tool
