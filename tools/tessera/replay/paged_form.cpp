#include "paged_form.hpp"

#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace tessera::tool {
namespace {

/// Tokens are divided by what makes their largest element the largest number of the pool's type;
/// attention multiplies them again.
void add_token_scales(paged_form& form, std::int64_t page_size, std::int64_t heads) {
  for (const std::size_t pool : {std::size_t{0}, std::size_t{1}}) {
    form.pools[pool].parts[0].scales = form.pools.size();
    form.pools.push_back({.name = pool == 0 ? "k_token_scales" : "v_token_scales",
                          .page = {page_size, heads},
                          .columns = heads,
                          .parts = {},
                          .type = dtype::f32});
  }
}

std::optional<paged_form> form_of(const attention_layer& layer, dtype, std::int64_t page_size,
                                  bool token_scales) {
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
  form.pools = {{.name = "k_pages", .page = page, .columns = columns, .parts = {{.tensor = 0}}},
                {.name = "v_pages", .page = page, .columns = columns, .parts = {{.tensor = 1}}}};
  form.table = "block_table";
  form.lengths = "seqlens_k";
  form.count = "num_seqs";
  if (layer.sinks > 0) form.sinks = {layer.q_heads, layer.sinks};
  if (token_scales) add_token_scales(form, page_size, layer.kv_heads);
  return form;
}

/// The projections of queries and outputs into the latents are matrix products beside it.
std::optional<paged_form> form_of(const latent_layer& layer, dtype type, std::int64_t page_size,
                                  bool) {
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
  form.pools = {{.name = "kv_cache",
                 .page = {page_size / lanes, lanes, columns},
                 .columns = columns,
                 .parts = {{.tensor = 0}, {.tensor = 1, .column = rope_column}}}};
  form.table = "block_tables";
  form.lengths = "kv_lens";
  form.count = "distribution";
  form.counts = 3;
  return form;
}

template <class Layer>
std::optional<paged_form> form_of(const Layer&, dtype, std::int64_t, bool) {
  return std::nullopt;  // a state of constant size, no pages
}

}  // namespace

std::int64_t token_tensor::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::optional<paged_form> paged_form_of(const layer_kind& kind, dtype type, std::int64_t page_size,
                                        bool token_scales) {
  return std::visit(
      [&](const auto& layer) { return form_of(layer, type, page_size, token_scales); }, kind.mixer);
}

}  // namespace tessera::tool
