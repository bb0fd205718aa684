// CPU rows of sparse attention with a type, which stand on the dense kernels: blocks that hide
// nothing have the bits of the dense row, tokens that nobody sees or selects are not there, and no
// bit depends on threads or on the batch.
#include <algorithm>
#include <cmath>
#include <cstddef>
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

/// Tensors [entries, tokens, heads, head dim].
template <class Element>
struct tokens_of_heads {
  static constexpr std::int64_t q_heads = 4, kv_heads = 2, length = 700;
  std::int64_t head_dim, entries;
  std::vector<Element> q, k, v, out;

  explicit tokens_of_heads(std::int64_t width, std::int64_t count = 1)
      : head_dim(width), entries(count) {
    random_source random(5);
    for (auto [rows, heads] : {std::pair{&q, q_heads}, {&k, kv_heads}, {&v, kv_heads}}) {
      for (std::int64_t at = 0; at < count * heads * length * width; ++at) {
        rows->emplace_back(random.bell());
      }
    }
    out.resize(q.size());
  }
  tensor_view rows(std::vector<Element>& of, std::int64_t heads) const {
    return view(of.data(), {entries, length, heads, head_dim});
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

/// Entry `number` of a batch, alone.
tensor_view entry_of(tensor_view of, std::int64_t number) {
  const auto bytes = static_cast<std::int64_t>(size_of(of.type));
  of.data = static_cast<std::byte*>(of.data) + number * of.stride[0] * bytes;
  of.extent[0] = 1;
  return of;
}

/// Calls body(row, config, element) for the forward rows of the pattern that have a type and run
/// here.
template <class Body>
void for_each_row(tessera::sparse_pattern pattern, const Body& body) {
  for (const tested_row& tested : tested_rows()) {
    if (tested.kind->name != tessera::sparse_attention_family::name) continue;
    const auto& config = tested.row->config_as<sparse_attention_config>();
    if (config.pattern != pattern || config.pass != tessera::sparse_pass::forward) continue;
    if (!is_cpu(config.target) || !runs_here(config.target)) continue;
    SCOPED_TRACE(std::string(tested.row->name));
    if (config.type == tessera::dtype::f32) body(*tested.row, config, float{});
    if (config.type == tessera::dtype::f16) body(*tested.row, config, tessera::f16{});
    if (config.type == tessera::dtype::bf16) body(*tested.row, config, tessera::bf16{});
  }
}

/// A row for any type.
std::string any_row_of(tessera::sparse_pattern pattern) {
  const sparse_attention_config any{.target = tessera::backend::cpu_generic, .pattern = pattern};
  return std::string(name_of(any).view());
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

/// Which rows see which keys besides the mask of blocks: rows of a register tile differ in runs of
/// 32 keys.
struct runs_of_rows {
  static constexpr std::int64_t entries = 3, length = tokens_of_heads<float>::length;
  std::vector<std::int32_t> of_rows, of_keys;  ///< segments, 0 and 1
  std::vector<std::int32_t> row_positions, key_positions;

  runs_of_rows() {
    for (std::int64_t at = 0; at < entries * length; ++at) {
      const auto token = static_cast<std::int32_t>(at % length);
      of_rows.push_back(token / 37 % 2);
      of_keys.push_back(token / 32 % 2);
      row_positions.push_back(of_rows.back() * 1000 + token);
      key_positions.push_back(of_keys.back() * 1000 + token);
    }
  }
  static tensor_view numbers(std::vector<std::int32_t>& of) {
    return view(of.data(), {entries, length});
  }
};

/// The call has the same bits for any number of threads, and so has each entry alone.
template <class Element>
void expect_same_bits(const tessera::instance& row, tokens_of_heads<Element>& of,
                      const tessera::blocksparse_attention_args& args,
                      const tessera::blocksparse_attention_options& options) {
  const auto run = [&](const auto& of_call, int threads) {
    const auto done =
        tessera::blocksparse_attention(of_call, options, {.row = row.name, .threads = threads});
    EXPECT_TRUE(done) << done.message();
    return of.take_out();
  };
  const std::vector<float> wanted = run(args, 1);
  for (const int threads : {2, 3, 4, 5, 8, 16}) {
    ASSERT_EQ(run(args, threads), wanted) << threads << " threads";
  }
  const auto entry_size = static_cast<std::ptrdiff_t>(wanted.size() / of.entries);
  for (std::int64_t number = 0; number < of.entries; ++number) {
    tessera::blocksparse_attention_args alone = args;
    for (tensor_view* tensor : {&alone.q, &alone.k, &alone.v, &alone.out, &alone.q_segment_ids,
                                &alone.kv_segment_ids, &alone.q_positions, &alone.kv_positions}) {
      if (tensor->present()) *tensor = entry_of(*tensor, number);
    }
    const std::vector<float> all = run(alone, 3);
    const auto begin = number * entry_size, end = begin + entry_size;
    ASSERT_TRUE(std::equal(all.begin() + begin, all.begin() + end, wanted.begin() + begin))
        << "entry " << number;
  }
}

TEST(sparse_rows_of_types, no_bit_depends_on_threads_or_on_the_batch) {
  runs_of_rows runs;
  for_each_row(
      tessera::sparse_pattern::blocksparse,
      [&](const tessera::instance& row, const sparse_attention_config& config, auto element) {
        if (config.head_dim != 64) return;  // Wider heads have the same register tiles.
        tokens_of_heads<decltype(element)> of(config.head_dim, runs_of_rows::entries);
        for (const std::int64_t block : {100, 144}) {
          const std::int64_t blocks = (of.length + block - 1) / block;
          std::vector<std::uint8_t> shown(static_cast<std::size_t>(blocks * blocks), 1);
          auto args = sparse_args(of);
          args.block_mask = view(shown.data(), {std::int64_t{1}, std::int64_t{1}, blocks, blocks});
          const tessera::blocksparse_attention_options options{.block_q = block, .block_k = block};
          SCOPED_TRACE(testing::Message() << "blocks of " << block);
          auto with_segments = args;
          with_segments.q_segment_ids = runs_of_rows::numbers(runs.of_rows);
          with_segments.kv_segment_ids = runs_of_rows::numbers(runs.of_keys);
          expect_same_bits(row, of, with_segments, options);
          auto with_positions = args;
          with_positions.q_positions = runs_of_rows::numbers(runs.row_positions);
          with_positions.kv_positions = runs_of_rows::numbers(runs.key_positions);
          expect_same_bits(row, of, with_positions,
                           {.causal = true, .block_q = block, .block_k = block});
          for (std::size_t at = 0; at < shown.size(); ++at) shown[at] = at * 5 % 3 != 0 ? 1 : 0;
          expect_same_bits(row, of, args, options);
        }
      });
}

/// Token `lost` has NaN for values, and the weight of its key is 0 in floats.
template <class Element>
tokens_of_heads<Element> with_lost_token(std::int64_t width, std::int64_t lost) {
  tokens_of_heads<Element> of(width);
  std::fill(of.q.begin(), of.q.end(), Element(1.0f));
  const std::int64_t columns = of.kv_heads * width;
  of.spoil([&](std::int64_t token) { return token == lost; });
  std::fill_n(of.k.begin() + lost * columns, columns, Element(-100.0f));
  return of;
}

TEST(sparse_rows_of_types, nan_reaches_rows_that_see_it_with_a_weight_of_0_as_in_rows_of_any_type) {
  constexpr std::int64_t lost = 5, block = 64;
  const auto expect_nan_from_lost = [](const std::vector<float>& out, std::int64_t row_size) {
    for (std::size_t at = 0; at < out.size(); ++at) {
      const std::int64_t token = static_cast<std::int64_t>(at) / row_size;
      ASSERT_EQ(std::isnan(out[at]), token >= lost) << token;
    }
  };
  for (const auto pattern :
       {tessera::sparse_pattern::blocksparse, tessera::sparse_pattern::native_sparse}) {
    for_each_row(pattern, [&](const tessera::instance& row, const sparse_attention_config& config,
                              auto element) {
      auto of = with_lost_token<decltype(element)>(config.head_dim, lost);
      std::vector<std::int32_t> numbers(static_cast<std::size_t>(of.length * of.kv_heads), 0);
      for (const std::string& name : {std::string(row.name), any_row_of(pattern)}) {
        SCOPED_TRACE(name);
        const auto done =
            pattern == tessera::sparse_pattern::blocksparse
                ? tessera::blocksparse_attention(sparse_args(of), {.causal = true}, {.row = name})
                : tessera::native_sparse_attention(
                      {.q = of.rows(of.q, of.q_heads),
                       .k = of.rows(of.k, of.kv_heads),
                       .v = of.rows(of.v, of.kv_heads),
                       .block_indices = view(numbers.data(), {std::int64_t{1}, of.length,
                                                              of.kv_heads, std::int64_t{1}}),
                       .out = of.rows(of.out, of.q_heads)},
                      {.block_size = block, .block_count = 1}, {.row = name});
        ASSERT_TRUE(done) << done.message();
        expect_nan_from_lost(of.take_out(), of.q_heads * config.head_dim);
      }
    });
  }
}

}  // namespace
