// Heads of many tiles of keys, few of them for many threads: the bits are those of one thread. And
// the rows that processors get.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/attention_backward.hpp>
#include <tessera/families/attention_backward/declaration.hpp>
#include <tessera/flash_attention.hpp>
#include <tessera/spec/problem_text.hpp>

namespace tessera::support {
namespace {

constexpr std::int64_t length = 1000, heads = 3, dim = 40;

/// A forward call and its gradients, three heads of queries to one of keys.
class gradients {
 public:
  explicit gradients(const flash_attention_options& options) : options_(options) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (auto* tensor : {&q_, &k_, &v_, &d_out_}) {
      tensor->resize(static_cast<std::size_t>(length * dim *
                                              (tensor == &q_ || tensor == &d_out_ ? heads : 1)));
      for (float& x : *tensor) x = normal(random);
    }
    out_.resize(q_.size());
    lse_.resize(static_cast<std::size_t>(heads * length));
    const flash_attention_args forward{.q = of(q_, heads),
                                       .k = of(k_, 1),
                                       .v = of(v_, 1),
                                       .out = of(out_, heads),
                                       .lse = view(lse_.data(), {1, heads, length})};
    const status done = flash_attention(forward, options_);
    EXPECT_TRUE(done) << done.message();
  }

  /// d_q, d_k and d_v one after the other.
  std::vector<float> run(const context& where) {
    std::vector<float> d_q(q_.size(), NAN), d_k(k_.size(), NAN), d_v(v_.size(), NAN);
    const status done = flash_attention_backward({.q = of(q_, heads),
                                                  .k = of(k_, 1),
                                                  .v = of(v_, 1),
                                                  .out = of(out_, heads),
                                                  .lse = view(lse_.data(), {1, heads, length}),
                                                  .d_out = of(d_out_, heads),
                                                  .d_q = of(d_q, heads),
                                                  .d_k = of(d_k, 1),
                                                  .d_v = of(d_v, 1)},
                                                 options_, where);
    EXPECT_TRUE(done) << done.message();
    d_q.insert(d_q.end(), d_k.begin(), d_k.end());
    d_q.insert(d_q.end(), d_v.begin(), d_v.end());
    return d_q;
  }

 private:
  static tensor_view of(std::vector<float>& data, std::int64_t count) {
    return view(data.data(), {1, length, count, dim});
  }

  flash_attention_options options_;
  std::vector<float> q_, k_, v_, out_, d_out_, lse_;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

void expect_the_same_bits(const flash_attention_options& options) {
  gradients call(options);
  const std::vector<float> portable =
      call.run({.row = "attention_backward.cpu_generic.*", .threads = 1});
  const std::vector<float> first = call.run({.threads = 1});
  EXPECT_LT(distance(first, portable), 1e-5);
  for (const int threads : {2, 3, 5, 16}) {
    const std::vector<float> found = call.run({.threads = threads});
    EXPECT_EQ(std::memcmp(found.data(), first.data(), first.size() * sizeof(float)), 0)
        << threads << " threads";
  }
}

TEST(many_tiles, of_full_heads_have_the_bits_of_one_thread) {
  expect_the_same_bits({});
}

TEST(many_tiles, of_causal_heads_have_the_bits_of_one_thread) {
  expect_the_same_bits({.causal = true});
}

TEST(many_tiles, in_windows_have_the_bits_of_one_thread) {
  expect_the_same_bits({.causal = true, .window_left = 200});
  expect_the_same_bits({.window_left = 90, .window_right = 300});
}

std::string row_on(backend highest, int bf16_dot_percent) {
  device_facts device;
  device.highest = highest;
  device.bf16_dot_percent = bf16_dot_percent;
  device.physical_cores = device.hardware_threads = device.available_threads = 16;
  const auto problem = parse_problem<attention_backward_problem>(
      "flash_attention_backward q=[1,2048,16,128]bf16 k=[1,2048,16,128]bf16 causal=true");
  EXPECT_TRUE(problem) << problem.message();
  const auto chosen = explain(*problem, {.threads = 16}, &device);
  EXPECT_TRUE(chosen) << chosen.message();
  return chosen ? chosen->row : std::string();
}

TEST(gradients_of_bf16, avoid_products_of_pairs_where_these_are_slow) {
  const auto has = [](const std::string& row, std::string_view target) {
    return row.find("." + std::string(target) + ".") != std::string::npos;
  };
  using enum backend;
  EXPECT_TRUE(has(row_on(cpu_avx512_bf16, 100), "cpu_avx512_bf16")) << row_on(cpu_avx512_bf16, 100);
  EXPECT_TRUE(has(row_on(cpu_avx512_bf16, 25), "cpu_avx512")) << row_on(cpu_avx512_bf16, 25);
  EXPECT_TRUE(has(row_on(cpu_amx_bf16, 25), "cpu_amx_bf16")) << row_on(cpu_amx_bf16, 25);
}

}  // namespace
}  // namespace tessera::support
