// Gradients of sparse attention on the CPU: blocks that hide nothing have the bits of dense
// gradients, no bit depends on threads, heads of a group may have masks of their own, and keys that
// nobody sees have no gradients and are not there.
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

#include <tessera/attention_backward.hpp>
#include <tessera/families/sparse_attention/family.hpp>
#include <tessera/sparse_attention.hpp>

#include "tests/op/sparse_attention/functors.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;
using tessera::sparse_attention_config, tessera::sparse_pass, tessera::sparse_pattern;
using tessera::view;

/// Calls body(name, config, element) for the rows of gradients of the pattern that run here; rows
/// for any type get floats.
template <class Body>
void for_each_row(sparse_pattern pattern, const Body& body) {
  for (const tested_row& tested : tested_rows()) {
    if (tested.kind->name != tessera::sparse_attention_family::name) continue;
    const auto& config = tested.row->config_as<sparse_attention_config>();
    if (config.pattern != pattern || config.pass != sparse_pass::backward) continue;
    if (!is_cpu(config.target) || !runs_here(config.target)) continue;
    const std::string name(tested.row->name);
    SCOPED_TRACE(name);
    if (config.type == tessera::dtype::bf16) {
      body(name, config, tessera::bf16{});
    } else {
      body(name, config, float{});
    }
  }
}

/// Heads behind tokens, as dense attention has them.
tessera::tensor_view tokens_first(tessera::tensor_view of) {
  std::swap(of.extent[1], of.extent[2]);
  std::swap(of.stride[1], of.stride[2]);
  return of;
}

template <class Element>
void forward(sparse_call<Element>& call, const tessera::blocksparse_attention_args& args,
             const tessera::blocksparse_attention_options& options) {
  call.clear();
  const auto done = tessera::blocksparse_attention(args, options);
  ASSERT_TRUE(done) << done.message();
}

TEST(sparse_gradients, with_nothing_hidden_have_the_bits_of_dense_gradients) {
  for_each_row(sparse_pattern::blocksparse,
               [](const std::string& name, const sparse_attention_config& config, auto element) {
                 sparse_call<decltype(element)> call(300, 300, 40, 24);
                 const std::string dense =
                     std::string("attention_backward.") +
                     std::string(tessera::name_of(config.target)) +
                     (config.type == tessera::dtype::bf16 ? ".bf16.dany." : ".f32.dany.");
                 forward(call, call.args(), {});
                 const auto run = [&](int threads) {
                   const auto done = tessera::blocksparse_attention_backward(
                       call.backward_args(), {}, {.row = name, .threads = threads});
                   EXPECT_TRUE(done) << done.message();
                   return call.results();
                 };
                 const std::vector<float> sparse = run(1);
                 EXPECT_EQ(run(3), sparse);
                 const auto of = call.backward_args();
                 tessera::attention_backward_args args;
                 args.q = tokens_first(of.q);
                 args.k = tokens_first(of.k);
                 args.v = tokens_first(of.v);
                 args.out = tokens_first(of.out);
                 args.lse = of.lse;
                 args.d_out = tokens_first(of.d_out);
                 args.d_q = tokens_first(of.d_q);
                 args.d_k = tokens_first(of.d_k);
                 args.d_v = tokens_first(of.d_v);
                 for (const tested_row& tested : tested_rows()) {
                   if (!tested.row->name.starts_with(dense)) continue;
                   const auto done = tessera::flash_attention_backward(
                       args, {}, {.row = tested.row->name, .threads = 2});
                   ASSERT_TRUE(done) << done.message();
                   EXPECT_EQ(call.results(), sparse) << tested.row->name;
                 }
               });
}

