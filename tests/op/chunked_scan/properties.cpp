// What linear attention with decay is besides a formula: packed equals separate, memories that
// last are exact; gradients are those of the definition by differences.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/linear_attention.hpp>

#include "tests/reference/chunked_scan.hpp"
#include "tests/support/random.hpp"

namespace {

using namespace tessera::support;
using tessera::recurrent_args;
using tessera::view;

constexpr std::int64_t heads = 2, keys = 20, values = 70, state_size = heads * keys * values;

std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = random.bell();
  return numbers;
}
std::vector<float> decays(std::int64_t count, std::uint64_t seed) {
  std::vector<float> numbers = bells(count, seed);
  for (float& number : numbers) number = -0.2f * std::fabs(number);
  return numbers;
}

/// Tokens of one entry with a decay of every kind.
struct tokens {
  explicit tokens(std::int64_t length)
      : q(bells(length * heads * keys, 1)),
        k(bells(length * heads * keys, 2)),
        v(bells(length * heads * values, 3)),
        g(decays(length * heads, 4)),
        gk(decays(length * heads * keys, 5)),
        gv(decays(length * heads * values, 6)),
        out(v.size(), -1.0f) {}

  /// Tokens [begin, end) as a call of one sequence.
  recurrent_args slice(std::int64_t begin, std::int64_t end) {
    const std::int64_t length = end - begin;
    const auto rows = [&](std::vector<float>& of, std::int64_t columns) {
      return view(of.data() + begin * heads * columns, {1, length, heads, columns});
    };
    return {.q = rows(q, keys),
            .k = rows(k, keys),
            .v = rows(v, values),
            .g = view(g.data() + begin * heads, {1, length, heads}),
            .gk = rows(gk, keys),
            .gv = rows(gv, values),
            .out = rows(out, values)};
  }

  std::vector<float> q, k, v, g, gk, gv, out;
};

tessera::tensor_view states(std::vector<float>& of, std::int64_t sequences = 1) {
  return view(of.data(), {sequences, heads, keys, values});
}

TEST(linear_attention, packed_sequences_have_the_bits_of_separate_ones) {
  const std::vector<std::int32_t> offsets{0, 0, 33, 34, 34, 90};
  constexpr std::int64_t length = 95, sequences = 5;
  for (const bool reverse : {false, true}) {
    tokens packed(length), separate(length);
    std::vector<float> initial = bells(sequences * state_size, 8), together(initial.size());
    recurrent_args args = packed.slice(0, length);
    args.cu_seqlens = view(offsets.data(), {sequences + 1});
    args.initial_state = states(initial, sequences);
    args.final_state = states(together, sequences);
    ASSERT_TRUE(tessera::recurrent(args, {.reverse = reverse}));
    std::fill(separate.out.begin() + 90 * heads * values, separate.out.end(), 0.0f);
    for (std::size_t n = 0; n < static_cast<std::size_t>(sequences); ++n) {
      const auto first = static_cast<std::int64_t>(n) * state_size;
      std::vector<float> before(initial.begin() + first, initial.begin() + first + state_size);
      std::vector<float> after(before.size());
      recurrent_args alone = separate.slice(offsets[n], offsets[n + 1]);
      alone.initial_state = states(before);
      alone.final_state = states(after);
      ASSERT_TRUE(tessera::recurrent(alone, {.reverse = reverse}));
      EXPECT_TRUE(std::equal(after.begin(), after.end(), together.begin() + first));
    }
    EXPECT_EQ(packed.out, separate.out);
  }
}

// exp(-1e-4) in f32 is off by up to 3e-8: after 10^4 tokens a factor without further error is
// within 3e-4 of the truth, and the state, which forgets within a few times as many, is within
// twice that.
TEST(linear_attention, memories_of_a_hundred_thousand_tokens_last) {
  constexpr std::int64_t length = 100000;
  const std::vector<float> ones(length, 1.0f), gamma{-1e-4f};
  std::vector<float> out(length);
  const auto rows = view(ones.data(), {1, length, 1, 1});
  ASSERT_TRUE(tessera::lightning_attn({.q = rows,
                                       .k = rows,
                                       .v = rows,
                                       .g_gamma = view(gamma.data(), {1}),
                                       .out = view(out.data(), {1, length, 1, 1})}));
  const double decay = std::exp(static_cast<double>(gamma[0]));
  for (const std::int64_t tokens : {std::int64_t{64}, std::int64_t{1} << 14, length}) {
    const double sum = (1.0 - std::pow(decay, tokens)) / (1.0 - decay);
    EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(tokens - 1)]) / sum, 1.0, 6e-4);
  }
}

