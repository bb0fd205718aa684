// Mask functors on rows of blocksparse attention with a type, which stand on the dense kernels:
// what the row for any type writes, also where heads of a group have masks of their own, for any
// number of threads.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/sparse_attention/declaration.hpp>
#include <tessera/launch.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/op/sparse_attention/functors.hpp"

namespace {

using namespace tessera::support;

struct any_row {
  static constexpr tessera::sparse_attention_config config{.target = tessera::native_cpu_backend};
};
/// Of bf16 where its products are instructions, else of f32.
constexpr bool of_bf16 = has_bf16_products(tessera::native_cpu_bf16_backend);
using element = std::conditional_t<of_bf16, tessera::bf16, float>;
struct typed_row {
  static constexpr tessera::sparse_attention_config config{
      .target = tessera::native_cpu_bf16_backend,
      .type = of_bf16 ? tessera::dtype::bf16 : tessera::dtype::f32,
      .head_dim = 64};
};

/// out and lse.
template <class Row, class Mask>
std::vector<float> results_of(sparse_call<element>& call,
                              const tessera::blocksparse_attention_args& args,
                              const tessera::blocksparse_attention_options& options,
                              const Mask& mask, int threads = 2) {
  call.clear();
  const auto done = tessera::launch<Row>(args, options, tessera::cpu{.threads = threads},
                                         tessera::with_mask(mask));
  EXPECT_TRUE(done) << done.message();
  std::vector<float> all(call.lse);
  for (const element x : call.out) all.push_back(static_cast<float>(x));
  return all;
}

void expect_near(const std::vector<float>& computed, const std::vector<float>& wanted) {
  constexpr float tolerance = of_bf16 ? 2e-2f : 2e-5f;
  ASSERT_EQ(computed.size(), wanted.size());
  for (std::size_t at = 0; at < wanted.size(); ++at) {
    ASSERT_TRUE(computed[at] == wanted[at] || std::abs(computed[at] - wanted[at]) < tolerance)
        << at << ": " << computed[at] << ", not " << wanted[at];
  }
}

TEST(blocksparse_header_path, rows_of_a_type_ask_functors) {
  sparse_call<element> call(300, 390, 64, 64);
  const heads_of_blocks functor;
  const std::vector<std::int32_t> documents = documents_of(390);
  for (const std::int64_t block_k : {16, 64, 100}) {
    for (const std::int64_t heads : {std::int64_t{1}, call.q_heads}) {
      SCOPED_TRACE(testing::Message() << block_k << ", " << heads);
      const tessera::block_grid grid = call.grid(64, block_k, heads);
      std::vector<std::uint8_t> shown;
      for (std::int64_t at = 0; at < grid.blocks(); ++at) {
        shown.push_back(static_cast<std::uint8_t>((at * 7 + at / 5) % 3));
      }
      auto args = call.args();
      args.block_mask = tessera::view(shown.data(), {1, heads, grid.rows(), grid.columns()});
      const auto expect_same = [&](tessera::blocksparse_attention_options options) {
        options.block_q = 64;
        options.block_k = block_k;
        const std::vector<float> computed = results_of<typed_row>(call, args, options, functor, 1);
        for (const int threads : {2, 3, 5}) {
          ASSERT_EQ(results_of<typed_row>(call, args, options, functor, threads), computed)
              << threads << " threads";
        }
        expect_near(computed, results_of<any_row>(call, args, options, functor));
      };
      expect_same({});
      expect_same({.causal = true});
      expect_same({.window_left = 70, .window_right = 20, .chunk_size = 150});
      args.q_segment_ids = tessera::view(documents.data(), {1, call.q_len});
      args.kv_segment_ids = tessera::view(documents.data(), {1, call.kv_len});
      expect_same({.causal = true});
    }
  }
}

}  // namespace
