// Pools of 8 bits against sums in double, by every row for them that runs here or the row the
// library chooses: queries of all sizes, scales of heads of any sign, scales of tokens a factor of
// 10^12 apart, numbers that nobody may see wherever nobody looks.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/families/attention/operations.hpp>
#include <tessera/unified_attention.hpp>

#include "tests/reference/elements.hpp"
#include "tests/reference/store.hpp"
#include "tests/support/call_run.hpp"
#include "tests/support/random.hpp"

namespace tessera::support {
namespace {

constexpr std::int64_t q_heads = 4, kv_heads = 2, page_size = 16, slots = 10;
constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

/// A tensor and its memory.
struct stored_tensor {
  std::vector<std::byte> memory;
  tensor_view view;

  stored_tensor() = default;
  stored_tensor(stored_tensor&&) = default;
  stored_tensor& operator=(stored_tensor&&) = default;
  stored_tensor(dtype type, std::initializer_list<std::int64_t> extent, double fill = 0) {
    view = shaped(type, extent);
    view.stride = contiguous_strides(view.extent, view.rank);
    memory.resize(static_cast<std::size_t>(view.elements()) * size_of(type));
    view.data = memory.data();
    for (std::int64_t at = 0; at < view.elements(); ++at) put(at, fill);
  }
  void put(std::int64_t at, double value) { reference::store(view, at, value); }
  std::vector<double> numbers() const { return reference::to_doubles(view); }
};

struct wishes {
  dtype type, code;
  std::int64_t head_dim;
  bool decodes;
  double amplitude = 1;  ///< of queries
  double soft_cap = 0;
  double token_scales = 0;  ///< the largest; 0: there are none
  bool infinite = false, zero_head = false;
};

/// Sequences of one token, or of some, over pages in reverse order.
class coded_batch {
 public:
  explicit coded_batch(const wishes& asked) : asked_(asked) {
    random_source random(static_cast<std::uint64_t>(asked.head_dim) + 7);
    if (!asked.decodes) offsets_ = {0, 1, 10, 30};
    const std::int64_t sequences = 3, d = asked.head_dim, pages = sequences * slots + 1;
    q_ = {asked.type, {offsets_[3], q_heads, d}};
    out_ = {asked.type, {offsets_[3], q_heads, d}};
    const double unseen = asked.code == dtype::i8 ? 127 : not_a_number;
    k_ = {asked.code, {pages, page_size, kv_heads, d}, unseen};
    v_ = {asked.code, {pages, page_size, kv_heads, d}, unseen};
    k_tokens_ = {dtype::f32, {pages, page_size, kv_heads}, not_a_number};
    v_tokens_ = {dtype::f32, {pages, page_size, kv_heads}, not_a_number};
    table_ = {dtype::i32, {sequences, slots}};
    for (std::int64_t at = 0; at < sequences * slots; ++at) {
      table_.put(at, static_cast<double>(sequences * slots - at));
    }
    give_queries(random);
    const double largest = asked.token_scales > 0 ? asked.token_scales : 1;
    const double unit = asked.code == dtype::i8 ? 16 : 1;
    for (std::int64_t n = 0; n < sequences; ++n) {
      for (std::int64_t j = 0; j < lengths_[n]; ++j) {
        for (std::int64_t h = 0; h < kv_heads; ++h) {
          const std::int64_t row = slot(n, j) * kv_heads + h;
          for (std::int64_t e = 0; e < d; ++e) {
            k_.put(row * d + e, std::rint(random.bell() * unit * 64) / 64);
            v_.put(row * d + e, std::rint(random.bell() * unit * 64) / 64);
          }
          k_tokens_.put(row, random.pick({1.0, 0.5, 1e-3}) * largest);
          v_tokens_.put(row, random.pick({largest, 1.0, 1 / largest}));
        }
      }
    }
    const double small = 1 / largest / unit / asked.amplitude;
    k_scales_.put(0, small);
    k_scales_.put(1, asked.zero_head ? 0 : -small);
    v_scales_.put(0, 1 / largest);
    v_scales_.put(1, -3 / largest);
  }

  unified_attention_options options() const {
    unified_attention_options all{.softmax_scale = 0.3};
    if (asked_.soft_cap > 0) all.logits_soft_cap = asked_.soft_cap;
    return all;
  }
  unified_attention_args args() {
    unified_attention_args all{.q = q_.view,
                               .k_pages = k_.view,
                               .v_pages = v_.view,
                               .block_table = table_.view,
                               .seqlens_k = view(lengths_, {3}),
                               .cu_seqlens_q = view(offsets_.data(), {4}),
                               .k_scales = k_scales_.view,
                               .v_scales = v_scales_.view,
                               .out = out_.view};
    if (asked_.token_scales > 0) {
      all.k_token_scales = k_tokens_.view;
      all.v_token_scales = v_tokens_.view;
    }
    return all;
  }

