// A call of deepseek_attn on random tensors, for each back end that has rows here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/latent_attention/registry.hpp>
#include <tessera/latent_attention.hpp>

#include "tests/support/place.hpp"
#include "tests/support/random.hpp"

namespace tessera::selected_test {

using namespace tessera::support;

inline constexpr std::int64_t length = 150, heads = 3, latent = 40, nope = 24, rope = 8, value = 20;
inline constexpr std::int64_t width = nope + rope, index_heads = 5, index_width = 12, topk = 17;
inline constexpr float nan = std::numeric_limits<float>::quiet_NaN();

inline std::vector<float> bells(std::int64_t count, std::uint64_t seed) {
  random_source random(seed);
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& number : numbers) number = random.bell();
  return numbers;
}
/// Rows [first, first + rows) become what no number is.
inline void spoil(std::vector<float>& of, std::int64_t first, std::int64_t rows,
                  std::int64_t columns) {
  std::fill_n(of.begin() + first * columns, rows * columns, nan);
}

/// Biases, a mask and sinks of the call, and the options of scores.
struct score_tensors {
  template <class Args>
  void give(Args& to) {
    to.bias_post = view(bias.data(), {1, heads, length, length});
    to.mask = view(mask.data(), {1, 1, length, length});
    to.sinks = view(sinks.data(), {heads, 1});
  }
  template <class Options>
  static Options options() {
    Options wanted;
    wanted.causal = true;
    wanted.window_left = 90;
    wanted.logits_soft_cap = 3.0;
    wanted.dropout_probability = 0.25;
    wanted.dropout_seed = 5;
    return wanted;
  }
  static std::vector<std::uint8_t> chances() {
    random_source random(22);
    std::vector<std::uint8_t> shown(static_cast<std::size_t>(length * length));
    for (std::uint8_t& pair : shown) pair = random.chance(0.7) ? 1 : 0;
    return shown;
  }

  std::vector<float> bias = bells(heads * length * length, 21);
  std::vector<std::uint8_t> mask = chances();
  std::vector<float> sinks = bells(heads, 23);
};

/// A causal call of one entry, its selection and its gradient.
struct selected_call {
  deepseek_attn_args args() {
    return {.ckv = view(ckv.data(), {1, length, latent}),
            .w_kc = view(w_kc.data(), {latent, heads, nope}),
            .w_vc = view(w_vc.data(), {latent, heads, value}),
            .k_pe = view(k_pe.data(), {1, length, rope}),
            .q = view(q.data(), {1, length, heads, width}),
            .out = view(out.data(), {1, length, heads, value}),
            .lse = view(lse.data(), {1, heads, length})};
  }
  void select(const deepseek_attn_options& options, std::string_view row) {
    deepseek_attn_args with = args();
    slots = std::min(options.index_topk, length) + (options.force_self ? 1 : 0);
    indices.assign(static_cast<std::size_t>(length * slots), -7);
    with.q_index = view(q_index.data(), {1, length, index_heads, index_width});
    with.k_index = view(k_index.data(), {1, length, index_width});
    with.index_weights = view(index_weights.data(), {1, length, index_heads});
    if (give_index) give_index(with);
    with.selected_indices = view(indices.data(), {1, length, slots});
    if (scores != nullptr) scores->give(with);
    const auto done = deepseek_attn(with, options, {.row = row});
    ASSERT_TRUE(done) << done.message();
  }
  void run_given(std::string_view row) {
    deepseek_attn_args with = args();
    with.indices = view(indices.data(), {1, length, slots});
    const auto done = deepseek_attn(with, {.causal = true}, {.row = row});
    ASSERT_TRUE(done) << done.message();
  }
  void run_backward(std::string_view row) {
    deepseek_attn_args with = args();
    with.indices = view(indices.data(), {1, length, slots});
    with.d_out = view(d_out.data(), {1, length, heads, value});
    with.d_ckv = view(d_ckv.data(), {1, length, latent});
    with.d_w_kc = view(d_w_kc.data(), {latent, heads, nope});
    with.d_w_vc = view(d_w_vc.data(), {latent, heads, value});
    with.d_k_pe = view(d_k_pe.data(), {1, length, rope});
    with.d_q = view(d_q.data(), {1, length, heads, width});
    const auto done = deepseek_attn_backward(with, {.causal = true}, {.row = row});
    ASSERT_TRUE(done) << done.message();
  }

  std::vector<float> ckv = bells(length * latent, 1), k_pe = bells(length * rope, 2);
  std::vector<float> q = bells(length * heads * width, 3);
  std::vector<float> w_kc = bells(latent * heads * nope, 4);
  std::vector<float> w_vc = bells(latent * heads * value, 5);
  std::vector<float> q_index = bells(length * index_heads * index_width, 6);
  std::vector<float> k_index = bells(length * index_width, 7);
  std::vector<float> index_weights = bells(length * index_heads, 8);
  std::vector<float> d_out = bells(length * heads * value, 9);
  std::vector<float> out = std::vector<float>(d_out.size());
  std::vector<float> lse = std::vector<float>(static_cast<std::size_t>(length * heads));
  std::vector<float> d_ckv = ckv, d_k_pe = k_pe, d_q = q, d_w_kc = w_kc, d_w_vc = w_vc;
  std::vector<std::int32_t> indices;
  std::int64_t slots = 0;
  score_tensors* scores = nullptr;  ///< of a call that has them
  /// Gives a call what its indexer has in place of floats.
  std::function<void(deepseek_attn_args&)> give_index;
};

class selected_attention : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    for (const instance& row : latent_attention_registry()) {
      if (row.name == forward && runs_here(row.target)) return;
    }
    GTEST_SKIP() << "no such instructions here";
  }
  static std::string row(std::string_view kind) {
    return "latent_attention." + std::string(GetParam()) + "." + std::string(kind);
  }
  const std::string forward = row("selected.forward"), backward = row("selected.backward");
};

inline constexpr std::string_view backends[] = {"cpu_generic", "cpu_avx2", "cpu_avx512"};
inline std::string name_of_backend(const testing::TestParamInfo<std::string_view>& tested) {
  return std::string(tested.param);
}

}  // namespace tessera::selected_test