TEST(linear_attention, lightning_decays_follow_from_the_layer) {
  EXPECT_EQ(tessera::lightning_decays(4, 0, 24), (std::vector<float>{0, -2, -4, -6}));
  EXPECT_EQ(tessera::lightning_decays(4, 12, 24), (std::vector<float>{0, -1, -2, -3}));
  EXPECT_EQ(tessera::lightning_decays(2, 24, 24), (std::vector<float>{0, 0}));
  const std::vector<float> first = tessera::lightning_alibi_decays(4, 0, 9);
  const std::vector<float> last = tessera::lightning_alibi_decays(4, 8, 9);
  for (std::size_t head = 0; head < 4; ++head) {
    const float slope = std::exp2(-2.0f * static_cast<float>(head + 1));
    EXPECT_FLOAT_EQ(first[head], -slope * 1.00001f);
    EXPECT_FLOAT_EQ(last[head], -slope * 1e-5f);
  }
}

/// A tensor of doubles whose elements are moved, with the gradient that was computed for it.
struct moved_tensor {
  const char* name;
  std::vector<double>& numbers;
  const std::vector<float>& gradient;
};

/// Random numbers in double, and their values as a call has them.
std::vector<double> in_double(const std::vector<float>& numbers) {
  return {numbers.begin(), numbers.end()};
}

// The gradient of <r, out> + <s, final state> against central differences of the definition in
// double, over a sequence of several chunks.
TEST(linear_attention, gradients_agree_with_finite_differences) {
  constexpr std::int64_t length = 70, channels = 3, size = length * channels;
  const auto q = bells(size, 1), k = bells(size, 2), v = bells(size, 3), r = bells(size, 4);
  const auto gk = decays(size, 5), gv = decays(size, 6), g = decays(length, 7);
  const auto initial = bells(channels * channels, 8), s = bells(channels * channels, 9);
  std::vector<float> d_q(size), d_k(size), d_v(size), d_gk(size), d_gv(size), d_g(length),
      d_initial(channels * channels);
  const auto rows = [&](const auto& of) { return view(of.data(), {1, length, 1, channels}); };
  const auto writable = [&](auto& of) { return view(of.data(), {1, length, 1, channels}); };
  const auto state = [&](auto& of) { return view(of.data(), {1, 1, channels, channels}); };
  ASSERT_TRUE(tessera::recurrent_backward({.q = rows(q),
                                           .k = rows(k),
                                           .v = rows(v),
                                           .g = view(g.data(), {1, length, 1}),
                                           .gk = rows(gk),
                                           .gv = rows(gv),
                                           .initial_state = state(initial),
                                           .d_out = rows(r),
                                           .d_final_state = state(s),
                                           .d_q = writable(d_q),
                                           .d_k = writable(d_k),
                                           .d_v = writable(d_v),
                                           .d_g = view(d_g.data(), {1, length, 1}),
                                           .d_gk = writable(d_gk),
                                           .d_gv = writable(d_gv),
                                           .d_initial_state = state(d_initial)}));
  auto q2 = in_double(q), k2 = in_double(k), v2 = in_double(v), g2 = in_double(g);
  auto gk2 = in_double(gk), gv2 = in_double(gv), initial2 = in_double(initial);
  const tessera::reference::scan_call call{.q = rows(q2),
                                           .k = rows(k2),
                                           .v = rows(v2),
                                           .g = view(g2.data(), {1, length, 1}),
                                           .gk = rows(gk2),
                                           .gv = rows(gv2),
                                           .initial_state = state(initial2),
                                           .scale = 1.0 / std::sqrt(3.0)};
  const auto loss = [&] {
    const auto result = tessera::reference::scan_forward(call);
    double sum = 0;
    for (std::size_t i = 0; i < r.size(); ++i) sum += result.out.values[i] * double{r[i]};
    for (std::size_t i = 0; i < s.size(); ++i) sum += result.final_state.values[i] * double{s[i]};
    return sum;
  };
  for (const moved_tensor& moved :
       {moved_tensor{"q", q2, d_q}, moved_tensor{"k", k2, d_k}, moved_tensor{"v", v2, d_v},
        moved_tensor{"g", g2, d_g}, moved_tensor{"gk", gk2, d_gk}, moved_tensor{"gv", gv2, d_gv},
        moved_tensor{"initial_state", initial2, d_initial}}) {
    for (std::size_t at = 0; at < moved.numbers.size(); at += 5) {
      const double before = moved.numbers[at], step = 1e-5;
      moved.numbers[at] = before + step;
      const double above = loss();
      moved.numbers[at] = before - step;
      const double slope = (above - loss()) / (2 * step);
      moved.numbers[at] = before;
      EXPECT_NEAR(static_cast<double>(moved.gradient[at]), slope,
                  1e-5 * std::max(1.0, std::fabs(slope)))
          << moved.name << " " << at;
    }
  }
}

}  // namespace