  /// What is wrong with the output; empty: nothing.
  std::string complaints() const {
    const std::vector<double> q = q_.numbers(), k = k_.numbers(), v = v_.numbers(),
                              out = out_.numbers(), k_scales = k_scales_.numbers(),
                              v_scales = v_scales_.numbers(), k_tokens = k_tokens_.numbers(),
                              v_tokens = v_tokens_.numbers();
    const std::int64_t d = asked_.head_dim;
    const auto at = [](const std::vector<double>& numbers, std::int64_t place) {
      return numbers[static_cast<std::size_t>(place)];
    };
    for (std::int64_t n = 0; n < 3; ++n) {
      for (std::int64_t r = offsets_[n]; r < offsets_[n + 1]; ++r) {
        const std::int64_t keys = lengths_[n] - (offsets_[n + 1] - 1 - r);
        for (std::int64_t head = 0; head < q_heads; ++head) {
          const std::int64_t h = head / (q_heads / kv_heads);
          std::vector<double> weights;
          double most = -std::numeric_limits<double>::infinity(), sum = 0;
          for (std::int64_t j = 0; j < keys; ++j) {
            const std::int64_t row = slot(n, j) * kv_heads + h;
            double x = 0;
            for (std::int64_t e = 0; e < d; ++e) {
              x += at(q, (r * q_heads + head) * d + e) * at(k, row * d + e);
            }
            x *= 0.3 * at(k_scales, h) * (asked_.token_scales > 0 ? at(k_tokens, row) : 1);
            if (asked_.soft_cap > 0) x = asked_.soft_cap * std::tanh(x / asked_.soft_cap);
            weights.push_back(x);
            most = std::isnan(x) ? x : std::max(most, x);
          }
          for (double& weight : weights) sum += weight = std::exp(weight - most);
          for (std::int64_t e = 0; e < d; ++e) {
            double expected = 0, size = 0, largest = 0;
            for (std::int64_t j = 0; j < keys; ++j) {
              const std::int64_t row = slot(n, j) * kv_heads + h;
              const double scale = asked_.token_scales > 0 ? at(v_tokens, row) : 1;
              const double factor =
                  weights[static_cast<std::size_t>(j)] / sum * scale * at(v_scales, h);
              const double term = factor * at(v, row * d + e);
              expected += term;
              size += std::abs(term);
              largest = std::max(largest, std::abs(factor));
            }
            const double found = at(out, (r * q_heads + head) * d + e);
            // Weights times scales have some bits relative to the largest of the row: of a column
            // where its element is 0 others remain.
            const double room =
                0x1p-7 * size + 0x1p-24 * largest + (asked_.type == dtype::f16 ? 1e-7 : 1e-37);
            if (std::isnan(expected) ? std::isnan(found) : std::abs(found - expected) <= room) {
              continue;
            }
            return "row " + std::to_string(r) + " head " + std::to_string(head) + " column " +
                   std::to_string(e) + ": " + std::to_string(found * 1e6) + " for " +
                   std::to_string(expected * 1e6) + " in 1e-6";
          }
        }
      }
    }
    return {};
  }

 private:
  static std::int64_t slot(std::int64_t n, std::int64_t j) {
    return (3 * slots - (n * slots + j / page_size)) * page_size + j % page_size;
  }
  /// Some heads have rows of the amplitude, others of an eighth.
  void give_queries(random_source& random) {
    for (std::int64_t at = 0; at < q_.view.elements(); ++at) {
      const double size = at / asked_.head_dim % 2 == 0 ? 1 : 0.125;
      q_.put(at, random.bell() * 0.28 * size * asked_.amplitude);
    }
    if (asked_.infinite) {  // the last token's last head
      q_.put(q_.view.elements() - 3, std::numeric_limits<double>::infinity());
    }
  }

