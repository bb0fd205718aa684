// What delta rules over pools of states promise beyond a formula: hostile slots in words, slots of
// nobody bit for bit, batches of prompts and single tokens with the bits of separate calls.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/delta_rule.hpp>
#include <tessera/ragged_delta_rule.hpp>

#include "tests/support/random.hpp"

namespace {

using namespace tessera;

constexpr std::int64_t heads = 2, value_heads = 4, keys = 20, values = 9;
constexpr std::int64_t state_size = value_heads * keys * values;

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  support::random_source random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = random.bell();
  return numbers;
}

/// Sequences of one pool: tokens [offsets[n], offsets[n+1]) have the state in slots[n].
struct batch {
  batch(std::vector<std::int32_t> ends, std::vector<std::int32_t> of_sequences, std::int64_t length,
        std::int64_t slot_count)
      : offsets(std::move(ends)),
        slots(std::move(of_sequences)),
        tokens(length),
        pool_slots(slot_count),
        q(bells(length * heads * keys, 1)),
        k(bells(length * heads * keys, 2)),
        v(bells(length * value_heads * values, 3)),
        g(bells(length * value_heads, 4)),
        beta(bells(length * value_heads, 5)),
        pool(bells(slot_count * state_size, 6)),
        out(v.size(), -7.0f) {}

  ragged_delta_rule_args args() {
    return {.q = view(q.data(), {tokens, heads, keys}),
            .k = view(k.data(), {tokens, heads, keys}),
            .v = view(v.data(), {tokens, value_heads, values}),
            .g = view(g.data(), {tokens, value_heads}),
            .beta = view(beta.data(), {tokens, value_heads}),
            .A_log = view(rate.data(), {value_heads}),
            .dt_bias = view(bias.data(), {value_heads}),
            .state_pool = view(pool.data(), {pool_slots, value_heads, keys, values}),
            .cu_seqlens = view(offsets.data(), {static_cast<std::int64_t>(offsets.size())}),
            .state_indices = view(slots.data(), {static_cast<std::int64_t>(slots.size())}),
            .out = view(out.data(), {tokens, value_heads, values})};
  }
  static constexpr delta_rule_options options{
      .use_qk_l2norm = true, .use_gate = true, .use_beta_sigmoid = true};

  std::vector<std::int32_t> offsets, slots;
  std::int64_t tokens, pool_slots;
  std::vector<float> q, k, v, g, beta, pool, out;
  std::vector<float> rate{0.1f, -0.3f, 0.0f, 0.4f}, bias{0.2f, 0.0f, -0.1f, 0.3f};
};

TEST(ragged_delta_rule, refuses_hostile_slots_before_it_writes) {
  batch call({0, 2, 2, 5}, {3, 1, 0}, 6, 4);
  const auto refusal = [&] {
    const std::vector<float> pool = call.pool, out = call.out;
    const status done = ragged_gated_delta_rule(call.args(), batch::options);
    EXPECT_TRUE(done || (call.pool == pool && call.out == out));
    return done.message();
  };
  EXPECT_EQ(refusal(), "");
  call.slots = {3, 1, 4};
  EXPECT_EQ(refusal(), "state_indices: entry 2 is 4, must be 0 to 3: there are 4 slots");
  call.slots = {-1, 1, 0};
  EXPECT_EQ(refusal(), "state_indices: entry 0 is -1, must be 0 to 3: there are 4 slots");
  call.slots = {3, 1, 3};
  EXPECT_EQ(refusal(),
            "state_indices: entry 2 is 3, as is entry 0; sequences with tokens have states of "
            "their own");
  call.slots = {3, 3, 0};
  EXPECT_EQ(refusal(), "") << "a sequence without tokens may name any slot";
  call.slots = {3, std::numeric_limits<std::int32_t>::min(), 0};
  EXPECT_EQ(refusal(), "");
  call.offsets = {0, 3, 2, 5};
  EXPECT_EQ(refusal(), "cu_seqlens: entry 2 is 2, entry 1 has 3; offsets never decrease");
}

