// CPU rows of sparse attention with a type, which stand on the dense kernels: blocks that hide
// nothing have the bits of the dense row, and tokens that nobody sees or selects are not there.
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/reflect.hpp>
#include <tessera/families/sparse_attention/dense_config.hpp>
#include <tessera/families/sparse_attention/family.hpp>
#include <tessera/flash_attention.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;
using tessera::sparse_attention_config, tessera::tensor_view, tessera::view;

/// Tensors [1, tokens, heads, head dim].
template <class Element>
struct tokens_of_heads {
  static constexpr std::int64_t q_heads = 4, kv_heads = 2, length = 700;
  std::int64_t head_dim;
  std::vector<Element> q, k, v, out;

  explicit tokens_of_heads(std::int64_t width) : head_dim(width) {
    random_source random(5);
    for (auto [rows, heads] : {std::pair{&q, q_heads}, {&k, kv_heads}, {&v, kv_heads}}) {
      for (std::int64_t at = 0; at < heads * length * width; ++at) {
        rows->emplace_back(random.bell());
      }
    }
    out.resize(q.size());
  }
  tensor_view rows(std::vector<Element>& of, std::int64_t heads) const {
    return view(of.data(), {1, length, heads, head_dim});
  }
  std::vector<float> take_out() {
    std::vector<float> all;
    for (Element& value : out) {
      all.push_back(static_cast<float>(value));
      value = Element(-1.0f);
    }
    return all;
  }
  /// Keys and values of these tokens are NaN.
  void spoil(const std::function<bool(std::int64_t)>& spoiled) {
    const std::int64_t columns = kv_heads * head_dim;
    for (std::int64_t at = 0; at < length * columns; ++at) {
      if (!spoiled(at / columns)) continue;
      k[static_cast<std::size_t>(at)] = v[static_cast<std::size_t>(at)] =
          Element(std::numeric_limits<float>::quiet_NaN());
    }
  }
};

/// Heads in front of tokens: a permutation of strides.
tensor_view heads_first(tensor_view of) {
  std::swap(of.extent[1], of.extent[2]);
  std::swap(of.stride[1], of.stride[2]);
  return of;
}

/// Calls body(row, config, element) for the rows of the pattern that have a type and run here.
template <class Body>
void for_each_row(tessera::sparse_pattern pattern, const Body& body) {
  for (const tested_row& tested : tested_rows()) {
    if (tested.kind->name != tessera::sparse_attention_family::name) continue;
    const auto& config = tested.row->config_as<sparse_attention_config>();
    if (config.pattern != pattern || !is_cpu(config.target) || !runs_here(config.target)) continue;
    SCOPED_TRACE(std::string(tested.row->name));
    if (config.type == tessera::dtype::f32) body(*tested.row, config, float{});
    if (config.type == tessera::dtype::f16) body(*tested.row, config, tessera::f16{});
    if (config.type == tessera::dtype::bf16) body(*tested.row, config, tessera::bf16{});
  }
}

/// The row of the table that the blocksparse row stands on.
std::string dense_row_of(const sparse_attention_config& config) {
  tessera::attention_config dense = tessera::dense_config(config);
  dense.features = tessera::base_features;
  return std::string(name_of(dense).view());
}

template <class Element>
tessera::blocksparse_attention_args sparse_args(tokens_of_heads<Element>& of) {
  return {.q = heads_first(of.rows(of.q, of.q_heads)),
          .k = heads_first(of.rows(of.k, of.kv_heads)),
          .v = heads_first(of.rows(of.v, of.kv_heads)),
          .out = heads_first(of.rows(of.out, of.q_heads))};
}