  wishes asked_;
  std::int32_t lengths_[3]{150, 33, 47};
  std::vector<std::int32_t> offsets_{0, 1, 2, 3};
  stored_tensor q_, k_, v_, out_, table_, k_tokens_, v_tokens_;
  stored_tensor k_scales_{dtype::f32, {kv_heads}}, v_scales_{dtype::f32, {kv_heads}};
};

/// Calls of a type and head dim, on the row of that name or the one that the library chooses.
void expect_numbers(const family& kind, std::string_view row, dtype type, std::int64_t head_dim,
                    bool decodes) {
  std::vector<double> amplitudes =
      type == dtype::bf16 ? std::vector{1.0, 1e-8, 1e6, 1e-30} : std::vector{1.0, 1e-3, 6e4};
  // Products beyond f32 are numbers where the scale of the head is part of what rows are multiplied
  // by.
  const bool coded = !row.empty();
  if (coded && type == dtype::bf16) amplitudes.push_back(3e38);
  // Other kernels and CPUs round values times scales to the type of q.
  const double largest_scale = coded || type != dtype::f16 ? 1e6 : 1e3;
  int count = 0;
  for (const dtype code : {dtype::f8_e4m3, dtype::f8_e5m2, dtype::i8}) {
    for (const double amplitude : amplitudes) {
      for (const double token_scales : {0.0, largest_scale}) {
        const bool capped = ++count % 3 == 0 && amplitude < 1e30;
        coded_batch batch({.type = type,
                           .code = code,
                           .head_dim = head_dim,
                           .decodes = decodes,
                           .amplitude = amplitude,
                           .soft_cap = capped ? 2.0 : 0.0,
                           .token_scales = token_scales,
                           .infinite = count % 3 == 1,
                           .zero_head = count % 5 == 4});
        const unified_problem problem = problem_of(batch.args(), batch.options());
        const status done = call_here(kind, view_of(problem), {.row = row});
        ASSERT_TRUE(done) << done.message();
        EXPECT_EQ(batch.complaints(), "")
            << row << " " << name_of(type) << " " << name_of(code) << " d" << head_dim
            << " amplitude " << amplitude << " call " << count;
      }
    }
  }
}

/// Every row for pools of 8 bits that runs here; where none does, calls of the library's choice.
template <class Run>
void for_coded_rows(const Run& run) {
  int ran = 0;
  const family* kind = nullptr;
  for (const tested_row& row : tested_rows()) {
    if (row.row->family != "attention") continue;
    kind = row.kind;
    if (!runs_here(row.row->target)) continue;
    const auto& config = row.row->config_as<attention_config>();
    if (config.keys != key_storage::coded || config.head_dim > 128) continue;
    ++ran;
    run(*kind, row.row->name, config.type, config.head_dim,
        config.phase == attention_phase::decode);
  }
  if (ran > 0 || kind == nullptr || !why_not_here(*kind).empty()) return;
  for (const dtype type : {dtype::bf16, dtype::f16}) {
    run(*kind, std::string_view{}, type, 64, false);
    run(*kind, std::string_view{}, type, 128, true);
  }
}

TEST(coded_numbers, are_those_of_double) {
  for_coded_rows(expect_numbers);
}

// Row 0 sees one key; one whose value has the larger scale lies beside it, in the same tile.
TEST(coded_numbers, scales_of_keys_that_a_row_does_not_see_change_nothing) {
  for_coded_rows([](const family& kind, std::string_view row, dtype type, std::int64_t d,
                    bool decodes) {
    if (decodes) return;
    for (const double larger : {0x1p20, 0x1p40}) {
      stored_tensor q(type, {2, 1, d}, 0.5), k(dtype::f8_e4m3, {1, page_size, 1, d}, 1.0);
      stored_tensor v(dtype::f8_e4m3, {1, page_size, 1, d}, 1.5), out(type, {2, 1, d});
      stored_tensor table(dtype::i32, {1, 1}), length(dtype::i32, {1}, 2), offsets(dtype::i32, {2});
      stored_tensor scales(dtype::f32, {1, page_size, 1}, not_a_number);
      offsets.put(1, 2);
      scales.put(0, 1);
      scales.put(1, larger);
      const unified_attention_args args{.q = q.view,
                                        .k_pages = k.view,
                                        .v_pages = v.view,
                                        .block_table = table.view,
                                        .seqlens_k = length.view,
                                        .cu_seqlens_q = offsets.view,
                                        .out = out.view,
                                        .v_token_scales = scales.view};
      const unified_problem problem = problem_of(args, {});
      const status done = call_here(kind, view_of(problem), {.row = row});
      ASSERT_TRUE(done) << done.message();
      const std::vector<double> found = out.numbers();
      for (std::int64_t e = 0; e < d; ++e) {
        EXPECT_NEAR(found[static_cast<std::size_t>(e)], 1.5, 0.01) << row << " " << larger;
        if (HasFailure()) return;
      }
    }
  });
}

}  // namespace
}  // namespace tessera::support
