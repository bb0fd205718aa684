// A small deterministic generator: the same seed gives the same cases on every platform and
// standard library, so that a printed seed reproduces a failure.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <utility>

namespace tessera::support {

/// SplitMix64 with the few draws that tests need.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t bits() noexcept {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t word = state_;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
  }

  /// Whole number in [0, count); count is at least 1.
  std::int64_t below(std::int64_t count) noexcept {
    return static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(count));
  }

  /// Whole number in [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) noexcept {
    return low + below(high - low + 1);
  }

  bool chance(double probability) noexcept { return uniform() < probability; }

  /// In [0, 1).
  double uniform() noexcept { return static_cast<double>(bits() >> 11) * 0x1p-53; }

  /// Mean 0, variance 1, |value| < 3.5: the sum of four uniform numbers cut from one word.
  float bell() noexcept {
    const std::uint64_t word = bits();
    std::int64_t sum = 0;
    for (int part = 0; part < 4; ++part) {
      sum += static_cast<std::int64_t>((word >> (16 * part)) & 0xffffu);
    }
    return (static_cast<float>(sum) * 0x1p-16f - 2.0f) * 1.7320508f;
  }

  template <class Value>
  Value pick(std::initializer_list<Value> values) noexcept {
    return values.begin()[below(static_cast<std::int64_t>(values.size()))];
  }
  template <class Value>
  const Value& pick(std::span<const Value> values) noexcept {
    return values[static_cast<std::size_t>(below(static_cast<std::int64_t>(values.size())))];
  }

 private:
  std::uint64_t state_;
};

/// Every order is as likely.
template <class Values>
void shuffle(Values& values, random_source& random) noexcept {
  for (std::size_t n = values.size(); n > 1; --n) {
    std::swap(values[n - 1],
              values[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(n)))]);
  }
}

/// An independent stream for item `index` of a run with `seed`.
inline random_source stream(std::uint64_t seed, std::uint64_t index) noexcept {
  random_source mixer(seed ^ (index * 0xD1342543DE82EF95u));
  return random_source(mixer.bits());
}

}  // namespace tessera::support