/// What every head's mask of blocks says of itself, one call with masks of all heads says too; and
/// keys of blocks that nobody sees are not there. Blocks of rows are even, odd, and no multiple of
/// tiles, whatever these are.
TEST(sparse_gradients, heads_of_a_group_have_masks_of_their_own) {
  for_each_row(sparse_pattern::blocksparse, [](const std::string& name,
                                               const sparse_attention_config&, auto element) {
    using element_type = decltype(element);
    using sizes = std::pair<std::int64_t, std::int64_t>;
    for (const auto& [block, kv_heads] :
         {sizes{24, 2}, sizes{64, 2}, sizes{128, 2}, sizes{63, 4}, sizes{67, 4}, sizes{144, 4}}) {
      sparse_call<element_type> call(200, 333, 24, 40, kv_heads);
      const std::int64_t rows = (call.q_len + block - 1) / block;
      const std::int64_t columns = (call.kv_len + block - 1) / block;
      std::vector<std::uint8_t> shown;
      for (std::int64_t head = 0; head < call.q_heads; ++head) {
        for (std::int64_t at = 0; at < rows * columns; ++at) {
          const std::int64_t i = at / columns, j = at % columns;
          shown.push_back(j % 3 != 1 && (i * 7 + j * 5 + head * 3) % 4 < 2 ? 1 : 0);
        }
      }
      const tessera::blocksparse_attention_options options{.block_q = block, .block_k = block};
      auto args = call.args();
      args.block_mask = view(shown.data(), {1, call.q_heads, rows, columns});
      forward(call, args, options);
      auto backward = call.backward_args();
      backward.block_mask = args.block_mask;
      const auto run = [&](int threads) {
        const auto done = tessera::blocksparse_attention_backward(
            backward, options, {.row = name, .threads = threads});
        EXPECT_TRUE(done) << done.message();
        return call.results();
      };
      const std::vector<float> all = run(1);
      for (const int threads : {2, 5}) EXPECT_EQ(run(threads), all) << "blocks of " << block;
      // d_q of the heads alone, and the sum of their d_k. Rows of bf16 see what some head sees,
      // whose pairs are summed up in other chains.
      const bool rounds = sizeof(element_type) == 2;
      const float of_d_q = rounds ? 0.03f : 0.0f, digits = rounds ? 0.03f : 1e-5f;
      const std::vector<element_type> d_q = call.d_q, d_k = call.d_k;
      std::vector<float> sums(d_k.size(), 0.0f);
      for (std::int64_t head = 0; head < call.q_heads; ++head) {
        std::vector<std::uint8_t> own(shown.size(), 0);
        const auto begin = head * rows * columns;
        std::copy_n(shown.begin() + begin, rows * columns, own.begin() + begin);
        backward.block_mask = view(own.data(), {1, call.q_heads, rows, columns});
        static_cast<void>(run(2));
        const auto columns_of_head = call.q_len * call.head_dim;
        for (std::int64_t at = 0; at < columns_of_head; ++at) {
          const auto place = static_cast<std::size_t>(head * columns_of_head + at);
          const auto x = static_cast<float>(d_q[place]);
          ASSERT_NEAR(static_cast<float>(call.d_q[place]), x, of_d_q * (1.0f + std::fabs(x)));
        }
        for (std::size_t at = 0; at < sums.size(); ++at) {
          sums[at] += static_cast<float>(call.d_k[at]);
        }
      }
      for (std::size_t at = 0; at < sums.size(); ++at) {
        const std::int64_t key = static_cast<std::int64_t>(at) / call.head_dim % call.kv_len;
        const auto x = static_cast<float>(d_k[at]);
        ASSERT_NEAR(x, sums[at], digits * (1.0f + std::fabs(x))) << key;
        if (key / block % 3 == 1) {
          ASSERT_EQ(x, 0.0f) << key;
        }
      }
      backward.block_mask = args.block_mask;
      for (std::int64_t at = 0; at < call.kv_heads * call.kv_len; ++at) {
        if (at % call.kv_len / block % 3 != 1) continue;
        const auto nan = element_type(std::numeric_limits<float>::quiet_NaN());
        std::fill_n(call.k.begin() + at * call.head_dim, call.head_dim, nan);
        std::fill_n(call.v.begin() + at * call.v_head_dim, call.v_head_dim, nan);
      }
      EXPECT_EQ(run(2), all) << "blocks of " << block;
    }
  });
}

/// A group of 3 and one of 70 heads, which are more than a list has room for; blocks of one and two
/// tiles; blocks that are selected twice, and numbers that are no block's.
TEST(sparse_gradients, no_bit_of_native_ones_depends_on_threads) {
  for_each_row(sparse_pattern::native_sparse, [](const std::string& name,
                                                 const sparse_attention_config&, auto) {
    constexpr std::int64_t length = 310, head_dim = 20, slots = 6;
    for (const std::int64_t group : {3, 70}) {
      const std::int64_t kv_heads = group == 3 ? 2 : 1, q_heads = group * kv_heads;
      random_source random(5);
      const auto bells = [&](std::int64_t heads) {
        std::vector<float> numbers;
        for (std::int64_t at = 0; at < length * heads * head_dim; ++at) {
          numbers.push_back(random.bell());
        }
        return numbers;
      };
      std::vector<float> q = bells(q_heads), k = bells(kv_heads), v = bells(kv_heads);
      std::vector<float> d_out = bells(q_heads), d_q(q.size()), d_k(k.size()), d_v(v.size());
      std::vector<float> gate(static_cast<std::size_t>(length * q_heads), 0.5f), d_gate(gate);
      for (const std::int64_t block : {24, 100}) {
        std::vector<std::int32_t> numbers;
        for (std::int64_t at = 0; at < length * kv_heads; ++at) {
          const auto own = static_cast<std::int32_t>(at / kv_heads / block);
          const auto some = static_cast<std::int32_t>(at);
          for (const std::int32_t number :
               {own, 0, -1, some % (own + 1), some % (own + 1), 1 << 20}) {
            numbers.push_back(number);
          }
        }
        const auto rows = [&](std::vector<float>& of, std::int64_t heads) {
          return view(of.data(), {1, length, heads, head_dim});
        };
        const auto gates = view(gate.data(), {1, length, q_heads});
        const auto run = [&](int threads) {
          const auto done = tessera::native_sparse_attention_backward(
              {.q = rows(q, q_heads),
               .k = rows(k, kv_heads),
               .v = rows(v, kv_heads),
               .g_slc = gates,
               .g_cmp = gates,
               .g_swa = gates,
               .selected_blocks = view(numbers.data(), {1, length, kv_heads, slots}),
               .d_out = rows(d_out, q_heads),
               .d_q = rows(d_q, q_heads),
               .d_k = rows(d_k, kv_heads),
               .d_v = rows(d_v, kv_heads),
               .d_g_slc = view(d_gate.data(), {1, length, q_heads})},
              {.block_size = block, .block_count = slots, .window_left = 30},
              {.row = name, .threads = threads});
          EXPECT_TRUE(done) << done.message();
          std::vector<float> all(d_q);
          for (const auto* of : {&d_k, &d_v, &d_gate})
            all.insert(all.end(), of->begin(), of->end());
          return all;
        };
        const std::vector<float> wanted = run(1);
        for (const float x : wanted) ASSERT_TRUE(std::isfinite(x));
        for (const int threads : {2, 3, 8}) {
          EXPECT_EQ(run(threads), wanted) << threads << " threads, blocks of " << block;
        }
      }
    }
  });
}

}  // namespace
