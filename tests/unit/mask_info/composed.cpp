// Masks made of random sequences of rules, each followed step by step by a list of booleans.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/mask_info/oracle.hpp"

namespace tessera::test {
namespace {

/// A mask under construction with its truth beside it.
class walk {
 public:
  explicit walk(unsigned seed)
      : random_(seed),
        truth_(pick(1, 3), 1, pick(1, 9), pick(1, 9)),
        mask_(need(mask_info::all_visible(truth_.batch, truth_.q_len, truth_.kv_len))) {}

  void step() {
    switch (pick(0, 9)) {
      case 0:
        return causal();
      case 1:
        return window();
      case 2:
        return chunk();
      case 3:
        return segments();
      case 4:
        return lengths();
      case 5:
        return types();
      case 6:
        return tensor();
      case 7:
        return unite();
      case 8:
        return cut();
      default:
        return aligned();
    }
  }

  const mask_info& mask() const { return mask_; }
  const oracle& truth() const { return truth_; }
  const std::string& path() const { return path_; }

 private:
  std::int64_t pick(std::int64_t least, std::int64_t most) {
    return least + std::int64_t(random_() % std::uint64_t(most - least + 1));
  }
  std::vector<std::int64_t> per_entry(std::int64_t least, std::int64_t most) {
    std::vector<std::int64_t> each(std::size_t(truth_.batch), pick(least, most));
    if (pick(0, 1) == 0) {
      for (auto& extent : each) extent = pick(least, most);
    }
    return each;
  }
  ids draw(std::int64_t length, std::int32_t most) {
    ids drawn(std::size_t(truth_.batch * length));
    std::int32_t id = 0;
    for (auto& entry_id : drawn) {
      if (pick(0, 2) == 0) id = std::int32_t(pick(-1, most));
      entry_id = id;
    }
    return drawn;
  }
  static tensor_view matrix(const ids& values, std::int64_t rows, std::int64_t columns) {
    return view(values.data(), {rows, columns});
  }
  void note(const char* step, const status& done) {
    path_.append(step).append(" ");
    ASSERT_TRUE(done) << path_ << done.message();
  }