TEST(ragged_delta_rule, slots_of_nobody_keep_their_bits) {
  batch call({0, 1, 1, 5}, {3, 2, 0}, 7, 5);
  const float nan = std::nanf("17");
  std::fill_n(call.pool.begin() + 1 * state_size, 2 * state_size, nan);  // slots 1 and 2
  std::vector<float> before = call.pool;
  ASSERT_TRUE(ragged_gated_delta_rule(call.args(), batch::options));
  const auto same_bits = [&](const std::vector<float>& now, std::int64_t slot) {
    return std::memcmp(now.data() + slot * state_size, before.data() + slot * state_size,
                       state_size * sizeof(float)) == 0;
  };
  for (const std::int64_t slot : {1, 2, 4}) EXPECT_TRUE(same_bits(call.pool, slot)) << slot;
  for (const std::int64_t slot : {0, 3}) EXPECT_FALSE(same_bits(call.pool, slot)) << slot;
  EXPECT_TRUE(std::ranges::all_of(call.out, [](float x) { return std::isfinite(x); }));
  const auto tail = call.out.end() - 2 * value_heads * values;
  EXPECT_TRUE(std::all_of(tail, call.out.end(), [](float x) { return x == 0; }));
  // Gradients of slots that the call did not touch pass through.
  std::vector<float> d_pool = before, d_q(call.q.size()), d_k(call.k.size()), d_v(call.v.size()),
                     d_beta(call.beta.size());
  ragged_delta_rule_args args = call.args();
  args.state_pool = view(before.data(), {call.pool_slots, value_heads, keys, values});
  args.out = {};
  args.d_out = view(call.v.data(), {call.tokens, value_heads, values});
  args.d_q = view(d_q.data(), {call.tokens, heads, keys});
  args.d_k = view(d_k.data(), {call.tokens, heads, keys});
  args.d_v = view(d_v.data(), {call.tokens, value_heads, values});
  args.d_beta = view(d_beta.data(), {call.tokens, value_heads});
  args.d_state_pool = view(d_pool.data(), {call.pool_slots, value_heads, keys, values});
  const status done = ragged_gated_delta_rule_backward(args, batch::options);
  ASSERT_TRUE(done) << done.message();
  for (const std::int64_t slot : {1, 2, 4}) EXPECT_TRUE(same_bits(d_pool, slot)) << slot;
  for (const std::int64_t slot : {0, 3}) EXPECT_FALSE(same_bits(d_pool, slot)) << slot;
  EXPECT_TRUE(std::ranges::all_of(d_q, [](float x) { return std::isfinite(x); }));
}

TEST(ragged_delta_rule, a_sequence_that_starts_from_zero_does_not_read_its_slot) {
  batch stale({0, 3, 5}, {1, 0}, 5, 2), fresh = stale;
  const std::vector<std::int32_t> flags{0, 1};
  std::fill_n(stale.pool.begin() + state_size, state_size, std::nanf(""));
  std::fill_n(fresh.pool.begin() + state_size, state_size, 0.0f);
  ragged_delta_rule_args args = stale.args();
  args.has_initial_state = view(flags.data(), {2});
  ASSERT_TRUE(ragged_gated_delta_rule(args, batch::options));
  ASSERT_TRUE(ragged_gated_delta_rule(fresh.args(), batch::options));
  EXPECT_EQ(stale.out, fresh.out);
  EXPECT_EQ(stale.pool, fresh.pool);
}

