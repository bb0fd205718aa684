// Runs every row of the library it is linked with, through the public call, and prints the rows.
// Values that depend on their column only come out as they went in, whatever the weights are.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

namespace {

constexpr std::int64_t queries = 5;
constexpr std::int64_t keys = 70;
constexpr std::int64_t heads = 2;

template <class Element>
std::string run(const tessera::flash_instance& row) {
  const std::int64_t dim = row.config.head_dim == 0 ? 40 : row.config.head_dim;
  const std::int64_t v_dim = row.config.v_head_dim == 0 ? 24 : row.config.v_head_dim;
  std::vector<Element> q(std::size_t(queries * heads * dim));
  std::vector<Element> k(std::size_t(keys * dim));
  std::vector<Element> v(std::size_t(keys * v_dim));
  std::vector<Element> out(std::size_t(queries * heads * v_dim));
  for (std::size_t i = 0; i < q.size(); ++i) q[i] = Element(std::sin(float(i)));
  for (std::size_t i = 0; i < k.size(); ++i) k[i] = Element(std::cos(float(i)));
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = Element(float(i % std::size_t(v_dim)));

  const tessera::flash_attention_args args{
      .q = tessera::view(q.data(), {1, queries, heads, dim}),
      .k = tessera::view(k.data(), {1, keys, 1, dim}),
      .v = tessera::view(v.data(), {1, keys, 1, v_dim}),
      .out = tessera::view(out.data(), {1, queries, heads, v_dim})};
  tessera::context context;
  context.row = row.name;
  if (const auto done = tessera::flash_attention(args, {.causal = true}, context); !done) {
    return done.message();
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float expected = float(i % std::size_t(v_dim));
    const float found = float(out[i]);
    if (!(std::abs(found - expected) <= 0.02f * std::max(1.0f, expected))) {
      return "out[" + std::to_string(i) + "] is " + std::to_string(found) + ", expected " +
             std::to_string(expected);
    }
  }
  return {};
}

std::string run_row(const tessera::flash_instance& row) {
  switch (row.config.type) {
    case tessera::dtype::f32:
      return run<float>(row);
    case tessera::dtype::f16:
      return run<tessera::f16>(row);
    default:
      return run<tessera::bf16>(row);
  }
}

}  // namespace

int main() {
  int failed = 0;
  for (const tessera::flash_instance& row : tessera::flash_fwd_registry()) {
    const bool runs = tessera::this_device().runs(row.config.target);
    const std::string fault = runs ? run_row(row) : std::string();
    std::printf("%.*s\n", int(row.name.size()), row.name.data());
    if (!fault.empty()) {
      std::fprintf(stderr, "%.*s: %s\n", int(row.name.size()), row.name.data(), fault.c_str());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}
