// Runs every row of the library it is linked with, through the public call, and prints the rows:
// CPU rows on this processor, CUDA rows on the first GPU, if there is one.
// Values that depend on their column only come out as they went in, whatever the weights are.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/families/attention/registry.hpp>
#include <tessera/runtime/device_memory.hpp>
#include <tessera/tessera.hpp>

namespace {

constexpr std::int64_t queries = 5;
constexpr std::int64_t keys = 80;
constexpr std::int64_t heads = 2;
constexpr std::int64_t page_tokens = 16;

/// A tensor in host memory and, for rows that run there, on a GPU.
template <class Element>
struct tensor {
  explicit tensor(std::int64_t size) : host(std::size_t(size)) {}

  tessera::status place(tessera::device_id where) {
    device = where;
    if (where.kind == tessera::device_kind::cpu) return {};
    auto made = tessera::device_buffer::allocate(where, bytes());
    if (!made) return made.failure();
    memory = std::move(*made);
    return tessera::copy_memory(where, memory.data(), host.data(), bytes());
  }
  tessera::status fetch() {
    if (device.kind == tessera::device_kind::cpu) return {};
    return tessera::copy_memory(device, host.data(), memory.data(), bytes());
  }
  tessera::tensor_view view(std::initializer_list<std::int64_t> extent) {
    void* data = memory.data() != nullptr ? static_cast<void*>(memory.data()) : host.data();
    return tessera::view(static_cast<Element*>(data), extent, {}, device);
  }
  std::size_t bytes() const { return host.size() * sizeof(Element); }

  std::vector<Element> host;
  tessera::device_buffer memory;
  tessera::device_id device{};
};

/// Every query is the last token of a sequence of its own; all sequences share the pages of k and
/// v.
template <class Element>
tessera::status call_paged(tensor<Element>& q, tensor<Element>& k, tensor<Element>& v,
                           tensor<Element>& out, std::int64_t dim, std::int64_t v_dim,
                           tessera::device_id where, const tessera::context& context) {
  constexpr std::int64_t pages = keys / page_tokens;
  tensor<std::int32_t> block_table(queries * pages), lengths(queries);
  for (std::size_t i = 0; i < block_table.host.size(); ++i) {
    block_table.host[i] = std::int32_t((3 * i) % std::size_t(pages));
  }
  for (std::int32_t& length : lengths.host) length = keys - 3;
  for (tensor<std::int32_t>* each : {&block_table, &lengths}) {
    if (auto done = each->place(where); !done) return done;
  }
  return tessera::page_attention({.q = q.view({queries, heads, dim}),
                                  .k_pages = k.view({pages, page_tokens, 1, dim}),
                                  .v_pages = v.view({pages, page_tokens, 1, v_dim}),
                                  .block_table = block_table.view({queries, pages}),
                                  .seqlens_k = lengths.view({queries}),
                                  .out = out.view({queries, heads, v_dim})},
                                 {.pool_layout = tessera::page_layout::PTHD}, context);
}

/// What lies in a column of v: the element type has it exactly.
template <class Element>
float value_of(std::size_t column) {
  return float(sizeof(Element) > 1 ? column : column % 16);
}

template <class Element, class Out = Element>
std::string run(const tessera::instance& row, tessera::device_id where) {
  const auto& config = row.config_as<tessera::attention_config>();
  const std::int64_t dim = config.head_dim == 0 ? 40 : config.head_dim;
  const std::int64_t v_dim = config.v_head_dim == 0 ? 24 : config.v_head_dim;
  tensor<Element> q(queries * heads * dim), k(keys * dim), v(keys * v_dim);
  tensor<Out> out(queries * heads * v_dim);
  for (std::size_t i = 0; i < q.host.size(); ++i) q.host[i] = Element(std::sin(float(i)));
  for (std::size_t i = 0; i < k.host.size(); ++i) k.host[i] = Element(std::cos(float(i)));
  for (std::size_t i = 0; i < v.host.size(); ++i) {
    v.host[i] = Element(value_of<Element>(i % std::size_t(v_dim)));
  }
  for (tensor<Element>* each : {&q, &k, &v}) {
    if (const auto done = each->place(where); !done) return done.message();
  }
  if (const auto done = out.place(where); !done) return done.message();
  tessera::context context;
  context.row = row.name;
  const auto q_view = q.view({1, queries, heads, dim}), k_view = k.view({1, keys, 1, dim}),
             v_view = v.view({1, keys, 1, v_dim}), out_view = out.view({1, queries, heads, v_dim});
  tessera::status done;
  if constexpr (!std::is_same_v<Element, Out>) {
    done = tessera::fp8_attention({.q = q_view, .k = k_view, .v = v_view, .out = out_view},
                                  {.causal = true}, context);
  } else if (are_paged(config.keys)) {
    done = call_paged(q, k, v, out, dim, v_dim, where, context);
  } else {
    done = tessera::flash_attention({.q = q_view, .k = k_view, .v = v_view, .out = out_view},
                                    {.causal = true}, context);
  }
  if (!done) return done.message();
  if (const auto fetched = out.fetch(); !fetched) return fetched.message();
  for (std::size_t i = 0; i < out.host.size(); ++i) {
    const float expected = value_of<Element>(i % std::size_t(v_dim));
    const float found = float(out.host[i]);
    if (!(std::abs(found - expected) <= 0.02f * std::max(1.0f, expected))) {
      return "out[" + std::to_string(i) + "] is " + std::to_string(found) + ", expected " +
             std::to_string(expected);
    }
  }
  return {};
}

std::string run_row(const tessera::instance& row, tessera::device_id where) {
  switch (row.config_as<tessera::attention_config>().type) {
    case tessera::dtype::f32:
      return run<float>(row, where);
    case tessera::dtype::f16:
      return run<tessera::f16>(row, where);
    case tessera::dtype::f8_e4m3:
      return run<tessera::f8_e4m3, tessera::bf16>(row, where);
    default:
      return run<tessera::bf16>(row, where);
  }
}

}  // namespace

int main() {
  int failed = 0;
  std::string without;
  for (const tessera::instance& row : tessera::attention_registry()) {
    const bool cuda = tessera::is_cuda(row.target);
    const tessera::device_id where{cuda ? tessera::device_kind::cuda : tessera::device_kind::cpu,
                                   0};
    const auto device = tessera::find_device(where);
    if (!device) without = device.message();
    const bool runs = device && (*device)->runs(row.target);
    const std::string fault = runs ? run_row(row, where) : std::string();
    std::printf("%.*s\n", int(row.name.size()), row.name.data());
    if (!fault.empty()) {
      std::fprintf(stderr, "%.*s: %s\n", int(row.name.size()), row.name.data(), fault.c_str());
      ++failed;
    }
  }
  if (!without.empty()) std::fprintf(stderr, "CUDA rows were not run: %s\n", without.c_str());
  return failed == 0 ? 0 : 1;
}