TEST(sparse_rows_of_types, with_nothing_hidden_have_the_bits_of_the_dense_row) {
  for_each_row(
      tessera::sparse_pattern::blocksparse,
      [](const tessera::instance& row, const sparse_attention_config& config, auto element) {
        tokens_of_heads<decltype(element)> of(config.head_dim);
        const std::string dense = dense_row_of(config);
        const std::vector<std::uint8_t> shown(4 * 11 * 11, 1);
        for (const bool causal : {false, true}) {
          const auto done = tessera::flash_attention({.q = of.rows(of.q, of.q_heads),
                                                      .k = of.rows(of.k, of.kv_heads),
                                                      .v = of.rows(of.v, of.kv_heads),
                                                      .out = of.rows(of.out, of.q_heads)},
                                                     {.causal = causal}, {.row = dense});
          ASSERT_TRUE(done) << done.message();
          const std::vector<float> wanted = of.take_out();
          for (const std::int64_t block : {64, 128}) {
            for (const std::int64_t heads : {1, 4}) {
              const std::int64_t blocks = (of.length + block - 1) / block;
              auto args = sparse_args(of);
              args.block_mask = view(shown.data(), {std::int64_t{1}, heads, blocks, blocks});
              for (const int threads : {1, 2}) {
                const auto sparse = tessera::blocksparse_attention(
                    args, {.causal = causal, .block_q = block, .block_k = block},
                    {.row = row.name, .threads = threads});
                ASSERT_TRUE(sparse) << sparse.message();
                ASSERT_EQ(of.take_out(), wanted) << dense << ", blocks of " << block;
              }
            }
          }
        }
      });
}

TEST(sparse_rows_of_types, leave_out_what_blocks_hide) {
  for_each_row(
      tessera::sparse_pattern::blocksparse,
      [](const tessera::instance& row, const sparse_attention_config& config, auto element) {
        for (const std::int64_t block : {20, 64, 100}) {
          tokens_of_heads<decltype(element)> of(config.head_dim);
          const std::int64_t blocks = (of.length + block - 1) / block;
          // Every third block of keys is nobody's.
          std::vector<std::uint8_t> shown(static_cast<std::size_t>(blocks * blocks));
          for (std::int64_t at = 0; at < blocks * blocks; ++at) {
            const std::int64_t i = at / blocks, j = at % blocks;
            shown[static_cast<std::size_t>(at)] = j % 3 != 1 && (i * 7 + j * 5) % 4 != 0 ? 1 : 0;
          }
          auto args = sparse_args(of);
          args.block_mask = view(shown.data(), {std::int64_t{1}, std::int64_t{1}, blocks, blocks});
          const auto run = [&] {
            const auto done = tessera::blocksparse_attention(
                args, {.block_q = block, .block_k = block}, {.row = row.name, .threads = 2});
            EXPECT_TRUE(done) << done.message();
            return of.take_out();
          };
          const std::vector<float> wanted = run();
          of.spoil([&](std::int64_t token) { return token / block % 3 == 1; });
          ASSERT_EQ(run(), wanted) << "blocks of " << block;
        }
      });
}

TEST(sparse_rows_of_types, leave_out_what_nobody_selects) {
  for_each_row(tessera::sparse_pattern::native_sparse, [](const tessera::instance& row,
                                                          const sparse_attention_config& config,
                                                          auto element) {
    for (const std::int64_t block : {16, 64, 100}) {
      using of_heads = tokens_of_heads<decltype(element)>;
      of_heads of(config.head_dim);
      constexpr std::int64_t slots = 3;
      // Even blocks, in no order, and numbers that are no block's.
      std::vector<std::int32_t> numbers;
      for (std::int64_t at = 0; at < of_heads::length * of_heads::kv_heads; ++at) {
        const auto own = static_cast<std::int32_t>(at / of_heads::kv_heads / block);
        for (const std::int32_t number : {own / 2 * 2, at % 5 == 0 ? -1 : own / 4 * 2, 1 << 20}) {
          numbers.push_back(number);
        }
      }
      const auto run = [&] {
        const auto done = tessera::native_sparse_attention(
            {.q = of.rows(of.q, of.q_heads),
             .k = of.rows(of.k, of.kv_heads),
             .v = of.rows(of.v, of.kv_heads),
             .block_indices =
                 view(numbers.data(), {std::int64_t{1}, of.length, of.kv_heads, slots}),
             .out = of.rows(of.out, of.q_heads)},
            {.block_size = block, .block_count = slots}, {.row = row.name, .threads = 2});
        EXPECT_TRUE(done) << done.message();
        return of.take_out();
      };
      const std::vector<float> wanted = run();
      for (const float x : wanted) ASSERT_TRUE(std::isfinite(x));
      of.spoil([&](std::int64_t token) { return token / block % 2 == 1; });
      ASSERT_EQ(run(), wanted) << "blocks of " << block;
    }
  });
}

}  // namespace