  void causal() {
    const auto offset = per_entry(-4, 6);
    note("causal", mask_.apply_causal(offset));
    truth_.keep([&](auto b, auto, auto i, auto j) { return j <= i + offset[std::size_t(b)]; });
  }
  void aligned() {
    const auto q = per_entry(0, truth_.q_len), kv = per_entry(0, truth_.kv_len);
    // The diagonal belongs to the shortest lengths so far; a fresh mask has only these.
    mask_info fresh = need(mask_info::all_visible(truth_.batch, truth_.q_len, truth_.kv_len));
    note("aligned", fresh.apply_lengths(masks::per_batch(q), masks::per_batch(kv)));
    note("causal", fresh.apply_causal());
    note("and", mask_.apply(fresh));
    truth_.keep([&](auto b, auto, auto i, auto j) {
      const auto n = std::size_t(b);
      return i < q[n] && j < kv[n] && j <= i + kv[n] - q[n];
    });
  }
  void window() {
    const auto offset = per_entry(-3, 5);
    std::optional<std::int64_t> left, right;
    if (pick(0, 1) == 0) left = pick(0, 4);
    if (pick(0, 1) == 0) right = pick(0, 4);
    note("window", mask_.apply_sliding_window(left, right, offset));
    truth_.keep([&](auto b, auto, auto i, auto j) {
      const std::int64_t at = i + offset[std::size_t(b)];
      return (!left || j >= at - *left) && (!right || j <= at + *right);
    });
  }
  void chunk() {
    const std::int64_t size = pick(1, 6);
    const auto offset = per_entry(-7, 7);
    note("chunk", mask_.apply_chunked(size, offset));
    truth_.keep([&](auto b, auto, auto i, auto j) {
      const std::int64_t at = i + offset[std::size_t(b)];
      return floor_of(at, size) == floor_of(j, size) && j <= at;
    });
  }
  void segments() {
    const ids q = draw(truth_.q_len, 2), kv = draw(truth_.kv_len, 2);
    note("segments", mask_.apply_segments(matrix(q, truth_.batch, truth_.q_len),
                                          matrix(kv, truth_.batch, truth_.kv_len)));
    truth_.keep([&](auto b, auto, auto i, auto j) {
      const auto own = q[std::size_t(b * truth_.q_len + i)];
      return own >= 0 && own == kv[std::size_t(b * truth_.kv_len + j)];
    });
  }
  void lengths() {
    const auto q = per_entry(0, truth_.q_len), kv = per_entry(0, truth_.kv_len);
    note("lengths", mask_.apply_lengths(masks::per_batch(q), masks::per_batch(kv)));
    truth_.keep([&](auto b, auto, auto i, auto j) {
      return i < q[std::size_t(b)] && j < kv[std::size_t(b)];
    });
  }
  void types() {
    const ids q = draw(truth_.q_len, 2), kv = draw(truth_.kv_len, 2);
    const bool either = pick(0, 1) == 0;
    note(either ? "or-types" : "and-types",
         mask_.apply_token_type_ids(
             matrix(q, truth_.batch, truth_.q_len), matrix(kv, truth_.batch, truth_.kv_len),
             either ? token_type_combine::union_with : token_type_combine::intersect));
    const oracle::rule same = [&](auto b, auto, auto i, auto j) {
      const auto own = q[std::size_t(b * truth_.q_len + i)];
      return own > 0 && own == kv[std::size_t(b * truth_.kv_len + j)];
    };
    either ? truth_.add(same) : truth_.keep(same);
  }
  void tensor() {
    const auto extent = [&](std::int64_t whole) { return pick(0, 2) == 0 ? 1 : whole; };
    const std::int64_t b_size = extent(truth_.batch), i_size = extent(truth_.q_len),
                       j_size = extent(truth_.kv_len);
    std::vector<std::uint8_t> values(std::size_t(b_size * i_size * j_size));
    for (auto& value : values) value = pick(0, 3) == 0 ? 0 : 1;
    note("tensor", mask_.apply_mask(view(values.data(), {b_size, 1, i_size, j_size})));
    truth_.keep([&](auto b, auto, auto i, auto j) {
      const std::int64_t row = (b_size > 1 ? b : 0) * i_size + (i_size > 1 ? i : 0);
      return values[std::size_t(row * j_size + (j_size > 1 ? j : 0))] != 0;
    });
  }
  void unite() {
    const mask_info other =
        need(mask_info::from_random(truth_.batch, truth_.q_len, truth_.kv_len, 0.8, random_()));
    note("or", mask_.unite(other));
    truth_.add([&](auto b, auto, auto i, auto j) { return other.visible(b, 0, i, j); });
  }
  void cut() {
    if (truth_.q_len != truth_.kv_len) return causal();
    const auto lengths = per_entry(0, truth_.kv_len);
    const std::int64_t rows = pick(1, truth_.q_len);
    std::optional<std::int64_t> window;
    if (pick(0, 1) == 0) window = pick(1, 10);
    note("cut", mask_.apply_kv_lengths(lengths, rows, window));
    truth_.keep([&](auto b, auto, auto, auto j) { return j < lengths[std::size_t(b)]; });
    const std::int64_t keys = window ? std::min(*window, truth_.kv_len) : truth_.kv_len;
    std::vector<std::int64_t> q_begin, kv_begin;
    for (const std::int64_t length : lengths) {
      q_begin.push_back(length - rows);
      kv_begin.push_back(window ? std::max<std::int64_t>(length - keys, 0) : 0);
    }
    truth_ = truth_.part(q_begin, rows, kv_begin, keys);
  }

  std::mt19937_64 random_;
  oracle truth_;
  mask_info mask_;
  std::string path_;
};

TEST(mask_info, random_sequences_of_rules) {
  std::size_t not_empty = 0;
  for (unsigned seed = 0; seed < 4000; ++seed) {
    walk walk(seed);
    const unsigned steps = 1 + seed % 5;
    for (unsigned step = 0; step < steps; ++step) walk.step();
    const std::string what = "seed " + std::to_string(seed) + ": " + walk.path();
    expect_says(walk.mask(), walk.truth(), what);
    expect_tiles(walk.mask(), walk.truth(), 1 + seed % 4, 1 + seed % 3, what);
    if (HasFailure()) return;
    not_empty += std::count(walk.truth().seen.begin(), walk.truth().seen.end(), 1) > 0 ? 1 : 0;
  }
  EXPECT_GT(not_empty, 2000u);
}

}  // namespace
}  // namespace tessera::test
