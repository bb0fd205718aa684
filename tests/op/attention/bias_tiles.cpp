// Biases whose rows start at multiples of 16 bytes, as GPUs copy them by tiles, and at others: of
// any axes, with tiles of keys that end with the keys or behind them, the heads of a group in one
// tile of rows or in several. On every row.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/flash_cases.hpp"
#include "tests/support/flash_judge.hpp"
#include "tests/support/flash_run.hpp"

namespace tessera::support {
namespace {

/// Keys of an entry, and elements that lie unused behind each row of the bias.
struct key_count {
  std::int64_t keys;
  std::int8_t unused;
};
constexpr std::array<key_count, 4> key_counts{{{192, 0}, {200, 0}, {203, 5}, {202, 0}}};

/// Rows whose head dim is that of f16 here copy no tiles: one of the counts will do.
std::span<const key_count> counts_of(dtype type, int number) {
  const auto first = static_cast<std::size_t>(number) % key_counts.size();
  return type == dtype::f16 ? std::span(key_counts).subspan(first, 1) : std::span(key_counts);
}

flash_case call_with_bias(dtype type, int axes, key_count count) {
  const bool even = (axes + count.keys / 2) % 2 == 0;
  flash_case call;
  call.seed = static_cast<std::uint64_t>(axes);
  call.type = type;
  call.batch = 2;
  call.q_heads = 4;
  call.kv_heads = 2;
  call.q_len = even ? 20 : 140;
  call.kv_len = count.keys;
  call.head_dim = call.v_head_dim = type == dtype::f16 ? 64 : 128;
  const score_axes bias{.type = type,
                        .spread = {axes % 2 != 0, axes / 2 % 2 != 0, axes / 4 != 0, true},
                        .hidden = 0.2};
  if (axes % 3 == 0) {
    call.bias_pre = bias;
  } else {
    call.bias_post = bias;
    call.options.logits_soft_cap = 2.0;
  }
  call.bias_layout.padding[3] = count.unused;
  if (axes % 3 == 1) call.options.causal = true;
  if (axes % 3 == 2) call.k_lengths = {count.keys, 77};
  return call;
}

void expect_right_on_every_row(const flash_case& call) {
  flash_data data(call);
  const flash_expectation expectation(data.args(), data.options());
  for (const instance& row : rows_for(data.args(), data.options())) {
    SCOPED_TRACE(row.name);
    data.reset_outputs();
    const status done =
        run(flash_op::flash_attention, data.args(), data.options(), {.row = row.name});
    ASSERT_TRUE(done) << done.message();
    ASSERT_EQ(expectation.complaints(), "");
  }
}

TEST(bias_tiles, are_those_of_their_rows) {
  for (const dtype type : {dtype::f16, dtype::bf16}) {
    for (int axes = 0; axes < 8; ++axes) {
      for (const key_count count : counts_of(type, axes)) {
        SCOPED_TRACE(std::string(name_of(type)) + ", axes " + std::to_string(axes) + ", " +
                     std::to_string(count.keys) + " keys, " + std::to_string(count.unused));
        expect_right_on_every_row(call_with_bias(type, axes, count));
      }
    }
  }
}

/// What hides keys or weights beside them, of three heads a group, which do not fill a tile of
/// rows.
TEST(bias_tiles, stand_beside_other_features) {
  for (const dtype type : {dtype::f16, dtype::bf16}) {
    for (int others = 1; others < 8; ++others) {
      for (const key_count count : counts_of(type, others)) {
        SCOPED_TRACE(std::string(name_of(type)) + ", others " + std::to_string(others) + ", " +
                     std::to_string(count.keys) + " keys, " + std::to_string(count.unused));
        flash_case call = call_with_bias(type, 4 + others % 4, count);
        call.q_heads = 6;
        if (others % 2 != 0) {
          call.mask =
              score_axes{.type = dtype::u8, .spread = {true, false, true, true}, .hidden = 0.3};
        }
        if (others / 2 % 2 != 0) call.segments = segment_kind::separate;
        if (others / 4 != 0) {
          call.options.dropout_probability = 0.2;
          call.options.dropout_seed = 5;
        }
        expect_right_on_every_row(call);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::support