TEST(ragged_delta_rule, a_chain_of_single_tokens_has_the_bits_of_a_prompt) {
  constexpr std::int32_t length = 128;
  batch prompt({0, length}, {1}, length, 3), chain = prompt;
  ASSERT_TRUE(ragged_gated_delta_rule(prompt.args(), batch::options));
  std::vector<float> all;
  for (std::int64_t t = 0; t < length; ++t) {
    ragged_delta_rule_args args = chain.args();
    const std::vector<std::int32_t> starts{0, 1};
    args.cu_seqlens = view(starts.data(), {2});
    for (tensor_view* tokens : {&args.q, &args.k, &args.v, &args.g, &args.beta, &args.out}) {
      tokens->data = static_cast<float*>(tokens->data) + t * tokens->stride[0];
      tokens->extent[0] = 1;
    }
    const status done = ragged_gated_delta_rule(args, batch::options);
    ASSERT_TRUE(done) << done.message();
  }
  EXPECT_EQ(chain.out, prompt.out);
  EXPECT_EQ(chain.pool, prompt.pool);
}

TEST(ragged_delta_rule, a_batch_has_the_bits_of_calls_without_a_pool) {
  batch call({0, 1, 1, 34, 40}, {4, 0, 2, 1}, 41, 5);
  const std::vector<float> before = call.pool;
  ASSERT_TRUE(ragged_gated_delta_rule(call.args(), batch::options));
  for (std::size_t n = 0; n < call.slots.size(); ++n) {
    const std::int64_t begin = call.offsets[n], length = call.offsets[n + 1] - begin;
    if (length == 0) continue;
    const std::int64_t first = call.slots[n] * state_size;
    std::vector<float> state(before.begin() + first, before.begin() + first + state_size);
    std::vector<float> behind(state.size()),
        out(static_cast<std::size_t>(length * value_heads) * static_cast<std::size_t>(values));
    const auto rows = [&](std::vector<float>& of, std::int64_t count, std::int64_t width) {
      return view(of.data() + begin * count * width, {1, length, count, width});
    };
    ASSERT_TRUE(gated_delta_rule(
        {.q = rows(call.q, heads, keys),
         .k = rows(call.k, heads, keys),
         .v = rows(call.v, value_heads, values),
         .g = view(call.g.data() + begin * value_heads, {1, length, value_heads}),
         .beta = view(call.beta.data() + begin * value_heads, {1, length, value_heads}),
         .A_log = view(call.rate.data(), {value_heads}),
         .dt_bias = view(call.bias.data(), {value_heads}),
         .initial_state = view(state.data(), {1, value_heads, keys, values}),
         .out = view(out.data(), {1, length, value_heads, values}),
         .final_state = view(behind.data(), {1, value_heads, keys, values})},
        batch::options));
    EXPECT_TRUE(
        std::equal(out.begin(), out.end(), call.out.begin() + begin * value_heads * values));
    EXPECT_TRUE(std::equal(behind.begin(), behind.end(), call.pool.begin() + first));
  }
}

TEST(ragged_delta_rule, columns_side_by_side_have_the_bits_of_tensors_of_their_own) {
  batch call({0, 1, 9, 12}, {2, 0, 1}, 13, 3), other = call;
  constexpr std::int64_t columns = 2 * heads * keys + value_heads * values;
  std::vector<float> mixed;
  for (std::int64_t t = 0; t < call.tokens; ++t) {
    for (const auto& [part, width] :
         {std::pair(&call.q, heads * keys), std::pair(&call.k, heads * keys),
          std::pair(&call.v, value_heads * values)}) {
      mixed.insert(mixed.end(), part->begin() + t * width, part->begin() + (t + 1) * width);
    }
  }
  ASSERT_TRUE(ragged_gated_delta_rule(call.args(), batch::options));
  const ragged_delta_rule_args args = other.args();
  const status done =
      ragged_gated_delta_rule_v2({.mixed_qkv = view(mixed.data(), {call.tokens, columns}),
                                  .a = args.g,
                                  .b = args.beta,
                                  .A_log = args.A_log,
                                  .dt_bias = args.dt_bias,
                                  .state_pool = args.state_pool,
                                  .cu_seqlens = args.cu_seqlens,
                                  .state_indices = args.state_indices,
                                  .out = args.out},
                                 {.num_qk_heads = heads});
  ASSERT_TRUE(done) << done.message();
  EXPECT_EQ(other.out, call.out);
  EXPECT_EQ(other.pool, call.pool);
}

}  // namespace
